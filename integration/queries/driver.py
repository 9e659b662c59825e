"""Continues trials in a process of its own, with a JVM of its own.

    python -m integration.queries.driver JOBS.json

The file is a list of jobs, one a trial: operator, provider, directory, checkpoint format. Each
trial handles the input that is visible and leaves the rows of its batches in its directory, in
ROWS_FILE, for the process that started this one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from integration.queries.operators import OPERATORS
from integration.queries.runner import Trial
from integration.support import Provider, python_path, start_session

ROWS_FILE = "rows-of-another-process.json"


def run_elsewhere(trials: Sequence[Trial], scratch: Path) -> None:
    """Runs trials in a new process and takes over the rows of the batches that they handled."""
    jobs = scratch / "jobs.json"
    jobs.write_text(json.dumps([_job(trial) for trial in trials]))
    command = [sys.executable, "-m", "integration.queries.driver", str(jobs)]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    subprocess.run(command, cwd=scratch, env=environment, check=True)
    for trial in trials:
        trial.load(trial.directory / ROWS_FILE)


def _job(trial: Trial) -> dict[str, str]:
    return {
        "operator": trial.operator.name,
        "provider": trial.provider.value,
        "directory": str(trial.directory),
        "checkpoint_format": str(trial.checkpoint_format),
    }


def main(jobs_file: Path) -> None:
    spark = start_session(jobs_file.parent / "elsewhere")
    for job in json.loads(jobs_file.read_text()):
        trial = Trial(
            OPERATORS[job["operator"]],
            Provider(job["provider"]),
            Path(job["directory"]),
            int(job["checkpoint_format"]),
        )
        trial.run(spark)
        trial.save(trial.directory / ROWS_FILE)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
