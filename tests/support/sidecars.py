"""The sidecars of a test's JVM, and a Python for them that can be replaced by a worse one."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from floe.config import PREFIX
from tests.support.batches import Batches, lived_in, with_settings
from tests.support.harness import Harness
from tests.support.providers import FLOE_V2
from tests.support.refusals import Refusal

# Long enough for a sidecar to start on a busy machine; tests of hanging ones wait for them.
START_TIMEOUT_MS = 5_000
CALL_TIMEOUT_MS = 8_000


def sidecar_pids(harness: Harness) -> list[int]:
    """Processes that this JVM runs as its sidecars."""
    found = []
    for children in Path(f"/proc/{harness._process.pid}/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            if b"floe.sidecar" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


class SwitchedPython:
    """An interpreter for `floe.python` that is the right one until a test makes it something else.

    The JVM starts whatever is at `path` whenever it needs a new sidecar.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.repair()

    def become(self, script: str) -> None:
        """A shell script with Python's arguments; `$PYTHON` is the right one."""
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.write_text(f"#!/bin/sh\nPYTHON={sys.executable}\n{script}\n")
        fresh.chmod(0o755)
        os.replace(fresh, self.path)

    def vanish(self) -> None:
        self.path.unlink()

    def repair(self) -> None:
        self.become('exec "$PYTHON" "$@"')


@dataclass(frozen=True)
class Workshop:
    """A store in a JVM of its own, and the Python that this JVM runs sidecars with."""

    batches: Batches
    python: SwitchedPython

    @classmethod
    def set_up(cls, harness: Harness, directory: Path) -> "Workshop":
        python = SwitchedPython(directory / "python")
        kind = with_settings(
            FLOE_V2,
            {
                PREFIX + "python": str(python.path),
                PREFIX + "sidecar.startTimeoutMs": str(START_TIMEOUT_MS),
                PREFIX + "sidecar.callTimeoutMs": str(CALL_TIMEOUT_MS),
            },
        )
        return cls(lived_in(harness, kind, directory / "checkpoint"), python)

    @contextmanager
    def spoilt(self, spoil: Callable[[], None]) -> Iterator[None]:
        """No sidecar runs, and the next one is started with a Python that was spoilt."""
        self.batches.harness.kill_sidecars()
        spoil()
        try:
            yield
        finally:
            self.python.repair()

    def refusal(self, spoil: Callable[[], None]) -> Refusal:
        """What a store says whose Python was spoilt, after checking that repairing it helps."""
        with self.spoilt(spoil):
            refusal = self.batches.refusal(self.batches.last)
        self.batches.check()
        return refusal

    def refusal_with(self, script: str) -> Refusal:
        return self.refusal(lambda: self.python.become(script))
