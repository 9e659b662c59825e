"""One Spark session for all integration tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from integration.support import start_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
