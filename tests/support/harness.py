"""State store providers in a bare JVM, driven from Python.

`Harness` is the JVM, `Provider` an instance of a state store provider in it, `Store` a handle on
one version. Rows go as lists of operations, many in one call (tests/support/model.py); the JVM's
half is jvm-shim/src/tools, Harness.scala.

What a provider throws becomes a `StoreFailure`. There are no tasks in that JVM: a handle lives
until it is committed, aborted or released, and `abandon` leaves it as a dying task would.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from floe.jvm import launch
from tests.support.model import Operation

MAIN_CLASS = "org.apache.spark.sql.floe.tools.Harness"


class StoreFailure(Exception):
    """A call into the JVM threw; `java_class` is what, the text has the whole stack."""

    def __init__(self, java_class: str, text: str) -> None:
        super().__init__(text)
        self.java_class = java_class


@dataclass(frozen=True, eq=False)
class ProviderKind:
    """A provider class under a name, with its settings."""

    name: str
    class_name: str
    conf: Mapping[str, str]
    format_version: int = 1


@dataclass(frozen=True)
class Committed:
    """What a commit returned; ids are None in checkpoint format 1."""

    version: int
    key_count: int
    id: str | None
    base: str | None


class Harness:
    """One JVM. Starting it takes seconds, so a test session shares one."""

    def __init__(self, directory: Path, heap: str = "1g") -> None:
        self._log = directory / "harness.log"
        secret = secrets.token_hex(16)
        properties = {"spark.local.dir": str(directory), "java.io.tmpdir": str(directory)}
        with self._log.open("wb") as log:
            self._process = launch(
                MAIN_CLASS, heap=heap, properties=properties, stderr=log.fileno()
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(secret + "\n")
        self._process.stdin.flush()
        port = self._process.stdout.readline()
        if not port:
            raise RuntimeError(f"The harness did not start:\n{self._log.read_text()}")
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(port), auth_token=secret)
        )

    def provider(
        self,
        kind: ProviderKind,
        root: Path,
        *,
        long_keys: bool = False,
        prefix_columns: int = 0,
        partition: int = 0,
    ) -> Provider:
        """A new instance; a second one on the same root is a restart, or another executor."""
        spec = {
            "class": kind.class_name,
            "root": str(root),
            "partition": partition,
            "longKeys": long_keys,
            "prefixColumns": prefix_columns,
            "format": kind.format_version,
            "conf": dict(kind.conf),
        }
        return Provider(self, self.call("newProvider", json.dumps(spec)))

    def call(self, method: str, *arguments: object) -> Any:
        function: Callable[..., Any] = getattr(self._gateway.entry_point, method)
        try:
            return function(*arguments)
        except Py4JJavaError as error:
            name = error.java_exception.getClass().getName()
            raise StoreFailure(name, str(error)) from None

    def kill_sidecars(self) -> int:
        """kill -9 of every sidecar that this JVM has; how many there were."""
        killed = 0
        for child in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            for pid in child.read_text().split():
                if b"floe.sidecar" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
                    killed += 1
        return killed

    def close(self) -> None:
        self._gateway.close()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The JVM ends with its standard input.
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Provider:
    """An instance of a state store provider."""

    def __init__(self, harness: Harness, handle: int) -> None:
        self._harness = harness
        self._handle = handle

    def open(self, version: int, id: str | None = None, *, force_snapshot: bool = False) -> Store:
        return self._store("open", version, id, force_snapshot)

    def open_read(self, version: int, id: str | None = None) -> Store:
        return self._store("openRead", version, id)

    def upgrade(self, read: Store, version: int, id: str | None = None) -> Store:
        """The write handle of a task whose read handle this is; both stay usable."""
        return self._store("upgrade", read.handle, version, id)

    def snapshot_maintenance(self) -> None:
        self._harness.call("snapshotMaintenance", self._handle)

    def cleanup_maintenance(self) -> None:
        self._harness.call("cleanupMaintenance", self._handle)

    def close(self) -> None:
        self._harness.call("closeProvider", self._handle)

    def _store(self, method: str, *arguments: object) -> Store:
        return Store(self._harness, self._harness.call(method, self._handle, *arguments))


class Store:
    """A handle on one version, for reading or for writing."""

    def __init__(self, harness: Harness, handle: int) -> None:
        self._harness = harness
        self.handle = handle

    def run(self, operations: Iterable[Operation], *, elsewhere: bool = False) -> list[Any]:
        """One answer for each operation; `elsewhere` runs them on a thread of their own."""
        wire = json.dumps([operation.wire() for operation in operations])
        method = "runElsewhere" if elsewhere else "run"
        answers = json.loads(self._harness.call(method, self.handle, wire))
        assert isinstance(answers, list)
        return answers

    def commit(self) -> Committed:
        answer = json.loads(self._harness.call("commit", self.handle))
        return Committed(answer["version"], answer["numKeys"], answer["id"], answer["base"])

    def abort(self) -> None:
        self._harness.call("abort", self.handle)

    def release(self) -> None:
        self._harness.call("release", self.handle)

    def abandon(self) -> None:
        """Forgets the handle without telling the provider."""
        self._harness.call("abandon", self.handle)

    def metrics(self) -> dict[str, Any]:
        answer = json.loads(self._harness.call("metrics", self.handle))
        assert isinstance(answer, dict)
        return answer
