"""Names of durable files: ours are understood, everybody else's are left alone."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floe.storage import paths
from floe.storage.paths import Named

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


@given(st.integers(1, 2**63 - 1), st.uuids())
def test_names_are_taken_apart_as_they_are_made(version: int, id: UUID) -> None:
    name = paths.delta(version, id)
    assert paths.parse(name) == Named(name, "delta", version, id)
    name = paths.delta_alias(version)
    assert paths.parse(name) == Named(name, "delta", version, None)
    name = paths.manifest(version, id)
    assert paths.parse(name) == Named(name, "manifest", version, id)
    name = paths.segment(id, version)
    assert paths.parse(name) == Named(name, "segment", None, id)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_metadata",
        "schema",
        ".1.delta.crc",
        f".{ID}.tmp",
        f".{paths.segment(ID, 1)}.{ID}.tmp",
        "1.snapshot",
        "1.zip",
        "1.manifest",
        "1.delta.tmp",
        "x1.delta",
        "-1.delta",
        "1 .delta",
        "01.delta",
        "٣.delta",
        f"1_{ID}x.delta",
        f"1_{'-' * 36}.delta",
        f"{'0' * 36}-1.segment",
        f"1_{str(ID).upper()}.delta",
        f"1_{ID}.changelog",
        f"{ID}.segment",
        "left-keyToNumValues",
    ],
)
def test_names_of_others_are_not_ours(name: str) -> None:
    assert paths.parse(name) is None


@given(st.text("0123456789abcdef-_.deltmanifsg", max_size=60))
def test_any_name_can_be_asked_about(name: str) -> None:
    found = paths.parse(name)
    assert found is None or found.name == name


def test_a_name_says_what_it_says_after_a_restart() -> None:
    id = uuid4()
    assert paths.delta(12, id) == f"12_{id}.delta"
    assert paths.delta_alias(12) == "12.delta"
    assert paths.manifest(12, id) == f"12_{id}.manifest"
    assert paths.segment(id, 3) == f"{id}-3.segment"
