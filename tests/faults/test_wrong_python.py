"""Interpreters that cannot run the sidecar: named, with what is missing, and nothing is lost."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import floe
from floe.config import PREFIX
from tests.support.batches import Batches, lived_in, with_keys
from tests.support.harness import Harness
from tests.support.providers import FLOE_V1
from tests.support.refusals import Refusal
from tests.support.sidecars import SwitchedPython


@dataclass
class Workshop:
    """A store, and the Python that its sidecars run with."""

    batches: Batches
    python: SwitchedPython

    def refusal(self, spoil: Callable[[], None]) -> Refusal:
        """What a store says whose Python was spoilt, after checking that repairing it helps."""
        self.batches.harness.kill_sidecars()
        spoil()
        try:
            refusal = self.batches.refusal(self.batches.last)
        finally:
            self.python.repair()
        self.batches.check()
        return refusal


@pytest.fixture(scope="module")
def workshop(
    new_harness: Callable[[], Harness], tmp_path_factory: pytest.TempPathFactory
) -> Workshop:
    directory = tmp_path_factory.mktemp("workshop")
    python = SwitchedPython(directory / "python")
    kind = with_keys(FLOE_V1, python=str(python.path))
    return Workshop(lived_in(new_harness(), kind, directory / "checkpoint"), python)


def test_a_python_that_is_not_there_is_named_with_the_keys_to_set(workshop: Workshop) -> None:
    refusal = workshop.refusal(workshop.python.vanish)
    assert refusal.kind == "InvalidRequest"
    assert f"cannot run {workshop.python.path}" in refusal.text
    assert "No such file" in refusal.text
    for key in (PREFIX + "python", "spark.pyspark.python", "PYSPARK_PYTHON"):
        assert key in refusal.text


def test_a_file_that_may_not_be_run_is_named(workshop: Workshop) -> None:
    refusal = workshop.refusal(lambda: workshop.python.path.chmod(0o644))
    assert refusal.kind == "InvalidRequest"
    assert f"cannot run {workshop.python.path}" in refusal.text
    assert "Permission denied" in refusal.text


def test_a_python_without_floe_says_which_package_is_missing(
    workshop: Workshop, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    script = f'unset PYTHONPATH\nexec {tmp_path}/bare/bin/python "$@"'
    refusal = workshop.refusal(lambda: workshop.python.become(script))
    assert refusal.kind == "InvalidRequest"
    assert f"{workshop.python.path} cannot run the sidecar: exit code 1" in refusal.text
    assert "No module named 'floe'" in refusal.text
    assert "must be installed for this Python on every executor" in refusal.text
    assert PREFIX + "python" in refusal.text


def test_a_floe_of_another_version_is_named_beside_that_of_the_jar(
    workshop: Workshop, tmp_path: Path
) -> None:
    package = tmp_path / "floe"
    shutil.copytree(
        Path(floe.__file__).parent, package, ignore=shutil.ignore_patterns("jars", "__pycache__")
    )
    init = package / "__init__.py"
    other, changes = re.subn(r'__version__ = ".*"', '__version__ = "9.8.7"', init.read_text())
    assert changes == 1
    init.write_text(other)
    script = f'export PYTHONPATH={tmp_path}\nexec "$PYTHON" "$@"'
    refusal = workshop.refusal(lambda: workshop.python.become(script))
    assert refusal.kind == "InvalidRequest"
    assert f"the jar is Floe {floe.__version__}" in refusal.text
    assert "is Floe 9.8.7" in refusal.text
    assert sys.executable in refusal.text
    assert "install the same version on both sides" in refusal.text


def test_a_program_that_ends_without_a_word_is_no_python(workshop: Workshop) -> None:
    refusal = workshop.refusal(lambda: workshop.python.become("exit 0"))
    assert refusal.kind == "InvalidRequest"
    assert f"{workshop.python.path} cannot run the sidecar: exit code 0" in refusal.text
    assert PREFIX + "python" in refusal.text


def test_a_python_that_says_something_else_first_is_quoted(workshop: Workshop) -> None:
    """Activation scripts and wrappers print to standard output, where the greeting goes."""
    script = 'echo "activating environment"\nexec "$PYTHON" "$@"'
    refusal = workshop.refusal(lambda: workshop.python.become(script))
    assert str(workshop.python.path) in refusal.text
    assert "activating environment" in refusal.text
    assert PREFIX + "python" in refusal.text


def test_a_python_that_is_too_old_is_told_which_one_is_needed(workshop: Workshop) -> None:
    """Before 3.11 there is no option -P, and that is all that such a Python says."""
    script = 'echo "Unknown option: -P" >&2\nexit 2'
    refusal = workshop.refusal(lambda: workshop.python.become(script))
    assert f"{workshop.python.path} cannot run the sidecar: exit code 2" in refusal.text
    assert "Unknown option: -P" in refusal.text
    assert "3.11" in refusal.text
