package org.apache.spark.sql.floe

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.unsafe.Platform

/**
 * What an epoch changed, in order of first touch: for each entry its fields as they were before.
 * Abort and rollback replay it backwards, a commit is formed from it, and once nobody can go back
 * behind it, it says which space came free. The record is complete and fenced before the entry
 * changes, so that whoever reads entries first and records afterwards can tell the old from the new.
 */
private[floe] final class UndoLog(val epoch: Int, val rowsBefore: Long, memory: StoreMemory,
    spare: ArrayBuffer[Extent]) {
  import MemoryLayout._

  /**
   * The extents and the records in each. A snapshot reads them while the task appends: both arrays
   * are replaced when the log grows, and a count is final before the next extent is published.
   */
  @volatile private var extents = Array.empty[Extent]
  @volatile private var counts = Array.empty[Int]
  private var size_ = 0
  private var inLast = 0
  private var lastCapacity = 0
  private var cursor = 0L

  def size: Int = size_

  /** Makes sure that one more record fits; the only step that can fail. */
  def reserve(): Unit = if (inLast == lastCapacity) grow()

  def append(entry: Int, record: Long): Unit = {
    val at = cursor
    Platform.putInt(null, at + UndoEntry, entry)
    Platform.putInt(null, at + UndoBorn, 0)
    Platform.putLong(null, at + UndoHot, Platform.getLong(null, record + Hot))
    Platform.putLong(null, at + UndoCold, Platform.getLong(null, record + Cold))
    Platform.putLong(null, at + UndoExpiry, Platform.getLong(null, record + Expiry))
    Platform.putInt(null, at + UndoValueLen, Platform.getInt(null, record + ValueLen))
    Platform.putInt(null, at + UndoEpoch, Platform.getInt(null, record + Epoch))
    Platform.putInt(null, at + UndoKind, Platform.getInt(null, record + Kind))
    advance()
  }

  def appendBorn(entry: Int): Unit = {
    Platform.putInt(null, cursor + UndoEntry, entry)
    Platform.putInt(null, cursor + UndoBorn, 1)
    advance()
  }

  private def advance(): Unit = {
    cursor += UndoBytes
    inLast += 1
    size_ += 1
    counts(counts.length - 1) = inLast
    Slabs.releaseFence()
  }

  private def grow(): Unit = {
    val extent = if (spare.nonEmpty) spare.remove(spare.length - 1)
      else memory.take(Extents.Undo, math.min(UndoLog.LargestExtent,
        math.max(UndoLog.FirstExtent, java.lang.Long.highestOneBit(size_.toLong * UndoBytes))))
    cursor = memory.slabs.address(extent.ref)
    inLast = 0
    lastCapacity = (extent.bytes / UndoBytes).toInt
    counts = counts :+ 0
    extents = extents :+ extent
  }

  /** (ref, records) of each extent: what a prepare or a snapshot reads. */
  def ranges: Seq[(Long, Int)] = {
    val known = extents
    val filled = counts
    known.indices.map(i => (known(i).ref, filled(i))).filter(_._2 > 0)
  }

  /** Newest first, as going back needs it. */
  def foreachBackwards(f: Long => Unit): Unit = {
    var i = extents.length - 1
    while (i >= 0) {
      val start = memory.slabs.address(extents(i).ref)
      var n = counts(i) - 1
      while (n >= 0) {
        f(start + n.toLong * UndoBytes)
        n -= 1
      }
      i -= 1
    }
  }

  /** Returns the extents for the next epoch's log; those beyond a few go back to the pool. */
  def dispose(): Unit = {
    extents.foreach { extent =>
      if (spare.map(_.bytes).sum + extent.bytes <= UndoLog.SpareBytes) spare += extent
      else memory.giveBack(Extents.Undo, extent)
    }
    extents = Array.empty
    size_ = 0
  }
}

private[floe] object UndoLog {
  private val FirstExtent = 16L << 10
  private val LargestExtent = 2L << 20
  private val SpareBytes = 8L << 20
}
