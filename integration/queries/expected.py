"""What each query of `operators.py` must emit, computed in plain Python.

The model is a list of steps, one a micro-batch: its rows from each source and the two watermarks
that Spark uses in it. The *eviction* watermark is what the batches before have seen; the *late*
watermark is the eviction watermark of the batch before, so that a row is dropped only if the state
it belongs to is gone. A run that ends with a watermark which has moved on adds a step without
rows: Spark runs such a batch to emit and evict.

Every model is a generator of rows, step by step, with a dict for the state. Times are whole
seconds; timestamps in rows are naive local times, as PySpark returns them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from integration.queries.events import Batch, Event
from integration.queries.operators import (
    DELAY_S,
    IDLE_S,
    JOIN_AFTER_S,
    LIMIT_ROWS,
    LONG_WINDOW_S,
    SESSION_GAP_S,
    WINDOW_S,
    Operator,
)

Rows = list[tuple[Any, ...]]
Model = Callable[[Sequence["Step"]], Iterator[Rows]]


@dataclass(frozen=True, slots=True)
class Step:
    """One micro-batch: the rows of each source and the watermarks, in seconds since 1970."""

    sources: tuple[Batch, ...]
    late_s: int
    evict_s: int

    @property
    def rows(self) -> Batch:
        return self.sources[0]

    def on_time(self, source: int = 0) -> Iterator[Event]:
        return (event for event in self.sources[source] if event.at_s > self.late_s)


def expected_batches(
    operator: Operator,
    inputs: Sequence[Sequence[Batch]],
    runs: Sequence[int],
    idle_batches: bool = True,
) -> dict[int, list[str]]:
    """The rows of every batch as text.

    `runs` says how many batches are visible to each run. A source that always has data leaves no
    room for batches without: `idle_batches` is then False.
    """
    model, has_watermark = _MODELS[operator.name]
    steps = _steps(inputs[: operator.sources], runs, has_watermark and idle_batches)
    return {batch: sorted(map(repr, rows)) for batch, rows in enumerate(model(steps))}


def _steps(
    inputs: Sequence[Sequence[Batch]], runs: Sequence[int], has_watermark: bool
) -> list[Step]:
    steps: list[Step] = []
    seen_s = [0] * len(inputs)
    done = 0
    for visible in runs:
        for number in range(done, visible):
            rows = tuple(source[number] for source in inputs)
            steps.append(_next_step(steps, seen_s, rows))
            seen_s = [
                max(seen, *(event.at_s for event in batch))
                for seen, batch in zip(seen_s, rows, strict=True)
            ]
        idle = _next_step(steps, seen_s, ((),) * len(inputs))
        if has_watermark and idle.evict_s > steps[-1].evict_s:
            steps.append(idle)
        done = visible
    return steps


def _next_step(steps: list[Step], seen_s: list[int], rows: tuple[Batch, ...]) -> Step:
    late_s = steps[-1].evict_s if steps else 0
    # With several sources the slowest one decides.
    return Step(rows, late_s, max(late_s, min(seen_s) - DELAY_S))


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds)


def _window(start_s: int, length_s: int = WINDOW_S) -> tuple[datetime, datetime]:
    return _at(start_s), _at(start_s + length_s)


def _start(at_s: int, length_s: int = WINDOW_S) -> int:
    return at_s - at_s % length_s


# ---- aggregation -------------------------------------------------------------------------------

_Total = tuple[int, int]


def _add(totals: dict[Any, _Total], group: Any, value: int) -> None:
    n, total = totals.get(group, (0, 0))
    totals[group] = (n + 1, total + value)


def _window_totals(step: Step, totals: dict[Any, _Total], late_s: int) -> set[Any]:
    """Adds the rows whose window has not ended at `late_s`; returns the groups they are in."""
    touched = set()
    for event in step.rows:
        group = (_start(event.at_s), event.name)
        if group[0] + WINDOW_S > late_s:
            _add(totals, group, event.value)
            touched.add(group)
    return touched


def _ended(groups: Iterable[tuple[int, Any]], watermark_s: int) -> list[tuple[int, Any]]:
    return [group for group in groups if group[0] + WINDOW_S <= watermark_s]


def _window_append(steps: Sequence[Step]) -> Iterator[Rows]:
    totals: dict[Any, _Total] = {}
    for step in steps:
        _window_totals(step, totals, step.late_s)
        ended = _ended(totals, step.evict_s)
        yield [(_window(start), name, *totals.pop((start, name))) for start, name in ended]


def _window_update(steps: Sequence[Step]) -> Iterator[Rows]:
    totals: dict[Any, _Total] = {}
    for step in steps:
        touched = _window_totals(step, totals, step.late_s)
        yield [(_window(start), name, *totals[start, name]) for start, name in touched]
        for group in _ended(totals, step.evict_s):
            del totals[group]


def _window_complete(steps: Sequence[Step]) -> Iterator[Rows]:
    totals: dict[Any, _Total] = {}
    for step in steps:
        _window_totals(step, totals, late_s=0)
        yield [(_window(start), name, *total) for (start, name), total in totals.items()]


def _keyed(complete: bool) -> Model:
    def model(steps: Sequence[Step]) -> Iterator[Rows]:
        groups: dict[tuple[int, str | None], tuple[int, int, int, int]] = {}
        for step in steps:
            for event in step.rows:
                group, value = (event.key, event.name), event.value
                n, total, low, high = groups.get(group, (0, 0, value, value))
                groups[group] = (n + 1, total + value, min(low, value), max(high, value))
            touched = {(event.key, event.name) for event in step.rows}
            yield [(*group, *groups[group]) for group in (groups if complete else touched)]

    return model


def _keyed_lists(steps: Sequence[Step]) -> Iterator[Rows]:
    seen: dict[int, list[int]] = {}
    for step in steps:
        for event in step.rows:
            seen.setdefault(event.key, []).append(event.value)
        yield [(key, sorted(seen[key])) for key in {event.key for event in step.rows}]


# ---- sessions ----------------------------------------------------------------------------------

# Start, end, count, total; times in seconds.
_Session = tuple[int, int, int, int]


def _merged(sessions: Iterable[_Session]) -> list[_Session]:
    """Sessions of one key in order; those that overlap or touch become one."""
    merged: list[_Session] = []
    for start, end, n, total in sorted(sessions):
        if merged and start <= merged[-1][1]:
            first, last, before, sum_before = merged.pop()
            merged.append((first, max(last, end), before + n, sum_before + total))
        else:
            merged.append((start, end, n, total))
    return merged


def _add_sessions(step: Step, state: dict[int, list[_Session]]) -> None:
    """Late rows are dropped in every mode; other aggregations keep them in complete mode."""
    for event in step.rows:
        end_s = event.at_s + SESSION_GAP_S
        if end_s > step.late_s:
            session = (event.at_s, end_s, 1, event.value)
            state[event.key] = _merged([*state.get(event.key, []), session])


def _session_row(key: int, session: _Session) -> tuple[Any, ...]:
    start, end, n, total = session
    return (_at(start), _at(end)), key, n, total


def _session_append(steps: Sequence[Step]) -> Iterator[Rows]:
    state: dict[int, list[_Session]] = {}
    for step in steps:
        _add_sessions(step, state)
        rows: Rows = []
        for key, sessions in state.items():
            rows += [_session_row(key, s) for s in sessions if s[1] <= step.evict_s]
            state[key] = [s for s in sessions if s[1] > step.evict_s]
        yield rows


def _session_complete(steps: Sequence[Step]) -> Iterator[Rows]:
    state: dict[int, list[_Session]] = {}
    for step in steps:
        _add_sessions(step, state)
        yield [_session_row(key, s) for key, sessions in state.items() for s in sessions]


# ---- deduplication and limit -------------------------------------------------------------------


def _distinct_event_time(steps: Sequence[Step]) -> Iterator[Rows]:
    seen: set[tuple[int, int]] = set()
    for step in steps:
        fresh = {(event.key, event.at_s) for event in step.on_time()} - seen
        seen |= fresh
        yield [(key, _at(at_s)) for key, at_s in fresh]


def _distinct_forever(steps: Sequence[Step]) -> Iterator[Rows]:
    seen: set[str | None] = set()
    for step in steps:
        fresh = {event.name for event in step.rows} - seen
        seen |= fresh
        yield [(name,) for name in fresh]


def _distinct_within_watermark(steps: Sequence[Step]) -> Iterator[Rows]:
    """A key is remembered for the watermark delay after its first row."""
    expiry_s: dict[int, int] = {}
    for step in steps:
        rows: Rows = []
        for event in step.on_time():
            if event.key not in expiry_s:
                expiry_s[event.key] = event.at_s + DELAY_S
                rows.append((event.key, _at(event.at_s)))
        yield rows
        expiry_s = {key: at_s for key, at_s in expiry_s.items() if at_s > step.evict_s}


def _limit(steps: Sequence[Step]) -> Iterator[Rows]:
    left = LIMIT_ROWS
    for step in steps:
        taken = step.rows[:left]
        left -= len(taken)
        yield [(event.key, event.name, _at(event.at_s), event.value) for event in taken]


# ---- arbitrary state ---------------------------------------------------------------------------


def _pandas_no_timeout(steps: Sequence[Step]) -> Iterator[Rows]:
    totals: dict[int, _Total] = {}
    for step in steps:
        for event in step.rows:
            _add(totals, event.key, event.value)
        yield [(key, *totals[key], False) for key in {event.key for event in step.rows}]


def _pandas_event_time(steps: Sequence[Step]) -> Iterator[Rows]:
    totals: dict[int, _Total] = {}
    deadline_s: dict[int, int] = {}
    for step in steps:
        latest_s: dict[int, int] = {}
        for event in step.on_time():
            _add(totals, event.key, event.value)
            latest_s[event.key] = max(event.at_s, latest_s.get(event.key, 0))
        rows: Rows = [(key, *totals[key], False) for key in latest_s]
        for key, at_s in latest_s.items():
            deadline_s[key] = max(at_s, step.evict_s) + IDLE_S
        for key in [key for key, at_s in deadline_s.items() if at_s < step.evict_s]:
            del deadline_s[key]
            rows.append((key, *totals.pop(key), True))
        yield rows


def _pandas_processing_time(steps: Sequence[Step]) -> Iterator[Rows]:
    totals: dict[int, _Total] = {}
    for step in steps:
        touched = {event.key for event in step.rows}
        for event in step.rows:
            _add(totals, event.key, event.value)
        closed: Rows = [(key, *totals.pop(key), True) for key in set(totals) - touched]
        yield closed + [(key, *totals[key], False) for key in touched]


# ---- stream-stream joins -----------------------------------------------------------------------


def _matches(left: Event, right: Event) -> bool:
    return left.key == right.key and left.at_s <= right.at_s <= left.at_s + JOIN_AFTER_S


def _three(event: Event | None) -> tuple[Any, ...]:
    return (None,) * 3 if event is None else (event.key, _at(event.at_s), event.value)


@dataclass(slots=True)
class _Side:
    """Rows of one input that can still meet a partner, and whether they have met one."""

    rows: list[Event]
    matched: list[bool]

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            self.rows.append(event)
            self.matched.append(False)

    def evict(self, through_s: int) -> list[Event]:
        """Forgets the rows up to a time; returns those that never met a partner."""
        old = [event.at_s <= through_s for event in self.rows]
        alone = [
            event
            for event, gone, met in zip(self.rows, old, self.matched, strict=True)
            if gone and not met
        ]
        kept = [i for i, gone in enumerate(old) if not gone]
        self.rows = [self.rows[i] for i in kept]
        self.matched = [self.matched[i] for i in kept]
        return alone


def _new_pairs(step: Step, left: _Side, right: _Side) -> Iterator[tuple[int, int]]:
    """Adds the step's rows to both sides; positions of the pairs that they complete."""
    old_left, old_right = len(left.rows), len(right.rows)
    left.add(step.on_time(0))
    right.add(step.on_time(1))
    for i, ours in enumerate(left.rows):
        for j, theirs in enumerate(right.rows):
            if (i >= old_left or j >= old_right) and _matches(ours, theirs):
                yield i, j


