package org.apache.spark.sql.execution.streaming.state

import java.util.UUID

import org.apache.hadoop.conf.Configuration

/** The members of Spark's state package that only that package may see; nothing else lives here. */
private[sql] object FloeBridge {
  /** Tells the coordinator of a snapshot: without it Spark asks for one at every commit. */
  def snapshotUploaded(id: StateStoreId, version: Long, conf: Configuration): Unit = {
    val providerId = StateStoreProviderId(id, UUID.fromString(StateStoreProvider.getRunId(conf)))
    StateStoreProvider.coordinatorRef.foreach(
      _.snapshotUploaded(providerId, version, System.currentTimeMillis()))
  }
}
