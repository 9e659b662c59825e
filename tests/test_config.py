"""The table of settings: what it accepts, what it refuses, and that nothing drifts from it."""

import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from floe.config import PREFIX, Codec, FloeConfig, settings
from floe.config_files import rendered
from floe.errors import InvalidRequest
from floe.settings import GIB, KIB, MIB, format_size, parse_size

ROOT = Path(__file__).resolve().parents[1]


def parse(**suffixes: str) -> FloeConfig:
    return FloeConfig.from_spark({PREFIX + key.replace("_", "."): v for key, v in suffixes.items()})


def refusal(suffix: str, value: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        FloeConfig.from_spark({PREFIX + suffix: value})
    return caught.value


def test_nothing_set_gives_the_defaults() -> None:
    config = FloeConfig.from_spark({})
    assert config == FloeConfig()
    assert config.memory_bytes is None
    assert config.checkpoint_codec is Codec.LZ4
    assert config.log_segment_bytes == 64 * MIB
    assert config.slab_bytes == 16 * MIB


def test_values_become_numbers_flags_and_enum_members() -> None:
    config = parse(
        memory="4g",
        slabBytes="1048576",
        checkpoint_codec="ZSTD",
        checkpoint_fsync="True",
        log_minLiveRatio="0.25",
        sidecar_processes="2",
        localDir=" scratch ",
    )
    assert config.memory_bytes == 4 * GIB
    assert config.slab_bytes == MIB
    assert config.checkpoint_codec is Codec.ZSTD
    assert config.checkpoint_fsync is True
    assert config.log_min_live_ratio == 0.25
    assert config.sidecar_processes == 2
    assert config.local_dir == "scratch"


def test_keys_of_spark_and_of_other_stores_are_left_alone() -> None:
    conf = {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.streaming.stateStore.rocksdb.compactOnCommit": "true",
    }
    assert FloeConfig.from_spark(conf) == FloeConfig()


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("memmory", "memory"),
        ("slabbytes", "slabBytes"),
        ("checkpoint.compression", "checkpoint.codec"),
        ("sidecar.startTimeout", "sidecar.startTimeoutMs"),
        ("segmentBytes", "log.segmentBytes"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(wrong: str, meant: str) -> None:
    error = refusal(wrong, "1")
    assert PREFIX + wrong in error.message
    assert f"did you mean {PREFIX}{meant}?" in error.message
    assert error.fields == {"key": PREFIX + wrong}


def test_a_key_like_no_other_is_refused_with_the_list() -> None:
    message = refusal("xyzzy", "1").message
    assert all(row.suffix in message for row in settings())


@pytest.mark.parametrize(
    ("suffix", "value", "allowed"),
    [
        ("memory", "much", "auto, or at least 1m"),
        ("memory", "-1", "auto, or at least 1m"),
        ("sidecar.processes", "0", "1 to 16"),
        ("sidecar.processes", "17", "1 to 16"),
        ("sidecar.callTimeoutMs", "0", "1 to 3600000"),
        ("stampTimeoutMs", "120s", "1 to 3600000"),
        ("checkpoint.codec", "snappy", "lz4 | zstd | none"),
        ("checkpoint.fsync", "yes", "true | false"),
        ("log.segmentBytes", "512k", "1m to 1g"),
        ("log.segmentBytes", "2g", "1m to 1g"),
        ("log.minLiveRatio", "1.5", "0 to 1"),
        ("log.minLiveRatio", "nan", "0 to 1"),
        ("slabBytes", "3m", "a power of two, 1m to 64m"),
        ("slabBytes", "128m", "a power of two, 1m to 64m"),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_range(
    suffix: str, value: str, allowed: str
) -> None:
    error = refusal(suffix, value)
    assert error.message == f"{PREFIX}{suffix} is {value!r}; allowed: {allowed}."
    assert error.fields == {"key": PREFIX + suffix, "value": value}


def test_limits_hold_for_a_config_built_in_code() -> None:
    with pytest.raises(InvalidRequest, match="slabBytes is '3m'"):
        FloeConfig(slab_bytes=3 * MIB)


def test_a_config_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        FloeConfig().slab_bytes = MIB  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("17", 17), ("64b", 64), ("64K", 64 * KIB), ("512mb", 512 * MIB), ("4 g", 4 * GIB)],
)
def test_sizes_are_read_as_spark_reads_them(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes
    assert parse_size(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize("text", ["", "g", "1.5g", "4x", "-4g", "4gg"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_every_field_carries_its_key_its_unit_and_a_sentence() -> None:
    for declared in fields(FloeConfig):
        assert declared.metadata["key"].startswith(PREFIX)
        assert declared.metadata["doc"].endswith(".")
        assert declared.metadata["unit"] is not None


def test_no_two_settings_share_a_key() -> None:
    keys = [row.key for row in settings()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", sorted(rendered()))
def test_committed_files_are_what_the_table_renders(name: str) -> None:
    committed = (ROOT / name).read_text(encoding="utf-8")
    assert committed == rendered()[name], "run `python -m floe.config_files`"


def test_the_jvm_side_uses_only_keys_of_the_table() -> None:
    suffixes = {row.suffix for row in settings()}
    for path in (ROOT / "jvm-shim" / "src" / "main" / "scala").rglob("FloeConf.scala"):
        used = _key_literals(path.read_text(encoding="utf-8"))
        assert used, f"{path.name} spells no key; has its form changed?"
        assert used <= suffixes, f"{path.name} reads keys that config.py does not have"


def _key_literals(scala: str) -> set[str]:
    """Suffixes of the keys that the file reads: arguments of its accessors, and whole keys."""
    read = re.findall(r'\b(?:text|number|size|flag|ratio)\("([^"]+)"', scala)
    whole = re.findall(rf'"{re.escape(PREFIX)}([^"]+)"', scala)
    return {*read, *whole}
