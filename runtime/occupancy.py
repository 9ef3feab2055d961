"""Who was busy when: totals and a binned timeline per core, from completions.

Memory does not depend on the number of tasks: busy time is summed in bins, whose width doubles
whenever the run has become too long for them.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsemu.descriptors.codes import Status
from tsemu.runtime.completion_log import STATUS_NAMES, Completions

Times = NDArray[np.int64]
BINS = 512
KEPT_BLOCKS = 512
"""Tasks whose own interval is kept, for drawing small graphs task by task."""
NO_CORE = 0xFFFF
FIRST_BIN_PS = 1


@dataclass
class Occupancy:
    """What the cores of a device did during one run.

    `cores`: number of cores; core numbers in completions are below it. Arrays have one row per
    core. All times are integers in ps.
    """

    cores: int
    tasks: int = 0
    tasks_on_cores: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    first_start_ps: int | None = None
    last_end_ps: int = 0

    def __post_init__(self) -> None:
        self.busy_ps: Times = np.zeros(self.cores, np.int64)
        self.core_blocks: Times = np.zeros(self.cores, np.int64)
        self.exact_timeline = True
        """False when tasks had several blocks: they are drawn on the core of their first one."""
        self.blocks: list[tuple[int, int, int, int]] | None = []
        """(core, start, end, user tag) of each task, or None when there are too many."""
        self._origin_ps: int | None = None
        self._width_ps = FIRST_BIN_PS
        self._part: Times = np.zeros((self.cores, BINS), np.int64)
        self._full: Times = np.zeros((self.cores, BINS + 1), np.int64)

    @property
    def makespan_ps(self) -> int:
        """Time from the first task's start to the last one's end."""
        return self.last_end_ps - (self.first_start_ps or 0)

    @property
    def serial_ps(self) -> int:
        """Sum of the times for which tasks held a core."""
        return int(self.busy_ps.sum())

    @property
    def failed(self) -> int:
        """Tasks that did not succeed."""
        return self.tasks - self.statuses.get(Status.OK.name, 0)

    def add(self, completions: Completions) -> None:
        """Count completions, an array of the CQE type.

        Raises `ValueError` for a core number that the device does not have.
        """
        if not len(completions):
            return
        self.tasks += len(completions)
        for code, count in zip(*np.unique(completions["status"], return_counts=True), strict=True):
            name = STATUS_NAMES.get(int(code), f"STATUS_{code}")
            self.statuses[name] = self.statuses.get(name, 0) + int(count)
        starts = completions["start_ps"].astype(np.int64)
        ends = completions["end_ps"].astype(np.int64)
        earliest = int(starts.min())
        if self.first_start_ps is None or earliest < self.first_start_ps:
            self.first_start_ps = earliest
        self.last_end_ps = max(self.last_end_ps, int(ends.max()))
        held = completions["core"] != NO_CORE
        cores = completions["core"][held].astype(np.int64)
        if len(cores) and int(cores.max()) >= self.cores:
            raise ValueError(f"core {int(cores.max())} in a completion, of {self.cores} cores")
        self._add_blocks(cores, starts[held], ends[held], completions["user_tag"][held])

    def use_counters(self, busy_ps: list[int], blocks: list[int]) -> None:
        """Take busy time (ps) and blocks of each core from the device instead of completions.

        For programs with tasks of several blocks, of which a completion names only the first core.
        """
        self.busy_ps[:] = busy_ps
        self.core_blocks[:] = blocks
        self.exact_timeline = False

    def _add_blocks(
        self, cores: Times, starts: Times, ends: Times, tags: NDArray[np.uint64]
    ) -> None:
        self.tasks_on_cores += len(cores)
        np.add.at(self.busy_ps, cores, ends - starts)
        np.add.at(self.core_blocks, cores, 1)
        if self.blocks is not None:
            if self.tasks_on_cores > KEPT_BLOCKS:
                self.blocks = None
            else:
                rows = (cores.tolist(), starts.tolist(), ends.tolist(), tags.tolist())
                self.blocks += zip(*rows, strict=True)
        lasting = ends > starts
        if lasting.any():
            self._add_to_bins(cores[lasting], starts[lasting], ends[lasting])

    def _add_to_bins(self, cores: Times, starts: Times, ends: Times) -> None:
        self._make_room(int(starts.min()), int(ends.max()))
        width, origin = self._width_ps, self._origin_ps or 0
        starts, ends = starts - origin, ends - origin
        first, last = starts // width, (ends - 1) // width
        inside = first == last
        np.add.at(
            self._part,
            (cores, first),
            np.where(inside, ends - starts, (first + 1) * width - starts),
        )
        cores, first, last, ends = (a[~inside] for a in (cores, first, last, ends))
        np.add.at(self._part, (cores, last), ends - last * width)
        np.add.at(self._full, (cores, first + 1), 1)  # whole bins in between, as differences
        np.add.at(self._full, (cores, last), -1)

    def _make_room(self, start: int, end: int) -> None:
        if self._origin_ps is None:
            self._origin_ps = start
        while True:
            shift = max(0, -((start - self._origin_ps) // self._width_ps))
            used = -(-(max(end, self.last_end_ps) - self._origin_ps) // self._width_ps)
            if shift + used <= BINS:
                break
            pairs = self._binned().reshape(self.cores, BINS // 2, 2).sum(axis=2)
            self._replace_bins(np.pad(pairs, ((0, 0), (0, BINS // 2))))
            self._width_ps *= 2
        if shift:
            self._replace_bins(np.roll(self._binned(), shift, axis=1))
            self._origin_ps -= shift * self._width_ps

    def _binned(self) -> Times:
        whole = np.cumsum(self._full[:, :BINS], axis=1) * self._width_ps
        return self._part + whole

    def _replace_bins(self, bins: Times) -> None:
        self._part = np.ascontiguousarray(bins)
        self._full[:] = 0

    def timeline(self, columns: int) -> NDArray[np.float64]:
        """Return the share of time for which each core was busy, shape (cores, columns).

        The columns divide the time from the first start to the last end equally.
        """
        if self._origin_ps is None or self.first_start_ps is None or not self.makespan_ps:
            return np.zeros((self.cores, columns))
        edges = self._origin_ps + self._width_ps * np.arange(BINS + 1, dtype=np.float64)
        # What the first and last bin hold lies inside of the run.
        edges = np.clip(edges, self.first_start_ps, self.last_end_ps)
        wanted = np.linspace(self.first_start_ps, self.last_end_ps, columns + 1)
        busy = np.zeros((self.cores, BINS + 1))
        np.cumsum(self._binned(), axis=1, out=busy[:, 1:])
        sums = np.stack([np.interp(wanted, edges, row) for row in busy])
        share: NDArray[np.float64] = np.diff(sums, axis=1) / (self.makespan_ps / columns)
        return np.clip(share, 0.0, 1.0)
