"""Policy fair: contexts share the cores of a class by weight, whatever each of them has queued."""

import pytest

from tsemu.host_driver import Device, InvalidError, TaskCancelledError

IDEAL = {
    "scheduler.profile": "ideal",
    "scheduler.policy": "fair",
    "limits.contexts": 16,
    "classes.aicore.cores": 3,
    "classes.aicore.frequency_mhz": 1000,
}


@pytest.fixture
def open_contexts():
    """Return a function that opens contexts c0, c1 ... of one device."""
    devices = []

    def open_contexts(count, **settings):
        device = Device.open("emu:edge-2", name="c0", settings={**IDEAL, **settings})
        devices.append(device)
        return [device, *(device.create_context(f"c{i}") for i in range(1, count))]

    yield open_contexts
    for device in devices:
        device.close()


def run(contexts, counts, cycles=None):
    """Launch so many tasks in each context, wait for all, return the handles by context."""
    cycles = cycles or [1000] * len(contexts)
    streams = [context.create_stream(in_order=False, limit=1000) for context in contexts]
    # No request in between: time would pass for those who have launched already.
    tasks = [
        [stream.launch(cycles=each) for _ in range(count)]
        for stream, count, each in zip(streams, counts, cycles, strict=True)
    ]
    for context in contexts:
        context.synchronize()
    return tasks


def ended_by(tasks, time):
    """How many tasks of each context have ended by a time."""
    return [sum(task.end_ps <= time for task in mine) for mine in tasks]


def test_equal_load_of_16_contexts_is_served_equally(open_contexts):
    tasks = run(open_contexts(16), [300] * 16)
    end = max(task.end_ps for mine in tasks for task in mine)
    for part in (4, 2):
        done = ended_by(tasks, end // part)
        assert max(done) / min(done) < 1.05, done


def test_much_queued_work_gets_no_larger_share(open_contexts):
    tasks = run(open_contexts(2), [900, 90])
    done = ended_by(tasks, max(task.end_ps for task in tasks[1]))
    assert done[1] == 90
    assert abs(done[0] - 90) <= 3


def test_weights_set_the_shares(open_contexts):
    tasks = run(open_contexts(3, **{"scheduler.weights": "c1=2, c2=4"}), [800] * 3)
    end = max(task.end_ps for task in tasks[2])
    shares = [done / 800 for done in ended_by(tasks, end)]
    assert shares == pytest.approx([0.25, 0.5, 1.0], rel=0.02)


def test_core_time_counts_and_not_the_number_of_tasks(open_contexts):
    tasks = run(open_contexts(2), [600, 150], cycles=[1000, 4000])
    cut = max(task.end_ps for mine in tasks for task in mine) // 2
    short, long = ended_by(tasks, cut)
    assert short / (4 * long) == pytest.approx(1.0, rel=0.05)


def test_an_idle_context_saves_up_no_credit(open_contexts):
    contexts = open_contexts(2)
    run([contexts[0]], [500])
    tasks = run(contexts, [300, 300])
    end = max(task.end_ps for mine in tasks for task in mine)
    start = min(task.start_ps for mine in tasks for task in mine)
    done = ended_by(tasks, start + (end - start) // 2)
    assert max(done) / min(done) < 1.05, done


def test_levels_count_inside_a_context_only(open_contexts):
    first, second = open_contexts(2, **{"classes.aicore.cores": 1})
    idle = first.create_stream(in_order=False, priority=7)
    stream = second.create_stream(in_order=False)
    low = [idle.launch(cycles=1000) for _ in range(4)]
    urgent = [stream.launch(cycles=1000, priority=3 - i) for i in range(4)]
    first.synchronize()
    second.synchronize()
    order = sorted([*low, *urgent], key=lambda task: task.start_ps)
    assert [task in low for task in order] == [True, False] * 4
    assert [task.start_ps for task in urgent] == sorted(
        (task.start_ps for task in urgent), reverse=True
    )


def test_cancelled_tasks_leave_the_queue(open_contexts):
    first, second = open_contexts(2, **{"classes.aicore.cores": 1})
    stream = first.create_stream(in_order=False)
    root = stream.launch(cycles=1000)
    tasks = [stream.launch(cycles=1000) for _ in range(5)]
    others = [second.default_stream.launch(cycles=1000) for _ in range(5)]
    for task in (tasks[0], tasks[2], tasks[4]):
        assert task.cancel()
    with pytest.raises(TaskCancelledError):
        first.synchronize()
    second.synchronize()
    assert [task.ok for task in tasks] == [False, True, False, True, False]
    ends = sorted(task.end_ps for task in (root, tasks[1], tasks[3], *others))
    assert ends == [1_000_000 * i for i in range(1, 9)]


@pytest.mark.parametrize("text", ["c1", "c1=0", "c1=1001", "=2", "c1=1,c1=2", "c1=x"])
def test_weights_that_are_none_are_refused(text):
    with pytest.raises(InvalidError) as caught:
        Device.open("emu:edge-2", settings={"scheduler.weights": text})
    assert caught.value.field == "scheduler.weights"
    assert "1 to 1000" in caught.value.hint
