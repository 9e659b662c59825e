"""What `floe.configure` puts into a builder. No session is started here."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

import floe
from floe.config import PREFIX
from floe.errors import InvalidRequest
from floe.session import JAR_NAME, PROVIDER_CLASS, PROVIDER_KEY

PYTHON_KEY = PREFIX + "python"


@pytest.fixture(autouse=True)
def plain_python_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of `python app.py` before its first session, whatever ran before."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def options(builder: SparkSession.Builder) -> dict[str, object]:
    return dict(floe.configure(builder)._options)


def test_everything_is_set_on_an_empty_builder() -> None:
    assert options(SparkSession.Builder()) == {
        PROVIDER_KEY: PROVIDER_CLASS,
        PYTHON_KEY: sys.executable,
        "spark.jars": str(floe.jar()),
    }


def test_jars_of_the_user_are_kept() -> None:
    builder = SparkSession.Builder().config("spark.jars", "a.jar,b.jar")
    assert options(builder)["spark.jars"] == f"a.jar,b.jar,{floe.jar()}"


def test_configuring_twice_changes_nothing() -> None:
    builder = SparkSession.Builder().config("spark.jars", "a.jar")
    once = options(builder)
    assert options(builder) == once


def test_the_users_provider_wins() -> None:
    builder = SparkSession.Builder().config(PROVIDER_KEY, "com.example.Other")
    assert options(builder)[PROVIDER_KEY] == "com.example.Other"


def test_the_users_settings_of_floe_win() -> None:
    builder = (
        SparkSession.Builder().config(PYTHON_KEY, "/opt/python").config(PREFIX + "memory", "1g")
    )
    configured = options(builder)
    assert configured[PYTHON_KEY] == "/opt/python"
    assert configured[PREFIX + "memory"] == "1g"


def test_the_python_of_the_workers_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = SparkSession.Builder().config("spark.pyspark.python", "/opt/python")
    assert PYTHON_KEY not in options(builder)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert PYTHON_KEY not in options(SparkSession.Builder())


def test_submit_arguments_that_hide_the_jar_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars other.jar pyspark-shell")
    with pytest.raises(InvalidRequest, match="PYSPARK_SUBMIT_ARGS"):
        floe.configure(SparkSession.Builder())
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--jars other.jar,{floe.jar()} pyspark-shell")
    assert "spark.jars" not in options(SparkSession.Builder())


def test_the_jar_is_in_the_package() -> None:
    assert floe.jar().name == JAR_NAME
    assert floe.jar().parent.parent == Path(floe.__file__).parent


def test_a_missing_jar_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floe.session.__file__", str(tmp_path / "session.py"))
    with pytest.raises(InvalidRequest, match="make jar"):
        floe.jar()


def test_importing_floe_imports_neither_pyspark_nor_pyarrow() -> None:
    source = Path(floe.__file__).parents[1]
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r}); import floe; "
        "print({'pyspark', 'pyarrow', 'numpy', 'py4j', 'typer'} & set(sys.modules))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "set()"