def _join(how: str) -> Model:
    def model(steps: Sequence[Step]) -> Iterator[Rows]:
        left, right = _Side([], []), _Side([], [])
        for step in steps:
            rows: Rows = []
            for i, j in list(_new_pairs(step, left, right)):
                rows.append((*_three(left.rows[i]), *_three(right.rows[j])))
                left.matched[i] = right.matched[j] = True
            alone_left = left.evict(step.evict_s - JOIN_AFTER_S - 1)
            alone_right = right.evict(step.evict_s - 1)
            if how in ("left_outer", "full_outer"):
                rows += [(*_three(event), *_three(None)) for event in alone_left]
            if how == "full_outer":
                rows += [(*_three(None), *_three(event)) for event in alone_right]
            yield rows

    return model


def _join_left_semi(steps: Sequence[Step]) -> Iterator[Rows]:
    """Each left row once, when it meets its first partner.

    Spark handles the right rows of a batch first, and does not store those that the same batch
    would evict: the left rows that come with them never see them.
    """
    left, right = _Side([], []), _Side([], [])
    for step in steps:
        old_left, old_right = len(left.rows), len(right.rows)
        rows: Rows = []
        for i, j in list(_new_pairs(step, left, right)):
            both_new = i >= old_left and j >= old_right
            unseen = both_new and right.rows[j].at_s < step.evict_s
            if not unseen and not left.matched[i]:
                rows.append(_three(left.rows[i]))
                left.matched[i] = True
        left.evict(step.evict_s - JOIN_AFTER_S - 1)
        right.evict(step.evict_s - 1)
        yield rows


