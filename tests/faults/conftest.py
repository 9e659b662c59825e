"""JVMs that are spoilt on purpose, each for some of the tests; `harness` stays healthy.

The first store in a JVM decides how its sidecars are run, so every such setting has its own JVM.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.harness import Harness
from tests.support.sidecars import Workshop


@pytest.fixture(scope="session")
def new_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Harness]]:
    """Starts JVMs that end with the tests."""
    started: list[Harness] = []

    def start() -> Harness:
        started.append(Harness(tmp_path_factory.mktemp("jvm"), heap="512m"))
        return started[-1]

    yield start
    for harness in started:
        harness.close()


@pytest.fixture(scope="session")
def workshop(
    new_harness: Callable[[], Harness], tmp_path_factory: pytest.TempPathFactory
) -> Workshop:
    return Workshop.set_up(new_harness(), tmp_path_factory.mktemp("workshop"))
