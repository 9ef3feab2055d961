"""Errors of the mailbox: memory objects, addresses, requests that a device refuses."""

from tsemu.descriptors.codes import ControlStatus


class MailboxError(Exception):
    """Base of the errors of this package.

    `field` is what was wrong, `value` what it was, `hint` what to do next.
    """

    def __init__(self, field: str, value: object, message: str, hint: str) -> None:
        super().__init__(field, value, message, hint)
        self.field = field
        self.value = value
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.field} = {self.value!r}: {self.message}; {self.hint}"


class AddressError(MailboxError):
    """A socket cannot be opened at this path: taken, too long, no such folder, not allowed."""


class RefusedError(MailboxError):
    """A control request is refused; `status` says why."""

    def __init__(
        self, status: ControlStatus, field: str, value: object, message: str, hint: str
    ) -> None:
        super().__init__(field, value, message, hint)
        self.args = (status, *self.args)
        self.status = status

    def wire_text(self) -> str:
        """Text that follows the reply on a socket: `field|value|message|hint`."""
        parts = (self.field, self.value, self.message, self.hint)
        return "|".join(str(part).replace("|", "/")[:1000] for part in parts)
