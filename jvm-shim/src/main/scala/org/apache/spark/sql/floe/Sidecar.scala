package org.apache.spark.sql.floe

import java.io.File
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, ConcurrentLinkedQueue, ExecutionException,
  LinkedBlockingQueue, TimeoutException, TimeUnit}
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong}
import java.util.concurrent.locks.ReentrantReadWriteLock

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.internal.Logging
import org.apache.spark.util.Utils

/** What the sidecar said, and which life of it did. */
private[floe] final case class Answer(life: Int, pid: Long, body: JsonNode)

/**
 * The sidecar as tasks see it: a place to hand calls to, that may die and come back in between.
 *
 * A few control threads own the Py4J connections; tasks queue a call and wait with a deadline. A
 * thread sends everything that waits in its lane as one message. When the process is gone, a new
 * one is started, told what memory is in use, and asked again: every call is idempotent.
 *
 * '''Lives.''' Memory that a dead sidecar handed out in a reply nobody acted on yet is free again
 * for its successor. Hence refs in an answer count only once they are recorded under
 * [[memoryLock]] while the life that gave them is still the current one ([[StoreMemory]]).
 */
private[floe] final class Sidecar(firstConf: FloeConf, number: Int) extends Logging {
  import Sidecar._

  val slabs = new Slabs
  /** The settings to start a process with: the newest, until a process runs with them. */
  @volatile private var conf = firstConf
  /** Readers change who owns an extent; the writer is a new sidecar's adoption. */
  val memoryLock = new ReentrantReadWriteLock()
  private val tables = new ConcurrentHashMap[String, RegisteredTable]()
  private val freed = new ConcurrentLinkedQueue[(String, Long)]()
  private val calls_ = new AtomicLong()
  private val restarts_ = new AtomicInteger()

  @volatile private var life_ = 0
  @volatile private var current: SidecarProcess = _
  @volatile private var greeting_ : JsonNode = _
  /** Deaths since a call was last completed, and when the circuit may be tried again. */
  private var deathsInARow = 0
  private var retryAtNanos = 0L
  private var lastWords = ""

  private val quick = new Lane("quick", 2, perMessage = 32)
  private val slow = new Lane("slow", 2, perMessage = 1)

  def life: Int = life_
  /** Whether the given life still answers; if not, the next call begins another. */
  def isServing(life: Int): Boolean = {
    val process = current
    life == life_ && process != null && !process.diesWithin(1)
  }
  def calls: Long = calls_.get
  def restarts: Int = restarts_.get

  /** What the running sidecar's greeting said: names, templates, places to seal. */
  def greeting(): JsonNode = {
    if (greeting_ == null) call("memory", Json.obj())
    greeting_
  }

  /**
   * Asks the sidecar and waits. Rows never travel here. `patient` calls (files, whole tables) have
   * threads of their own, so that a commit does not wait behind a load.
   */
  def call(method: String, args: ObjectNode, patient: Boolean = false): Answer = {
    val pending = new Pending(method, args)
    (if (patient) slow else quick).queue.put(pending)
    // Of a patient call a death is noticed at once; only one that hangs is waited for in vain.
    val timeoutMs = conf.callTimeoutMs * (if (patient) PatientFactor else 1)
    try pending.done.get(timeoutMs, TimeUnit.MILLISECONDS) catch {
      case e: ExecutionException => throw e.getCause
      case e: InterruptedException =>
        pending.done.cancel(false)
        throw e
      case _: TimeoutException =>
        pending.done.cancel(false)
        pending.servedBy.foreach(_.kill()) // it hangs: its successor answers the others
        throw new FloeException(FloeErrors.Unavailable, s"the sidecar did not answer $method within" +
          s" $timeoutMs ms (${FloeConf.Prefix}sidecar.callTimeoutMs)")
    }
  }

  /** Tells the sidecar with the next message; nobody waits. */
  def release(key: String, ref: Long): Unit = freed.add((key, ref))

  def register(table: RegisteredTable): Unit = {
    memoryLock.readLock().lock() // not while [[stopIfIdle]] believes that there is no table
    try tables.put(table.key, table) finally memoryLock.readLock().unlock()
    try call("register", table.describe) catch {
      case e: Throwable =>
        tables.remove(table.key) // what is refused now would be refused by every successor
        throw e
    }
  }

  def unregister(key: String): Unit = if (tables.remove(key) != null) {
    quick.queue.put(new Pending("close", Json.obj("key" -> key)))
  }

  def tableCount: Int = tables.size

  private def proposed(newer: FloeConf): Sidecar = synchronized {
    if (current == null && tables.isEmpty) conf = newer
    this
  }

  /** Memory of the sidecar that no store owns, as the kernel counts it; 0 while it is not running. */
  def privateBytes: Long = {
    val process = current
    if (process == null) 0L else process.privateBytes
  }

  /** Maps the slabs that an answer speaks of. */
  def mapSlabs(answer: Answer): Unit = {
    Option(answer.body.get("slabs")).foreach(_.forEach { slab =>
      val n = slab.get(0).asInt
      if (!slabs.isMapped(n)) {
        slabs.map(n, s"/proc/${answer.pid}/fd/${slab.get(1).asInt}", slab.get(2).asLong)
      }
    })
  }

  /** Ends a process that serves no table; the next call starts another. */
  def stopIfIdle(): Unit = synchronized {
    memoryLock.writeLock().lock()
    try if (current != null && tables.isEmpty) {
      current.kill()
      current = null
      life_ += 1
      slabs.close()
    } finally memoryLock.writeLock().unlock()
  }

  // The process ---------------------------------------------------------------------------------

  private def running(): SidecarProcess = synchronized {
    if (current == null || !current.isAlive) {
      if (current != null) buried(current)
      checkCircuit()
      current = null
      val log = new File(logDirectory, s"floe-sidecar-${ProcessHandle.current().pid()}-$number.log")
      val started = try SidecarProcess.start(conf, log) catch {
        case e: SidecarDied =>
          died(e.getMessage)
          throw e
      }
      try adopt(started) catch {
        case e: FloeException =>
          started.kill()
          throw e
        case NonFatal(e) =>
          buried(started)
          throw new SidecarDied(lastWords, e)
      }
      logInfo(s"Sidecar $number runs as process ${started.pid}, log ${log.getPath}")
    }
    current
  }

  /** Hands the memory in use to a new sidecar, and begins a new life with it. */
  private def adopt(started: SidecarProcess): Unit = {
    memoryLock.writeLock().lock()
    try {
      freed.clear() // what was given back is simply not in the lists below
      val held = slabs.held.map { case (n, fd, bytes) =>
        (n, s"/proc/${ProcessHandle.current().pid()}/fd/$fd", bytes)
      }
      if (held.nonEmpty || !tables.isEmpty) {
        val args = Json.obj("slabs" -> held,
          "tables" -> tables.values.asScala.map(_.describeWithMemory))
        answers(started, Seq(new Pending("adopt", args))).head match {
          case Left(error) => throw error
          case Right(_) =>
        }
      }
      life_ += 1
      started.life = life_
      greeting_ = started.greeting
      current = started
    } finally memoryLock.writeLock().unlock()
  }

  private def buried(process: SidecarProcess): Unit = {
    process.kill()
    process.diesWithin(5)
    died(process.epitaph)
  }

  private def died(epitaph: String): Unit = {
    deathsInARow += 1
    restarts_.incrementAndGet()
    lastWords = epitaph
    logWarning(s"Sidecar $number is gone: $epitaph")
  }

  private def checkCircuit(): Unit = if (deathsInARow >= DeathsToOpen) {
    if (System.nanoTime() < retryAtNanos) throw circuitOpen
    if (retryAtNanos == 0L) {
      retryAtNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(10)
      throw circuitOpen
    }
    retryAtNanos = 0L
    deathsInARow = DeathsToOpen - 1 // one more try
  }

  private def circuitOpen = new FloeException(FloeErrors.Unavailable, s"the sidecar died" +
    s" $deathsInARow times in a row without completing a call; it is tried again in a few seconds." +
    s" Exit code 137 is a kill from outside, often the kernel's for lack of memory: raise" +
    s" spark.executor.memoryOverhead or lower ${FloeConf.Prefix}memory. Last: $lastWords")

  private def logDirectory: File = {
    val dir = Option(System.getProperty("spark.yarn.app.container.log.dir"))
      .orElse(sys.env.get("SPARK_LOG_DIR")).map(new File(_)).filter(d => d.isDirectory && d.canWrite)
    dir.getOrElse(new File(Utils.getLocalDir(FloeConf.sparkConf)))
  }

  private def answers(process: SidecarProcess, batch: Seq[Pending]): Seq[Either[FloeException, JsonNode]] = {
    val refs = Iterator.continually(freed.poll()).takeWhile(_ != null).take(FreedPerMessage)
      .toSeq.groupMap(_._1)(_._2)
    calls_.incrementAndGet()
    val message = Json.obj("free" -> Json.obj(refs.toSeq: _*),
      "calls" -> batch.map(p => Json.obj("method" -> p.method, "args" -> p.args)))
    val reply = Json.read(process.call(Json.write(message)))
    unmap(process, reply.get("gone"))
    reply.get("answers").asScala.toSeq.map { answer =>
      if (answer.has("error")) Left(FloeErrors.fromWire(answer.get("error")))
      else Right(answer.get("ok"))
    }
  }

  /** Obeys only the sidecar that has the slabs: a successor may have adopted what another let go. */
  private def unmap(process: SidecarProcess, gone: JsonNode): Unit = if (!gone.isEmpty) {
    memoryLock.readLock().lock()
    try if (process.life == life_) gone.forEach(number => slabs.unmap(number.asInt))
    finally memoryLock.readLock().unlock()
  }

  /** A queue of calls and the threads that carry them over. */
  private final class Lane(name: String, threads: Int, perMessage: Int) {
    val queue = new LinkedBlockingQueue[Pending]()
    (1 to threads).foreach { i =>
      val thread = new Thread(() => while (true) serve(), s"floe-control-$number-$name-$i")
      thread.setDaemon(true)
      thread.start()
    }

    private def serve(): Unit = {
      val batch = ArrayBuffer(queue.take())
      if (perMessage > 1) queue.drainTo(batch.asJava, perMessage - 1)
      val waiting = batch.filterNot(_.done.isDone).toSeq
      if (waiting.nonEmpty) {
        try deliver(running(), waiting.filterNot(_.done.isDone)) catch {
          case _: SidecarDied => queue.addAll(waiting.asJava) // the circuit ends this if it goes on
          case NonFatal(e) => waiting.foreach(_.done.completeExceptionally(e))
        }
      }
    }

    private def deliver(process: SidecarProcess, waiting: Seq[Pending]): Unit = if (waiting.nonEmpty) {
      waiting.foreach(_.servedBy = Some(process))
      val results = try answers(process, waiting) catch {
        case NonFatal(e) => // the connection broke: never leave half a sidecar behind
          process.kill()
          process.diesWithin(5)
          logInfo(s"Sidecar $number: a message was lost", e)
          throw new SidecarDied("a message was lost", e)
      }
      Sidecar.this.synchronized { deathsInARow = 0 }
      waiting.zip(results).foreach {
        case (call, Right(body)) => call.done.complete(Answer(process.life, process.pid, body))
        case (call, Left(error)) => call.done.completeExceptionally(error)
      }
    }
  }
}

