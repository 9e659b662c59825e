"""A short version of integration/crash/test_kill_sidecar.py: ten deaths, no row lost."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.crash.sidecar_hunt import hunt

pytestmark = [pytest.mark.spark, pytest.mark.crash]

KILLS = 10


def test_queries_survive_ten_deaths_of_their_sidecar(spark: SparkSession, tmp_path: Path) -> None:
    victims = hunt(spark, tmp_path, KILLS, seed=1)
    assert len(set(victims)) == KILLS
