"""Engine classes of a device as reports see them: their cores, and how busy those were."""

from collections.abc import Sequence
from dataclasses import dataclass

from tsemu.runtime.occupancy import Occupancy


@dataclass(frozen=True)
class EngineRow:
    """An engine class of the device: its cores have the numbers `first` to `first + cores - 1`.

    A class that moves bytes runs copies, any other runs kernels.
    """

    name: str
    first: int
    cores: int
    frequency_mhz: int
    moves_bytes: bool = False

    @property
    def numbers(self) -> range:
        """Numbers of its cores within the device."""
        return range(self.first, self.first + self.cores)


def used(occupancy: Occupancy, classes: Sequence[EngineRow]) -> list[EngineRow]:
    """Return the classes of which at least one core ran something."""
    return [row for row in classes if occupancy.core_blocks[slice_of(row.numbers)].any()]


def utilisation(occupancy: Occupancy, classes: Sequence[EngineRow]) -> float:
    """Return the share of the makespan for which the cores of some classes were busy."""
    whole = sum(row.cores for row in classes) * occupancy.makespan_ps
    busy = sum(int(occupancy.busy_ps[slice_of(row.numbers)].sum()) for row in classes)
    return busy / whole if whole else 0.0


def slice_of(numbers: range) -> slice:
    """Return what selects these cores in an array with a row per core."""
    return slice(numbers.start, numbers.stop)
