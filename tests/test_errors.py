"""The error tree: kinds stay few, and an error survives the way to the other process."""

import json

import pytest

from floe import errors
from floe.errors import Corrupt, FloeError

KINDS = [
    errors.InvalidRequest,
    errors.Unavailable,
    errors.Corrupt,
    errors.Fenced,
    errors.Closed,
    errors.InternalError,
]


@pytest.mark.parametrize("error_class", KINDS)
def test_each_kind_is_named_as_its_class(error_class: type[FloeError]) -> None:
    assert error_class.kind == error_class.__name__
    assert issubclass(error_class, FloeError)


def test_wire_form_holds_kind_message_and_fields() -> None:
    error = Corrupt("The delta's checksum is wrong.", path="3.delta", version=3)
    assert str(error) == "The delta's checksum is wrong."
    assert json.loads(json.dumps(error.wire())) == {
        "kind": "Corrupt",
        "message": "The delta's checksum is wrong.",
        "fields": {"path": "3.delta", "version": 3},
    }


def test_a_subclass_travels_as_its_kind() -> None:
    class DeltaCorrupt(Corrupt):
        pass

    assert DeltaCorrupt("wrong").wire()["kind"] == "Corrupt"
