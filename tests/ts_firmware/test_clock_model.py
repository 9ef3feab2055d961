"""Device and driver against the executable model of the clock rules, program by program.

Random programs make the same calls on both: every completion (end, slot, stream, status, start,
core, ancestor) and every call's result and time have to be the same.
"""

import json

import device_client
import model_of_clock
import pytest
from random_program import PLAIN, RandomProgram, configuration

pytestmark = pytest.mark.skipif(
    not model_of_clock.folder().is_dir(),
    reason=f"the clock's model is not beside the source tree ({model_of_clock.folder()})",
)
CHUNK = 50
"""Programs per test."""


def first_difference(found, expected):
    """(index, found, expected) of the first entry that differs, or None."""
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return (index, one, other)
    if len(found) != len(expected):
        return ("length", len(found), len(expected))
    return None


def check(found, expected, about):
    for what, ours, models in zip(("completions", "calls"), found, expected, strict=True):
        for number, (one, other) in enumerate(zip(ours, models, strict=True)):
            difference = first_difference(one, other)
            assert difference is None, f"client {number}: {what} differ: {difference}, {about}"


def programs_of(config):
    return [RandomProgram(config, number) for number in range(config["nclients"])]


def compare(seed, clients=1, **fixed):
    config = configuration(seed, clients, **fixed)
    expected = model_of_clock.run(config, programs_of(config))
    check(device_client.run_embedded(config, programs_of(config)), expected, config)


def seeds(chunk, size=CHUNK):
    return range(chunk * size, (chunk + 1) * size)


@pytest.mark.parametrize("chunk", range(2))
def test_tasks_and_edges(chunk):
    for seed in seeds(chunk):
        compare(seed, mix=PLAIN, hostcost=0, NS=1)


@pytest.mark.parametrize("chunk", range(2))
def test_failures_and_cancelling(chunk):
    for seed in seeds(chunk):
        compare(seed, mix={**PLAIN, "fail": 0.1, "ctl": 0.05})


@pytest.mark.parametrize("chunk", range(4))
def test_events(chunk):
    for seed in seeds(chunk):
        compare(seed, mix={**PLAIN, "fail": 0.05, "ev": 0.3, "ctl": 0.03})


@pytest.mark.parametrize("chunk", range(2))
def test_callbacks(chunk):
    for seed in seeds(chunk):
        compare(seed, mix={**PLAIN, "cb": 0.3})


@pytest.mark.parametrize("chunk", range(8))
def test_everything(chunk):
    for seed in seeds(chunk):
        compare(seed)


@pytest.mark.parametrize("clients", [2, 3])
@pytest.mark.parametrize("chunk", range(2))
def test_several_clients(chunk, clients):
    for seed in seeds(chunk):
        compare(seed, clients)


@pytest.mark.parametrize("chunk", range(2))
def test_completion_ring_smaller_than_the_window(chunk):
    for seed in seeds(chunk):
        compare(seed, CQ=2 << seed % 3)


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_clients_in_processes(programs, short_dir, clients):
    config = configuration(clients, clients)
    expected = model_of_clock.run(config, programs_of(config))
    found = device_client.run_in_processes(config, programs / "tsemu", f"{short_dir}/d")
    check(found, json.loads(json.dumps(expected)), config)


@pytest.mark.parametrize("chunk", range(2))
def test_spare_slots_change_no_completion(chunk):
    """Programs without events and callbacks, in which it cannot change a call's success either."""
    for seed in seeds(chunk):
        config = configuration(seed, 1, mix={**PLAIN, "fail": 0.1, "ctl": 0.05}, reach=20)
        logs = []
        for slots in (config["V"] + config["batch"], 64):
            (found,), _ = device_client.run_embedded({**config, "W": slots}, programs_of(config))
            logs.append([(*entry[:2], *entry[3:]) for entry in found])  # all but the slot
        assert first_difference(*logs) is None, config


@pytest.mark.nightly
@pytest.mark.parametrize("clients", [1, 2, 3])
@pytest.mark.parametrize("chunk", range(1, 11))
def test_many(chunk, clients):
    for seed in seeds(chunk, 1000):
        compare(seed, clients)
