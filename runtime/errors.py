"""The errors of reading a graph: each says file, line, field, value and what was expected."""

SHOWN_CHARACTERS = 40
"""A value longer than this is abbreviated in messages."""


class GraphError(ValueError):
    """A graph file cannot be used.

    `source` is the file's name, `line` its line counted from 1 (0: the file as a whole), `field`
    what was looked at, `value` what stood there and `expected` what may stand there, in words.
    """

    def __init__(self, source: str, line: int, field: str, value: object, expected: str) -> None:
        super().__init__(source, line, field, value, expected)
        self.source = source
        self.line = line
        self.field = field
        self.value = value
        self.expected = expected

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place}: {self.field}: found {abbreviated(self.value)}, expected {self.expected}"


def abbreviated(value: object) -> str:
    """Return `value` as error messages show it: long text is cut and its length told."""
    text = repr(value) if isinstance(value, str) else str(value)
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return f"{value[:SHOWN_CHARACTERS]!r}... ({len(value)} characters)"
    return text
