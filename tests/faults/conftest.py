"""JVMs that are spoilt on purpose, each for the tests of one module; `harness` stays healthy."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.harness import Harness


@pytest.fixture(scope="module")
def new_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Harness]]:
    """Starts JVMs that end with the module. The first store in each decides for its sidecar."""
    started: list[Harness] = []

    def start() -> Harness:
        started.append(Harness(tmp_path_factory.mktemp("jvm"), heap="512m"))
        return started[-1]

    yield start
    for harness in started:
        harness.close()
