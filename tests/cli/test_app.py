"""The assembled command: what it lists, and that listing it is quick."""

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

import floe
from floe.cli import app


def test_no_arguments_show_the_help() -> None:
    output = CliRunner().invoke(app, []).output
    for command in ("conf", "jar", "doctor"):
        assert command in output


def test_help_of_each_command_shows_an_example() -> None:
    for command in ("conf", "jar", "doctor"):
        output = CliRunner().invoke(app, [command, "--help"]).output
        assert f"floe {command}" in output


def test_the_command_line_loads_without_spark() -> None:
    source = Path(floe.__file__).parents[1]
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r}); import floe.cli; "
        "print({'pyspark', 'pyarrow', 'numpy', 'matplotlib'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "set()"
