"""Where files come from: the store's own directory, or copies that are asked for."""

from pathlib import Path

import pytest

from floe.checkpoint.source import FileSource, NeedFiles
from floe.errors import Corrupt


def test_a_directory_shows_only_files_of_ours(tmp_path: Path) -> None:
    for name in ("1.delta", "2.delta", "x.txt", ".1.delta.crc"):
        (tmp_path / name).write_bytes(b"data")
    source = FileSource(tmp_path)
    assert sorted(named.name for named in source.names()) == ["1.delta", "2.delta"]
    assert source.exists("1.delta")
    assert not source.exists("3.delta")
    assert source.read("1.delta") == b"data"


def test_a_directory_that_is_not_there_is_empty(tmp_path: Path) -> None:
    source = FileSource(tmp_path / "absent")
    assert source.names() == []
    assert not source.exists("1.delta")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Corrupt) as caught:
        FileSource(tmp_path).read("1.delta")
    assert caught.value.fields["path"] == str(tmp_path / "1.delta")


def test_a_listing_knows_files_that_are_not_here_yet(tmp_path: Path) -> None:
    source = FileSource(tmp_path, frozenset({"1.delta", "2.delta", "x.txt"}))
    assert sorted(named.name for named in source.names()) == ["1.delta", "2.delta"]
    assert source.exists("1.delta")
    with pytest.raises(NeedFiles) as need:
        source.read("1.delta")
    assert need.value.names == ["1.delta"]


def test_only_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    source = FileSource(tmp_path, frozenset({"1.delta", "2.delta"}))
    (tmp_path / "1.delta").write_bytes(b"")
    with pytest.raises(NeedFiles) as need:
        source.require(["1.delta", "2.delta", "3.delta"])
    assert need.value.names == ["2.delta"]
    (tmp_path / "2.delta").write_bytes(b"")
    source.require(["1.delta", "2.delta"])


def test_a_file_outside_of_the_listing_is_missing_and_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="is missing"):
        FileSource(tmp_path, frozenset()).read("1.delta")
