"""The link to a device in the same process: shared memory and a function that runs the device.

Nobody sleeps and nothing is rung: where a host in another process would sleep, the driver calls
the pump.
"""

import mmap
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class InProcessLink:
    """One context of an embedded device.

    `memory` is the mapped memory object, `size` its bytes; `pump` is the address of
    `int pump(void *device, uint64_t slice_ns)` and `device` its first argument.
    """

    context: int
    name: str
    memory: mmap.mmap
    size: int
    pump: int
    device: int
    closer: Callable[[int], None]
    closed: bool = False

    def close(self) -> None:
        """Tell the device that the client is gone; a second call does nothing.

        The memory is unmapped as soon as the device has let go of it and no view is left.
        """
        if not self.closed:
            self.closed = True
            self.closer(self.context)
