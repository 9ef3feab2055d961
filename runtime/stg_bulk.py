"""Turns a block of plain STG lines into numbers with NumPy: a million tasks in about a second.

Only for blocks in which all is as it should be; of any other it says nothing but that.
"""

from dataclasses import dataclass

import numpy as np

from tsemu.runtime.graph import Numbers

MAX_NUMBER = (1 << 32) - 1
"""Largest id and processing time."""
DIGITS = len(str(MAX_NUMBER))
FIXED = 3
"""Numbers before the predecessors: id, time, predecessor count."""
_BLANK = np.zeros(256, np.bool_)
_BLANK[list(b" \t\r\n\v\f")] = True
_NEWLINE = ord("\n")


@dataclass(frozen=True)
class Bulk:
    """Tasks of a block, one number per task; `edges` holds `counts` predecessors of each.

    `lines` has the place of each task's line, counted from 0 in the block.
    """

    ids: Numbers
    times: Numbers
    counts: Numbers
    edges: Numbers
    lines: Numbers


def parse_block(block: bytes) -> Bulk | None:
    """Return the tasks of whole lines, None when a line is anything but a correct task or empty."""
    text = np.frombuffer(block, np.uint8)
    blank = _BLANK[text]
    digits = text - np.uint8(ord("0"))
    if not np.all(blank | (digits < 10)):
        return None
    starts = np.flatnonzero(~blank & np.concatenate(([True], blank[:-1])))
    ends = np.flatnonzero(~blank & np.concatenate((blank[1:], [True]))) + 1
    lengths = ends - starts
    if not len(starts):
        return Bulk(*(np.zeros(0, np.int64) for _ in range(5)))
    longest = int(lengths.max())
    if longest > DIGITS:
        return None
    values = np.zeros(len(starts), np.int64)
    for place in range(longest):
        more = lengths > place
        values[more] = values[more] * 10 + digits[starts[more] + place]
    if int(values.max()) > MAX_NUMBER:
        return None
    line_of = np.searchsorted(np.flatnonzero(text == _NEWLINE), starts)
    first = np.flatnonzero(np.concatenate(([True], line_of[1:] != line_of[:-1])))
    counts = np.diff(np.append(first, len(values))) - FIXED
    if int(counts.min()) < 0 or np.any(values[first + 2] != counts):
        return None
    edges = np.ones(len(values), np.bool_)
    for place in range(FIXED):
        edges[first + place] = False
    return Bulk(values[first], values[first + 1], counts, values[edges], line_of[first])
