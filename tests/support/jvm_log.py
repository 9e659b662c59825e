"""What a test's JVM logs: the failures of maintenance are told nowhere else."""

from tests.support.harness import Harness


class JvmLog:
    """Warnings and errors of a JVM, which is otherwise told to log errors only."""

    def __init__(self, harness: Harness) -> None:
        jvm = harness._gateway.jvm
        jvm.org.apache.spark.util.Utils.setLogLevel(jvm.org.apache.logging.log4j.Level.WARN)
        self._file = harness._log
        self._seen = 0

    def new(self) -> str:
        """What was logged since the last call, without stack frames."""
        text = self._file.read_text()
        added, self._seen = text[self._seen :], len(text)
        return "\n".join(line for line in added.splitlines() if not line.startswith("\tat "))
