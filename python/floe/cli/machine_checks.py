"""What Floe needs of the machine it runs on, as rows of `floe doctor`.

The checks look at the machine on which the command runs. Executors may be elsewhere: run it there
too, or in the same image.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from floe.cli.rows import Row, Verdict
from floe.errors import FloeError
from floe.memory import memory_limit, resolve_budget
from floe.session import jar
from floe.settings import GIB, MIB

__all__ = ["machine_rows"]

JAVA_MINIMUM = 17
PYTHON_MINIMUM = (3, 11)
# The provider's traits change with every minor version of Spark.
SPARK_VERSION = "4.3.0"
LIBRARIES = ("py4j", "pyarrow", "numpy")

# A few sealed segments fit into the first, not a single one into the second.
DISK_CAREFUL_BYTES = 2 * GIB
DISK_BROKEN_BYTES = 128 * MIB


def machine_rows(memory_bytes: int | None, heap_bytes: int) -> list[Row]:
    return [
        python_row(),
        java_row(),
        spark_row(),
        libraries_row(),
        jar_row(),
        memory_row(memory_bytes, heap_bytes),
        shared_memory_row(),
        disk_row(local_directory()),
    ]


def python_row() -> Row:
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info < PYTHON_MINIMUM:
        return Row(Verdict.BROKEN, "Python", found, "Use Python 3.11 or newer.")
    return Row(Verdict.GOOD, "Python", found)


def java_row() -> Row:
    remedy = f"Install Java {JAVA_MINIMUM} or newer, and put it on PATH or into JAVA_HOME."
    home = os.environ.get("JAVA_HOME")
    executable = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if executable is None:
        return Row(Verdict.BROKEN, "Java", "not found on PATH, and JAVA_HOME is not set", remedy)
    try:
        output = subprocess.run([executable, "-version"], capture_output=True, text=True).stderr
    except OSError as error:
        return Row(Verdict.BROKEN, "Java", f"{executable}: {error.strerror}", remedy)
    match = re.search(r'version "(?:1\.)?((\d+)[^"]*)"', output)
    if match is None:
        return Row(Verdict.BROKEN, "Java", f"{executable} does not say its version", remedy)
    found = f"{match[1]} at {executable}"
    if int(match[2]) < JAVA_MINIMUM:
        return Row(Verdict.BROKEN, "Java", found, remedy)
    return Row(Verdict.GOOD, "Java", found)


def spark_row() -> Row:
    remedy = f"pip install pyspark=={SPARK_VERSION}"
    found = _installed("pyspark")
    if found is None:
        return Row(Verdict.BROKEN, "pyspark", "not installed", remedy)
    if found != SPARK_VERSION:
        return Row(Verdict.BROKEN, "pyspark", f"{found}; Floe is for {SPARK_VERSION}", remedy)
    return Row(Verdict.GOOD, "pyspark", found)


def libraries_row() -> Row:
    found = {name: _installed(name) for name in LIBRARIES}
    missing = [name for name, installed in found.items() if installed is None]
    words = ", ".join(f"{name} {installed or 'missing'}" for name, installed in found.items())
    if missing:
        return Row(Verdict.BROKEN, "libraries", words, f"pip install {' '.join(missing)}")
    return Row(Verdict.GOOD, "libraries", words)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def jar_row() -> Row:
    try:
        return Row(Verdict.GOOD, "jar", str(jar()))
    except FloeError as error:
        remedy = "Run `make jar` in a source tree, or install Floe again."
        return Row(Verdict.BROKEN, "jar", f"not at {error.fields['path']}", remedy)


def memory_row(memory_bytes: int | None, heap_bytes: int) -> Row:
    """Whether the budget fits beside a heap of this size."""
    limit = memory_limit()
    setting = "auto" if memory_bytes is None else _mib(memory_bytes)
    there = f"{_mib(limit.limit_bytes)} in all ({limit.source}), heap {_mib(heap_bytes)}"
    try:
        budget_bytes = resolve_budget(memory_bytes, heap_bytes, limit.limit_bytes)
    except FloeError as error:
        return Row(Verdict.BROKEN, "memory", f"{there}, asked for {setting}", error.message)
    finding = f"{there}; {setting} gives state {_mib(budget_bytes)}"
    if heap_bytes + budget_bytes > limit.limit_bytes:
        remedy = "The heap leaves no room for state: lower it, or raise the container's limit."
        return Row(Verdict.CAREFUL, "memory", finding, remedy)
    return Row(Verdict.GOOD, "memory", finding)


def shared_memory_row() -> Row:
    """Whether memory can be shared as the store does it: a memfd, opened through /proc."""
    subject = "shared memory"
    remedy = (
        "State will live in unlinked files of the local directory: put it on a fast disk. "
        "Linux 3.17 or newer with /proc has what is missing."
    )
    if not hasattr(os, "memfd_create"):
        return Row(Verdict.CAREFUL, subject, "this system has no memfd", remedy)
    try:
        descriptor = os.memfd_create("floe-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(descriptor, 0, 4096)
            os.close(os.open(f"/proc/{os.getpid()}/fd/{descriptor}", os.O_RDWR))
        finally:
            os.close(descriptor)
    except OSError as error:
        return Row(Verdict.CAREFUL, subject, f"memfd does not work: {error.strerror}", remedy)
    return Row(Verdict.GOOD, subject, "memfd works")


def local_directory() -> Path:
    """Where Spark puts local files on this machine unless a session says otherwise."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0].strip()
    return Path(first or tempfile.gettempdir())


def disk_row(directory: Path) -> Row:
    subject = "local disk"
    remedy = "Set spark.local.dir, or SPARK_LOCAL_DIRS, to a directory with more room."
    try:
        free_bytes = shutil.disk_usage(directory).free
    except OSError as error:
        return Row(Verdict.BROKEN, subject, f"{directory}: {error.strerror}", remedy)
    finding = f"{_mib(free_bytes)} free in {directory}"
    if not os.access(directory, os.W_OK):
        return Row(Verdict.BROKEN, subject, f"{directory} is not writable", remedy)
    if free_bytes < DISK_BROKEN_BYTES:
        return Row(Verdict.BROKEN, subject, finding, remedy)
    if free_bytes < DISK_CAREFUL_BYTES:
        return Row(Verdict.CAREFUL, subject, finding, remedy)
    return Row(Verdict.GOOD, subject, finding)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes // MIB:,} MiB"
