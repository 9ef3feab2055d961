"""Tasks of several blocks: one completion each, at the end of the last block."""

import pytest

from tsemu.host_driver import Device, InvalidError

US = 10**6
CORES = 8


@pytest.fixture
def device():
    settings = {
        "scheduler.profile": "ideal",
        "classes.aicore.cores": CORES,
        "classes.aicore.frequency_mhz": 1000,
    }
    with Device.open("emu:edge-2", settings=settings) as opened:
        yield opened


@pytest.mark.parametrize("blocks", [1, 7, 8, 9, 16, 65, 1000])
def test_s16_a_task_completes_once_after_its_last_block(device, blocks):
    """Scenario S16: blocks are counted, whatever their number is to that of the cores."""
    stream = device.create_stream()
    with device.completions() as completions:
        task = stream.launch(cycles=1000, blocks=blocks)
        behind = stream.launch(cycles=1000)
        assert [each.ticket for each in completions] == [task.ticket, behind.ticket]
    rounds = -(-blocks // CORES)
    assert task.end_ps - task.start_ps == rounds * US
    assert behind.start_ps == task.end_ps


def test_s16_blocks_that_start_together_fit_or_are_refused(device):
    """Scenario S16: eight together run on eight cores, nine are refused at the call."""
    stream = device.create_stream()
    assert stream.launch(cycles=1000, blocks=8, gang=True).wait().ok
    with pytest.raises(InvalidError, match="blocks"):
        stream.launch(cycles=1000, blocks=9, gang=True)


def test_s16_gangs_and_small_tasks_of_three_streams_all_end_once(device):
    """Scenario S16: both kinds mixed; each gang has all cores for itself or waits."""
    streams = [device.create_stream() for _ in range(3)]
    tasks = []
    for turn in range(40):
        for index, stream in enumerate(streams):
            gang = (turn + index) % 3 == 0
            blocks = CORES if gang else 1 + (5 * turn + index) % 11
            tasks.append((stream.launch(cycles=100 * (1 + turn), blocks=blocks, gang=gang), gang))
    device.synchronize()
    assert sorted(task.order for task, _ in tasks) == list(range(120))
    for task, gang in tasks:
        if gang:
            assert not any(
                other is not task and other.start_ps < task.end_ps and other.end_ps > task.start_ps
                for other, _ in tasks
            )
