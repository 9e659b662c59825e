package org.apache.spark.sql.floe

import java.io.{File, IOException}
import java.nio.ByteBuffer
import java.nio.file.{Files, Path}
import java.util.UUID

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.hadoop.fs.FSError

import org.apache.spark.internal.Logging
import org.apache.spark.util.Utils

/**
 * The versions of one store: which one is in memory, how to go back, how to go on, how to get any
 * other from its files. All of it belongs to the holder of the stamp, except what the comments
 * give to the maintenance thread; `this` guards what both see.
 */
private[floe] final class StoreVersions(
    store: String,
    sidecar: Sidecar,
    files: DurableFiles,
    newPrefix: () => HotTable.Prefix,
    describe: String => ObjectNode,
    scratch: () => Path,
    withAlias: Boolean,
    val metrics: FloeMetrics) extends Logging {
  import StoreVersions._

  private var table_ : HotTable = _
  private var generation = 0
  private var tip_ : Point = _
  /** Snapshots in the tip's lineage, newest first: as many as rolling back may need. */
  private var snapshots: List[Point] = Nil
  /** Ways back, newest last: the log of the tip, then of the version before it. */
  private val undoable = ArrayBuffer.empty[Step]
  private val pins = mutable.TreeMap.empty[Int, Int]
  private val outlived = ArrayBuffer.empty[HotTable]
  private var running: Option[RunningSnapshot] = None
  private val switches = ArrayBuffer.empty[(Extent, Int, HotTable)]
  /** Epochs up to this one are part of the tip. */
  private var tipEpoch = 0
  private var closed = false
  /** A task is on its way to a version: it has no pin yet, but it works on the table. */
  private var opening = false

  lazy val seal = new DeltaSeal(sidecar.greeting())

  def table: HotTable = table_
  def tip: Point = synchronized(tip_)
  def lastSnapshot: Option[Point] = synchronized(snapshots.headOption)

  // Opening ---------------------------------------------------------------------------------------

  /** Brings the version into memory and starts an epoch on it; the epoch's number is pinned. */
  def open(version: Long, id: Option[UUID], loadEmpty: Boolean): Int = {
    synchronized { opening = true }
    try position(version, id, loadEmpty) finally synchronized {
      opening = false
      dropOutlived() // also when a load failed: its half of a table is of no use to anybody
      releaseIfClosed()
    }
  }

  private def dropOutlived(): Unit = if (table_ != null) {
    outlived.filter(_.epoch < horizon).foreach { old =>
      outlived -= old
      discard(old)
    }
  }

  private def position(version: Long, id: Option[UUID], loadEmpty: Boolean): Int = {
    val start = System.nanoTime()
    if (loadEmpty) becomeEmpty(version)
    else if (!isTip(version, id)) {
      val back = synchronized(undoable.lastIndexWhere(step => matches(step.before, version, id)))
      if (back >= 0) rollBack(back) else load(version, id)
    }
    applySwitches()
    synchronized {
      table_.reclaim(horizon)
      val log = table_.begin()
      running.foreach(_.logs += log)
      pins(table_.epoch) = pins.getOrElse(table_.epoch, 0) + 1
      metrics.loadMs.set((System.nanoTime() - start) / 1000000)
      table_.epoch
    }
  }

  private def isTip(version: Long, id: Option[UUID]): Boolean =
    table_ != null && tip_ != null && matches(tip_, version, id)

  private def matches(point: Point, version: Long, id: Option[UUID]): Boolean =
    point.version == version && (id.isEmpty || version == 0 || id == point.id)

  /** Epochs before this one are out of everybody's reach. */
  private def horizon: Int = {
    val oldestPin = pins.headOption.map(_._1).getOrElse(Int.MaxValue)
    val snapshot = running.map(_.epoch).getOrElse(Int.MaxValue)
    math.min(math.min(oldestPin, snapshot), table_.epoch + 1)
  }

  private def rollBack(to: Int): Unit = synchronized {
    while (undoable.length > to) {
      val step = undoable.remove(undoable.length - 1)
      table_.goBack(step.log, undoable.map(_.log))
      tip_ = step.before
      metrics.rollbacks.incrementAndGet()
    }
    tipEpoch = table_.epoch
    // A snapshot of a version that is being left would read entries that go back without a record.
    running.foreach(snapshot => if (snapshot.point.version > tip_.version) snapshot.cancelled = true)
    snapshots = snapshots.dropWhile(_.version > tip_.version)
    switches.foreach { case (extent, _, owner) => owner.memory.giveBack(Extents.Transit, extent) }
    switches.clear()
  }

  private def becomeEmpty(version: Long): Unit = {
    replaceTable()
    synchronized {
      tip_ = Point(version, None)
      tipEpoch = table_.epoch
    }
  }

  /** A fresh table; the old one's memory goes when nobody can read it any more. */
  private def replaceTable(): HotTable = {
    generation += 1
    val key = s"$store#$generation"
    val memory = new StoreMemory(key, sidecar)
    sidecar.register(new Sidecar.RegisteredTable(key, describe(key), memory))
    val fresh = new HotTable(memory, if (table_ == null) 0 else table_.epoch)
    synchronized {
      if (table_ != null) outlived += table_
      running.foreach(_.cancelled = true)
      switches.foreach { case (extent, _, owner) => owner.memory.giveBack(Extents.Transit, extent) }
      switches.clear()
      undoable.clear()
      table_ = fresh
      tip_ = null // until its rows are there, the new table is nobody's version
      snapshots = Nil
    }
    fresh
  }

  /** The sidecar takes back all that the table owned. */
  private def discard(old: HotTable): Unit = sidecar.unregister(old.memory.key)

  /** Hands out the markers of the last flush, which the sidecar wrote while a task was at work. */
  private def applySwitches(): Unit = synchronized {
    switches.foreach { case (extent, count, owner) =>
      if (owner eq table_) table_.applySwitches(extent.ref, count)
      owner.memory.giveBack(Extents.Transit, extent)
    }
    switches.clear()
  }

  // Loading ---------------------------------------------------------------------------------------

  private def load(version: Long, id: Option[UUID]): Unit = {
    if (version == 0) becomeEmpty(0)
    else {
      if (table_ == null) replaceTable()
      var attempts = 1
      var loaded = false
      while (!loaded) {
        try {
          attemptLoad(version, id)
          loaded = true
        } catch { // the sidecar died half-way; whatever was linked belongs to a table nobody saw
          case e: FloeException if e.kind == FloeErrors.Fenced && attempts < LoadAttempts =>
            attempts += 1
            logInfo(s"$store: loading version $version begins again: ${e.getMessage}")
        }
      }
      metrics.loads.incrementAndGet()
    }
  }

  private def attemptLoad(version: Long, id: Option[UUID]): Unit = withFiles { files =>
    val bases = if (tip_ == null) Seq.empty else tip_ +: undoable.reverseIterator.map(_.before).toSeq
    val way = files.asking("load", Json.obj("key" -> table_.memory.key, "version" -> version,
      "id" -> id.map(_.toString), "bases" -> bases.map(wire)))
    val session = way.get("session").asLong
    val base = pointOf(way.get("base"))
    val target = way.get("commits").asScala.lastOption.map(pointOf).getOrElse(base)
    if (way.get("inMemory").asBoolean) {
      val back = undoable.lastIndexWhere(_.before == base)
      if (back >= 0) rollBack(back)
      replay(session, way.get("commits").asScala.map(pointOf).toSeq)
    } else {
      val fresh = replaceTable()
      fresh.begin()
      portions(session) { (_, ref, count) => fresh.link(ref, count, newPrefix(), recorded = false) }
      fresh.commit()
      synchronized {
        tip_ = target
        tipEpoch = fresh.epoch
        snapshots = Option(way.get("snapshot")).filterNot(_.isNull).map(pointOf).toList
      }
    }
  }

  /** Runs commits of others onto the table in memory, each as an epoch that can be undone. */
  private def replay(session: Long, commits: Seq[Point]): Unit = {
    var next = 0
    def advanceTo(point: Point): Unit = {
      while (commits(next) != point) {
        completeReplayed(commits(next))
        next += 1
        beginReplayed()
      }
    }
    beginReplayed()
    try {
      portions(session) { (point, ref, count) =>
        advanceTo(point)
        table_.link(ref, count, newPrefix(), recorded = true)
      }
      advanceTo(commits.last)
      completeReplayed(commits.last)
    } catch {
      case e: Throwable =>
        abort()
        throw e
    }
  }

  private def beginReplayed(): Unit = synchronized {
    val log = table_.begin()
    running.foreach(_.logs += log)
  }

  private def completeReplayed(point: Point): Unit = committed(table_.log, point)

  private def portions(session: Long)(link: (Point, Long, Int) => Unit): Unit = {
    val memory = table_.memory
    var more = true
    while (more) {
      val body = memory.asking("load_more", Json.obj("key" -> memory.key, "session" -> session),
        patient = true) { body =>
        if (!body.has("done")) {
          table_.adoptArena(extentOf(body.get("arena")), countOf(body.get("arena")))
          memory.add(Extents.Transit, extentOf(body.get("staged")))
        }
        body
      }
      if (body.has("done")) more = false
      else {
        val staged = extentOf(body.get("staged"))
        link(Point(body.get("version").asLong, idOf(body.get("id"))), staged.ref, countOf(body.get("staged")))
        memory.giveBack(Extents.Transit, staged)
      }
    }
  }

  /** Lends a view of the durable files that Python can read, for the length of one operation. */
  private def withFiles[T](operation: ReadableFiles => T): T = {
    val readable = new ReadableFiles
    try operation(readable) finally readable.close()
  }

  /**
   * The durable files themselves on `file:`. Elsewhere the list of them and a directory of their
   * own, into which what Python asks for is fetched; never kept, because names are used again.
   */
  private final class ReadableFiles {
    private val fetched =
      if (files.localDirectory.isDefined) None else Some(Files.createTempDirectory(scratch(), "fetched"))
    private val listing = fetched.map(_ => files.list())

    def asking(method: String, args: ObjectNode): JsonNode = {
      val directory = fetched.orElse(files.localDirectory).get
      args.put("directory", directory.toString)
      args.put("origin", files.location)
      listing.foreach(names => args.set[JsonNode]("listing", Json.arr(names)))
      var answer = sidecar.call(method, args, patient = true).body
      while (answer.has("need")) {
        answer.get("need").forEach(name => fetch(name.asText, directory))
        answer = sidecar.call(method, args, patient = true).body
      }
      answer
    }

    private def fetch(name: String, directory: Path): Unit =
      try files.fetch(name, directory.resolve(name).toFile) catch {
        case e @ (_: IOException | _: FSError) => throw new FloeException(FloeErrors.Unavailable, s"$store: cannot fetch" +
          s" ${files.location}/$name to $directory: ${e.getMessage}", e)
      }

    def close(): Unit = fetched.foreach(directory => Utils.deleteRecursively(directory.toFile))
  }

  // Ending an epoch -------------------------------------------------------------------------------

  /** Makes the open epoch the next version, durable before this returns. */
  def commit(): Point = {
    Slabs.fullFence() // the writes may have come from another thread
    val log = table_.log
    val point = Point(tip_.version + 1, Some(UUID.randomUUID()))
    metrics.dirtyRows.set(log.size)
    metrics.prepareMs.set(0)
    if (log.size == 0) publish(seal.empty(), point)
    else {
      val start = System.nanoTime()
      val memory = table_.memory
      val pieces = memory.asking("prepare", Json.obj("key" -> memory.key, "undo" -> log.ranges)) { body =>
        val parts = body.get("pieces").asScala.map(p => (extentOf(p), countOf(p))).toSeq
        parts.foreach { case (extent, _) => memory.add(Extents.Transit, extent) }
        parts
      }
      metrics.prepareMs.set((System.nanoTime() - start) / 1000000)
      try publish(pieces.map { case (extent, bytes) => memory.slabs.buffer(extent.ref, bytes) }, point)
      finally pieces.foreach { case (extent, _) => memory.giveBack(Extents.Transit, extent) }
    }
    committed(log, point)
    point
  }

  private def publish(content: Seq[ByteBuffer], point: Point): Unit = {
    val start = System.nanoTime()
    seal.seal(content, point, tip_, lastSnapshot)
    val name = seal.name(point.version, point.id.get)
    try {
      if (withAlias) files.publish(name, seal.alias(point.version), content)
      else files.publish(name, content)
    } catch {
      case e @ (_: IOException | _: FSError) => throw new FloeException(FloeErrors.Unavailable, s"$store: version" +
        s" ${point.version} cannot be written to ${files.location}/$name: ${e.getMessage}. The" +
        s" version before it stands; free the disk or mend the permissions, and run the query again", e)
    }
    metrics.uploadMs.set((System.nanoTime() - start) / 1000000)
  }

  private def committed(log: UndoLog, point: Point): Unit = synchronized {
    table_.commit()
    undoable += Step(tip_, log)
    if (undoable.length > VersionsToUndo) table_.forget(undoable.remove(0).log)
    tip_ = point
    tipEpoch = table_.epoch
  }

  def abort(): Unit = synchronized {
    if (table_.log != null) table_.abort(undoable.map(_.log))
    tipEpoch = table_.epoch
  }

  /** The task that opened `epoch` is over; nobody reads its rows any more. */
  def unpin(epoch: Int): Unit = synchronized {
    pins.get(epoch).foreach(n => if (n == 1) pins.remove(epoch) else pins(epoch) = n - 1)
    releaseIfClosed()
  }

  // Maintenance -----------------------------------------------------------------------------------

  /** Writes a snapshot of the tip, beside whatever task is at work. Maintenance thread. */
  def snapshot(): Option[Point] = {
    val work = synchronized {
      if (closed || table_ == null || tip_ == null || tip_.id.isEmpty || running.isDefined ||
          snapshots.headOption.contains(tip_)) None
      else {
        val started = new RunningSnapshot(tip_, table_, tipEpoch, parentOf(tip_), snapshots.headOption)
        if (table_.log != null) started.logs += table_.log
        running = Some(started)
        Some((started, table_.entries))
      }
    }
    work.flatMap { case (started, entries) =>
      try writeSnapshot(started, entries) finally synchronized {
        running = None
        releaseIfClosed()
      }
    }
  }

  private def writeSnapshot(work: RunningSnapshot, entries: Int): Option[Point] = {
    val key = work.table.memory.key
    val copied = sidecar.call("snapshot_copy", Json.obj("key" -> key, "entries" -> entries), patient = true)
    val session = copied.body.get("session").asLong
    val logs = synchronized {
      Slabs.fullFence()
      if (work.cancelled) None else Some(work.logs.map(_.ranges).toSeq)
    }
    var uploaded = false
    try logs.flatMap { ranges =>
      val written = sidecar.call("snapshot_write", Json.obj("key" -> key, "session" -> session,
        "undo_logs" -> ranges, "version" -> work.point.version, "id" -> work.point.id.map(_.toString),
        "parent" -> work.parent.flatMap(_.id).map(_.toString), "last" -> work.last.map(wire)),
        patient = true).body
      uploaded = upload(work, written.get("files").asScala.map(f => (f.get(0).asText, f.get(1).asText)).toSeq)
      if (uploaded) {
        logInfo(s"$store: snapshot of version ${work.point.version}, ${written.get("rows")} rows," +
          s" ${written.get("writtenRows")} of them written")
        Some(work.point)
      } else None
    } finally finishSnapshot(work, session, uploaded)
  }

  /** The manifest comes last; a snapshot that does not come that far leaves nothing behind. */
  private def upload(work: RunningSnapshot, snapshot: Seq[(String, String)]): Boolean = {
    val done = ArrayBuffer.empty[String]
    try {
      snapshot.init.foreach { case (local, name) =>
        files.upload(new File(local), name)
        done += name
      }
      val wanted = !synchronized(work.cancelled)
      if (wanted) files.upload(new File(snapshot.last._1), snapshot.last._2)
      else done.foreach(files.delete)
      wanted
    } catch {
      case e: Throwable =>
        done.foreach(name => Utils.tryLogNonFatalError(files.delete(name)))
        throw e
    }
  }

  private def finishSnapshot(work: RunningSnapshot, session: Long, uploaded: Boolean): Unit = {
    val memory = work.table.memory
    val lists = memory.asking("snapshot_done",
      Json.obj("key" -> memory.key, "session" -> session, "uploaded" -> uploaded), patient = true) { body =>
      Option(body.get("switches")).toSeq.flatMap(_.asScala.toSeq).map { list =>
        val extent = extentOf(list)
        memory.add(Extents.Transit, extent)
        (extent, countOf(list))
      }
    }
    synchronized {
      if (uploaded && !work.cancelled) {
        lists.foreach { case (extent, count) => switches += ((extent, count, work.table)) }
        snapshots = (work.point :: snapshots).take(VersionsToUndo + 1)
      } else lists.foreach { case (extent, _) => memory.giveBack(Extents.Transit, extent) }
    }
  }

  private def parentOf(point: Point): Option[Point] = undoable.lastOption.map(_.before)

  /** Deletes durable files that no version from `oldest` on needs. Maintenance thread. */
  def clean(oldest: Long, minVersions: Long): Int = {
    val last = synchronized(if (closed) None else snapshots.headOption)
    if (last.isEmpty || oldest <= 0) 0
    else {
      val names = withFiles(_.asking("retain", Json.obj("last" -> last.map(wire),
        "oldest" -> oldest, "min_versions" -> minVersions))).get("delete").asScala.map(_.asText).toSeq
      names.foreach(files.delete)
      files.sweep()
      names.length
    }
  }

  /** Gives the memory back, at once or when the last reader is gone. */
  def close(): Unit = synchronized {
    closed = true
    releaseIfClosed()
  }

  private def releaseIfClosed(): Unit =
    if (closed && !opening && pins.isEmpty && running.isEmpty && (table_ != null || outlived.nonEmpty)) {
      (outlived.toSeq ++ Option(table_)).foreach(discard)
      outlived.clear()
      table_ = null
      Sidecar.closed(sidecar)
    }
}

private[floe] object StoreVersions {
  /** How many committed versions can be left without reading a file. */
  val VersionsToUndo = 2
  /** A sidecar that dies in every one of these dies of the load. */
  private val LoadAttempts = 5

  private final case class Step(before: Point, log: UndoLog)

  private final class RunningSnapshot(val point: Point, val table: HotTable, val epoch: Int,
      val parent: Option[Point], val last: Option[Point]) {
    /** Every undo log since the point, whatever became of it. */
    val logs = ArrayBuffer.empty[UndoLog]
    var cancelled = false
  }

  private def wire(point: Point): (Long, Option[String]) = (point.version, point.id.map(_.toString))
  private def idOf(node: JsonNode): Option[UUID] =
    Option(node).filterNot(_.isNull).map(n => UUID.fromString(n.asText))
  private def pointOf(node: JsonNode): Point = Point(node.get(0).asLong, idOf(node.get(1)))
  private def extentOf(node: JsonNode): Extent = Extent(node.get(0).asLong, node.get(1).asLong)
  /** How much of an extent is meant: bytes of a delta or of rows, rows of a list. */
  private def countOf(node: JsonNode): Int = node.get(2).asInt
}
