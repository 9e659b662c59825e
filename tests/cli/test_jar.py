"""`floe jar`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import floe
from floe.cli import app


def test_jar_prints_the_path_alone() -> None:
    result = CliRunner().invoke(app, ["jar"])
    assert result.exit_code == 0
    assert result.stdout == f"{floe.jar()}\n"


def test_a_missing_jar_is_a_sentence_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floe.session.__file__", str(tmp_path / "session.py"))
    result = CliRunner().invoke(app, ["jar"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("floe: Floe's jar is not there")
    assert "make jar" in result.stderr
