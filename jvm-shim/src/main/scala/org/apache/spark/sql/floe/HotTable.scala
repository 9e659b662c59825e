package org.apache.spark.sql.floe

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer

import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/**
 * The rows of one store in shared memory: entries found through [[Index]], keys and values in
 * [[Arena]], changes recorded in [[UndoLog]]. There is one value reference an entry, changed in
 * place; a version is left by committing the epoch's log, aborting it, or rolling back.
 *
 * '''Freed is not reusable.''' A task that was killed may go on reading rows it was lent, a
 * running snapshot reads the version it pinned, and the last committed epochs can be undone. What
 * an epoch frees is therefore only reused when that epoch lies behind the horizon
 * ([[reclaim]]), which the provider computes from its pins.
 *
 * Not thread-safe: the provider's stamp gives it one owner at a time.
 */
private[floe] final class HotTable(val memory: StoreMemory, firstEpoch: Int) {
  import HotTable._
  import MemoryLayout._

  private val slabs = memory.slabs
  private val arena = new Arena(memory)
  private val index = new Index(memory, extent => retired.extents += ((Extents.Index, extent)))
  private var pages: Array[Long] = new Array[Long](4)
  private var pageCount = 0

  /** Entries were born below this number; 0 is never an entry. */
  private var highWater = 1
  private var freeEntry = 0
  private var rows_ = 0L
  private val spareUndo = ArrayBuffer.empty[Extent]
  private var undo: UndoLog = _
  private var epoch_ = firstEpoch
  private var openIterators = 0
  private var retired = new Retired(firstEpoch)
  /** What past epochs freed, oldest first, until it falls behind the horizon. */
  private val waiting = mutable.Queue.empty[Waiting]

  def epoch: Int = epoch_
  def rows: Long = rows_
  def entries: Int = highWater
  def log: UndoLog = undo
  def wasteBytes: Long = arena.freeBytes
  def bytes: Long = memory.bytes

  // Epochs ----------------------------------------------------------------------------------------

  def begin(): UndoLog = {
    epoch_ += 1
    retired = new Retired(epoch_)
    undo = new UndoLog(epoch_, rows_, memory, spareUndo)
    openIterators = 0
    undo
  }

  /** The epoch's changes are committed; its log is the way back until [[forget]]. */
  def commit(): Unit = {
    if (retired.nonEmpty) waiting.enqueue(retired)
    retired = new Retired(epoch_)
    undo = null
  }

  /** Leaves the open epoch and what it did; `ways` as for [[goBack]]. */
  def abort(ways: Iterable[UndoLog]): Unit = {
    val log = undo
    undo = null
    goBack(log, ways)
  }

  /**
   * Undoes a log: the open one, or the newest committed one. Allocates nothing in shared memory.
   * `ways` are the logs that can still be undone after this one.
   */
  def goBack(log: UndoLog, ways: Iterable[UndoLog]): Unit = {
    val undoable = ways.map(_.epoch).toArray
    val gone = new Retired(epoch_)
    log.foreachBackwards { at =>
      val entry = Platform.getInt(null, at + UndoEntry)
      val record = recordOf(entry)
      gone.add(Platform.getLong(null, record + Hot), Platform.getInt(null, record + ValueLen))
      if (Platform.getInt(null, at + UndoBorn) == 1) {
        Platform.putLong(null, record + Hot, 0L)
        Platform.putInt(null, record + ValueLen, 0)
        Platform.putInt(null, record + Kind, Platform.getInt(null, record + Kind) | DeadFlag)
      } else {
        Platform.putLong(null, record + Hot, Platform.getLong(null, at + UndoHot))
        Platform.putLong(null, record + Cold, Platform.getLong(null, at + UndoCold))
        Platform.putLong(null, record + Expiry, Platform.getLong(null, at + UndoExpiry))
        Platform.putInt(null, record + ValueLen, Platform.getInt(null, at + UndoValueLen))
        Platform.putInt(null, record + Kind, Platform.getInt(null, at + UndoKind))
        Platform.putInt(null, record + Epoch, Platform.getInt(null, at + UndoEpoch))
      }
      // Dead as of now: whoever saw it alive holds a pin of at most this epoch. But if its death is
      // written in a log that can be undone, that log names it, and frees it when it is forgotten.
      if ((Platform.getInt(null, record + Kind) & DeadFlag) != 0 &&
          !undoable.contains(Platform.getInt(null, record + Epoch))) {
        Platform.putInt(null, record + Epoch, epoch_)
        gone.entries += entry
      }
    }
    rows_ = log.rowsBefore
    if (retired.nonEmpty) waiting.enqueue(retired)
    retired = new Retired(epoch_)
    waiting.enqueue(gone)
    waiting.enqueue(new Undone(epoch_, log))
    Slabs.releaseFence()
  }

  /** The committed log is no longer a way back; what it replaced is free behind the horizon. */
  def forget(log: UndoLog): Unit = waiting.enqueue(new Superseded(log))

  /** Takes back what was freed before `horizon`. Only between handles. */
  def reclaim(horizon: Int): Unit =
    while (waiting.nonEmpty && waiting.head.epoch < horizon) waiting.dequeue().release()

  // Reading ---------------------------------------------------------------------------------------

  /** The entry of the key if it has a row in this version, else 0. */
  def find(family: Int, base: AnyRef, offset: Long, length: Int): Int = {
    if (index.isEmpty) return 0
    val entry = probe(hash(family, base, offset, length), family, base, offset, length)
    if (entry != 0 && (Platform.getInt(null, recordOf(entry) + Kind) & DeadFlag) != 0) 0 else entry
  }

  def valueAddress(entry: Int): Long = slabs.address(Platform.getLong(null, recordOf(entry) + Hot))
  def valueLength(entry: Int): Int = Platform.getInt(null, recordOf(entry) + ValueLen)
  def keyAddress(entry: Int): Long = slabs.address(Platform.getLong(null, recordOf(entry) + KeyRef)) + 8
  def keyLength(entry: Int): Int = Platform.getInt(null, recordOf(entry) + KeyLen)
  def isRow(entry: Int, family: Int): Boolean =
    (Platform.getInt(null, recordOf(entry) + Kind) & (NotARow | FamilyMask)) == family

  /** Tells the cold state manager that the entry was asked for: in a line that is at hand anyway. */
  def markUsed(entry: Int): Unit = Platform.putInt(null, recordOf(entry) + Used, epoch_)

  /** First member of the prefix's group, 0 when there is none. */
  def firstOfGroup(family: Int, base: AnyRef, offset: Long, length: Int): Int = {
    if (index.isEmpty) return 0
    val kind = family | GroupFlag
    val group = probe(hash(kind, base, offset, length), kind, base, offset, length)
    if (group == 0) 0 else Platform.getInt(null, recordOf(group) + Next)
  }

  def nextOfGroup(entry: Int): Int = Platform.getInt(null, recordOf(entry) + Next)

  def iteratorOpened(): Unit = openIterators += 1
  /** An iterator of an epoch that is over no longer counts. */
  def iteratorClosed(openedIn: Int): Unit = if (openedIn == epoch_) openIterators -= 1

  // Writing ---------------------------------------------------------------------------------------

  /**
   * Puts a row. `prefix` finds the group of a new key, or is null. All space is secured before
   * the first byte changes: a put that fails has changed nothing.
   */
  def put(family: Int, kBase: AnyRef, kOffset: Long, kLength: Int,
      vBase: AnyRef, vOffset: Long, vLength: Int, prefix: Prefix): Unit = {
    val h = hash(family, kBase, kOffset, kLength)
    val found = if (index.isEmpty) 0 else probe(h, family, kBase, kOffset, kLength)
    if (found != 0) overwrite(found, vBase, vOffset, vLength)
    else {
      undo.reserve()
      val key = storeKey(h, kBase, kOffset, kLength)
      val value = store(vBase, vOffset, vLength)
      if (prefix != null) prefix.of(kBase, kOffset, kLength)
      val entry = insert(h, family, key, kLength, prefix)
      undo.appendBorn(entry)
      setValue(recordOf(entry), value, vLength, 0L, Never)
      rows_ += 1
      markUsed(entry)
    }
  }

  private def overwrite(entry: Int, vBase: AnyRef, vOffset: Long, vLength: Int): Unit = {
    val record = recordOf(entry)
    val old = Platform.getLong(null, record + Hot)
    if (Platform.getInt(null, record + Epoch) == epoch_ && old != 0 && openIterators == 0 &&
        Platform.getInt(null, record + ValueLen) == vLength) {
      Platform.copyMemory(vBase, vOffset, null, slabs.address(old), vLength)
    } else {
      undo.reserve()
      val value = store(vBase, vOffset, vLength)
      touch(entry)
      setValue(record, value, vLength, 0L, Never)
    }
    markUsed(entry)
  }

  def remove(family: Int, base: AnyRef, offset: Long, length: Int): Boolean = {
    val entry = find(family, base, offset, length)
    if (entry != 0) removeEntry(entry)
    entry != 0
  }

  private def removeEntry(entry: Int): Unit = {
    undo.reserve()
    touch(entry)
    val record = recordOf(entry)
    Platform.putInt(null, record + Kind, Platform.getInt(null, record + Kind) | DeadFlag)
    Platform.putLong(null, record + Hot, 0L)
    Platform.putInt(null, record + ValueLen, 0)
    Platform.putLong(null, record + Cold, 0L)
    rows_ -= 1
  }

  /**
   * Before an entry changes: the first touch in this epoch writes it down, a later one frees what
   * it replaces. A dead entry that is touched is about to live again.
   */
  private def touch(entry: Int): Unit = {
    val record = recordOf(entry)
    if (Platform.getInt(null, record + Epoch) == epoch_) {
      retired.add(Platform.getLong(null, record + Hot), Platform.getInt(null, record + ValueLen))
    } else {
      undo.append(entry, record)
      Platform.putInt(null, record + Epoch, epoch_)
    }
    if ((Platform.getInt(null, record + Kind) & DeadFlag) != 0) rows_ += 1
  }

  private def setValue(record: Long, ref: Long, length: Int, cold: Long, expiry: Long): Unit = {
    Platform.putLong(null, record + Hot, ref)
    Platform.putInt(null, record + ValueLen, length)
    Platform.putLong(null, record + Cold, cold)
    Platform.putLong(null, record + Expiry, expiry)
    Platform.putInt(null, record + Kind, Platform.getInt(null, record + Kind) & ~DeadFlag)
  }

  // Loading ---------------------------------------------------------------------------------------

  /**
   * Links rows that Python staged: the same moves as put and remove, on bytes that already lie in
   * this store's memory. A table that nobody has seen yet (`recorded` = false) needs no way back.
   */
  def link(ref: Long, count: Int, prefix: Prefix, recorded: Boolean): Unit = {
    var at = slabs.address(ref)
    var i = 0
    while (i < count) {
      val family = Platform.getInt(null, at + StagedFamily)
      val keyRef = Platform.getLong(null, at + StagedKeyRef)
      val key = slabs.address(keyRef)
      val keyLength = Platform.getInt(null, at + StagedKeyLen)
      val h = Platform.getLong(null, key)
      val found = if (index.isEmpty) 0 else probe(h, family, null, key + 8, keyLength)
      if (recorded) undo.reserve()
      if (Platform.getInt(null, at + StagedOp) == OpRemove) {
        if (found != 0 && (Platform.getInt(null, recordOf(found) + Kind) & DeadFlag) == 0) {
          if (recorded) removeEntry(found) else discard(found)
        }
        arena.release(keyRef, keyLength + 8)
      } else {
        val entry = if (found != 0) {
          if (recorded) touch(found) else replaced(found)
          arena.release(keyRef, keyLength + 8)
          found
        } else {
          if (prefix != null) prefix.of(null, key + 8, keyLength)
          val born = insert(h, family, keyRef, keyLength, prefix)
          if (recorded) undo.appendBorn(born)
          rows_ += 1
          born
        }
        setValue(recordOf(entry), Platform.getLong(null, at + StagedValueRef),
          Platform.getInt(null, at + StagedValueLen), Platform.getLong(null, at + StagedCold),
          Platform.getLong(null, at + StagedExpiry))
      }
      at += StagedBytes
      i += 1
    }
  }

  private def replaced(entry: Int): Unit = {
    val record = recordOf(entry)
    arena.release(Platform.getLong(null, record + Hot), Platform.getInt(null, record + ValueLen))
  }

  private def discard(entry: Int): Unit = {
    replaced(entry)
    rows_ -= 1
    free(entry)
  }

  /** Records an arena extent that Python filled for this store. */
  def adoptArena(extent: Extent, used: Int): Unit = {
    memory.add(Extents.Arena, extent)
    arena.adopt(extent, used)
  }

  /** Hands out markers after a flush, to entries that have not changed since. */
  def applySwitches(ref: Long, count: Int): Unit = {
    var at = slabs.address(ref)
    var i = 0
    while (i < count) {
      val record = recordOf(Platform.getInt(null, at + SwitchEntry))
      if (Platform.getInt(null, record + Epoch) == Platform.getInt(null, at + SwitchEpoch) &&
          (Platform.getInt(null, record + Kind) & NotARow) == 0) {
        Platform.putLong(null, record + Cold, Platform.getLong(null, at + SwitchCold))
      }
      at += SwitchBytes
      i += 1
    }
  }

  // Entries ---------------------------------------------------------------------------------------

  private def recordOf(entry: Int): Long =
    pages(entry >>> PageBits) + (entry & (PageEntries - 1)).toLong * EntryBytes

  private def probe(h: Long, kind: Int, base: AnyRef, offset: Long, length: Int): Int = {
    val tag = tagOf(h)
    val table = index.tableOf(tag)
    var position = index.position(tag)
    var slot = Platform.getLong(null, table + position * 8L)
    while (slot != 0) {
      if ((slot >>> 32).toInt == tag) {
        val record = recordOf(slot.toInt)
        if (Platform.getInt(null, record + KeyLen) == length &&
            (Platform.getInt(null, record + Kind) & IdentityMask) == kind &&
            sameWords(slabs.address(Platform.getLong(null, record + KeyRef)) + 8, base, offset, length)) {
          return slot.toInt
        }
      }
      position = index.next(position)
      slot = Platform.getLong(null, table + position * 8L)
    }
    0
  }

  /** A linked entry without a value, born in this epoch. */
  private def insert(h: Long, kind: Int, keyRef: Long, keyLength: Int, prefix: Prefix): Int = {
    val tag = tagOf(h)
    index.reserve(tag)
    val group = if (prefix == null || (kind & GroupFlag) != 0) 0 else groupOf(kind, prefix)
    index.reserve(tag) // the group's own entry may have taken the place
    val entry = newEntry()
    val record = recordOf(entry)
    Platform.putLong(null, record + KeyRef, keyRef)
    Platform.putInt(null, record + KeyLen, keyLength)
    Platform.putLong(null, record + Hot, 0L)
    Platform.putInt(null, record + ValueLen, 0)
    Platform.putLong(null, record + Cold, 0L)
    Platform.putLong(null, record + Expiry, Never)
    Platform.putInt(null, record + Epoch, epoch_)
    // A row is dead until its value is set: a snapshot must not see it before its undo record.
    Platform.putInt(null, record + Kind, if ((kind & GroupFlag) != 0) kind else kind | DeadFlag)
    Platform.putInt(null, record + Group, group)
    Platform.putInt(null, record + Prev, 0)
    Platform.putInt(null, record + Next, 0)
    if (group != 0) linkMember(group, entry, record)
    index.link(tag, entry)
    entry
  }

  private def groupOf(family: Int, prefix: Prefix): Int = {
    val kind = family | GroupFlag
    val h = hash(kind, prefix.base, prefix.offset, prefix.length)
    val found = if (index.isEmpty) 0 else probe(h, kind, prefix.base, prefix.offset, prefix.length)
    if (found != 0) found
    else insert(h, kind, storeKey(h, prefix.base, prefix.offset, prefix.length), prefix.length, null)
  }

  private def linkMember(group: Int, entry: Int, record: Long): Unit = {
    val anchor = recordOf(group)
    val first = Platform.getInt(null, anchor + Next)
    Platform.putInt(null, record + Next, first)
    Platform.putInt(null, record + Prev, group)
    if (first != 0) Platform.putInt(null, recordOf(first) + Prev, entry)
    Platform.putInt(null, anchor + Next, entry)
  }

  private def newEntry(): Int = {
    if (freeEntry != 0) {
      val entry = freeEntry
      freeEntry = Platform.getInt(null, recordOf(entry) + Next)
      entry
    } else {
      val entry = highWater
      while ((entry >>> PageBits) >= pageCount) addPages()
      highWater += 1
      entry
    }
  }

  private def addPages(): Unit = {
    // Doubling up to 16 pages: a call for every 16 thousand entries at most.
    val wanted = math.min(16, math.max(1, Integer.highestOneBit(pageCount)))
    val extent = memory.take(Extents.Entries, wanted.toLong * PageBytes)
    val count = (extent.bytes / PageBytes).toInt
    if (pageCount + count > pages.length) {
      pages = java.util.Arrays.copyOf(pages, math.max(pages.length * 2, pageCount + count))
    }
    val start = slabs.address(extent.ref)
    (0 until count).foreach(i => pages(pageCount + i) = start + i.toLong * PageBytes)
    pageCount += count
  }

  /** Unlinks a dead entry that nobody can ask for any more; the last of a group takes it along. */
  private def free(entry: Int): Unit = {
    val record = recordOf(entry)
    val keyRef = Platform.getLong(null, record + KeyRef)
    index.unlink(tagOf(Platform.getLong(null, slabs.address(keyRef))), entry)
    val group = Platform.getInt(null, record + Group)
    if (group != 0) unlinkMember(group, record)
    arena.release(keyRef, Platform.getInt(null, record + KeyLen) + 8)
    Platform.putInt(null, record + Kind, FreeFlag)
    Platform.putInt(null, record + Next, freeEntry)
    freeEntry = entry
    if (group != 0 && Platform.getInt(null, recordOf(group) + Next) == 0) free(group)
  }

  private def unlinkMember(group: Int, record: Long): Unit = {
    val next = Platform.getInt(null, record + Next)
    val prev = Platform.getInt(null, record + Prev)
    Platform.putInt(null, recordOf(prev) + Next, next) // the anchor's Next is its first member
    if (next != 0) Platform.putInt(null, recordOf(next) + Prev, prev)
  }

  private def store(base: AnyRef, offset: Long, length: Int): Long = {
    val ref = arena.allocate(length)
    Platform.copyMemory(base, offset, null, slabs.address(ref), length)
    ref
  }

  private def storeKey(h: Long, base: AnyRef, offset: Long, length: Int): Long = {
    val ref = arena.allocate(length + 8)
    val address = slabs.address(ref)
    Platform.putLong(null, address, h)
    Platform.copyMemory(base, offset, null, address + 8, length)
    ref
  }

  // What past epochs left behind --------------------------------------------------------------------

  private sealed abstract class Waiting {
    def epoch: Int
    def release(): Unit
  }

  /** Space, entries and extents that an epoch freed by itself. */
  private final class Retired(val epoch: Int) extends Waiting {
    private var refs = new Array[Long](0)
    private var lengths = new Array[Int](0)
    private var count = 0
    val entries = mutable.ArrayBuilder.make[Int]
    val extents = ArrayBuffer.empty[(String, Extent)]

    def nonEmpty: Boolean = count > 0 || entries.length > 0 || extents.nonEmpty

    def add(ref: Long, length: Int): Unit = if (ref != 0) {
      if (count == refs.length) {
        refs = java.util.Arrays.copyOf(refs, math.max(16, count * 2))
        lengths = java.util.Arrays.copyOf(lengths, refs.length)
      }
      refs(count) = ref
      lengths(count) = length
      count += 1
    }

    def release(): Unit = {
      (0 until count).foreach(i => arena.release(refs(i), lengths(i)))
      entries.result().foreach(freeIfDeadSince(_, epoch))
      extents.foreach { case (kind, extent) => memory.giveBack(kind, extent) }
    }
  }

  /** A log that was undone: of no use but to a snapshot that began before. */
  private final class Undone(val epoch: Int, log: UndoLog) extends Waiting {
    def release(): Unit = log.dispose()
  }

  /** A committed log that nobody goes back behind: its old values are free. */
  private final class Superseded(log: UndoLog) extends Waiting {
    def epoch: Int = log.epoch
    def release(): Unit = {
      log.foreachBackwards { at =>
        if (Platform.getInt(null, at + UndoBorn) == 0) {
          arena.release(Platform.getLong(null, at + UndoHot), Platform.getInt(null, at + UndoValueLen))
        }
        freeIfDeadSince(Platform.getInt(null, at + UndoEntry), log.epoch)
      }
      log.dispose()
    }
  }

  private def freeIfDeadSince(entry: Int, since: Int): Unit = {
    val record = recordOf(entry)
    if ((Platform.getInt(null, record + Kind) & (DeadFlag | FreeFlag)) == DeadFlag &&
        Platform.getInt(null, record + Epoch) == since) free(entry)
  }
}

