"""Example graphs and programs; `tsctl run` takes them as input."""
