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

  private val extents = ArrayBuffer.empty[Extent]
  private var starts: Array[Long] = Array.empty // address of each extent
  private var perExtent: Array[Int] = Array.empty
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
    Slabs.releaseFence()
  }

  private def grow(): Unit = {
    val extent = if (spare.nonEmpty) spare.remove(spare.length - 1)
      else memory.take(Extents.Undo, math.min(UndoLog.LargestExtent,
        math.max(UndoLog.FirstExtent, java.lang.Long.highestOneBit(size_.toLong * UndoBytes))))
    if (extents.nonEmpty) perExtent(extents.length - 1) = inLast
    extents += extent
    starts :+= memory.slabs.address(extent.ref)
    perExtent :+= 0
    cursor = starts.last
    inLast = 0
    lastCapacity = (extent.bytes / UndoBytes).toInt
  }

  /** (ref, records) of each extent: what a prepare or a snapshot reads. */
  def ranges: Seq[(Long, Int)] = {
    val full = extents.indices.map(i => (extents(i).ref, if (i == extents.length - 1) inLast else perExtent(i)))
    full.filter(_._2 > 0)
  }

  /** Newest first, as going back needs it. */
  def foreachBackwards(f: Long => Unit): Unit = {
    var i = extents.length - 1
    while (i >= 0) {
      var n = (if (i == extents.length - 1) inLast else perExtent(i)) - 1
      while (n >= 0) {
        f(starts(i) + n.toLong * UndoBytes)
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
    extents.clear()
    size_ = 0
  }
}

private[floe] object UndoLog {
  private val FirstExtent = 16L << 10
  private val LargestExtent = 2L << 20
  private val SpareBytes = 8L << 20
}
