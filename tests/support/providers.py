"""The providers that model tests run: Floe, and Spark's own as controls of the model.

Retention and snapshot distances are small, so that short histories reach them.
"""

import sys

from floe.config import PREFIX
from floe.session import PROVIDER_CLASS
from tests.support.harness import ProviderKind

RETAINED_VERSIONS = 4
# How long an open waits for a handle that a test forgot.
_PATIENCE_MS = "10000"

_SPARK_STATE = "org.apache.spark.sql.execution.streaming.state"
_COMMON = {
    "spark.sql.streaming.minBatchesToRetain": str(RETAINED_VERSIONS),
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
}

IN_MEMORY = ProviderKind("in-memory", f"{_SPARK_STATE}.HDFSBackedStateStoreProvider", _COMMON)
ROCKSDB_V2 = ProviderKind(
    "rocksdb-v2",
    f"{_SPARK_STATE}.RocksDBStateStoreProvider",
    _COMMON
    | {
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.lockAcquireTimeoutMs": _PATIENCE_MS,
    },
    format_version=2,
)
_FLOE = _COMMON | {
    PREFIX + "python": sys.executable,
    PREFIX + "stampTimeoutMs": _PATIENCE_MS,
}
FLOE_V1 = ProviderKind("floe-v1", PROVIDER_CLASS, _FLOE)
FLOE_V2 = ProviderKind("floe-v2", PROVIDER_CLASS, _FLOE, format_version=2)
# The way to every file system but a local disk: through Spark's manager, files fetched to scratch.
_MANAGED = _FLOE | {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}
FLOE_MANAGED_V1 = ProviderKind("floe-managed-v1", PROVIDER_CLASS, _MANAGED)
FLOE_MANAGED_V2 = ProviderKind("floe-managed-v2", PROVIDER_CLASS, _MANAGED, format_version=2)
