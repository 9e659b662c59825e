"""`floe conf`: what comes out can be used as it is."""

import ast
import shlex

import pytest
from typer.testing import CliRunner

import floe
from floe.cli import app
from floe.cli.conf import overhead_bytes
from floe.session import PROVIDER_CLASS, PROVIDER_KEY
from floe.settings import GIB, MIB


def conf(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["conf", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_spark_submit_options_survive_the_shells_word_splitting() -> None:
    assert shlex.split(conf()) == [
        "--jars",
        str(floe.jar()),
        "--conf",
        f"{PROVIDER_KEY}={PROVIDER_CLASS}",
    ]


def test_memory_brings_its_overhead() -> None:
    words = shlex.split(conf("--memory", "4g"))
    assert "spark.sql.streaming.stateStore.floe.memory=4g" in words
    assert "spark.executor.memoryOverhead=4480m" in words


def test_auto_memory_needs_no_line() -> None:
    assert conf("--memory", "AUTO") == conf()


def test_spark_defaults_hold_keys_values_and_comments() -> None:
    lines = conf("--format", "spark-defaults", "--memory", "4g").splitlines()
    pairs = dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    assert pairs == {
        "spark.jars": str(floe.jar()),
        PROVIDER_KEY: PROVIDER_CLASS,
        "spark.sql.streaming.stateStore.floe.memory": "4g",
        "spark.executor.memoryOverhead": "4480m",
    }
    assert any("outside the JVM heap" in line for line in lines if line.startswith("#"))


@pytest.mark.parametrize("arguments", [[], ["--memory", "512m"]])
def test_python_lines_are_a_program(arguments: list[str]) -> None:
    program = conf("--format", "python", *arguments)
    ast.parse(program)
    assert "floe.configure(builder).getOrCreate()" in program


def test_a_bad_size_is_refused_with_the_key() -> None:
    result = CliRunner().invoke(app, ["conf", "--memory", "lots"])
    assert result.exit_code == 1
    assert "floe.memory is 'lots'; allowed: auto, or at least 1m." in result.stderr


@pytest.mark.parametrize(
    ("memory_bytes", "expected"),
    [(4 * GIB, 4 * GIB + 384 * MIB), (100 * MIB, 512 * MIB), (128 * MIB, 512 * MIB)],
)
def test_overhead_covers_memory_and_base_in_even_steps(memory_bytes: int, expected: int) -> None:
    assert overhead_bytes(memory_bytes) == expected
