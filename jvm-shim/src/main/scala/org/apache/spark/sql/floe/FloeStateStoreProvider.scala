package org.apache.spark.sql.floe

import java.io.{File, IOException}
import java.util.UUID
import java.util.concurrent.atomic.AtomicLong

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.Utils

/**
 * Spark's door to Floe: one instance per store and query run. It implements the trait and hands
 * everything on: versions to [[StoreVersions]], rows to [[HotTable]], ownership to [[Stamps]].
 *
 * The constructor and `init` are cheap on purpose: the driver builds throw-away instances several
 * times a batch, and `init` runs under a lock of the whole executor. The sidecar is met at the
 * first open.
 */
class FloeStateStoreProvider extends StateStoreProvider with Logging {
  @volatile private var id_ : StateStoreId = _
  private var keySchema: StructType = _
  private var valueSchema: StructType = _
  private var prefixColumns = 0
  private var storeConf: StateStoreConf = _
  private var hadoopConf: Configuration = _
  private var conf: FloeConf = _
  private val instance = UUID.randomUUID().toString.take(8)
  private val floeMetrics = new FloeMetrics
  private val snapshotLock = new Object

  private[floe] var stamps: Stamps = _
  private[floe] lazy val keyFields: Int = keySchema.length
  private[floe] lazy val valueFields: Int = valueSchema.length

  private lazy val sidecar = Sidecar.of(conf, storeName)
  private lazy val localDirectory: File = {
    val root = conf.localDir.getOrElse(Utils.getLocalDir(FloeConf.sparkConf))
    try Utils.createTempDir(root, s"floe-${id_.operatorId}-${id_.partitionId}-${id_.storeName}") catch {
      case e: IOException => throw new FloeException(FloeErrors.InvalidRequest, s"$storeName: cannot" +
        s" create a directory under $root: ${e.getMessage}. Set ${FloeConf.Prefix}localDir or" +
        " spark.local.dir to a directory that can be written", e)
    }
  }
  private lazy val files =
    DurableFiles(id_.storeCheckpointLocation(), hadoopConf, conf.fsync)

  @volatile private var opened = false

  private[floe] lazy val versions = new StoreVersions(
    storeName, sidecar, files, () => newPrefix(),
    key => Json.obj("key" -> key, "store" -> storeName, "conf" -> Json.fromMap(conf.settings),
      "local" -> new File(localDirectory, s"log-${key.split('#').last}").getPath),
    () => localDirectory.toPath, withAlias = !tellsIds, floeMetrics)

  /** Format v2 of Spark's checkpoints: the driver names commits by id; in v1 by version alone. */
  private[floe] def tellsIds: Boolean = storeConf.enableStateStoreCheckpointIds

