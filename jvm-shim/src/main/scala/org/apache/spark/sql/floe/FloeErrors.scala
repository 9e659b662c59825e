package org.apache.spark.sql.floe

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * An error of Floe: `kind` says what the reader has to do next, the tree is drawn in
 * `python/floe/errors.py`. The message names the store and what to do; it is never parsed.
 */
private[floe] final class FloeException(val kind: String, message: String, cause: Throwable = null)
  extends RuntimeException(s"[FLOE.$kind] $message", cause)

private[floe] object FloeErrors {
  val InvalidRequest = "InvalidRequest"
  val Unavailable = "Unavailable"
  val Fenced = "Fenced"
  val Closed = "Closed"

  def fromWire(error: JsonNode): FloeException =
    new FloeException(error.get("kind").asText, error.get("message").asText)

  def unsupported(id: StateStoreId, what: String): FloeException =
    new FloeException(InvalidRequest, s"$id: $what is not supported by this version of Floe")

  def closed(id: StateStoreId, what: String): FloeException =
    new FloeException(Closed, s"$id: $what after the handle was committed, aborted or released")

  def stampTimeout(id: StateStoreId, holder: String, waitedMs: Long): FloeException =
    new FloeException(Unavailable, s"$id: waited $waitedMs ms for the store, which $holder still" +
      s" holds; raise ${FloeConf.Prefix}stampTimeoutMs if tasks may take that long to end")
}
