package org.apache.spark.sql.floe.tools

import java.util.UUID

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{KeyStateEncoderSpec,
  NoPrefixKeyStateEncoderSpec, PrefixKeyScanStateEncoderSpec, StateStoreConf, StateStoreId,
  StateStoreProvider}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/**
 * Everything that makes one provider of one store.
 *
 * Two providers of equal specs are what Spark has after a restart, or when a partition moves to
 * another executor: two instances over the same files.
 *
 * @param prefixColumns how many leading key columns a prefix scan names; 0 asks for no prefix scans
 * @param formatVersion Spark's checkpoint format: 2 adds an id to every version
 * @param conf SQL settings by their full names
 */
final case class ProviderSpec(
    className: String,
    root: String,
    keySchema: StructType,
    valueSchema: StructType,
    operatorId: Long = 0L,
    partitionId: Int = 0,
    storeName: String = StateStoreId.DEFAULT_STORE_NAME,
    prefixColumns: Int = 0,
    formatVersion: Int = 1,
    conf: Map[String, String] = Map.empty)

/**
 * Makes state store providers without a SparkContext.
 *
 * What a task would find is rebuilt from a spec: the SQL settings in a `StateStoreConf`, the same
 * settings in the Hadoop configuration (Spark puts all of them there), and the run id, without
 * which no provider starts. There is no SparkEnv and no TaskContext: providers report to no
 * coordinator and no completion listener ever fires, so whoever opens a store also closes it.
 */
object Providers {

  /** A provider that is initialised and has loaded nothing yet. */
  def create(spec: ProviderSpec): StateStoreProvider = {
    val settings = spec.conf ++ Map(
      SQLConf.STATE_STORE_PROVIDER_CLASS.key -> spec.className,
      SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> spec.formatVersion.toString)
    val provider = StateStoreProvider.create(spec.className)
    provider.init(
      StateStoreId(spec.root, spec.operatorId, spec.partitionId, spec.storeName),
      spec.keySchema,
      spec.valueSchema,
      keyEncoder(spec),
      useColumnFamilies = false,
      storeConf(settings),
      hadoopConf(settings))
    provider
  }

  private def keyEncoder(spec: ProviderSpec): KeyStateEncoderSpec =
    if (spec.prefixColumns == 0) NoPrefixKeyStateEncoderSpec(spec.keySchema)
    else PrefixKeyScanStateEncoderSpec(spec.keySchema, spec.prefixColumns)

  private def storeConf(settings: Map[String, String]): StateStoreConf = {
    val conf = new SQLConf
    settings.foreach { case (key, value) => conf.setConfString(key, value) }
    StateStoreConf(conf)
  }

  private def hadoopConf(settings: Map[String, String]): Configuration = {
    val conf = new Configuration
    settings.foreach { case (key, value) => conf.set(key, value) }
    conf.set(StreamExecution.RUN_ID_KEY, UUID.randomUUID().toString)
    conf
  }
}
