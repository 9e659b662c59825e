package org.apache.spark.sql.floe

import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.execution.streaming.state._

/**
 * What a store reports in the query's progress. Spark adds values up over partitions and stores:
 * what belongs to the whole executor is divided by the stores that report it.
 */
private[floe] final class FloeMetrics {
  val loadMs = new AtomicLong()
  val prepareMs = new AtomicLong()
  val uploadMs = new AtomicLong()
  val dirtyRows = new AtomicLong()
  val rollbacks = new AtomicLong()
  val loads = new AtomicLong()
}

private[floe] object FloeMetrics {
  val HotBytes = StateStoreCustomSizeMetric("floeHotBytes", "floe: bytes of state memory held", isSnapshot = true)
  val WasteBytes = StateStoreCustomSizeMetric("floeWasteBytes", "floe: bytes held but free", isSnapshot = true)
  val DirtyRows = StateStoreCustomSumMetric("floeDirtyRows", "floe: rows changed by the commit")
  val LoadMs = StateStoreCustomTimingMetric("floeLoadMs", "floe: time to load the version")
  val PrepareMs = StateStoreCustomTimingMetric("floePrepareMs", "floe: time to form the delta")
  val UploadMs = StateStoreCustomTimingMetric("floeUploadMs", "floe: time to publish the delta")
  val Py4JCalls = StateStoreCustomSumMetric("floePy4jCalls", "floe: messages to the sidecar, share of this store")
  val Rollbacks = StateStoreCustomSumMetric("floeRollbacks", "floe: versions undone in memory")
  val Loads = StateStoreCustomSumMetric("floeLoads", "floe: versions loaded from files")
  val Restarts = StateStoreCustomSumMetric("floeSidecarRestarts", "floe: sidecars replaced, share of this store")
  val SidecarBytes = StateStoreCustomSizeMetric("floeSidecarBytes", "floe: the sidecar's own memory, share of this store", isSnapshot = true)
  val SnapshotLag = StateStoreCustomSumMetric("floeSnapshotLag", "floe: versions since the last snapshot")

  val All: Seq[StateStoreCustomMetric] = Seq(HotBytes, WasteBytes, DirtyRows, LoadMs, PrepareMs, UploadMs,
    Py4JCalls, Rollbacks, Loads, Restarts, SidecarBytes, SnapshotLag)
}
