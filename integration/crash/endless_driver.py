"""A driver to be killed: runs `keyed_update` on the endless stream and leaves each batch as a file.

    python -m integration.crash.endless_driver DIRECTORY PROVIDER STOP_AFTER_BATCH

Rows of batch b go to DIRECTORY/rows/b.json, complete or not at all. A batch that is repeated after
a restart is written again, as any idempotent sink would.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from integration.crash import endless
from integration.queries.operators import OPERATORS
from integration.queries.runner import Trial
from integration.support import Provider, start_session

OPERATOR = OPERATORS["keyed_update"]
_POLL_S = 0.1


def rows_directory(directory: Path) -> Path:
    return directory / "rows"


def main(directory: Path, provider: Provider, stop_after: int) -> None:
    rows_directory(directory).mkdir(parents=True, exist_ok=True)
    trial = Trial(OPERATOR, provider, directory)
    spark = start_session(directory / "driver")

    def keep(rows: DataFrame, batch: int) -> None:
        trial.keep(rows, batch)
        path = rows_directory(directory) / f"{batch}.json"
        hidden = path.with_suffix(".tmp")
        hidden.write_text(json.dumps(trial.batches.pop(batch)))
        hidden.rename(path)

    query = trial.start(spark, [endless.stream(spark)], keep, until_idle=False)
    while query.isActive and trial.last_commit() < stop_after:
        time.sleep(_POLL_S)
    query.stop()
    error = query.exception()
    spark.stop()
    if error is not None:
        raise error


if __name__ == "__main__":
    main(Path(sys.argv[1]), Provider(sys.argv[2]), int(sys.argv[3]))
