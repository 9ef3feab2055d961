import gc
import json
import os
from pathlib import Path

import pytest

from tsemu.descriptors.codes import ABI_MAJOR, NO_SLOT, Answer, ControlStatus, Status
from tsemu.descriptors.control import CONTROL_PAGE, PAGE_MAGIC
from tsemu.mailbox.errors import RefusedError
from tsemu.ts_firmware.config import load
from tsemu.ts_firmware.emulator import Emulator, Reason
from tsemu.ts_firmware.settings import ConfigError

SMALL = {"slots": 16, "host_heap_mib": 1, "device_heap_mib": 1}


@pytest.fixture
def emulator():
    with Emulator("edge-2", {"scheduler.profile": "ideal", "limits.contexts": 3}) as made:
        yield made


def page_of(link):
    return CONTROL_PAGE.parse(link.memory[:4096])


def test_a_context_has_a_control_page_that_says_what_was_asked_for(emulator):
    link = emulator.open_context("me", SMALL)
    page = page_of(link)
    assert page.magic == PAGE_MAGIC
    assert page.major == ABI_MAJOR
    assert page.memory_size == link.size == len(link.memory)
    assert (page.slots, page.window, page.batch, page.sq_entries) == (16, 8, 8, 16)
    assert bytes(page.name).rstrip(b"\0") == b"me"
    assert [bytes(row.name).rstrip(b"\0") for row in page.classes][:3] == [
        b"AICORE",
        b"AICPU",
        b"DMA",
    ]
    assert page.alignment == 64
    assert page.host_heap_size == page.device_heap_size == 1 << 20
    assert link.pump
    assert link.device
    link.close()


def test_the_largest_contexts_do_not_lie_over_each_other(raw_client):
    """Each with every slot, a window as large as it can be, and edge nodes to match."""
    options = {**SMALL, "slots": 65_535, "window": 65_000}
    with Emulator("edge-2", {"scheduler.profile": "ideal", "limits.contexts": 2}) as emulator:
        links = [emulator.open_context(name, options) for name in ("a", "b")]
        clients = [raw_client(link.memory, emulator.run) for link in links]
        for client in clients:
            client.push(client.sqe(), client.sqe(predecessors=[0, NO_SLOT, NO_SLOT]))
            assert client.wait() == Answer.MET
            assert client.completions()["status"].tolist() == [Status.OK] * 2
        for client, link in zip(clients, links, strict=True):
            client.close()
            link.close()


def completions_of_two(raw_client, order):
    """Bytes of the completions by client; each has a task that fails and one that depends on it."""
    with Emulator("edge-2", {"scheduler.profile": "ideal"}, clients=2) as emulator:
        links = {name: emulator.open_context(name, SMALL) for name in order}
        clients = {n: raw_client(link.memory, emulator.run) for n, link in links.items()}
        for client in clients.values():
            client.push(
                client.sqe(cycles=10**6, timeout_us=1),
                client.sqe(predecessors=[0, NO_SLOT, NO_SLOT]),
            )
            client.post()
        emulator.run()
        found = {name: clients[name].completions().tobytes() for name in sorted(order)}
        for name in order:
            clients[name].close()
            links[name].close()
        return found


def test_completions_do_not_tell_in_which_order_clients_have_connected(raw_client):
    found = completions_of_two(raw_client, ["a", "b"])
    assert [len(entries) for entries in found.values()] == [128, 128]
    assert found == completions_of_two(raw_client, ["b", "a"])


def test_the_clock_starts_with_clients_that_are_there_and_not_with_one_that_came_twice(raw_client):
    with Emulator("edge-2", {"scheduler.profile": "ideal"}, clients=2) as emulator:
        emulator.open_context("a", SMALL).close()
        links = [emulator.open_context("a", SMALL)]
        clients = [raw_client(links[0].memory, emulator.run)]
        clients[0].push(clients[0].sqe())
        sequence = clients[0].post()
        emulator.run()
        assert not clients[0].answered(sequence)
        links.append(emulator.open_context("b", SMALL))
        clients.append(raw_client(links[1].memory, emulator.run))
        clients[1].post()
        assert clients[0].answer(sequence) == Answer.MET
        for client, link in zip(clients, links, strict=True):
            client.close()
            link.close()


