"""Sidecars that die at once, never answer, or stop answering: an error in time, then recovery."""

import os
import signal
import time

import pytest

from floe.config import PREFIX
from tests.support.batches import Batches, some_rows
from tests.support.harness import StoreFailure
from tests.support.refusals import Refusal, refused
from tests.support.sidecars import CALL_TIMEOUT_MS, START_TIMEOUT_MS, Workshop, sidecar_pids

# How long the provider leaves a sidecar alone that has died three times, and some more.
PATIENCE_S = 30

# Passes the greeting on, then dies as by the kernel's hand, and its sidecar with it.
DIES_AFTER_THE_GREETING = """
import os, subprocess, sys

sidecar = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE)
os.write(1, sidecar.stdout.readline())
sidecar.kill()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def batches(workshop: Workshop) -> Batches:
    return workshop.batches


def test_a_sidecar_that_never_greets_is_given_up_in_time(workshop: Workshop) -> None:
    batches, python = workshop.batches, workshop.python
    with workshop.spoilt(lambda: python.become("exec sleep 60")):
        started = time.monotonic()
        refusal = batches.refusal(batches.last)
        waited_s = time.monotonic() - started
    assert START_TIMEOUT_MS / 1000 <= waited_s < CALL_TIMEOUT_MS / 1000
    assert refusal.kind == "Unavailable"
    assert str(python.path) in refusal.text
    assert f"gave no answer in {START_TIMEOUT_MS} ms" in refusal.text
    assert f"raise {PREFIX}sidecar.startTimeoutMs" in refusal.text
    batches.check()


def test_a_sidecar_that_stops_answering_is_replaced(batches: Batches) -> None:
    handle = batches.begin(some_rows(100))
    (hanging,) = sidecar_pids(batches.harness)
    os.kill(hanging, signal.SIGSTOP)
    refusal = refused(handle.commit)
    assert refusal.kind == "Unavailable"
    assert f"did not answer prepare within {CALL_TIMEOUT_MS} ms" in refusal.text
    assert PREFIX + "sidecar.callTimeoutMs" in refusal.text
    handle.abort()
    batches.commit(some_rows(200))
    assert hanging not in sidecar_pids(batches.harness)
    batches.check()


@pytest.fixture(scope="module")
def deaths(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> list[Refusal]:
    """What two tasks were told whose sidecars all died young; then the Python was repaired."""
    dies = tmp_path_factory.mktemp("dies") / "dies.py"
    dies.write_text(DIES_AFTER_THE_GREETING)
    batches = workshop.batches
    with workshop.spoilt(lambda: workshop.python.become(f'exec "$PYTHON" {dies} "$@"')):
        return [batches.refusal(batches.last) for _ in range(2)]


def test_three_deaths_in_a_row_are_told_with_the_exit_code_and_the_log(
    batches: Batches, deaths: list[Refusal]
) -> None:
    for refusal in deaths:
        assert refusal.kind == "Unavailable"
        assert "the sidecar died 3 times in a row" in refusal.text
        assert "exit code 137" in refusal.text
        assert "Last lines of" in refusal.text
        assert f"serves JVM {batches.harness._process.pid}" in refusal.text


def test_what_to_do_about_a_sidecar_that_is_killed_is_said(deaths: list[Refusal]) -> None:
    """The kernel kills it for memory more often than anything else does."""
    assert all("memoryOverhead" in refusal.text for refusal in deaths)


@pytest.mark.usefixtures("deaths")
def test_after_three_deaths_the_store_opens_as_soon_as_sidecars_live(batches: Batches) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not opens(batches):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    batches.commit(some_rows(300))
    batches.check()


def opens(batches: Batches) -> bool:
    try:
        batches.load(batches.last)
    except StoreFailure:
        return False
    return True
