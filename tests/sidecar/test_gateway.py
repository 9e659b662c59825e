"""The door: what the shim is told, whatever happens behind it."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from floe.config import PREFIX
from floe.engine import Engine
from floe.sidecar.gateway import Door
from tests.support.memory import slab_pool

MIB = 1 << 20
TABLE = "table 1"


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with slab_pool(4 * MIB, MIB) as pool:
        door = Door(Engine(pool))
        ok(door, "register", key=TABLE, store="store 1", conf={}, local=str(tmp_path / "log"))
        yield door


def send(door: Door, *calls: tuple[str, dict[str, Any]], free: Any = None) -> dict[str, Any]:
    wire = [{"method": method, "args": args} for method, args in calls]
    answer = json.loads(door.call(json.dumps({"free": free or {}, "calls": wire})))
    assert set(answer) == {"answers", "gone"}
    assert len(answer["answers"]) == len(calls)
    return dict(answer)


def ok(door: Door, method: str, **args: Any) -> Any:
    (answer,) = send(door, (method, args))["answers"]
    assert set(answer) == {"ok"}, answer
    return answer["ok"]


def error(door: Door, method: str, **args: Any) -> Any:
    (answer,) = send(door, (method, args))["answers"]
    assert set(answer) == {"error"}, answer
    assert set(answer["error"]) == {"kind", "message", "fields"}
    return answer["error"]


def test_an_answer_is_what_the_engine_says(door: Door) -> None:
    extent = ok(door, "allocate", key=TABLE, kind="arena", bytes=5000)
    assert extent["bytes"] == 8192
    memory = ok(door, "memory")
    assert (memory["used"], memory["budget"]) == (8192, 4 * MIB)


def test_an_unknown_table_is_fenced(door: Door) -> None:
    told = error(door, "allocate", key="nobody", kind="arena", bytes=1)
    assert told["kind"] == "Fenced"
    assert "nobody" in told["message"]
    assert told["fields"] == {"table": "nobody"}


def test_a_full_budget_is_an_invalid_request_with_its_numbers(door: Door) -> None:
    told = error(door, "allocate", key=TABLE, kind="arena", bytes=4 * MIB)
    assert told["kind"] == "InvalidRequest"
    assert told["fields"] == {"store": "store 1", "budget": 4 * MIB, "used": 0}


def test_a_key_that_is_no_key_is_an_invalid_request(door: Door) -> None:
    conf = {PREFIX + "memry": "1g"}
    told = error(door, "register", key="k", store="s", conf=conf, local="x")
    assert told["kind"] == "InvalidRequest"
    assert "did you mean" in told["message"]


def test_a_load_of_another_sidecar_is_fenced(door: Door) -> None:
    told = error(door, "load_more", key=TABLE, session=77)
    assert told["kind"] == "Fenced"
    assert "store 1" in told["message"]


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("memory", {"unexpected": 1}),
        ("allocate", {"key": TABLE, "kind": "arena"}),
        ("allocate", {"key": TABLE, "kind": "arena", "bytes": "many"}),
    ],
)
def test_a_bug_is_an_internal_error_with_its_trace_in_the_log(
    door: Door, caplog: pytest.LogCaptureFixture, method: str, args: dict[str, Any]
) -> None:
    with caplog.at_level(logging.ERROR):
        told = error(door, method, **args)
    assert told["kind"] == "InternalError"
    assert told["message"].startswith(f"{method}: TypeError: ")
    (record,) = caplog.records
    assert record.exc_info is not None


@pytest.mark.parametrize("method", ["trim", "_table", "__init__", "pool", "nothing"])
def test_only_calls_of_the_wire_can_be_reached(door: Door, method: str) -> None:
    told = error(door, method)
    assert told["kind"] == "InternalError"
    assert method in told["message"]


def test_a_call_that_fails_leaves_the_others_of_its_message_alone(door: Door) -> None:
    take = ("allocate", {"key": TABLE, "kind": "arena", "bytes": 4096})
    lost = ("allocate", {"key": "nobody", "kind": "arena", "bytes": 4096})
    answers = send(door, take, lost, ("nothing", {}), take)["answers"]
    assert [set(answer) for answer in answers] == [{"ok"}, {"error"}, {"error"}, {"ok"}]
    assert ok(door, "memory")["used"] == 8192


def test_memory_that_a_message_gives_back_serves_its_calls(door: Door) -> None:
    take = ("allocate", {"key": TABLE, "kind": "arena", "bytes": 4 * MIB - 4096})
    first = send(door, take)["answers"][0]["ok"]
    assert "error" in send(door, take)["answers"][0]
    again = send(door, take, free={TABLE: [first["ref"]]})["answers"][0]["ok"]
    assert again["bytes"] == first["bytes"]


def test_slabs_that_went_are_named_once(door: Door) -> None:
    take = ("allocate", {"key": TABLE, "kind": "arena", "bytes": 4 * MIB - 4096})
    extent = send(door, take)["answers"][0]["ok"]
    ((number, _, _),) = extent["slabs"]
    assert send(door, free={TABLE: [extent["ref"]]})["gone"] == [number]
    assert send(door, free={TABLE: [extent["ref"]]})["gone"] == []


def test_a_message_without_calls_has_no_answers(door: Door) -> None:
    assert send(door) == {"answers": [], "gone": []}
