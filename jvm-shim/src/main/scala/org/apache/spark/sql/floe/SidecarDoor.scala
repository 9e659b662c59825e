package org.apache.spark.sql.floe

/** The sidecar's entry point as Py4J shows it: JSON in, JSON out (`python/floe/sidecar/gateway.py`). */
trait SidecarDoor {
  def call(message: String): String
}
