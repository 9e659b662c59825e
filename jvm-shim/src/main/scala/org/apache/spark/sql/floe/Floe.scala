package org.apache.spark.sql.floe

private[floe] object Floe {
  /** Twin of `floe.__version__`; the greeting refuses a pair that differs. */
  val Version = "0.1.0"
}
