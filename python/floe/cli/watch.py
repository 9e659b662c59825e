"""What is known of a streaming query while it runs, and how it looks in a terminal.

Spark reports each finished batch as a progress object. A `Watch` keeps one a batch over all runs of
a query on one checkpoint; a batch that is repeated after a restart replaces its first report.
Batches without rows are left out, so that idle time does not count as speed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from rich.table import Table

__all__ = ["Watch", "quantile", "table_of"]

# Floe's own metrics carry its name, since a state operator's metrics share one map.
_METRIC_PREFIX = "floe"
_MIB = 1024 * 1024


class Watch:
    """The finished batches of one query."""

    def __init__(self, batches: int, cores: int) -> None:
        self._batches = batches
        self._cores = cores
        self._reports: dict[int, StreamingQueryProgress] = {}

    def look(self, query: StreamingQuery) -> bool:
        """Takes the last report; whether it is a new one. Cheap enough for ten times a second."""
        before = self.batches_done
        self._take(query.lastProgress)
        return self.batches_done > before

    def settle(self, query: StreamingQuery) -> None:
        """Takes all reports of a query that has ended, those that `look` missed too."""
        for report in query.recentProgress:
            self._take(report)

    def _take(self, report: StreamingQueryProgress | None) -> None:
        if report is not None and report.numInputRows > 0:
            self._reports[report.batchId] = report

    @property
    def batches_done(self) -> int:
        return max(self._reports, default=-1) + 1

    @property
    def rows(self) -> int:
        return sum(report.numInputRows for report in self._reports.values())

    @property
    def batch_ms(self) -> list[int]:
        """The duration of every batch in order, from the trigger to its commit."""
        return [
            _duration(report, "triggerExecution") for _, report in sorted(self._reports.items())
        ]

    @property
    def rows_per_second(self) -> float:
        return self.rows / max(sum(self.batch_ms), 1) * 1000

    @property
    def state_rows(self) -> int:
        return self._reports[max(self._reports)].stateOperators[0].numRowsTotal

    @property
    def commit_share(self) -> float:
        """The share of the tasks' time in which they waited for the store to commit.

        Gets and puts cannot be told apart from the operator's own work: Spark times them together.
        """
        operators = [report.stateOperators[0] for report in self._reports.values()]
        committing = sum(operator.commitTimeMs for operator in operators)
        working = sum(_duration(report, "addBatch") for report in self._reports.values())
        return committing / max(working * self._cores, 1)

    def line(self) -> str:
        """The last batch in one line."""
        figures = self._figures()
        return "batch " + ", ".join(figures[name] for name in ("batch", "this batch", "state"))

    def view(self) -> Table:
        """A bar and the figures of the last batch."""
        from rich.progress_bar import ProgressBar

        table = table_of(self._figures())
        table.add_row("", ProgressBar(total=self._batches, completed=self.batches_done, width=50))
        return table

    def _figures(self) -> dict[str, str]:
        if not self._reports:
            return {"batch": f"waiting for the first of {self._batches}"}
        report = self._reports[max(self._reports)]
        figures = {
            "batch": f"{self.batches_done} of {self._batches}",
            "this batch": f"{_duration(report, 'triggerExecution'):,} ms, "
            f"{report.processedRowsPerSecond:,.0f} rows/s",
            "all batches": f"{self.rows:,} rows, {self.rows_per_second:,.0f} rows/s",
        }
        operator = report.stateOperators[0]
        memory_mib = operator.memoryUsedBytes / _MIB
        figures["state"] = f"{operator.numRowsTotal:,} rows, {memory_mib:,.1f} MiB"
        return figures | _own_metrics(operator.customMetrics)


def _own_metrics(metrics: Mapping[str, int]) -> dict[str, str]:
    return {
        name: f"{value:,}"
        for name, value in sorted(metrics.items())
        if name.startswith(_METRIC_PREFIX) and value
    }


def _duration(report: StreamingQueryProgress, phase: str) -> int:
    return report.durationMs.get(phase, 0)


def quantile(values: list[int], share: float) -> int:
    """The smallest value that `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def table_of(lines: Mapping[str, str]) -> Table:
    """Names and values in two columns."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in lines.items():
        table.add_row(name, value)
    return table
