"""What a random program may call, on the real driver and device.

As a program it is one client of a device process: configuration, address and client's number are
JSON on stdin, completions and calls are JSON on stdout.
"""

import functools
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from random_program import RandomProgram

from tsemu.descriptors.codes import NO_SLOT, Opcode, Status, WaitKind
from tsemu.host_driver import (
    Device,
    DeviceTimeoutError,
    NoResourceError,
    QueueFullError,
    TaskError,
    launches,
)
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.embedded import open_context
from tsemu.ts_firmware.emulator import Emulator

NS = 1000
ENGINES = ["aicore", "aicpu"]
STATUS = {
    Status.OK: 0, Status.TIMEOUT: 1, Status.DEP_ABORTED: 2, Status.CANCELLED: 3,
    Status.EVENT_TIMEOUT: 4,
}  # fmt: skip
OPCODE = {
    "kernel": Opcode.KERNEL, "nop": Opcode.NOP, "record": Opcode.EVENT_RECORD,
    "wait": Opcode.EVENT_WAIT,
}  # fmt: skip
KEPT = 1 << 14


def settings(config):
    """Settings of a device like the model's."""
    chosen = {
        "scheduler.profile": "ideal",
        "scheduler.policy": config["policy"],
        "limits.edge_nodes": config["EN"],
        "limits.wait_ms": config["evlim"] // 10**6,
        "host.task_cost_ps": config["hostcost"] * NS,
        "host.poll_cost_ns": config["poll"],
        "clock.clients": config["nclients"] if config["held"] else 0,
    }
    for engine, cores in zip(ENGINES, config["cores"], strict=False):
        chosen[f"classes.{engine}.cores"] = cores
    for engine in ENGINES:
        chosen[f"classes.{engine}.frequency_mhz"] = 1000
        chosen[f"classes.{engine}.cost"] = "fixed"
        chosen[f"classes.{engine}.setup_cycles"] = 0
    return chosen


def options(config):
    """Options of a context like the model's."""
    return {
        "slots": config["W"], "window": config["V"], "sq_entries": config["Q"],
        "cq_entries": config.get("CQ", 0),
        "batch": config["batch"], "stream_limit": config["SL"], "host_heap_mib": 1,
        "device_heap_mib": 1,
    }  # fmt: skip


