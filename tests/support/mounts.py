"""File systems of a test's own: small, full or read-only, and gone with the JVM that sees them.

The JVM is started in a mount namespace of its own (`unshare --mount`); what is mounted there exists
for it and its sidecars and for nobody else. This process looks into it through /proc/<pid>/root,
and changes it with `nsenter`. Root may do that; others may with a user namespace, where the system
allows these.
"""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from floe.jvm import find_java
from tests.support.harness import Harness

_BLOCK = bytes(4096)
# Namespace options of `unshare` and `nsenter`, for root and for everybody else.
_WAYS = (
    (["unshare", "--mount"], ["nsenter", "--mount"]),
    (
        ["unshare", "--mount", "--map-root-user"],
        ["nsenter", "--mount", "--user", "--preserve-credentials"],
    ),
)


@functools.cache
def way_in() -> tuple[list[str], list[str]] | None:
    """How to make a namespace for mounts and how to enter one; None where that is forbidden."""
    for unshare, nsenter in _WAYS:
        trial = [*unshare, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        try:
            if subprocess.run(trial, capture_output=True).returncode == 0:
                return unshare, nsenter
        except FileNotFoundError:
            return None
    return None


needs_mounts = pytest.mark.skipif(
    way_in() is None,
    reason="mounting a file system needs util-linux, and root or user namespaces",
)


class Mounts:
    """The mount namespace of a JVM."""

    def __init__(self, harness: Harness) -> None:
        self.pid = harness._process.pid

    def disk(self, path: Path, size_bytes: int) -> Disk:
        """An empty file system at `path`, which this process goes on seeing as a directory."""
        path.mkdir(parents=True, exist_ok=True)
        self.run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path))
        return Disk(self, path)

    def run(self, *command: str) -> None:
        _, nsenter = way_in() or ([], [])
        subprocess.run([*nsenter, f"--target={self.pid}", *command], check=True)


class Disk:
    """A mounted file system. `path` is its name in the namespace, `inside` the way to it here."""

    def __init__(self, mounts: Mounts, path: Path) -> None:
        self._mounts = mounts
        self.path = path

    @property
    def inside(self) -> Path:
        return Path(f"/proc/{self._mounts.pid}/root") / self.path.relative_to("/")

    def files(self) -> dict[str, int]:
        """Every file and its size, but for the one that `full` wrote."""
        found = [path for path in self.inside.rglob("*") if path.is_file()]
        return {
            str(path.relative_to(self.inside)): path.stat().st_size
            for path in found
            if path.name != "filler"
        }

    @contextmanager
    def full(self, leaving: int = 0) -> Iterator[None]:
        """Fills the disk but for some bytes, and frees it at the end."""
        filler = self.inside / "filler"
        try:
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(_BLOCK)
                except OSError:
                    pass
                file.truncate(max(0, file.tell() - leaving))
            yield
        finally:
            filler.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Makes the disk read-only, and writable again at the end."""
        self._remount("ro")
        try:
            yield
        finally:
            self._remount("rw")

    def _remount(self, option: str) -> None:
        """Repeated, because a process that was killed may not have let go of its files yet."""
        for _ in range(50):
            try:
                return self._mounts.run("mount", "-o", f"remount,{option}", str(self.path))
            except subprocess.CalledProcessError:
                time.sleep(0.1)
        raise TimeoutError(f"{self.path} is in use")


def java_with_mounts(home: Path) -> Path:
    """A JAVA_HOME whose java runs in a mount namespace of its own."""
    unshare, _ = way_in() or ([], [])
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\nexec {" ".join(unshare)} {find_java()} "$@"\n')
    java.chmod(0o755)
    return home
