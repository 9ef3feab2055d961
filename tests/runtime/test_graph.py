"""Topological order of graphs in arrays."""

import numpy as np
import pytest

from tsemu.runtime.graph import CycleError, in_order


def build(ids, edges):
    starts = np.cumsum([0, *(len(before) for before in edges)])
    flat = np.array([task for before in edges for task in before], np.int64)
    ids = np.array(ids, np.int64)
    return in_order("g", ids, ids * 10, starts.astype(np.int64), flat)


def test_order_is_by_id_where_the_edges_allow_it():
    graph = build([3, 1, 2], [[], [], [0]])
    assert graph.ids.tolist() == [1, 3, 2]
    assert graph.times.tolist() == [10, 30, 20]
    assert graph.predecessors.tolist() == [1]
    assert graph.starts.tolist() == [0, 0, 0, 1]


def test_repeated_edges_count_once():
    graph = build([0, 1], [[], [0, 0, 0]])
    assert graph.predecessors.tolist() == [0]


def test_cycle_is_found_behind_tasks_that_only_lead_to_it_or_follow_it():
    with pytest.raises(CycleError) as caught:
        build([0, 1, 2, 3, 4], [[], [0, 3], [1], [2], [3]])
    cycle = caught.value.tasks
    assert sorted(cycle) == [1, 2, 3]
    assert str(caught.value).startswith("cycle through the tasks ")


def test_graph_without_edges():
    graph = build([5, 4], [[], []])
    assert (graph.ids.tolist(), graph.edges) == ([4, 5], 0)
