"""Scheduling policies as short as they can be, for the clock's model.

Each is called at a dispatch with the ready tasks and the free cores of each class, and yields tasks
in the order in which their blocks get cores; what has no block left has left `ready` meanwhile.
"""


class Rank:
    """Largest value first; all have the same here, so by ticket."""

    def __call__(self, ready, free):
        yield from sorted(ready, key=_ticket)


class Fifo:
    """By the instant of becoming ready, then by ticket."""

    def __init__(self):
        self.queue = []

    def __call__(self, ready, free):
        self.queue = [task for task in self.queue if task in ready]
        self.queue += sorted((task for task in ready if task not in self.queue), key=_ticket)
        yield from list(self.queue)


class Priority:
    """Lowest level first; streams of a level take turns; in a stream first come, first served."""

    def __init__(self):
        self.rounds = {}

    def __call__(self, ready, free):
        known = self._forget(ready)
        for task in sorted((task for task in ready if task not in known), key=_ticket):
            groups = self.rounds.setdefault((task.cls, task.prio), {})
            groups.setdefault((task.c.i, task.s), []).append(task)
        for engine, cores in free.items():
            while cores:
                levels = [level for cls, level in self.rounds if cls == engine]
                if not levels:
                    break
                yield from self._turn((engine, min(levels)))

    def _forget(self, ready):
        """Forget what has been cancelled; return what is left."""
        for at, groups in list(self.rounds.items()):
            for name, tasks in list(groups.items()):
                tasks[:] = [task for task in tasks if task in ready]
                if not tasks:
                    del groups[name]
            if not groups:
                del self.rounds[at]
        return [
            task for groups in self.rounds.values() for tasks in groups.values() for task in tasks
        ]

    def _turn(self, at):
        groups = self.rounds[at]
        name, tasks = next(iter(groups.items()))
        yield tasks[0]
        if tasks[0].left:
            return
        del groups[name]
        if tasks[1:]:
            groups[name] = tasks[1:]
        elif not groups:
            del self.rounds[at]


POLICIES = {"rank": Rank, "fifo": Fifo, "priority": Priority}


def _ticket(task):
    return (task.n, task.c.i)
