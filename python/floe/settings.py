"""What a setting's value may look like: its text, its type, its limits.

A `Kind` knows how to read a value as a user writes it, which values are acceptable, and how to say
both in a sentence. `config.py` lists the settings; this module knows nothing of them.

Sizes follow Spark: `64k`, `512m`, `4g`, upper or lower case, with or without a `b`; a bare number
is bytes. Milliseconds are bare numbers, because the keys end in `Ms`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "Kind",
    "auto_or",
    "choice",
    "flag",
    "format_size",
    "integer",
    "milliseconds",
    "parse_size",
    "ratio",
    "size",
    "text",
]

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_SIZE = re.compile(r"(\d+)\s*(?:([kmgtp])b?|b)?", re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How values of one setting are read, judged and shown."""

    # Raises ValueError when the text is not of this kind at all.
    parse: Callable[[str], T]
    accepts: Callable[[T], bool]
    show: Callable[[T], str]
    # Completes the sentence "allowed: ...".
    allowed: str
    unit: str


def parse_size(value: str) -> int:
    """Bytes of a size in Spark's syntax. Raises ValueError for anything else."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"not a size: {value!r}")
    return int(match[1]) << _SHIFTS[(match[2] or "").lower()]


def format_size(size_bytes: int) -> str:
    """The shortest text that `parse_size` reads back as exactly this number."""
    for suffix in ("t", "g", "m", "k"):
        if size_bytes and size_bytes % (1 << _SHIFTS[suffix]) == 0:
            return f"{size_bytes >> _SHIFTS[suffix]}{suffix}"
    return str(size_bytes)


def size(low: int, high: int | None = None, *, power_of_two: bool = False) -> Kind[int]:
    def accepts(value: int) -> bool:
        if power_of_two and value.bit_count() != 1:
            return False
        return low <= value and (high is None or value <= high)

    words = "a power of two, " if power_of_two else ""
    limits = f"at least {format_size(low)}"
    if high is not None:
        limits = f"{format_size(low)} to {format_size(high)}"
    return Kind(parse_size, accepts, format_size, words + limits, "bytes")


def auto_or(kind: Kind[T]) -> Kind[T | None]:
    """`auto` beside the values of another kind; auto is None."""
    return Kind(
        parse=lambda value: None if value.strip().lower() == "auto" else kind.parse(value),
        accepts=lambda value: value is None or kind.accepts(value),
        show=lambda value: "auto" if value is None else kind.show(value),
        allowed=f"auto, or {kind.allowed}",
        unit=kind.unit,
    )


def integer(low: int, high: int, unit: str = "") -> Kind[int]:
    return Kind(int, lambda value: low <= value <= high, str, f"{low} to {high}", unit)


def milliseconds() -> Kind[int]:
    # An hour: longer than any batch should wait, short enough to catch seconds given as µs.
    return integer(1, 3_600_000, unit="ms")


def ratio() -> Kind[float]:
    return Kind(float, lambda value: 0.0 <= value <= 1.0, str, "0 to 1", "")


def text(allowed: str) -> Kind[str]:
    return Kind(str.strip, lambda value: True, str, allowed, "")


def choice(options: type[E]) -> Kind[E]:
    return Kind(
        parse=lambda value: options(value.strip().lower()),
        accepts=lambda value: True,
        show=lambda value: value.value,
        allowed=" | ".join(option.value for option in options),
        unit="",
    )


def flag() -> Kind[bool]:
    words = {"true": True, "false": False}

    def parse(value: str) -> bool:
        try:
            return words[value.strip().lower()]
        except KeyError:
            raise ValueError(f"not a flag: {value!r}") from None

    return Kind(parse, lambda value: True, lambda value: str(value).lower(), "true | false", "")
