"""Keys that do not exist and values out of range, as a query meets them: when its store opens."""

from collections.abc import Callable
from pathlib import Path

import pytest

from floe.config import PREFIX, settings
from tests.support.batches import Batches, some_rows, with_keys, with_settings
from tests.support.harness import Harness
from tests.support.providers import FLOE_V1

# A value that each setting refuses, and how the refusal tells the right ones.
OUT_OF_RANGE = {
    "memory": ("512k", "auto, or at least 1m"),
    "sidecar.processes": ("17", "1 to 16"),
    "sidecar.startTimeoutMs": ("60s", "1 to 3600000"),
    "sidecar.callTimeoutMs": ("3600001", "1 to 3600000"),
    "stampTimeoutMs": ("-1", "1 to 3600000"),
    "checkpoint.codec": ("snappy", "lz4 | zstd | none"),
    "checkpoint.fsync": ("yes", "true | false"),
    "log.segmentBytes": ("2g", "1m to 1g"),
    "log.minLiveRatio": ("1.5", "0 to 1"),
    "slabBytes": ("3m", "a power of two, 1m to 64m"),
}
# Whatever they say, it is only wrong if it is not there: other tests.
TEXTS = {"python", "localDir"}


@pytest.fixture(scope="module")
def batches(
    new_harness: Callable[[], Harness], tmp_path_factory: pytest.TempPathFactory
) -> Batches:
    """A store whose settings are right, open in the JVM in which others are refused."""
    batches = Batches(new_harness(), FLOE_V1, tmp_path_factory.mktemp("settings"))
    batches.commit(some_rows(0))
    batches.commit(some_rows(10))
    return batches


def test_each_setting_with_limits_has_a_value_beyond_them() -> None:
    assert OUT_OF_RANGE.keys() == {row.suffix for row in settings()} - TEXTS


@pytest.mark.parametrize("suffix", OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_with_its_key_and_the_range(
    batches: Batches, suffix: str
) -> None:
    value, allowed = OUT_OF_RANGE[suffix]
    wrong = with_settings(FLOE_V1, {PREFIX + suffix: value})
    refusal = Batches(batches.harness, wrong, batches.root).refusal(batches.last)
    assert refusal.kind == "InvalidRequest"
    assert f"{PREFIX}{suffix} is '{value}'" in refusal.text
    assert f"allowed: {allowed}" in refusal.text
    batches.check()


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("memmory", "memory"), ("sidecar.callTimeout", "sidecar.callTimeoutMs")],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(
    batches: Batches, wrong: str, meant: str
) -> None:
    kind = with_settings(FLOE_V1, {PREFIX + wrong: "1"})
    refusal = Batches(batches.harness, kind, batches.root).refusal(batches.last)
    assert refusal.kind == "InvalidRequest"
    assert f"{PREFIX}{wrong} is no key of Floe" in refusal.text
    assert f"did you mean {PREFIX}{meant}?" in refusal.text
    batches.check()


def test_a_key_like_no_other_is_refused_with_the_list(batches: Batches) -> None:
    kind = with_settings(FLOE_V1, {PREFIX + "xyzzy": "1"})
    refusal = Batches(batches.harness, kind, batches.root).refusal(batches.last)
    assert all(row.suffix in refusal.text for row in settings())
    batches.check()


def test_a_refused_query_leaves_the_queries_beside_it_alone(
    batches: Batches, tmp_path: Path
) -> None:
    """Even when the sidecar dies later, and the next one is told which stores there are."""
    misspelt = with_keys(FLOE_V1, memmory="4g")
    Batches(batches.harness, misspelt, tmp_path).refusal(batches.versions[0])
    batches.harness.kill_sidecars()
    batches.commit(some_rows(20))
    batches.check()