class DeviceClient:
    """Calls of a program; generators that never yield."""

    def __init__(self, context, config, log):
        self.context = context
        self.log = log
        self.streams = [context.default_stream]
        self.streams += [context.create_stream() for _ in range(config["NS"])]
        self.events = [context.event() for _ in range(3)]
        self.handles = {}
        if lib.handle_keep_completions(context.gate, KEPT) < 0:
            raise context.error(-1)

    @property
    def submitted(self):
        return self.context.counters()["submitted"]

    def seen(self):
        counters = self.context.counters()
        now, rest = divmod(counters["now_ps"], NS)
        assert rest == 0
        return (counters["submitted"], counters["answered"], now)

    def completions(self):
        """The device's log: (end, ticket, slot, stream, status, start, core, ancestor) each."""
        entries = ffi.new("struct tsemu_cqe[]", KEPT)
        count = lib.handle_take_completions(self.context.gate, entries, KEPT)
        found = []
        for i in range(count):
            cqe = entries[i]
            found.append(
                (
                    cqe.end_ps / NS, cqe.ticket, cqe.slot, cqe.stream, STATUS[cqe.status],
                    cqe.start_ps / NS, -1 if cqe.core == NO_SLOT else cqe.core, cqe.ancestor,
                )
            )  # fmt: skip
        return found

    def launch(self, tasks, block=True):
        yield from ()
        try:
            if len(tasks) > 1 or "inside" in tasks[0]:
                self._launch_batch(tasks, block)
            else:
                self._launch_one(tasks[0], block)
        except QueueFullError:
            return "full"
        except NoResourceError:
            return "no resource"
        return "launched"

    def _launch_one(self, task, block):
        stream = self.streams[task["stream"]]
        after = [self.handles[ticket] for ticket in task["after"]]
        if task["op"] == "kernel":
            fails = task.get("fail", False)
            handle = stream.launch(
                cycles=5000 if fails else task["duration"],
                blocks=task["blocks"],
                engine=ENGINES[task["core"]],
                priority=task["priority"],
                timeout="1us" if fails else None,
                after=after,
                block=block,
            )
        elif task["op"] == "nop":
            handle = stream.nop(after=after, block=block)
        else:
            call = stream.record if task["op"] == "record" else stream.wait
            handle = call(self.events[task["event"]], after=after, block=block)
        self.handles[handle.ticket] = handle
        if task.get("callback"):
            function = task["callback"]
            handle.add_done_callback(lambda ended: list(function(ended.ticket)))

    def _launch_batch(self, tasks, block):
        rows = launches(len(tasks))
        starts, edges = [0], []
        for row, task in zip(rows, tasks, strict=True):
            fails = task.get("fail", False)
            row["opcode"] = OPCODE[task["op"]]
            row["stream"] = self.streams[task["stream"]].number
            row["cycles"] = 5000 if fails else task.get("duration", 0)
            row["timeout_us"] = 1 if fails else 0
            row["blocks"] = task.get("blocks", 1)
            row["engine_class"] = task.get("core", 0)
            row["priority"] = task.get("priority", 3)
            if "event" in task:
                row["event"] = self.events[task["event"]].number
            edges += task["inside"]
            starts.append(len(edges))
        after = [self.handles[ticket] for ticket in tasks[0]["shared"]]
        self.context.submit_batch(rows, (starts, edges), after, block)

    def _met(self, call, *arguments):
        try:
            result = call(*arguments)
        except DeviceTimeoutError:
            return False
        except TaskError:
            return True
        return result is not False

    def done(self, ticket):
        yield from ()
        return self.handles[ticket].done()

    def wait_task(self, ticket, limit):
        yield from ()
        return self._met(self.handles[ticket].wait, _limit(limit))

    def synchronize(self, limit):
        yield from ()
        return self._met(self.context.synchronize, _limit(limit))

    def synchronize_stream(self, stream, limit):
        yield from ()
        return self._met(self.streams[stream].synchronize, _limit(limit))

    def _wait(self, kind, a, limit):
        code = self.context.wait(kind, a, 0, limit * NS)
        if code != lib.TSEMU_E_TIMEOUT:
            self.context.check(code)
        self.context.callbacks.finish()
        return code == 0

    def wait_next(self, limit):
        yield from ()
        return self._wait(WaitKind.NEXT, self.context.counters()["answered"], limit)

    def wait_event(self, event, limit):
        yield from ()
        return self._wait(WaitKind.EVENT, self.events[event].number, limit)

    def cancel(self, ticket):
        yield from ()
        return self.handles[ticket].cancel()

    def recover(self, stream):
        yield from ()
        self.streams[stream].recover()


def _limit(limit):
    return None if limit < 0 else limit * NS


class _Apart(Emulator):
    """Says that each client is a process of its own, so that one does not wait for another."""

    def create_context(self, name, options, process, *, signalled):
        own = process + len(self._contexts)
        return super().create_context(name, options, own, signalled=signalled)


def run_embedded(config, programs):
    """Run a program per client, each in a thread: completion log per client, log per client."""
    emulator = _Apart("edge-2", settings(config))
    device = Device("emu:edge-2", functools.partial(open_context, emulator), emulator)
    logs = [[] for _ in programs]
    found = [None for _ in programs]
    closing = threading.Lock()

    def work(number):
        client = DeviceClient(contexts[number], config, logs[number])
        for _ in programs[number](client):
            raise AssertionError("calls of a device end at once")
        found[number] = client.completions()
        with closing:
            client.context.close()

    with device:
        contexts = [
            device.create_context(f"client-{number}", **options(config))
            for number in range(len(programs))
        ]
        if len(programs) == 1:
            work(0)
        else:
            with ThreadPoolExecutor(len(programs)) as pool:
                list(pool.map(work, range(len(programs))))
    return found, logs


def run_in_processes(config, tsemu, socket):
    """Run the random program of each client in a process: as `run_embedded`, but made of lists."""
    command = [tsemu, "run", "--soc", "edge-2", "--listen", socket]
    for key, value in settings(config).items():
        command += ["--set", f"{key}={value}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        server.stdout.readline()
        clients = []
        for number in range(config["nclients"]):
            client = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            json.dump([config, f"unix:{socket}", number], client.stdin)
            client.stdin.close()
            clients.append(client)
        results = []
        for client in clients:
            with client:
                results.append(json.load(client.stdout))
        server.terminate()
    return [found for found, _ in results], [log for _, log in results]


def main():
    config, address, number = json.load(sys.stdin)
    log = []
    with Device.open(address, name=f"client-{number}", **options(config)) as device:
        client = DeviceClient(device.context, config, log)
        for _ in RandomProgram(config, number)(client):
            raise AssertionError("calls of a device end at once")
        json.dump([client.completions(), log], sys.stdout)


if __name__ == "__main__":
    main()
