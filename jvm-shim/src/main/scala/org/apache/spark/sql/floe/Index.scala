package org.apache.spark.sql.floe

import org.apache.spark.unsafe.Platform

/**
 * From a hash to entries: extendible hashing over small open-addressed tables. A slot is 8 bytes,
 * a 32-bit tag above a 32-bit entry number, so that a miss touches one cache line. The tag's high
 * bits choose the table, its low bits the slot, so that splitting a full table reads nothing but
 * the table: growth is incremental by nature, and its worst pause is one table of 64 KiB.
 *
 * One writer for ever, the shim; never undone (an entry that an abort makes dead stays linked).
 */
private[floe] final class Index(memory: StoreMemory, retire: Extent => Unit) {
  import Index._

  private final class Table(val extent: Extent, val address: Long, var depth: Int) {
    var used = 0
  }

  private var slots = 0
  private var mask = 0
  private var directoryBits = 0
  private var tables: Array[Table] = Array.empty
  /** tables(i).address, apart from the objects: a probe reads one array and one cache line. */
  private var addresses: Array[Long] = Array.empty

  def isEmpty: Boolean = slots == 0

  /** First slot address to look at for `tag`; walk on with [[next]]. */
  def tableOf(tag: Int): Long = addresses(directoryIndex(tag))
  def position(tag: Int): Int = tag & mask
  def next(position: Int): Int = (position + 1) & mask

  private def directoryIndex(tag: Int): Int =
    ((tag & 0xffffffffL) >>> (32 - directoryBits)).toInt

  /** Makes sure that one more entry can be linked; the only step that can fail. */
  def reserve(tag: Int): Unit = {
    if (slots == 0) start(FirstSlots)
    var table = tables(directoryIndex(tag))
    while (table.used >= slots / 10 * 7) {
      if (slots < TableSlots) start(slots * 2) else split(table)
      table = tables(directoryIndex(tag))
    }
  }

  /** Links after [[reserve]]. */
  def link(tag: Int, entry: Int): Unit = {
    val table = tables(directoryIndex(tag))
    table.used += 1
    insert(table.address, (tag.toLong << 32) | (entry & 0xffffffffL))
  }

  /** Removes the slot and closes the gap behind it, so that probes stay short for ever. */
  def unlink(tag: Int, entry: Int): Unit = {
    val table = tables(directoryIndex(tag))
    val slot = (tag.toLong << 32) | (entry & 0xffffffffL)
    var at = tag & mask
    while (Platform.getLong(null, table.address + at * 8L) != slot) at = (at + 1) & mask
    table.used -= 1
    var gap = at
    var probe = (at + 1) & mask
    var moved = Platform.getLong(null, table.address + probe * 8L)
    while (moved != 0) {
      val home = (moved >>> 32).toInt & mask
      if (((probe - home) & mask) >= ((probe - gap) & mask)) {
        Platform.putLong(null, table.address + gap * 8L, moved)
        gap = probe
      }
      probe = (probe + 1) & mask
      moved = Platform.getLong(null, table.address + probe * 8L)
    }
    Platform.putLong(null, table.address + gap * 8L, 0L)
  }

  private def insert(address: Long, slot: Long): Unit = {
    var at = (slot >>> 32).toInt & mask
    while (Platform.getLong(null, address + at * 8L) != 0) at = (at + 1) & mask
    Platform.putLong(null, address + at * 8L, slot)
  }

  /** The only table of a small index, made anew with more slots. */
  private def start(newSlots: Int): Unit = {
    val old = tables.headOption
    val extent = memory.take(Extents.Index, newSlots * 8L)
    val table = new Table(extent, memory.slabs.address(extent.ref), 0)
    val oldSlots = slots
    slots = newSlots
    mask = newSlots - 1
    old.foreach(from => move(from, oldSlots, _ => table))
    tables = Array(table)
    addresses = Array(table.address)
    old.foreach(from => retire(from.extent))
  }

  private def split(full: Table): Unit = {
    val first = memory.take(Extents.Index, slots * 8L)
    val second = memory.take(Extents.Index, slots * 8L)
    val depth = full.depth + 1
    val low = new Table(first, memory.slabs.address(first.ref), depth)
    val high = new Table(second, memory.slabs.address(second.ref), depth)
    move(full, slots, tag => if (((tag >>> (32 - depth)) & 1) == 0) low else high)
    if (depth > directoryBits) {
      directoryBits += 1
      tables = Array.tabulate(tables.length * 2)(i => tables(i >> 1))
    }
    var i = 0
    while (i < tables.length) {
      if (tables(i) eq full) {
        tables(i) = if (((i >>> (directoryBits - depth)) & 1) == 0) low else high
      }
      i += 1
    }
    addresses = tables.map(_.address)
    retire(full.extent)
  }

  private def move(from: Table, fromSlots: Int, to: Int => Table): Unit = {
    var i = 0
    while (i < fromSlots) {
      val slot = Platform.getLong(null, from.address + i * 8L)
      if (slot != 0) {
        val target = to((slot >>> 32).toInt)
        target.used += 1
        insert(target.address, slot)
      }
      i += 1
    }
  }
}

private[floe] object Index {
  private val FirstSlots = 512
  private val TableSlots = 8192
}