def _join_on_event_time(steps: Sequence[Step]) -> Iterator[Rows]:
    left, right = _Side([], []), _Side([], [])
    for step in steps:
        old_left, old_right = len(left.rows), len(right.rows)
        left.add(step.on_time(0))
        right.add(step.on_time(1))
        yield [
            (_at(ours.at_s), ours.value, theirs.value)
            for i, ours in enumerate(left.rows)
            for j, theirs in enumerate(right.rows)
            if (i >= old_left or j >= old_right) and ours.at_s == theirs.at_s
        ]


# ---- chains ------------------------------------------------------------------------------------


def _windows_of_windows(steps: Sequence[Step]) -> Iterator[Rows]:
    totals: dict[Any, _Total] = {}
    outer: dict[int, list[int]] = {}
    for step in steps:
        _window_totals(step, totals, step.late_s)
        for group in _ended(totals, step.evict_s):
            n, _ = totals.pop(group)
            outer.setdefault(_start(group[0], LONG_WINDOW_S), []).append(n)
        ended = [start for start in outer if start + LONG_WINDOW_S <= step.evict_s]
        rows: Rows = []
        for start in ended:
            counts = outer.pop(start)
            rows.append((_window(start, LONG_WINDOW_S), len(counts), sum(counts)))
        yield rows


