"""Commands that need Java, on a machine without one: a sentence with what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "run": ["run", "--rows", "10", "--batches", "2"],
    "bench": ["bench", "micro", "--keys", "1000"],
    "doctor": ["doctor"],
}


def without_java(arguments: list[str], java_home: str | None) -> subprocess.CompletedProcess[str]:
    """The command with nothing on PATH, and JAVA_HOME as given."""
    environment = {
        key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PATH")
    }
    environment |= {"PATH": "", "PYTHONPATH": str(ROOT / "python")}
    if java_home is not None:
        environment["JAVA_HOME"] = java_home
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def floe(*arguments: str) -> list[str]:
    return ["-c", "from floe.cli import app; app()", *arguments]


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_command_without_java_says_what_to_install(arguments: list[str]) -> None:
    done = without_java(floe(*arguments), java_home=None)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert "Java 17 or newer" in said
    assert "PATH" in said
    assert "JAVA_HOME" in said


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_java_home_without_java_is_named(arguments: list[str], tmp_path: Path) -> None:
    done = without_java(floe(*arguments), java_home=str(tmp_path))
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert str(tmp_path / "bin" / "java") in said
    assert "JAVA_HOME" in said


@pytest.mark.parametrize("has_java_home", [False, True])
def test_building_the_jars_without_java_says_what_to_install(
    has_java_home: bool, tmp_path: Path
) -> None:
    build = [str(ROOT / "jvm-shim" / "build.py"), "--out", str(tmp_path / "jars")]
    done = without_java(build, str(tmp_path) if has_java_home else None)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    assert "No java found" in done.stderr
    assert "JDK 17 or newer" in done.stderr
    assert "JAVA_HOME" in done.stderr
    assert not (tmp_path / "jars").exists()
