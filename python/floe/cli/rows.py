"""What `floe doctor` reports: rows with a verdict, what was found, and what to do about it."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Row", "Verdict"]


class Verdict(Enum):
    """The value is the mark in front of the row."""

    GOOD = "✓"
    # Works, but not as well or not as expected.
    CAREFUL = "!"
    # Floe cannot work like this; the command's exit code is 1.
    BROKEN = "✗"


@dataclass(frozen=True, slots=True)
class Row:
    """One finding. `remedy` is empty exactly when there is nothing to do."""

    verdict: Verdict
    subject: str
    finding: str
    remedy: str = ""
