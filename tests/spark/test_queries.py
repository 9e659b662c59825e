"""One small query per stateful operator on Floe, against a model in plain Python.

Each query runs twice on one checkpoint, so that the second run loads what the first one left. The
rows of every batch must be those that `integration/queries/expected.py` computes. To check the
models themselves, name another provider: FLOE_TEST_PROVIDER=rocksdb.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.queries.events import random_batches
from integration.queries.expected import expected_batches
from integration.queries.operators import OPERATORS
from integration.queries.runner import Trial
from integration.support import provider_under_test

pytestmark = pytest.mark.spark

# How many batches are visible to each of the two runs.
RUNS = (3, 5)
INPUTS = [random_batches(seed, count=RUNS[-1], rows=40) for seed in (11, 12)]


@pytest.mark.parametrize("name", OPERATORS)
def test_every_batch_holds_the_rows_of_the_model(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    trial = Trial(OPERATORS[name], provider_under_test(), tmp_path)
    for visible in RUNS:
        trial.feed(INPUTS, visible)
        trial.run(spark)
    assert trial.batches == expected_batches(trial.operator, INPUTS, RUNS)
