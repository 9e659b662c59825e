package org.apache.spark.sql.floe

import org.apache.spark.unsafe.Platform

/**
 * Space for keys and values: bump allocation in extents, and free lists for what came back.
 * Everything is a multiple of 8 bytes, as UnsafeRows are. Blocks up to [[Arena.ExactBytes]] return
 * to a list of their exact size; larger ones go to bins of a power of two and are split on reuse.
 * The lists run through the free blocks themselves, so a mass removal costs no heap. When a block
 * may come back is not decided here: see [[HotTable]].
 */
private[floe] final class Arena(memory: StoreMemory) {
  import Arena._

  private val slabs = memory.slabs
  private val exact = new Array[Long](ExactBytes / 8 + 1)
  private val bins = new Array[Long](64)
  private var cursor = 0L
  private var limit = 0L
  private var nextExtent = FirstExtent
  private var freeBytes_ = 0L
  private var taken_ = 0L

  /** Bytes on the free lists: held, and of no use until somebody asks for that size. */
  def freeBytes: Long = freeBytes_ + (limit - cursor)

  /** Space for `bytes` bytes, or an exception and nothing changed. */
  def allocate(bytes: Int): Long = {
    val size = roundUp(bytes)
    if (size == 0) NoBytes
    else if (size <= ExactBytes) {
      val head = exact(size >>> 3)
      if (head != 0) {
        exact(size >>> 3) = Platform.getLong(null, slabs.address(head))
        freeBytes_ -= size
        head
      } else bump(size)
    } else {
      val found = takeFromBins(size)
      if (found != 0) found else bump(size)
    }
  }

  def release(ref: Long, bytes: Int): Unit = if (ref != 0 && bytes != 0) {
    val size = roundUp(bytes)
    val address = slabs.address(ref)
    freeBytes_ += size
    if (size <= ExactBytes) {
      Platform.putLong(null, address, exact(size >>> 3))
      exact(size >>> 3) = ref
    } else {
      val bin = binOf(size)
      Platform.putLong(null, address, bins(bin))
      Platform.putLong(null, address + 8, size)
      bins(bin) = ref
    }
  }

  /** An extent that Python filled with rows while loading; what it did not fill is free. */
  def adopt(extent: Extent, used: Int): Unit = {
    taken_ += extent.bytes
    release(extent.ref + used, (extent.bytes - used).toInt)
  }

  /** The first block that is large enough among the first of its own bin, else one of a larger bin. */
  private def takeFromBins(size: Int): Long = {
    val own = binOf(size)
    var before = 0L
    var ref = bins(own)
    var looked = 0
    while (ref != 0 && sizeOf(ref) < size && looked < Arena.BinSearch) {
      before = ref
      ref = nextOf(ref)
      looked += 1
    }
    if (ref != 0 && sizeOf(ref) >= size) {
      if (before == 0) bins(own) = nextOf(ref)
      else Platform.putLong(null, slabs.address(before), nextOf(ref))
      cut(ref, size)
    } else {
      var bin = own + 1 // every block of the next bin is large enough
      while (bin < bins.length && bins(bin) == 0) bin += 1
      if (bin == bins.length) 0L
      else {
        val found = bins(bin)
        bins(bin) = nextOf(found)
        cut(found, size)
      }
    }
  }

  private def nextOf(ref: Long): Long = Platform.getLong(null, slabs.address(ref))
  private def sizeOf(ref: Long): Int = Platform.getLong(null, slabs.address(ref) + 8).toInt

  private def cut(ref: Long, size: Int): Long = {
    val have = sizeOf(ref)
    freeBytes_ -= have
    if (have > size) release(ref + size, have - size)
    ref
  }

  private def bump(size: Int): Long = {
    if (limit - cursor < size) refill(size)
    val ref = cursor
    cursor += size
    ref
  }

  private def refill(size: Int): Unit = {
    val extent = memory.take(Extents.Arena, math.max(size.toLong, nextExtent))
    if (limit > cursor) {
      val rest = (limit - cursor).toInt
      release(cursor, rest)
    }
    taken_ += extent.bytes
    cursor = extent.ref
    limit = extent.ref + extent.bytes
    // A quarter of what the store holds: few calls for large stores, little waste for small ones.
    nextExtent = math.min(LargestExtent, java.lang.Long.highestOneBit(math.max(taken_ / 4, FirstExtent)))
  }
}

private[floe] object Arena {
  val ExactBytes = 1024
  /** Blocks of one bin differ by less than two times; most stores have few sizes. */
  private val BinSearch = 16
  private val FirstExtent = 16L << 10
  private val LargestExtent = 4L << 20

  /** Where a row of no bytes is: somewhere that is not "none" and that nobody frees. */
  private val NoBytes = 8L

  private def roundUp(bytes: Int): Int = (bytes + 7) & ~7
  private def binOf(size: Int): Int = 31 - Integer.numberOfLeadingZeros(size)
}
