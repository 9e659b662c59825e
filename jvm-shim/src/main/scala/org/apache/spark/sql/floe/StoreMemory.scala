package org.apache.spark.sql.floe

import scala.collection.mutable.ArrayBuffer

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

private[floe] final case class Extent(ref: Long, bytes: Long)

private[floe] object Extents {
  val Entries = "entries"
  val Index = "index"
  val Arena = "arena"
  val Undo = "undo"
  /** Bytes on their way between the processes: deltas to upload, rows to link, markers to hand out. */
  val Transit = "transit"
  val Kinds: Seq[String] = Seq(Entries, Index, Arena, Undo, Transit)
}

/**
 * The extents of one table by kind, in the order they were taken: what a new sidecar needs to know
 * to go on. The order of `entries` is their meaning: it is the page table.
 */
private[floe] final class StoreMemory(val key: String, sidecar: Sidecar) {
  val slabs: Slabs = sidecar.slabs
  private val owned = Extents.Kinds.map(_ -> ArrayBuffer.empty[Extent]).toMap
  private var total = 0L

  /** An extent of at least `bytes` zeroed bytes. */
  def take(kind: String, bytes: Long): Extent =
    asking("allocate", Json.obj("key" -> key, "kind" -> kind, "bytes" -> bytes,
      "owned" -> synchronized(owned(kind).map(_.bytes).sum))) { body =>
      val extent = Extent(body.get("ref").asLong, body.get("bytes").asLong)
      add(kind, extent)
      extent
    }

  /**
   * Calls the sidecar and records what the answer hands over. An answer of a sidecar that died in
   * the meantime is void, because its successor knows nothing of it: ask again.
   */
  def asking[T](method: String, args: ObjectNode, patient: Boolean = false)(record: JsonNode => T): T = {
    while (true) {
      val answer = sidecar.call(method, args, patient)
      sidecar.memoryLock.readLock().lock()
      try {
        if (answer.life == sidecar.life) {
          sidecar.mapSlabs(answer)
          return record(answer.body)
        }
      } catch {
        case _: java.io.IOException if !sidecar.isServing(answer.life) => // died before it was mapped
      } finally sidecar.memoryLock.readLock().unlock()
    }
    throw new IllegalStateException
  }

  def add(kind: String, extent: Extent): Unit = synchronized {
    owned(kind) += extent
    total += extent.bytes
  }

  def giveBack(kind: String, extent: Extent): Unit = exchanging {
    synchronized {
      val list = owned(kind)
      list.remove(list.lastIndexWhere(_.ref == extent.ref))
      total -= extent.bytes
    }
    sidecar.release(key, extent.ref)
  }

  def bytes: Long = synchronized(total)

  def byKind: Map[String, Seq[Extent]] = synchronized {
    owned.map { case (kind, extents) => kind -> extents.toSeq }
  }

  private def exchanging(change: => Unit): Unit = {
    sidecar.memoryLock.readLock().lock()
    try change finally sidecar.memoryLock.readLock().unlock()
  }
}