  private lazy val storeName =
    s"operator ${id_.operatorId}, partition ${id_.partitionId}, store ${id_.storeName}" +
      s" of ${id_.checkpointRootLocation} ($instance)"

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConf: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    this.id_ = stateStoreId
    this.keySchema = keySchema
    this.valueSchema = valueSchema
    this.storeConf = storeConf
    this.hadoopConf = hadoopConf
    this.conf = FloeConf(storeConf, hadoopConf)
    this.stamps = new Stamps(stateStoreId, conf.stampTimeoutMs)
    if (useColumnFamilies || useMultipleValuesPerKey) {
      throw FloeErrors.unsupported(stateStoreId, "a store with column families")
    }
    prefixColumns = keyStateEncoderSpec match {
      case NoPrefixKeyStateEncoderSpec(_) => 0
      case PrefixKeyScanStateEncoderSpec(_, columns) => columns
      case other => throw FloeErrors.unsupported(stateStoreId, s"key encoder $other")
    }
  }

  override def stateStoreId: StateStoreId = id_

  // Opening ---------------------------------------------------------------------------------------

  override def getStore(version: Long, ckptId: Option[String], forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore = {
    val lease = open(version, ckptId, loadEmpty)
    lease.hand(new FloeStateStore(this, lease, version, readOnly = false, forceSnapshotOnCommit))
  }

  override def getReadStore(version: Long, ckptId: Option[String]): StateStore = {
    val lease = open(version, ckptId, loadEmpty = false)
    lease.hand(new FloeStateStore(this, lease, version, readOnly = true, forceSnapshot = false))
  }

  /**
   * The write handle joins the read handle's epoch. Spark may bring a handle of another operator,
   * which is then nothing to build on, or of an instance that has been replaced meanwhile, which
   * still holds its own stamp and goes on with it.
   */
  override def upgradeReadStoreToWriteStore(readStore: ReadStateStore, version: Long,
      ckptId: Option[String], forceSnapshotOnCommit: Boolean): StateStore = readStore match {
    case store: FloeStateStore
        if store.id == id_ && store.version == version && store.lease.isOpen =>
      store.lease.hand(
        new FloeStateStore(store.provider, store.lease, version, readOnly = false, forceSnapshotOnCommit))
    case _ => getStore(version, ckptId, forceSnapshotOnCommit, loadEmpty = false)
  }

  private def open(version: Long, ckptId: Option[String], loadEmpty: Boolean): Lease = {
    val stamp = stamps.acquire()
    try {
      opened = true
      if (version < 0) throw FloeErrors.unsupported(id_, s"version $version")
      val epoch = versions.open(version, ckptId.map(UUID.fromString), loadEmpty)
      try new Lease(this, stamp, epoch) catch {
        case e: Throwable =>
          versions.abort()
          versions.unpin(epoch)
          throw e
      }
    } catch {
      case e: Throwable =>
        stamps.release(stamp)
        throw StateStoreErrors.cannotLoadStore(e)
    }
  }

  private[floe] def newPrefix(): HotTable.Prefix =
    if (prefixColumns == 0) null else new RowPrefix(keySchema, prefixColumns)

  private[floe] def validate(key: UnsafeRow, value: UnsafeRow): Unit =
    StateStoreProvider.validateStateRowFormat(key, keySchema, value, valueSchema, id_, storeConf)

  // Ending ----------------------------------------------------------------------------------------

  private[floe] def commit(lease: Lease, forceSnapshot: Boolean): Point = {
    val point = versions.commit()
    lease.committed()
    logInfo(s"$storeName: committed version ${point.version}, ${floeMetrics.dirtyRows} rows changed," +
      s" prepared in ${floeMetrics.prepareMs} ms, published in ${floeMetrics.uploadMs} ms," +
      s" opened in ${floeMetrics.loadMs} ms")
    if (storeConf.commitValidationEnabled) {
      StateStore.reportCommitToCoordinator(point.version, id_, hadoopConf)
    }
    if (forceSnapshot) swallowing("snapshot")(snapshot()) // the commit stands whatever comes of it
    point
  }

  // Maintenance -----------------------------------------------------------------------------------

  override def doMaintenance(): Unit = {
    doSnapshotMaintenance()
    doCleanupMaintenance()
  }

  override def doSnapshotMaintenance(): Unit = if (opened) swallowing("snapshot") {
    val tip = versions.tip
    val last = versions.lastSnapshot.map(_.version).getOrElse(0L)
    if (tip != null && tip.version - last >= storeConf.minDeltasForSnapshot) snapshot()
  }

  override def doCleanupMaintenance(): Unit = if (opened) swallowing("cleanup") {
    val tip = versions.tip
    if (tip != null) {
      val gone = versions.clean(tip.version - storeConf.minVersionsToRetain, storeConf.minVersionsToDelete)
      if (gone > 0) logInfo(s"$storeName: deleted $gone files of past versions")
    }
  }

  private def snapshot(): Unit = snapshotLock.synchronized {
    versions.snapshot().foreach(point => FloeBridge.snapshotUploaded(id_, point.version, hadoopConf))
  }

  /** An exception out of maintenance would make Spark close the provider under its tasks. */
  private def swallowing(what: String)(body: => Unit): Unit = try body catch {
    case NonFatal(e) => logWarning(s"$storeName: $what failed and will be tried again", e)
  }

  override def close(): Unit = if (stamps != null) {
    stamps.close()
    if (opened) {
      versions.close()
      Utils.deleteRecursively(localDirectory)
    }
  }

  // Metrics ---------------------------------------------------------------------------------------

  private val callsSeen = new AtomicLong()
  private val restartsSeen = new AtomicLong()

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = FloeMetrics.All
  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] =
    Seq(StateStoreSnapshotLastUploadInstanceMetric())

  private[floe] def metricsOf(table: HotTable): StateStoreMetrics = {
    import FloeMetrics._
    val stores = math.max(1, sidecar.tableCount)
    val snapshot = versions.lastSnapshot.map(_.version)
    val custom = Map[StateStoreCustomMetric, Long](
      HotBytes -> table.bytes,
      WasteBytes -> table.wasteBytes,
      DirtyRows -> floeMetrics.dirtyRows.get,
      LoadMs -> floeMetrics.loadMs.get,
      PrepareMs -> floeMetrics.prepareMs.get,
      UploadMs -> floeMetrics.uploadMs.get,
      Py4JCalls -> share(sidecar.calls, callsSeen, stores),
      Rollbacks -> floeMetrics.rollbacks.getAndSet(0),
      Loads -> floeMetrics.loads.getAndSet(0),
      Restarts -> share(sidecar.restarts, restartsSeen, stores),
      SidecarBytes -> sidecar.privateBytes / stores,
      SnapshotLag -> math.max(0L, versions.tip.version - snapshot.getOrElse(0L)))
    val last = StateStoreSnapshotLastUploadInstanceMetric()
      .withNewId(id_.partitionId, id_.storeName)
    StateStoreMetrics(table.rows, table.bytes, custom,
      Map(last -> snapshot.getOrElse(-1L)))
  }

  /** What was counted for the whole executor since this store last reported, divided up. */
  private def share(total: Long, seen: AtomicLong, stores: Int): Long =
    (total - seen.getAndSet(total)) / stores
}

/** The prefix of a key as its own UnsafeRow: the bytes that a prefix scan is asked with. */
private[floe] final class RowPrefix(keySchema: StructType, columns: Int) extends HotTable.Prefix {
  private val projection = UnsafeProjection.create(keySchema.take(columns).zipWithIndex.map {
    case (field, i) => BoundReference(i, field.dataType, field.nullable)
  })
  private val key = new UnsafeRow(keySchema.length)
  private var prefix: UnsafeRow = _

  override def of(base: AnyRef, offset: Long, length: Int): Unit = {
    key.pointTo(base, offset, length)
    prefix = projection(key)
  }

  override def base: AnyRef = prefix.getBaseObject
  override def offset: Long = prefix.getBaseOffset
  override def length: Int = prefix.getSizeInBytes
}
