"""Hundreds of kill -9 of the sidecar under running queries cost time, never a row.

FLOE_KILLS says how many (200), FLOE_SEED where the random moments start.
"""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.crash.sidecar_hunt import hunt

pytestmark = [pytest.mark.crash, pytest.mark.soak]

KILLS = int(os.environ.get("FLOE_KILLS", "200"))
SEED = int(os.environ.get("FLOE_SEED", "1"))


def test_queries_survive_every_death_of_their_sidecar(spark: SparkSession, tmp_path: Path) -> None:
    victims = hunt(spark, tmp_path, KILLS, SEED)
    assert len(set(victims)) == KILLS
