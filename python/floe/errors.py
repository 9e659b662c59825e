"""The errors of Floe, by what the reader of one has to do next.

    FloeError
      InvalidRequest   change something: a setting, an operation that is not supported
      Unavailable      try again: the sidecar is starting, the file system is busy
      Corrupt          restore or repair: stored bytes are wrong
      Fenced           stop: someone newer owns this store
      Closed           open anew: this handle is finished
      InternalError    report it: a bug in Floe; carries what a report needs

A kind gets a subclass only where code catches it. The message is for people and is never parsed;
what a program may want stands in `fields`. Across the process boundary an error travels as its
`wire` form, and the JVM side maps kinds, not messages, to Spark's exceptions.
"""

from typing import ClassVar, TypedDict

__all__ = [
    "Closed",
    "Corrupt",
    "Fenced",
    "FieldValue",
    "FloeError",
    "InternalError",
    "InvalidRequest",
    "Unavailable",
    "WireError",
]

# What survives a trip through JSON and Py4J unchanged.
FieldValue = str | int | float | bool | None


class WireError(TypedDict):
    """An error as the other process sees it."""

    kind: str
    message: str
    fields: dict[str, FieldValue]


class FloeError(Exception):
    """Base of all errors that Floe raises on purpose. Raise one of its kinds."""

    # A subclass of a kind keeps the kind's name: the other side knows only these six.
    kind: ClassVar[str]

    def __init__(self, message: str, /, **fields: FieldValue) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def wire(self) -> WireError:
        return WireError(kind=self.kind, message=self.message, fields=dict(self.fields))


class InvalidRequest(FloeError):
    """The caller must change something before asking again."""

    kind = "InvalidRequest"


class Unavailable(FloeError):
    """The same request may succeed later."""

    kind = "Unavailable"


class Corrupt(FloeError):
    """Stored bytes are not what was written."""

    kind = "Corrupt"


class Fenced(FloeError):
    """A newer owner holds what this caller believed to own."""

    kind = "Fenced"


class Closed(FloeError):
    """This handle was closed, committed or aborted before."""

    kind = "Closed"


class InternalError(FloeError):
    """An invariant of Floe does not hold."""

    kind = "InternalError"