private[floe] object HotTable {

  /** The group of a key: the bytes of its prefix row. */
  abstract class Prefix {
    /** Points this at the prefix of the given key. */
    def of(base: AnyRef, offset: Long, length: Int): Unit
    def base: AnyRef
    def offset: Long
    def length: Int
  }

  private val Multiplier = 0x9e3779b97f4a7c15L

  /** Hash of the key's words; stored in deltas and segments, hence part of the format. */
  def hash(kind: Int, base: AnyRef, offset: Long, length: Int): Long = {
    var h = (kind + 1) * Multiplier ^ length
    var at = offset
    val end = offset + length
    while (at < end) {
      h = (h ^ Platform.getLong(base, at)) * Multiplier
      h ^= h >>> 32
      at += 8
    }
    h *= Multiplier
    h ^ (h >>> 29)
  }

  private def tagOf(h: Long): Int = (h ^ (h >>> 32)).toInt

  private def sameWords(address: Long, base: AnyRef, offset: Long, length: Int): Boolean =
    if (length <= 64) {
      var i = 0
      while (i < length) {
        if (Platform.getLong(null, address + i) != Platform.getLong(base, offset + i)) return false
        i += 8
      }
      true
    } else ByteArrayMethods.arrayEquals(null, address, base, offset, length)
}
