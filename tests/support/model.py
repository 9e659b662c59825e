"""The judge of the model tests: a store as a dict, and the operations that both understand.

An `Operation` knows its form on the wire (StoreScript.scala) and what it does to a dict. Rows are
shown as the JVM shows them: a string of more than 64 characters is its length and checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Key = tuple[int, str | int | None]
Shown = tuple[int, str | None]
Rows = dict[Key, Shown]

LONGEST_SHOWN = 64


@dataclass(frozen=True)
class Value:
    """A number, and the first `length` characters of a pattern repeated; no pattern is null."""

    number: int
    pattern: str | None
    length: int = 0

    def wire(self) -> list[Any]:
        return [self.number, self.pattern, self.length]

    def shown(self) -> Shown:
        if self.pattern is None:
            return self.number, None
        times = self.length // len(self.pattern) + 1
        text = (self.pattern * times)[: self.length]
        if len(text) > LONGEST_SHOWN:
            text = f"#{len(text)}:{zlib.crc32(text.encode()):08x}"
        return self.number, text


@dataclass(frozen=True)
class Put:
    key: Key
    value: Value

    def wire(self) -> list[Any]:
        return ["put", self.key, self.value.wire()]

    def apply(self, rows: Rows) -> Any:
        rows[self.key] = self.value.shown()


@dataclass(frozen=True)
class Remove:
    key: Key

    def wire(self) -> list[Any]:
        return ["remove", self.key]

    def apply(self, rows: Rows) -> Any:
        rows.pop(self.key, None)


@dataclass(frozen=True)
class Get:
    key: Key

    def wire(self) -> list[Any]:
        return ["get", self.key]

    def apply(self, rows: Rows) -> Any:
        shown = rows.get(self.key)
        return None if shown is None else list(shown)


@dataclass(frozen=True)
class Exists:
    key: Key

    def wire(self) -> list[Any]:
        return ["exists", self.key]

    def apply(self, rows: Rows) -> Any:
        return self.key in rows


@dataclass(frozen=True)
class Scan:
    def wire(self) -> list[Any]:
        return ["scan"]

    def apply(self, rows: Rows) -> Any:
        return _pairs(rows, rows)


@dataclass(frozen=True)
class PrefixScan:
    prefix: int

    def wire(self) -> list[Any]:
        return ["prefix", [self.prefix]]

    def apply(self, rows: Rows) -> Any:
        return _pairs(rows, [key for key in rows if key[0] == self.prefix])


@dataclass(frozen=True)
class Evict:
    """Removes the keys below the bound during a scan, as watermarked operators do."""

    bound: int

    def wire(self) -> list[Any]:
        return ["evict", self.bound]

    def apply(self, rows: Rows) -> Any:
        evicted = [key for key in rows if key[0] < self.bound]
        answer = _pairs(rows, evicted)
        for key in evicted:
            del rows[key]
        return answer


@dataclass(frozen=True)
class Bump:
    """Adds one to the numbers of the keys below the bound during a scan."""

    bound: int

    def wire(self) -> list[Any]:
        return ["bump", self.bound]

    def apply(self, rows: Rows) -> Any:
        bumped = [key for key in rows if key[0] < self.bound]
        answer = _pairs(rows, bumped)
        for key in bumped:
            number, text = rows[key]
            rows[key] = (number + 1 + 2**63) % 2**64 - 2**63, text  # a long wraps around
        return answer


Operation = Put | Remove | Get | Exists | Scan | PrefixScan | Evict | Bump


def expected(operations: Iterable[Operation], rows: Rows) -> list[Any]:
    """The answers of a right store; the rows change as it would."""
    return [operation.apply(rows) for operation in operations]


def comparable(answers: list[Any]) -> list[Any]:
    """Answers without the order of scans, which a store is free to choose."""
    return [sorted(a, key=repr) if _is_scan(a) else a for a in answers]


def _pairs(rows: Rows, keys: Iterable[Key]) -> list[list[Any]]:
    return [[*key, *rows[key]] for key in keys]


def _is_scan(answer: Any) -> bool:
    return isinstance(answer, list) and all(isinstance(pair, list) for pair in answer)
