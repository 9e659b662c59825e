"""Interpreters that cannot run the sidecar: named, with what is missing, and nothing is lost."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import floe
from floe.config import PREFIX
from tests.support.sidecars import Workshop


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
    refusal = workshop.refusal_with(script)
    assert refusal.kind == "InvalidRequest"
    assert f"{workshop.python.path} cannot run the sidecar: exit code 1" in refusal.text
    assert "No module named 'floe'" in refusal.text
    assert "with the floe package, on every executor" in refusal.text
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
    refusal = workshop.refusal_with(script)
    assert refusal.kind == "InvalidRequest"
    assert f"the jar is Floe {floe.__version__}" in refusal.text
    assert "is Floe 9.8.7" in refusal.text
    assert sys.executable in refusal.text
    assert "install the same version on both sides" in refusal.text


def test_a_program_that_ends_without_a_word_is_no_python(workshop: Workshop) -> None:
    refusal = workshop.refusal_with("read greeting\nexit 0")
    assert refusal.kind == "InvalidRequest"
    assert f"{workshop.python.path} cannot run the sidecar: exit code 0" in refusal.text
    assert PREFIX + "python" in refusal.text


def test_a_program_that_ends_before_it_is_greeted_is_no_python_either(workshop: Workshop) -> None:
    """Sooner or later than the JVM's first word: both happen."""
    with workshop.spoilt(lambda: workshop.python.become("exit 2")):
        refusals = [workshop.batches.refusal(workshop.batches.last) for _ in range(20)]
    workshop.batches.check()
    for refusal in refusals:
        assert f"{workshop.python.path} cannot run the sidecar: exit code 2" in refusal.text
        assert PREFIX + "python" in refusal.text


def test_a_python_that_says_something_else_first_is_quoted(workshop: Workshop) -> None:
    """Activation scripts and wrappers print to standard output, where the greeting goes."""
    refusal = workshop.refusal_with('echo "activating environment"\nexec "$PYTHON" "$@"')
    assert str(workshop.python.path) in refusal.text
    assert "activating environment" in refusal.text
    assert PREFIX + "python" in refusal.text


# Before 3.11 there is no option -P, and that is all that such a Python says.
TOO_OLD = 'read greeting\necho "Unknown option: -P" >&2\nexit 2'


def test_a_python_that_is_too_old_is_quoted(workshop: Workshop) -> None:
    refusal = workshop.refusal_with(TOO_OLD)
    assert f"{workshop.python.path} cannot run the sidecar: exit code 2" in refusal.text
    assert "Unknown option: -P" in refusal.text
    assert PREFIX + "python" in refusal.text


def test_a_python_that_is_too_old_is_told_which_one_is_needed(workshop: Workshop) -> None:
    assert "3.11" in workshop.refusal_with(TOO_OLD).text
