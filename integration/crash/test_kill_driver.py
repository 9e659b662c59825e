"""A driver that is killed at random moments: every row counts once, and no sidecar stays behind.

The driver, the JVM with its executor, and its Python process die together by kill -9, in the middle
of batches and while starting. Each successor continues on the same checkpoint. In the end the rows
of every batch and the state are those of the model. FLOE_DRIVER_KILLS says how many die (8).
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.crash import endless
from integration.crash.endless_driver import OPERATOR, rows_directory
from integration.queries.runner import Trial
from integration.support import (
    child_pids,
    command_line,
    provider_under_test,
    python_path,
    sidecar_pids,
)

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("FLOE_DRIVER_KILLS", "8"))
SEED = int(os.environ.get("FLOE_SEED", "1"))
# A quarter die while they start or recover, the rest within this time after their first batch.
STARTING = 0.25
LONGEST_START_S = 10.0
LONGEST_LIFE_S = 3.0
FOR_EVER = 1_000_000
DEADLINE_S = 120
SIDECAR_END_S = 15


def test_killed_drivers_leave_every_row_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    trial = Trial(OPERATOR, provider_under_test(), tmp_path)
    for _ in range(KILLS):
        live_and_die(trial, chance)
    finish(trial)
    check(trial, spark)


def launch(trial: Trial, stop_after: int) -> subprocess.Popen[bytes]:
    module = "integration.crash.endless_driver"
    arguments = [str(trial.directory), trial.provider.value, str(stop_after)]
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=trial.directory,
        env={**os.environ, "PYTHONPATH": python_path()},
    )


def live_and_die(trial: Trial, chance: random.Random) -> None:
    """A driver from its start to its death."""
    before = trial.last_commit()
    process = launch(trial, FOR_EVER)
    if chance.random() < STARTING:
        time.sleep(chance.uniform(0, LONGEST_START_S))
    else:
        wait_for(lambda: trial.last_commit() > before, process)
        time.sleep(chance.uniform(0, LONGEST_LIFE_S))
    assert process.poll() is None, "the driver ended by itself"
    kill_with_jvm(process)


def kill_with_jvm(process: subprocess.Popen[bytes]) -> None:
    """Kills Python and JVM, not the sidecar: that one has to notice by itself."""
    jvms = [pid for pid in child_pids(process.pid) if "java" in command_line(pid)]
    sidecars = [pid for jvm in jvms for pid in sidecar_pids(jvm)]
    for pid in (*jvms, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + SIDECAR_END_S
    while left := [pid for pid in sidecars if "floe.sidecar" in command_line(pid)]:
        assert time.monotonic() < deadline, f"sidecars outlive their JVM: {left}"
        time.sleep(0.1)


def finish(trial: Trial) -> None:
    """A last driver that handles a few more batches and stops in good order."""
    process = launch(trial, trial.last_commit() + 3)
    assert process.wait(timeout=DEADLINE_S) == 0


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert process.poll() is None, "the driver ended by itself"
        assert time.monotonic() < deadline, f"no batch in {DEADLINE_S} s"
        time.sleep(0.05)


def check(trial: Trial, spark: SparkSession) -> None:
    committed = trial.last_commit() + 1
    for batch, rows in endless.expected(OPERATOR, committed).items():
        path = rows_directory(trial.directory) / f"{batch}.json"
        assert json.loads(path.read_text()) == rows, f"batch {batch}"
    assert endless.state_of_totals(trial, spark) == endless.expected_totals(committed)