def test_clients_without_a_name_get_one(emulator):
    names = {emulator.open_context(options=SMALL).name for _ in range(3)}
    assert len(names) == 3


def test_a_name_in_use_is_refused_and_free_again_after_close(emulator):
    link = emulator.open_context("me", SMALL)
    with pytest.raises(RefusedError) as caught:
        emulator.open_context("me", SMALL)
    assert caught.value.status == ControlStatus.NAME_IN_USE
    assert caught.value.value == "me"
    link.close()
    emulator.open_context("me", SMALL).close()


def test_more_contexts_than_the_limit_are_refused_by_its_name(emulator):
    links = [emulator.open_context(options=SMALL) for _ in range(3)]
    with pytest.raises(RefusedError, match=r"limits\.contexts") as caught:
        emulator.open_context(options=SMALL)
    assert caught.value.status == ControlStatus.NO_RESOURCE
    assert "--set limits.contexts" in caught.value.hint
    links[1].close()
    emulator.open_context(options=SMALL).close()


def test_bad_options_change_nothing(emulator):
    for options in ({"slots": 1}, {"window": 99999}, {"sq_entries": 3}):
        with pytest.raises(RefusedError):
            emulator.open_context("me", options)
    emulator.open_context("me", SMALL).close()


def test_an_idle_device_says_so(emulator):
    assert emulator.run() == Reason.IDLE
    link = emulator.open_context("me", SMALL)
    assert emulator.run() == Reason.IDLE
    link.close()


def test_info_is_json_with_units_in_its_keys(emulator):
    link = emulator.open_context("me", SMALL)
    info = json.loads(json.dumps(emulator.info()))
    assert info["soc"] == "edge-2"
    assert info["profile"] == "ideal"
    assert info["settings"]["limits.contexts"] == 3
    assert [c["name"] for c in info["classes"]] == ["AICORE", "AICPU", "DMA"]
    status = info["status"]
    assert status["now_ps"] == 0
    assert [c["name"] for c in status["contexts"]] == ["me"]
    assert status["contexts"][0]["process"] == os.getpid()
    assert [c["engine_class"] for c in status["cores"]] == ["AICORE"] * 2 + ["AICPU"] * 4 + ["DMA"]
    assert not any(core["busy"] for core in status["cores"])
    link.close()
    assert emulator.info()["status"]["contexts"] == []


def test_the_short_options_are_put_over_the_settings():
    with Emulator(
        "edge-2", {"seed": 1}, policy="fifo", clock="free", seed=2, clients=3
    ) as emulator:
        values = emulator.config.values
    assert (values["seed"], values["scheduler.policy"]) == (2, "fifo")
    assert (values["clock.mode"], values["clock.clients"]) == ("free", 3)


def test_a_ready_configuration_is_taken():
    config = load("hybrid")
    with Emulator(config) as emulator:
        assert emulator.config is config


def test_bad_settings_make_no_device():
    with pytest.raises(ConfigError):
        Emulator("edge-2", {"classes.aicore.cores": 0})


def test_closed_is_closed(emulator):
    link = emulator.open_context("me", SMALL)
    emulator.close()
    emulator.close()
    link.close()
    with pytest.raises(ValueError, match="closed"):
        emulator.open_context("me", SMALL)
    with pytest.raises(ValueError, match="closed"):
        emulator.run()


def test_nothing_is_left_behind(emulator):
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(50):
        emulator.open_context(f"client {number}", SMALL).close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_memory_that_is_looked_at_is_unmapped_later(emulator):
    before = len(list(Path("/proc/self/fd").iterdir()))
    link = emulator.open_context("me", SMALL)
    view = memoryview(link.memory)
    link.close()
    assert view[0] == PAGE_MAGIC & 0xFF
    view.release()
    emulator.reap()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert link.memory.closed
