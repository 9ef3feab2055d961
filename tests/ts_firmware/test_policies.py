"""Which ready task is dispatched first, on which core, and what the scheduler's work costs.

In lockstep, everything that is launched before a wait is ready at the same instant, so the order
of starts is the policy's alone. A core of the test runs 1000 cycles in 2 us.
"""

import itertools

import pytest

from tsemu.descriptors.codes import Status
from tsemu.host_driver import Device, TaskCancelledError

US = 10**6
IDEAL = {
    "scheduler.profile": "ideal",
    "scheduler.ageing_us": 0,
    "classes.aicore.cores": 1,
    "classes.aicore.frequency_mhz": 500,
}


@pytest.fixture
def open_device():
    """Return a function that opens a device with one core and a scheduler that costs no time."""
    opened = []

    def open_device(policy="priority", **options):
        settings = {**IDEAL, **options.pop("settings", {})}
        device = Device.open("emu:edge-2", policy=policy, settings=settings, **options)
        opened.append(device)
        return device

    yield open_device
    for device in opened:
        device.close()


def started(tasks):
    """Names of tasks, a dictionary, in order of their starts."""
    return sorted(tasks, key=lambda name: (tasks[name].start_ps, name))


def out_of_order(device, **options):
    return device.create_stream(in_order=False, **options)


# --- policy priority ------------------------------------------------------------------------------


def test_levels_go_from_0_to_7(open_device):
    device = open_device()
    stream = out_of_order(device)
    levels = [5, 0, 7, 3, 1, 6, 2, 4]
    tasks = {level: stream.launch(cycles=1000, priority=level) for level in levels}
    device.synchronize()
    assert started(tasks) == list(range(8))


def test_within_a_stream_and_level_tickets_decide(open_device):
    device = open_device()
    stream = out_of_order(device)
    tasks = {i: stream.launch(cycles=1000) for i in range(10)}
    device.synchronize()
    assert started(tasks) == list(range(10))


def test_streams_of_one_level_take_turns(open_device):
    device = open_device()
    a, b, c = (out_of_order(device) for _ in range(3))
    tasks = {}
    for name, stream, count in (("a", a, 4), ("b", b, 2), ("c", c, 3)):
        for i in range(count):
            tasks[f"{name}{i}"] = stream.launch(cycles=1000)
    device.synchronize()
    assert started(tasks) == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_long_stream_does_not_keep_a_late_one_waiting(open_device):
    device = open_device()
    first, second = out_of_order(device), out_of_order(device)
    many = [first.launch(cycles=1000) for _ in range(50)]
    # Ready from the end of the first task on.
    late = second.launch(cycles=1000, after=[many[0]])
    device.synchronize()
    assert sum(task.start_ps < late.start_ps for task in many) <= 2


def test_a_running_task_is_not_preempted(open_device):
    device = open_device()
    stream = out_of_order(device)
    low = stream.launch(cycles=5000, priority=7)
    short = stream.launch(cycles=1000, priority=7, after=[low])
    urgent = stream.launch(cycles=1000, priority=0, after=[low])
    device.synchronize()
    assert low.end_ps - low.start_ps == 10 * US
    assert urgent.start_ps == low.end_ps
    assert short.start_ps == urgent.end_ps


def chains(device, level, count, length):
    """In-order streams whose next task becomes ready when the one before has ended."""
    streams = [device.create_stream(priority=level, limit=length) for _ in range(count)]
    return [stream.launch(cycles=1000) for _ in range(length) for stream in streams]


def test_without_ageing_a_low_task_waits_for_all_others(open_device):
    device = open_device()
    low = out_of_order(device).launch(cycles=1000, priority=7)
    others = chains(device, 3, 2, 30)
    device.synchronize()
    assert low.start_ps == max(task.end_ps for task in others)


@pytest.mark.parametrize("level", [1, 2, 6])
def test_ageing_lets_a_low_task_through(open_device, level):
    """Even past level 1, which is as high as it can rise."""
    device = open_device(settings={"scheduler.ageing_us": 1})
    low = out_of_order(device).launch(cycles=1000, priority=7)
    chains(device, level, 2, 30)
    device.synchronize()
    assert 0 < low.start_ps <= 10 * US


def test_a_low_task_is_not_through_before_it_has_aged(open_device):
    device = open_device(settings={"scheduler.ageing_us": 10})
    low = out_of_order(device).launch(cycles=1000, priority=7)
    chains(device, 4, 2, 60)
    device.synchronize()
    # Level 7 is level 4 after three steps.
    assert 30 * US <= low.start_ps <= 40 * US


