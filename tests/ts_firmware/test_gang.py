"""Gang tasks: all blocks start at one instant, and small tasks never starve one.

A core runs 1000 cycles in 1 us.
"""

import numpy as np
import pytest

from tsemu.descriptors.codes import Opcode, Refusal, SqeFlag, Status
from tsemu.host_driver import Device, InvalidError, TaskCancelledError, TaskError
from tsemu.host_driver.batch import launches
from tsemu.ts_firmware.emulator import Emulator

US = 10**6
CORES = 8


@pytest.fixture
def open_device():
    """Return a function that opens a device with eight cores."""
    opened = []

    def open_device(policy="priority", profile="ideal", **settings):
        settings = {
            "scheduler.profile": profile,
            "classes.aicore.cores": CORES,
            "classes.aicore.frequency_mhz": 1000,
            **settings,
        }
        device = Device.open("emu:edge-2", policy=policy, settings=settings)
        opened.append(device)
        return device

    yield open_device
    for device in opened:
        device.close()


@pytest.mark.parametrize("policy", ["priority", "fifo", "rank", "edf", "fair"])
def test_a_gang_takes_all_cores_at_one_instant(open_device, policy):
    device = open_device(policy)
    stream = device.create_stream(in_order=False)
    first = stream.launch(cycles=1000)
    gang = stream.launch(cycles=1000, blocks=CORES, gang=True)
    loose = stream.launch(cycles=1000, blocks=CORES)
    device.synchronize()
    assert (first.start_ps, first.end_ps) == (0, US)
    # Seven idle cores are not enough; what comes behind the gang waits, too.
    assert (gang.start_ps, gang.end_ps) == (US, 2 * US)
    assert (loose.start_ps, loose.end_ps) == (2 * US, 3 * US)


def test_more_blocks_than_cores_are_refused_and_nothing_is_used(open_device):
    device = open_device()
    stream = device.create_stream()
    before = device.context.counters()["submitted"]
    with pytest.raises(InvalidError) as caught:
        stream.launch(cycles=1000, blocks=CORES + 1, gang=True)
    assert (caught.value.field, caught.value.value, caught.value.limit) == ("blocks", 9, 8)
    assert "one per core" in caught.value.hint
    assert device.context.counters()["submitted"] == before
    assert stream.launch(cycles=1000, blocks=CORES, gang=True).wait().ok


def test_the_flag_is_refused_for_what_is_no_kernel(open_device):
    device = open_device()
    tasks = launches(1)
    tasks["opcode"] = Opcode.NOP
    tasks["flags"] = SqeFlag.GANG
    with pytest.raises(InvalidError, match="flags"):
        device.submit_batch(tasks)


def test_a_batch_may_hold_gangs(open_device):
    device = open_device()
    tasks = launches(3)
    tasks["cycles"] = 1000
    tasks["blocks"] = [1, 5, 4]
    tasks["flags"] = [0, SqeFlag.GANG, SqeFlag.GANG]
    batch = device.submit_batch(tasks)
    batch.wait()
    assert np.all(batch.status == Status.OK)
    assert device.context.now_ps == 2 * US  # 1 + 5 cores, and 4 more do not fit beside them


@pytest.mark.parametrize("policy", ["priority", "fifo", "fair"])
def test_small_tasks_of_other_streams_do_not_starve_a_gang(open_device, policy):
    device = open_device(policy)
    small = [device.create_stream(in_order=False, limit=400) for _ in range(3)]
    crowd = [small[0].launch(cycles=700 + 100 * i) for i in range(200)]
    gang = device.create_stream().launch(cycles=1000, blocks=CORES, gang=True)
    crowd += [stream.launch(cycles=900) for _ in range(200) for stream in small[1:]]
    device.synchronize()
    ahead = [task for task in crowd if task.start_ps < gang.start_ps]
    # Bound: from its reservation on, the gang waits for blocks that run already.
    last_start = max(task.start_ps for task in ahead)
    assert gang.start_ps == max(task.end_ps for task in ahead)
    assert gang.start_ps - last_start <= max(task.end_ps - task.start_ps for task in ahead)
    overlap = [t for t in crowd if t.start_ps < gang.end_ps and t.end_ps > gang.start_ps]
    assert overlap == []
    if policy == "priority":  # streams take turns; the others go by order of becoming ready
        assert len(ahead) < 100