private[floe] object Sidecar extends Logging {
  private val DeathsToOpen = 3
  private val FreedPerMessage = 256
  private val PatientFactor = 10
  private val IdleSeconds = 60L

  private final class Pending(val method: String, val args: ObjectNode) {
    val done = new CompletableFuture[Answer]()
    @volatile var servedBy: Option[SidecarProcess] = None
  }

  /** A table that a sidecar serves: how to tell a new one about it. */
  final class RegisteredTable(val key: String, val describe: ObjectNode, memory: StoreMemory) {
    def describeWithMemory: ObjectNode = {
      val extents = Json.obj(memory.byKind.toSeq.map { case (kind, list) =>
        kind -> list.map(e => (e.ref, e.bytes))
      }: _*)
      val all = describe.deepCopy()
      all.set[ObjectNode]("extents", extents)
      all
    }
  }

  private val running = new ConcurrentHashMap[Int, Sidecar]()
  private lazy val idle = java.util.concurrent.Executors.newSingleThreadScheduledExecutor { r =>
    val thread = new Thread(r, "floe-sidecar-idle")
    thread.setDaemon(true)
    thread
  }

  /** The sidecar of a store: the same for all its lives in this JVM. */
  def of(conf: FloeConf, store: String): Sidecar =
    running.computeIfAbsent(Math.floorMod(store.hashCode, conf.processes), n => new Sidecar(conf, n))
      .proposed(conf)

  /** After a store closed: a sidecar that serves nobody for a while ends. */
  def closed(sidecar: Sidecar): Unit = if (sidecar.tableCount == 0) {
    idle.schedule((() => sidecar.stopIfIdle()): Runnable, IdleSeconds, TimeUnit.SECONDS)
  }
}