def test_level_0_is_never_overtaken(open_device):
    device = open_device(settings={"scheduler.ageing_us": 1})
    low = out_of_order(device).launch(cycles=1000, priority=1)
    urgent = chains(device, 0, 2, 30)
    device.synchronize()
    assert low.start_ps == max(task.end_ps for task in urgent)


# --- policy fifo ----------------------------------------------------------------------------------


def test_fifo_does_not_look_at_priority(open_device):
    device = open_device("fifo")
    stream = out_of_order(device)
    tasks = {i: stream.launch(cycles=1000, priority=7 - i) for i in range(8)}
    device.synchronize()
    assert started(tasks) == list(range(8))


def test_fifo_is_the_order_of_becoming_ready(open_device):
    """On two cores: `x` becomes ready before `y`, although `y` was launched first."""
    device = open_device("fifo", settings={"classes.aicore.cores": 2})
    stream = out_of_order(device)
    long = stream.launch(cycles=3000)
    short = stream.launch(cycles=2000)
    waiting = [stream.launch(cycles=5000) for _ in range(2)]
    y = stream.launch(cycles=1000, after=[long])
    x = stream.launch(cycles=1000, after=[short])
    device.synchronize()
    assert [task.start_ps for task in waiting] == [short.end_ps, long.end_ps]
    assert x.start_ps < y.start_ps


def test_fifo_ties_go_by_ticket(open_device):
    device = open_device("fifo", settings={"classes.aicore.cores": 2})
    stream = out_of_order(device)
    first, second = stream.launch(cycles=2000), stream.launch(cycles=2000)
    waiting = [stream.launch(cycles=1000) for _ in range(2)]
    # All of them become ready when both end on the same tick, whichever releases them.
    tasks = {i: stream.launch(cycles=1000 + i, after=[(second, first)[i % 2]]) for i in range(6)}
    device.synchronize()
    assert all(task.start_ps == first.end_ps for task in waiting)
    assert started(tasks) == list(range(6))


# --- policy rank ----------------------------------------------------------------------------------


def test_rank_takes_the_largest_value_and_ties_go_by_ticket(open_device):
    device = open_device("rank")
    stream = out_of_order(device)
    values = [3, 9, 3, 0, 9, 2**32 - 1, 3]
    tasks = {i: stream.launch(cycles=1000, value=value) for i, value in enumerate(values)}
    device.synchronize()
    assert started(tasks) == [5, 1, 4, 0, 2, 6, 3]


def test_rank_looks_at_all_that_is_ready_each_time(open_device):
    device = open_device("rank")
    stream = out_of_order(device)
    root = stream.launch(cycles=1000, value=1)
    others = {i: stream.launch(cycles=1000, value=0, priority=0) for i in range(3)}
    late = stream.launch(cycles=1000, value=7, priority=7, after=[root])
    device.synchronize()
    assert root.start_ps == 0
    assert late.start_ps == root.end_ps
    assert started(others) == [0, 1, 2]


def test_edf_takes_the_smallest_deadline_and_no_deadline_comes_last(open_device):
    device = open_device("edf")
    stream = out_of_order(device)
    values = [30, 9, 30, 0, 9, 2**32 - 1, 0, 1]
    tasks = {i: stream.launch(cycles=1000, value=value) for i, value in enumerate(values)}
    device.synchronize()
    assert started(tasks) == [7, 1, 4, 0, 2, 5, 3, 6]


def test_edf_forgets_a_cancelled_task_only(open_device):
    device = open_device("edf")
    stream = out_of_order(device)
    root = stream.launch(cycles=1000, value=1)
    tasks = {i: stream.launch(cycles=1000, value=9 - i) for i in range(5)}
    assert tasks[3].cancel()
    with pytest.raises(TaskCancelledError):
        device.synchronize()
    assert root.start_ps == 0
    assert tasks[3].status == Status.CANCELLED
    del tasks[3]
    assert started(tasks) == [4, 2, 1, 0]


# --- cores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["priority", "fifo", "rank", "edf", "fair"])
def test_the_lowest_numbered_free_core_is_taken(open_device, policy):
    device = open_device(policy, settings={"classes.aicore.cores": 4})
    stream = out_of_order(device)
    tasks = [stream.launch(cycles=4000 - 1000 * i) for i in range(4)]
    again = [stream.launch(cycles=500) for _ in range(4)]
    device.synchronize()
    assert [task.core for task in tasks] == [0, 1, 2, 3]
    # Core 3 is free first; from the end of `tasks[2]` on, 2 is lower.
    assert [task.core for task in again] == [3, 3, 2, 3]


def test_blocks_spread_over_the_free_cores(open_device):
    device = open_device(settings={"classes.aicore.cores": 4})
    stream = out_of_order(device)
    wide = stream.launch(cycles=1000, blocks=4)
    device.synchronize()
    assert (wide.core, wide.end_ps - wide.start_ps) == (0, 2 * US)
    cores = [core for core in device.info()["status"]["cores"] if core["busy_ps"]]
    assert [core["blocks"] for core in cores] == [1, 1, 1, 1]


