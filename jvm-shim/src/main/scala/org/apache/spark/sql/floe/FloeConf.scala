package org.apache.spark.sql.floe

import org.apache.hadoop.conf.Configuration

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.sql.execution.streaming.state.StateStoreConf

/**
 * The settings that the shim itself must read before a sidecar exists: how to start one and how
 * long to wait. All of them, and every other `floe.` key, go to Python as they are, which knows
 * the whole table (`python/floe/config.py`), refuses what it does not know, and holds the limits.
 */
private[floe] final class FloeConf(val settings: Map[String, String], python_ : Option[String]) {
  import FloeConf._

  def python: String =
    text("python").orElse(python_).orElse(sys.env.get("PYSPARK_PYTHON")).getOrElse("python3")
  def localDir: Option[String] = text("localDir")
  def processes: Int = number("sidecar.processes", 1).toInt.max(1)
  def startTimeoutMs: Long = number("sidecar.startTimeoutMs", 60000L)
  def callTimeoutMs: Long = number("sidecar.callTimeoutMs", 120000L)
  def stampTimeoutMs: Long = number("stampTimeoutMs", 120000L)
  def fsync: Boolean = text("checkpoint.fsync").exists(_.trim.equalsIgnoreCase("true"))

  private def text(key: String): Option[String] = settings.get(Prefix + key).filter(_.nonEmpty)

  /** A value that is no number is Python's to refuse, with the key's name; until then the default. */
  private def number(key: String, default: Long): Long =
    text(key).flatMap(_.trim.toLongOption).getOrElse(default)
}

private[floe] object FloeConf {
  val Prefix = "spark.sql.streaming.stateStore.floe."

  def apply(storeConf: StateStoreConf, hadoopConf: Configuration): FloeConf = {
    val settings = storeConf.sqlConfs.filter(_._1.startsWith(Prefix))
    val python = Option(hadoopConf.get("spark.pyspark.python"))
      .orElse(sparkConf.getOption("spark.pyspark.python"))
    new FloeConf(settings, python)
  }

  def sparkConf: SparkConf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
}
