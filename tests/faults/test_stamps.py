"""A store that somebody else holds: the error names the holder and the key."""

import threading
from pathlib import Path

from floe.config import PREFIX
from tests.support.batches import Batches, some_rows, with_keys
from tests.support.harness import Harness
from tests.support.providers import FLOE_V1
from tests.support.refusals import Refusal

TIMEOUT_MS = 300


def test_a_store_that_is_held_is_refused_with_its_holder_until_it_is_let_go(
    harness: Harness, tmp_path: Path
) -> None:
    kind = with_keys(FLOE_V1, stampTimeoutMs=str(TIMEOUT_MS))
    batches = Batches(harness, kind, tmp_path)
    batches.commit(some_rows(0))
    holder = batches.begin(some_rows(10))
    refusals: list[Refusal] = []

    def ask() -> None:
        refusals.append(batches.refusal(batches.last, batches.provider))

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    (refusal,) = refusals
    assert refusal.kind == "Unavailable"
    assert "operatorId=0, partitionId=0, storeName=default" in refusal.text
    assert f"waited {TIMEOUT_MS} ms" in refusal.text
    assert "thread Thread-" in refusal.text
    assert f"raise {PREFIX}stampTimeoutMs" in refusal.text

    holder.abort()
    assert batches.load(batches.last, batches.provider) == batches.last.rows
    batches.commit(some_rows(20))
    batches.check()