def test_blocks_that_do_not_fit_follow_as_cores_become_free(open_device):
    device = open_device(settings={"classes.aicore.cores": 4})
    stream = out_of_order(device)
    long = stream.launch(cycles=5000)
    wide = stream.launch(cycles=1000, blocks=10)
    device.synchronize()
    # Three cores: 3 + 3 + 3 + 1 blocks.
    assert (long.start_ps, wide.start_ps, wide.end_ps) == (0, 0, 8 * US)
    assert sum(core["blocks"] for core in device.info()["status"]["cores"]) == 11


def test_a_more_urgent_task_goes_between_two_blocks(open_device):
    device = open_device()
    stream = out_of_order(device)
    first = stream.launch(cycles=1000, priority=0)
    wide = stream.launch(cycles=1000, blocks=5, priority=3)
    second = stream.launch(cycles=1000, priority=1, after=[first])
    third = stream.launch(cycles=1000, priority=1, after=[second])
    device.synchronize()
    assert third.end_ps == 6 * US
    assert (wide.start_ps, wide.end_ps) == (6 * US, 16 * US)


def test_a_class_without_idle_cores_does_not_stop_another(open_device):
    device = open_device()
    stream = out_of_order(device)
    busy = [stream.launch(cycles=10_000) for _ in range(5)]
    other = stream.launch(cycles=1600, engine="aicpu")
    device.synchronize()
    assert busy[0].start_ps == other.start_ps == 0
    assert other.end_ps < busy[1].start_ps


# --- what the scheduler's work costs --------------------------------------------------------------

COSTS = {"fetch": 7_000, "edge": 3_000, "dispatch": 11_000, "retire": 13_000, "interrupt": 500_000}


def times(open_device, **costs):
    """Start and end of two tasks, the second after the first, with these costs in ps."""
    device = open_device(settings={f"scheduler.{part}_ps": cost for part, cost in costs.items()})
    stream = out_of_order(device)
    first = stream.launch(cycles=1000)
    second = stream.launch(cycles=1000, after=[first])
    device.synchronize()
    return first.start_ps, first.end_ps, second.start_ps, second.end_ps


def test_an_ideal_scheduler_costs_nothing(open_device):
    assert times(open_device) == (0, 2 * US, 2 * US, 4 * US)


# How much later each task starts. Fetching both entries and resolving the edge comes before the
# first dispatch; the interrupt and the retirement of the first task, before the second.
SHIFTS = {
    "fetch": (2 * 7_000, 2 * 7_000),
    "edge": (3_000, 3_000),
    "dispatch": (11_000, 2 * 11_000),
    "retire": (0, 13_000),
    "interrupt": (0, 500_000),
}


@pytest.mark.parametrize("part", SHIFTS)
def test_each_cost_shifts_starts(open_device, part):
    first, second = SHIFTS[part]
    expected = (first, 2 * US + first, 2 * US + second, 4 * US + second)
    assert times(open_device, **{part: COSTS[part]}) == expected


def test_costs_add_up(open_device):
    first = sum(shift[0] for shift in SHIFTS.values())
    second = sum(shift[1] for shift in SHIFTS.values())
    assert times(open_device, **COSTS) == (first, 2 * US + first, 2 * US + second, 4 * US + second)


def test_blocks_are_dispatched_one_after_the_other(open_device):
    settings = {"classes.aicore.cores": 4, "scheduler.dispatch_ps": 100_000}
    device = open_device(settings=settings)
    wide = out_of_order(device).launch(cycles=1000, blocks=4)
    device.synchronize()
    assert (wide.start_ps, wide.end_ps) == (100_000, 2 * US + 4 * 100_000)


def test_an_edge_that_is_satisfied_at_admission_costs_nothing(open_device):
    device = open_device(settings={"scheduler.edge_ps": 1_000_000})
    stream = out_of_order(device)
    first = stream.launch(cycles=1000)
    device.synchronize()
    second = stream.launch(cycles=1000, after=[first])
    device.synchronize()
    assert second.start_ps == first.end_ps


def test_the_profiles_are_in_order_of_speed(open_device):
    ends = []
    for profile in ("ideal", "hardware", "firmware", "software"):
        device = open_device(settings={"scheduler.profile": profile})
        stream = device.create_stream()
        tasks = [stream.launch(cycles=1000) for _ in range(20)]
        device.synchronize()
        ends.append(tasks[-1].end_ps)
        device.close()
    assert ends[0] == 40 * US
    assert all(a < b for a, b in itertools.pairwise(ends))
