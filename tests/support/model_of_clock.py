"""The executable model of the clock rules, with the differences that this device has on purpose.

The model is no part of this project; it is looked for beside the source tree. It is made of
generators: a call of a program yields where the model's client does a step of its own.
"""

import functools
from array import array
from pathlib import Path

from clock_model_differences import DEVICE, DRIVER
from policies import POLICIES

FLAGS = {"F1", "HCX", "IG", "SNAP", "HADM"}
"""Rules of the model that are switched on."""
STUCK = 4
"""Turns in which nobody does anything, after which the model is in a deadlock."""


def folder() -> Path:
    """Where the model would be."""
    return Path(__file__).resolve().parents[2].parent / "shared" / "clock_model"


@functools.cache
def load() -> dict:
    """The model's names, with the changes of this module."""
    names: dict = {}
    for name, differences in (("dev.py", DEVICE), ("drv.py", DRIVER)):
        text = (folder() / name).read_text()
        for reason, changes in differences:
            for old, new in changes:
                if text.count(old) != 1:
                    raise LookupError(f"{name}: {text.count(old)} places for: {reason}\n{old}")
                text = text.replace(old, new)
        exec(compile(text, name, "exec"), names)
    return names


class ModelClient:
    """What a program may call (see `random_program`), on the model's driver."""

    def __init__(self, model, driver, log):
        self.model = model
        self.driver = driver
        self.log = log
        self.codes = {
            name: model[code]
            for name, code in (
                ("kernel", "COMP"), ("nop", "NOP"), ("record", "EREC"), ("wait", "EWAIT")
            )
        }  # fmt: skip

    @property
    def submitted(self):
        return self.driver.n

    def seen(self):
        """Tasks launched, completions used, time of the last answer."""
        return (self.driver.n, self.driver.Clast, self.driver.now)

    def launch(self, tasks, block=True):
        records = []
        for task in tasks:
            record = dict(  # noqa: C408 - short enough to be read
                op=self.codes[task["op"]], s=task["stream"], preds=task["after"],
                fail=int(task.get("fail", False)), evi=task.get("event", 0), evo=self.driver.i,
                dur=task.get("duration", 0), nb=task.get("blocks", 1), cls=task.get("core", 0),
                prio=task.get("priority", 0),
            )  # fmt: skip
            if task.get("callback"):
                record["cb"] = self._callback(task["callback"])
            records.append(record)
        try:
            yield from self.driver.launch(records, block)
        except self.model["QueueFull"]:
            return "full"
        except self.model["NoResource"]:
            return "no resource"
        return "launched"

    def _callback(self, function):
        def call(ticket, status):
            yield from function(ticket)

        return call

    # A wait that ends by its limit may still bring the news that the task has ended.

    def done(self, ticket):
        return (yield from self.driver.done(ticket)) or ticket in self.driver.st

    def wait_task(self, ticket, limit):
        return (yield from self.driver.wait_task(ticket, limit)) or ticket in self.driver.st

    def synchronize(self, limit):
        return (yield from self.driver.sync(limit))

    def synchronize_stream(self, stream, limit):
        return (yield from self.driver.ssync(stream, limit))

    def wait_next(self, limit):
        return (yield from self.driver.wait(self.model["NEXTC"], self.driver.Clast, dt=limit))

    def wait_event(self, event, limit):
        driver = self.driver
        return (yield from driver.wait(self.model["EVT"], driver.i, event, 0, dt=limit))

    def cancel(self, ticket):
        if ticket in self.driver.st:
            return False
        yield from self.driver.wait(self.model["CANCEL"], ticket)
        return bool(self.driver.wc)

    def recover(self, stream):
        yield from self.driver.wait(self.model["RECOVER"], stream)
        if self.driver.slast.get(stream) == self.driver.wc:  # the device has forgotten it
            del self.driver.slast[stream]


def run(config, programs):
    """Run a program per client on an embedded device: completion log per client, log per client.

    Each client runs until it is blocked, then the next, then the device. Completions are
    (end, ticket, slot, stream, status, start, core, ancestor).
    """
    model = load()
    config = {**config, "flags": FLAGS | ({"clients"} if config["held"] else set())}
    config["pick"] = POLICIES[config["policy"]]()
    count = config["nclients"]
    memory = memoryview(array("q", [0]) * (model["words"](config) * count))
    device_log = []
    logs = [[] for _ in range(count)]

    def client(number):
        driver = model["Driver"](memory, number, config, [])
        yield True
        memory[driver.b + model["OPEN"]] = 1
        yield True
        yield from programs[number](ModelClient(model, driver, logs[number]))
        memory[driver.b + model["CLOSED"]] = 1

    _take_turns([*map(client, range(count)), model["device"](memory, config, device_log)])
    found = [[] for _ in range(count)]
    for end, owner, ticket, slot, stream, _, status, start, core, ancestor in device_log:
        found[owner].append((end, ticket, slot, stream, status, start, core, ancestor))
    return found, logs


def _take_turns(actors):
    """Run each generator until it waits (yields False), in turn, until all have ended."""
    idle = dict.fromkeys(actors, 0)
    while idle:
        for actor in list(idle):
            try:
                while next(actor):
                    idle = dict.fromkeys(idle, 0)
                idle[actor] += 1
            except StopIteration:
                del idle[actor]
                idle = dict.fromkeys(idle, 0)
            if idle and min(idle.values()) >= STUCK:
                raise RuntimeError("the model is in a deadlock")
