from collections.abc import Iterator

import hypothesis
import pytest

from tests.support.harness import Harness

# Examples take as long as the machine is busy; only results count.
hypothesis.settings.register_profile("floe", deadline=None)
hypothesis.settings.load_profile("floe")


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A JVM with state store providers in it, started by the first test that needs one."""
    harness = Harness(tmp_path_factory.mktemp("harness"))
    yield harness
    harness.close()