def test_only_level_0_goes_before_a_reserved_gang(open_device):
    device = open_device()
    stream = device.create_stream(in_order=False)
    stream.launch(cycles=4000)
    gang = stream.launch(cycles=1000, blocks=CORES, gang=True, priority=3)
    starter = device.create_stream(in_order=False)
    timer = starter.launch(cycles=1000, priority=0)
    level_0 = starter.launch(cycles=1000, priority=0, after=[timer])
    level_1 = starter.launch(cycles=1000, priority=1, after=[timer])
    device.synchronize()
    assert level_0.start_ps == US
    assert gang.start_ps == 4 * US
    assert level_1.start_ps == 5 * US


def test_a_cancelled_gang_gives_its_reservation_back(open_device):
    device = open_device()
    stream = device.create_stream(in_order=False)
    long = stream.launch(cycles=10_000)
    first = stream.launch(cycles=1000)
    gang = stream.launch(cycles=1000, blocks=CORES, gang=True)
    small = [stream.launch(cycles=1000) for _ in range(7)]
    first.wait()
    assert gang.cancel()
    with pytest.raises(TaskCancelledError):
        device.synchronize()
    assert {task.start_ps for task in small} == {US}
    assert long.end_ps == 10 * US
    assert gang.core is None


@pytest.mark.parametrize("profile", ["hardware", "firmware", "software"])
def test_dispatch_costs_do_not_split_a_gang(open_device, profile):
    device = open_device(profile=profile)
    stream = device.create_stream(in_order=False)
    gang = stream.launch(cycles=1000, blocks=CORES, gang=True)
    gang.wait()
    one = stream.launch(cycles=1000).wait()
    # Had its blocks started one after the other, the last would have ended later.
    assert gang.end_ps - gang.start_ps == one.end_ps - one.start_ps


def test_a_gang_that_times_out_frees_all_its_cores(open_device):
    device = open_device()
    stream = device.create_stream(in_order=False)
    gang = stream.launch(cycles=10_000, blocks=CORES, gang=True, timeout=5 * US)
    after = [stream.launch(cycles=1000) for _ in range(CORES)]
    with pytest.raises(TaskError):
        gang.wait()
    assert gang.status == Status.TIMEOUT
    assert all(task.wait().start_ps == 5 * US for task in after)


def test_a_gang_behind_a_failed_task_is_aborted(open_device):
    device = open_device()
    stream = device.create_stream()
    failed = stream.launch(cycles=10_000, timeout=US)
    gang = stream.launch(cycles=1000, blocks=CORES, gang=True)
    with pytest.raises(TaskError):
        failed.wait()
    late = stream.launch(cycles=1000, blocks=CORES, gang=True)  # submitted poisoned
    with pytest.raises(TaskError):
        late.wait()
    assert [gang.status, late.status] == [Status.DEP_ABORTED] * 2
    assert gang.ancestor == late.ancestor == failed.ticket


def test_firmware_refuses_a_gang_that_can_never_start(raw_client):
    with Emulator("edge-2", {"classes.aicore.cores": CORES}) as emulator:
        link = emulator.open_context("raw", {"slots": 8, "sq_entries": 8})
        client = raw_client(link.memory, emulator.run)
        client.push(client.sqe(flags=SqeFlag.GANG, blocks=CORES + 1))
        client.post()
        emulator.run()
        page = client.page()
        assert page.refusal_reason == Refusal.BLOCKS
        assert (page.refusal_value, page.refusal_expected) == (CORES + 1, CORES)
        client.close()
        link.close()
