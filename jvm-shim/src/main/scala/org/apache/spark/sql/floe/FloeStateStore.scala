package org.apache.spark.sql.floe

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * A handle on one version. A row that `get` returns points into shared memory and is good until the
 * next call on this handle; rows of an iterator belong to the iterator and are good until its next
 * step, whatever else is called (see [[HotTable]] for what keeps them in place).
 */
private[floe] final class FloeStateStore(
    val provider: FloeStateStoreProvider,
    val lease: Lease,
    override val version: Long,
    val readOnly: Boolean,
    forceSnapshot: Boolean) extends StateStore {
  import FloeStateStore._

  private val table = provider.versions.table
  private val prefix = provider.newPrefix()
  private val row = new UnsafeRow(provider.valueFields)
  private var validated = false
  private var committedAs: Option[(Point, Point)] = None // (new, base)

  override def id: StateStoreId = provider.stateStoreId

  // Reading ---------------------------------------------------------------------------------------

  override def get(key: UnsafeRow, family: String): UnsafeRow = {
    check(family)
    val entry = table.find(DefaultFamily, key.getBaseObject, key.getBaseOffset, key.getSizeInBytes)
    if (entry == 0) null
    else {
      table.markUsed(entry)
      row.pointTo(null, table.valueAddress(entry), table.valueLength(entry))
      if (!validated) validate(key, row)
      row
    }
  }

  override def keyExists(key: UnsafeRow, family: String): Boolean = {
    check(family)
    val entry = table.find(DefaultFamily, key.getBaseObject, key.getBaseOffset, key.getSizeInBytes)
    if (entry != 0) table.markUsed(entry)
    entry != 0
  }

  override def multiGet(keys: Array[UnsafeRow], family: String): Iterator[UnsafeRow] =
    keys.iterator.map(key => get(key, family))

  override def iterator(family: String): StateStoreIterator[UnsafeRowPair] = {
    check(family)
    val last = table.entries
    open(new RowIterator {
      private var at = 0
      override protected def advance(): Int = {
        at += 1
        while (at < last && !table.isRow(at, DefaultFamily)) at += 1
        if (at < last) at else 0
      }
    })
  }

  override def prefixScan(prefixKey: UnsafeRow, family: String): StateStoreIterator[UnsafeRowPair] = {
    check(family)
    if (prefix == null) throw FloeErrors.unsupported(id, "a prefix scan without a prefix in the key")
    val first = table.firstOfGroup(
      DefaultFamily, prefixKey.getBaseObject, prefixKey.getBaseOffset, prefixKey.getSizeInBytes)
    open(new RowIterator {
      private var following = first
      override protected def advance(): Int = {
        var entry = following
        while (entry != 0 && !table.isRow(entry, DefaultFamily)) entry = table.nextOfGroup(entry)
        if (entry != 0) {
          following = table.nextOfGroup(entry)
          table.markUsed(entry)
        }
        entry
      }
    })
  }

  private def open(rows: RowIterator): StateStoreIterator[UnsafeRowPair] =
    new StateStoreIterator(rows, () => rows.close())

  /** Live view: sees later changes of rows that it has not reached. Ends with the handle. */
  private abstract class RowIterator extends Iterator[UnsafeRowPair] {
    private val key = new UnsafeRow(provider.keyFields)
    private val value = new UnsafeRow(provider.valueFields)
    private val pair = new UnsafeRowPair(key, value)
    private var ready = 0
    private var ended = false
    private val openedIn = table.epoch
    table.iteratorOpened()

    /** The next entry with a row, 0 at the end. */
    protected def advance(): Int

    override def hasNext: Boolean = {
      if (ready == 0 && !ended) {
        lease.check()
        ready = advance()
        if (ready == 0) close()
      }
      ready != 0
    }

    override def next(): UnsafeRowPair = {
      // A row may have been removed since hasNext looked.
      while (hasNext && !table.isRow(ready, DefaultFamily)) ready = 0
      if (ready == 0) throw new NoSuchElementException
      key.pointTo(null, table.keyAddress(ready), table.keyLength(ready))
      value.pointTo(null, table.valueAddress(ready), table.valueLength(ready))
      ready = 0
      if (!validated) validate(key, value)
      pair
    }

    def close(): Unit = if (!ended) {
      ended = true
      table.iteratorClosed(openedIn)
    }
  }

  // Writing ---------------------------------------------------------------------------------------

  override def put(key: UnsafeRow, value: UnsafeRow, family: String): Unit = {
    check(family)
    if (readOnly) throw FloeErrors.unsupported(id, "a put on a handle opened for reading")
    require(value != null, "Cannot put a null value")
    table.put(DefaultFamily, key.getBaseObject, key.getBaseOffset, key.getSizeInBytes,
      value.getBaseObject, value.getBaseOffset, value.getSizeInBytes, prefix)
  }

  override def remove(key: UnsafeRow, family: String): Unit = {
    check(family)
    if (readOnly) throw FloeErrors.unsupported(id, "a remove on a handle opened for reading")
    table.remove(DefaultFamily, key.getBaseObject, key.getBaseOffset, key.getSizeInBytes)
  }

  // Ending ----------------------------------------------------------------------------------------

  override def commit(): Long = {
    lease.check()
    if (readOnly) throw FloeErrors.unsupported(id, "a commit of a handle opened for reading")
    val base = provider.versions.tip
    val point = provider.commit(lease, forceSnapshot)
    committedAs = Some((point, base))
    point.version
  }

  override def abort(): Unit = lease.abort(this)
  override def release(): Unit = lease.abort(this)
  override def hasCommitted: Boolean = committedAs.isDefined

  override def metrics: StateStoreMetrics = provider.metricsOf(table)

  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo = {
    val (point, base) = committedAs.getOrElse(throw FloeErrors.closed(id, "asking for a checkpoint id"))
    def shown(point: Point) = point.id.filter(_ => provider.tellsIds).map(_.toString)
    StateStoreCheckpointInfo(id.partitionId, point.version, shown(point), shown(base))
  }

  override def allColumnFamilyNames: Set[String] = Set(StateStore.DEFAULT_COL_FAMILY_NAME)

  override def toString: String = s"FloeStateStore[id=$id, version=$version]"

  private def check(family: String): Unit = {
    lease.check()
    if ((family ne StateStore.DEFAULT_COL_FAMILY_NAME) && family != StateStore.DEFAULT_COL_FAMILY_NAME) {
      throw FloeErrors.unsupported(id, s"column family $family")
    }
  }

  private def validate(key: UnsafeRow, value: UnsafeRow): Unit = {
    provider.validate(key, value)
    validated = true
  }

  // Column families -------------------------------------------------------------------------------

  private def families(what: String): Nothing = throw FloeErrors.unsupported(id, what)

  override def createColFamilyIfAbsent(name: String, keySchema: StructType, valueSchema: StructType,
      spec: KeyStateEncoderSpec, multi: Boolean, isInternal: Boolean): Unit =
    families(s"column family $name")
  override def removeColFamilyIfExists(name: String): Boolean = families(s"column family $name")
  override def valuesIterator(key: UnsafeRow, family: String): Iterator[UnsafeRow] =
    families("many values for a key")
  override def putList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    families("many values for a key")
  override def merge(key: UnsafeRow, value: UnsafeRow, family: String): Unit =
    families("many values for a key")
  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    families("many values for a key")
  override def prefixScanWithMultiValues(
      prefixKey: UnsafeRow, family: String): StateStoreIterator[UnsafeRowPair] =
    families("many values for a key")
  override def iteratorWithMultiValues(family: String): StateStoreIterator[UnsafeRowPair] =
    families("many values for a key")
}

private[floe] object FloeStateStore {
  private val DefaultFamily = 0
}
