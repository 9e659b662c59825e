"""The sidecars of a test's JVM, and a Python for them that can be replaced by a worse one."""

import os
import sys
from pathlib import Path

from tests.support.harness import Harness


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
