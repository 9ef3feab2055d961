"""Random configurations and programs, after those of the model.

A program is a generator over the calls that `ModelClient` and `DeviceClient` both have, so that
both see the same random decisions in the same order.
"""

import random

TIMES = [0, 1, 100, 1000, 5000, 50000]
"""Limits of waits, ns."""
LIMIT = -1
"""The device's own limit."""
DEPTH = 3
"""Callbacks that launch tasks with callbacks, at most."""

# A mix says which share of tasks, or of calls, is of a kind.
PLAIN = {"fail": 0.0, "cb": 0.0, "ev": 0.0, "ctl": 0.0}


def configuration(seed, clients, **fixed):
    """What a run is made of; times in ns, names as the model has them."""
    draw = random.Random(seed * 7 + clients)
    slots = draw.choice([8, 8, 16, 12])
    spare = 2
    window = draw.choice([v for v in (2, 4, 4, slots // 2, slots - 2, slots - 1) if v <= slots - 2])
    batch = min(spare, window)
    config = {
        "seed": seed,
        "nclients": clients,
        "W": slots,
        "V": window,
        "Q": draw.choice([4, 8, 8, 16]),
        "SL": min(max(draw.choice([2, 2, 3, 8]), batch), window),
        "EN": draw.choice([5, 6, 16, 64]),
        "batch": batch,
        "cores": draw.choice([[1], [2], [2, 1], [4], [3, 2]]),
        "NS": draw.choice([1, 2, 4, 8]),
        "ops": draw.choice([10, 25, 40]),
        "hostcost": draw.choice([0, 0, 0, 7, 150]),
        "poll": 1000,
        "evlim": draw.choice([10**6, 10**11]),
        "stall": 0,
        "policy": draw.choice(["rank", "fifo", "priority", "priority"]),
        "held": clients > 1 or draw.random() < 0.5,
        "mix": {
            "fail": draw.choice([0, 0.05]),
            "cb": draw.choice([0, 0, 0.1, 0.3]),
            "ev": draw.choice([0, 0.1, 0.25]),
            "ctl": 0.03,
        },
    }
    config.update(fixed)
    return config


class RandomProgram:
    """One client's calls. `log` gets a line after each call and in each callback."""

    def __init__(self, config, client):
        self.config = config
        self.draw = random.Random(config["seed"] * 1000 + client)
        self.mix = config["mix"]
        self.batched = set()

    def __call__(self, api):
        """Make all calls, then wait for everything."""
        self.api = api
        for step in range(self.config["ops"]):
            result = yield from self._call()
            api.log.append((step, *api.seen(), result))
        while True:
            yield from api.synchronize(LIMIT)
            if api.seen()[0] == api.seen()[1]:
                break
        api.log.append(("end", *api.seen()))

    def _after(self, most=5):
        last = self.api.submitted
        if last == 0 or self.draw.random() < 0.4:
            return []
        count = min(self.draw.choice([1, 1, 2, 2, 3, 5]), self.config["EN"], most)
        reach = min(last, self.config.get("reach") or 3 * self.config["W"])
        found = [max(1, last - self.draw.randrange(reach)) for _ in range(count)]
        return [ticket for ticket in found if ticket not in self.batched]

    def _stream(self):
        return self.draw.randrange(self.config["NS"] + 1)

    def _kernel(self, depth):
        draw = self.draw
        task = {
            "op": "kernel",
            "stream": self._stream(),
            "duration": draw.choice([0, 1, 10, 100, draw.randrange(2000), draw.randrange(20000)]),
            "blocks": draw.choice([1, 1, 1, 2, 3]),
            "core": draw.randrange(len(self.config["cores"])),
            "after": self._after(),
            "priority": draw.choice([2, 3, 3]),
        }
        if draw.random() < self.mix["fail"]:
            # Runs longer than its limit of 1 us.
            task.update(fail=True, duration=1000, blocks=1)
        if depth < DEPTH and draw.random() < self.mix["cb"]:
            task["callback"] = self._callback(depth + 1)
        return task

    def _callback(self, depth):
        def call(ticket):
            self.api.log.append(("callback", ticket, *self.api.seen()))
            for _ in range(self.draw.choice([0, 1, 1, 2])):
                result = yield from self.api.launch([self._task(depth)])
                if result != "launched":
                    self.api.log.append((result, *self.api.seen()))

        return call

    def _task(self, depth=0):
        draw = self.draw
        if draw.random() < self.mix["ev"]:
            return {
                "op": draw.choice(["record", "wait"]),
                "stream": self._stream(),
                "event": draw.randrange(3),
                "after": self._after(),
            }
        if draw.random() < 0.05:
            return {"op": "nop", "stream": self._stream(), "after": self._after()}
        return self._kernel(depth)

    def _batch(self):
        """Tasks that share their predecessors; later ones may wait for earlier ones."""
        count = self.draw.randrange(1, self.config["batch"] + 1)
        tasks = [self._task(DEPTH) for _ in range(count)]
        shared = self._after(2)
        for index, task in enumerate(tasks):
            task["inside"] = [each for each in range(index) if self.draw.random() < 0.3]
            # Relative to the task: callbacks may launch others before the batch has its place.
            task["after"] = shared + [each - index for each in task["inside"]]
            task["shared"] = shared
        result = yield from self.api.launch(tasks)
        if result == "launched":
            last = self.api.submitted
            self.batched.update(range(last - count + 1, last + 1))
        return result

    def _call(self):  # noqa: C901, PLR0911, PLR0912 - a branch per call
        draw, api = self.draw, self.api
        kind = draw.random()
        if kind < 0.55:
            result = ""
            for _ in range(draw.choice([1, 1, 2, 3, 6, 12])):
                result = yield from api.launch([self._task()])
                if result != "launched":
                    break
            return result
        if kind < 0.62:
            return (yield from self._batch())
        if kind < 0.66:
            return (yield from api.launch([self._task()], block=False))
        last = api.submitted
        ticket = (
            draw.randrange(1, last + 1)
            if last and draw.random() < 0.5
            else last - draw.randrange(4)
        )
        while ticket in self.batched:
            ticket -= 1
        if ticket < 1:
            return "nothing"
        limit = draw.choice([LIMIT, *TIMES])
        if kind < 0.71:
            return (yield from api.wait_task(ticket, limit))
        if kind < 0.75:
            return (yield from api.synchronize(limit))
        if kind < 0.78:
            return (yield from api.synchronize_stream(self._stream(), limit))
        if kind < 0.86:
            done, polls = False, 0
            for _ in range(draw.choice([1, 2, 5, 20])):
                done, polls = (yield from api.done(ticket)), polls + 1
                if done:
                    break
            return (polls, done)
        if kind < 0.90:
            return (yield from api.wait_next(draw.choice(TIMES)))
        if kind < 0.93 and self.mix["ev"]:
            return (yield from api.wait_event(draw.randrange(3), draw.choice(TIMES)))
        if kind < 0.93 + self.mix["ctl"]:
            return (yield from api.cancel(ticket))
        return (yield from api.recover(draw.randrange(1, self.config["NS"] + 1)))