def _counted_windows(events: Iterator[tuple[list[int], int]]) -> Iterator[Rows]:
    """Windows over (event times, watermark) pairs, emitted once they have ended."""
    counts: dict[int, int] = {}
    for times, watermark_s in events:
        for at_s in times:
            counts[_start(at_s)] = counts.get(_start(at_s), 0) + 1
        ended = [start for start in counts if start + WINDOW_S <= watermark_s]
        yield [(_window(start), counts.pop(start)) for start in ended]


def _distinct_into_windows(steps: Sequence[Step]) -> Iterator[Rows]:
    def distinct() -> Iterator[tuple[list[int], int]]:
        seen: set[tuple[int, int]] = set()
        for step in steps:
            fresh = {(event.key, event.at_s) for event in step.on_time()} - seen
            seen |= fresh
            yield [at_s for _, at_s in fresh], step.evict_s

    return _counted_windows(distinct())


def _join_into_windows(steps: Sequence[Step]) -> Iterator[Rows]:
    """The join may still emit a left row JOIN_AFTER_S behind, and holds the watermark back."""

    def pairs() -> Iterator[tuple[list[int], int]]:
        left, right = _Side([], []), _Side([], [])
        for step in steps:
            times = [left.rows[i].at_s for i, _ in _new_pairs(step, left, right)]
            left.evict(step.evict_s - JOIN_AFTER_S - 1)
            right.evict(step.evict_s - 1)
            yield times, step.evict_s - JOIN_AFTER_S - 1

    return _counted_windows(pairs())


# Each model, and whether its query has a watermark that makes Spark run batches without data.
_MODELS: dict[str, tuple[Model, bool]] = {
    "window_append": (_window_append, True),
    "window_update": (_window_update, True),
    "window_complete": (_window_complete, False),
    "window_streamline": (_window_append, True),
    "keyed_update": (_keyed(complete=False), False),
    "keyed_complete": (_keyed(complete=True), False),
    "keyed_lists": (_keyed_lists, False),
    "session_append": (_session_append, True),
    "session_complete": (_session_complete, False),
    "distinct_event_time": (_distinct_event_time, True),
    "distinct_forever": (_distinct_forever, False),
    "distinct_within_watermark": (_distinct_within_watermark, True),
    "limit": (_limit, False),
    "pandas_no_timeout": (_pandas_no_timeout, False),
    "pandas_event_time": (_pandas_event_time, True),
    "pandas_processing_time": (_pandas_processing_time, False),
    "join_inner": (_join("inner"), True),
    "join_left_outer": (_join("left_outer"), True),
    "join_full_outer": (_join("full_outer"), True),
    "join_left_semi": (_join_left_semi, True),
    "join_on_event_time": (_join_on_event_time, True),
    "windows_of_windows": (_windows_of_windows, True),
    "distinct_into_windows": (_distinct_into_windows, True),
    "join_into_windows": (_join_into_windows, True),
    "windows_into_distinct": (_window_append, True),
    "two_actions": (_window_update, True),
}
