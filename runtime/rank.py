"""Scheduling values for the policy `rank`: critical path first.

The value orders ready tasks, larger first; the device breaks equal values by ticket. It is

    (longest path >> shift) * 256 + min(number of immediate successors, 255)

where the longest path leads from the task to the end of the graph, its own time included, in the
graph's time unit. `shift` is 0 as long as the longest path of the graph is below 2**24, so that
values of graphs with the same time unit can be compared on one device; for longer paths it is the
least shift that brings them below 2**24. So a value never exceeds 32 bits, and a longer path never
has the smaller value.
"""

import numpy as np
from numpy.typing import NDArray

from tsemu.runtime.graph import Graph, Numbers

PATH_BITS = 24
SUCCESSOR_BITS = 8
MOST_SUCCESSORS = (1 << SUCCESSOR_BITS) - 1


def longest_paths(graph: Graph) -> Numbers:
    """Return each task's longest path to the end of the graph, own time included, shape (n,).

    In the graph's time unit. Takes time linear in tasks and edges.
    """
    # The order of the tasks makes one backward pass enough; plain lists are faster here than
    # arrays, and no number of levels makes it slow (a vectorised pass would need one per level).
    starts = graph.starts.tolist()
    predecessors = graph.predecessors.tolist()
    times = graph.times.tolist()
    paths = [0] * graph.tasks
    for task in range(graph.tasks - 1, -1, -1):
        path = paths[task] + times[task]
        paths[task] = path
        for predecessor in predecessors[starts[task] : starts[task + 1]]:
            if paths[predecessor] < path:  # noqa: PLR1730 (max() is slower)
                paths[predecessor] = path
    return np.array(paths, np.int64)


def rank_values(graph: Graph) -> NDArray[np.uint32]:
    """Return the scheduling value of each task, shape (n,)."""
    return packed(longest_paths(graph), graph.successor_counts())


def packed(paths: Numbers, successors: Numbers) -> NDArray[np.uint32]:
    """Pack longest paths and successor counts into scheduling values, as the module says."""
    longest = int(paths.max()) if len(paths) else 0
    shift = max(0, longest.bit_length() - PATH_BITS)
    values = (paths >> shift << SUCCESSOR_BITS) + np.minimum(successors, MOST_SUCCESSORS)
    return values.astype(np.uint32)
