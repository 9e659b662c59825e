from collections.abc import Iterator

import pytest

from tests.support.harness import Harness


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A JVM with state store providers in it, started by the first test that needs one."""
    harness = Harness(tmp_path_factory.mktemp("harness"))
    yield harness
    harness.close()
