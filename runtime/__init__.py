"""Graphs and models become streams of tasks: readers, scheduling values, programs, `tsctl`."""
