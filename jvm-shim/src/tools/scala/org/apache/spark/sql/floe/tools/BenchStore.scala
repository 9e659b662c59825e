package org.apache.spark.sql.floe.tools

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStore,
  StateStoreProvider}

/**
 * One store of the benchmark: a provider, and the newest version that it committed.
 *
 * The methods differ in what they time and in how they leave the store; times are nanoseconds.
 */
final class BenchStore(spec: ProviderSpec) {
  import BenchStore.RowsPerFill

  private val provider: StateStoreProvider = Providers.create(spec)
  private var version = 0L
  private var id: Option[String] = None

  /** Work on a read handle; opening and releasing it is not part of any time. */
  def reading[A](work: ReadStateStore => A): A = {
    val store = provider.getReadStore(version, id)
    try work(store) finally store.release()
  }

  /** Work on a write handle that is aborted afterwards; only the work is timed. */
  def aborting(work: StateStore => Unit): Long = {
    val store = provider.getStore(version, id)
    try {
      val start = System.nanoTime()
      work(store)
      System.nanoTime() - start
    } finally store.abort()
  }

  /** A durable batch: open, work and commit are timed. */
  def committing(work: StateStore => Unit, forceSnapshot: Boolean = false): Long = {
    val start = System.nanoTime()
    val store = provider.getStore(version, id, forceSnapshot)
    work(store)
    val committed = store.commit()
    val elapsed = System.nanoTime() - start
    version = committed
    id = store.getStateStoreCheckpointInfo().stateStoreCkptId
    elapsed
  }

  /** Another provider on the same files opens the newest version and reads one row. */
  def loading(probe: UnsafeRow): Long = {
    val start = System.nanoTime()
    val other = Providers.create(spec)
    try {
      val store = other.getStore(version, id)
      try {
        require(store.get(probe, StateStore.DEFAULT_COL_FAMILY_NAME) != null, "a row was lost")
        System.nanoTime() - start
      } finally store.abort()
    } finally other.close()
  }

  /** Rows 0 until `n`, over a dozen versions or more; then a snapshot, as time would bring. */
  def fill(rows: BenchRows, n: Int): Unit = {
    val perVersion = math.min(RowsPerFill, math.max(1, n / 12))
    for (from <- 0 until n by perVersion) {
      val until = math.min(n, from + perVersion)
      committing(put(rows, from, until), forceSnapshot = until == n)
    }
    maintain()
  }

  def maintain(): Unit = {
    provider.doSnapshotMaintenance()
    provider.doCleanupMaintenance()
  }

  def close(): Unit = provider.close()

  private def put(rows: BenchRows, from: Int, until: Int)(store: StateStore): Unit =
    for (row <- from until until) {
      store.put(rows.key(row), rows.value(row), StateStore.DEFAULT_COL_FAMILY_NAME)
    }
}

object BenchStore {
  private val RowsPerFill = 100000
}
