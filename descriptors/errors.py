"""The one error that reading or building bytes can raise."""


class DescriptorError(ValueError):
    """Base of the errors of this package."""


class ParseError(DescriptorError):
    """A byte sequence is not what its layout says.

    `path` is the field's full path (`program.tasks[17].blocks`), `value` what stood there and
    `expected` what may stand there, in words.
    """

    def __init__(self, path: str, value: object, expected: str) -> None:
        super().__init__(path, value, expected)
        self.path = path
        self.value = value
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.path}: found {self.value!r}, expected {self.expected}"
