"""Batches: accepted or refused as a whole, no Python per task."""

import numpy as np
import pytest

from tsemu.descriptors.codes import PENDING, Opcode
from tsemu.host_driver import (
    InvalidError,
    QueueFullError,
    TaskTimeoutError,
    launches,
)


def edge_list(*lists):
    start = np.cumsum([0, *(len(each) for each in lists)])
    return start.astype(np.uint32), np.array([i for each in lists for i in each], np.uint32)


def test_a_batch_with_edges_runs(device):
    first = device.default_stream.launch(cycles=5000)
    tasks = launches(4, cycles=[100, 200, 300, 400], user_tag=np.arange(4))
    with_tags = device.completions()
    batch = device.submit_batch(tasks, edge_list([], [0], [0], [1, 2]), after=[first])
    assert len(batch) == 4
    assert batch.pending
    assert (batch.status == PENDING).all()
    batch.wait()
    assert batch.ok
    assert first.ok
    assert [c.tag for c in with_tags][-4:] == [0, 1, 2, 3]


def test_many_batches_without_waiting(device):
    tasks = launches(2000, cycles=100)
    batches = [device.submit_batch(tasks) for _ in range(20)]
    device.synchronize()
    assert all(batch.ok for batch in batches)


def test_a_batch_that_is_dropped_is_no_harm(device):
    for _ in range(20):
        device.submit_batch(launches(500, cycles=100))
    device.synchronize()


def test_a_failure_names_the_task(device):
    tasks = launches(3, cycles=[1, 1_000_000_000, 1])
    tasks["timeout_us"][1] = 1
    before = device.context.counters()["submitted"]
    with pytest.raises(TaskTimeoutError) as caught:
        device.submit_batch(tasks).wait()
    assert caught.value.task == before + 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blocks": 0}, "blocks"),
        ({"priority": 9}, "priority"),
        ({"engine_class": 7}, "engine_class"),
        ({"stream": 60000}, "stream"),
        ({"opcode": 99}, "opcode"),
        ({"opcode": Opcode.BARRIER}, "opcode"),
        (
            {"opcode": Opcode.MEMCPY, "engine_class": 2, "argument": 1, "length": 64},
            "argument|source",
        ),
        ({"opcode": Opcode.EVENT_WAIT, "event": 500}, "event"),
    ],
)
def test_one_bad_task_refuses_the_batch(device, change, words):
    tasks = launches(10, cycles=1)
    tasks["destination"] = device.context.info.host_base
    for name, value in change.items():
        tasks[name][7] = value
    before = device.context.counters()["submitted"]
    with pytest.raises(InvalidError, match=words) as caught:
        device.submit_batch(tasks)
    assert "7" in caught.value.field
    assert device.context.counters()["submitted"] == before


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (5, "pair"),
        (edge_list([], [0]), "one entry more"),
        (edge_list([], [1], []), "no task before"),
        (edge_list([0], [], []), "no task before"),
        ((np.array([0, 1, 1, 9]), np.array([0])), "rise"),
        ((np.array([0, 2, 1, 3]), np.array([0, 0, 0])), "rise"),
        ((np.array([0.0, 0, 0, 0]), np.array([], np.uint32)), "integers"),
        ((np.array([0, 0, 0, 1]), np.array([-1])), "32 bits"),
    ],
)
def test_bad_edges_are_refused(device, edges, words):
    with pytest.raises(InvalidError, match=words) as caught:
        device.submit_batch(launches(3, cycles=1), edges)
    assert caught.value.field.startswith("edges")
    assert device.context.counters()["submitted"] == 0


def test_size_and_type_of_a_batch(device):
    most = device.context.info.batch
    for bad in (launches(0), launches(most + 1, cycles=1)):
        with pytest.raises(InvalidError) as caught:
            device.submit_batch(bad)
        assert caught.value.limit == most
    with pytest.raises(InvalidError, match="launches"):
        device.submit_batch([1, 2])
    with pytest.raises(InvalidError, match="no field"):
        launches(3, cylces=1)


def test_a_batch_may_be_asked_not_to_block(small):
    stream = small.create_stream(limit=8)
    tasks = launches(8, cycles=1_000_000, stream=stream.number)
    small.submit_batch(tasks, block=False)
    with pytest.raises(QueueFullError):
        small.submit_batch(tasks, block=False)
    small.submit_batch(tasks).wait()
