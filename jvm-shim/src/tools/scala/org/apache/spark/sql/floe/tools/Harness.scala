package org.apache.spark.sql.floe.tools

import java.util.concurrent.{Callable, ConcurrentHashMap, ExecutionException, FutureTask}
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import py4j.GatewayServer

import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStore,
  StateStoreProvider}

/**
 * Lets Python drive state store providers, one Py4J call for a whole list of operations.
 *
 * Providers and stores are named by numbers, rows and answers are JSON (RowCodec, StoreScript).
 * Calls may come from any thread; there is no TaskContext, so handles live until they are
 * committed, aborted or released by name.
 */
final class Harness {
  import Harness.{Opened, Served}

  private val lastHandle = new AtomicLong
  private val providers = new ConcurrentHashMap[Long, Served]
  private val stores = new ConcurrentHashMap[Long, Opened]

  /** A new provider; calling this twice with one spec is a restart, or a second executor. */
  def newProvider(spec: String): Long = {
    val json = BareJvm.json.readTree(spec)
    val codec = new RowCodec(json.path("longKeys").booleanValue)
    val provider = Providers.create(Harness.providerSpec(json, codec))
    val handle = lastHandle.incrementAndGet()
    providers.put(handle, Served(provider, codec))
    handle
  }

  def open(provider: Long, version: Long, id: String, forceSnapshot: Boolean): Long =
    handleFor(provider, served(provider).getStore(version, Option(id), forceSnapshot))

  def openRead(provider: Long, version: Long, id: String): Long =
    handleFor(provider, served(provider).getReadStore(version, Option(id)))

  /** The write handle of a task that has a read handle already; both stay usable. */
  def upgrade(provider: Long, readHandle: Long, version: Long, id: String): Long = {
    val read = opened(readHandle).store
    handleFor(provider, served(provider).upgradeReadStoreToWriteStore(read, version, Option(id)))
  }

  def run(store: Long, operations: String): String = {
    val Opened(target, codec) = opened(store)
    codec.synchronized {
      new StoreScript(codec, target).run(BareJvm.json.readTree(operations)).toString
    }
  }

  /** `run` on a thread of its own, as PySpark's transformWithState reaches a store. */
  def runElsewhere(store: Long, operations: String): String = {
    val task = new FutureTask[String](new Callable[String] {
      override def call(): String = run(store, operations)
    })
    new Thread(task, "floe-harness-elsewhere").start()
    try task.get() catch { case e: ExecutionException => throw e.getCause }
  }

  /**
   * JSON of the new version, its number of keys and, in checkpoint format 2, its id and the id that
   * it is based on. The calls are those of a task, in a task's order.
   */
  def commit(store: Long): String = {
    val committed = writable(store)
    val version = committed.commit()
    val numKeys = committed.metrics.numKeys
    val info = committed.getStateStoreCheckpointInfo()
    abandon(store)
    BareJvm.json.createObjectNode()
      .put("version", version)
      .put("numKeys", numKeys)
      .put("id", info.stateStoreCkptId.orNull)
      .put("base", info.baseStateStoreCkptId.orNull)
      .toString
  }

  def abort(store: Long): Unit = {
    opened(store).store.abort()
    abandon(store)
  }

  def release(store: Long): Unit = {
    opened(store).store.release()
    abandon(store)
  }

  /** Forgets a handle without ending it: a task that died. */
  def abandon(store: Long): Unit = stores.remove(store)

  def metrics(store: Long): String = {
    val metrics = writable(store).metrics
    val out = BareJvm.json.createObjectNode()
      .put("numKeys", metrics.numKeys)
      .put("memoryUsedBytes", metrics.memoryUsedBytes)
    val custom = out.putObject("custom")
    metrics.customMetrics.foreach { case (metric, value) => custom.put(metric.name, value) }
    out.toString
  }

  def snapshotMaintenance(provider: Long): Unit = served(provider).doSnapshotMaintenance()

  def cleanupMaintenance(provider: Long): Unit = served(provider).doCleanupMaintenance()

  def closeProvider(provider: Long): Unit = {
    served(provider).close()
    providers.remove(provider)
    ()
  }

  private def served(provider: Long): StateStoreProvider =
    Option(providers.get(provider)).getOrElse(throw Harness.unknown("provider", provider)).provider

  private def opened(store: Long): Opened =
    Option(stores.get(store)).getOrElse(throw Harness.unknown("store", store))

  private def handleFor(provider: Long, store: ReadStateStore): Long = {
    val handle = lastHandle.incrementAndGet()
    stores.put(handle, Opened(store, providers.get(provider).codec))
    handle
  }

  private def writable(store: Long): StateStore = opened(store).store match {
    case writable: StateStore => writable
    case _ => throw new UnsupportedOperationException("a read handle cannot commit")
  }
}

/**
 * Serves one Harness to one Python process.
 *
 * The first line of standard input is the secret that every connection must show; the port is the
 * one line of standard output. The process ends when its standard input does.
 */
object Harness {
  private final case class Served(provider: StateStoreProvider, codec: RowCodec)
  private final case class Opened(store: ReadStateStore, codec: RowCodec)

  def main(args: Array[String]): Unit = {
    BareJvm.quietLogs()
    val secret = BareJvm.readLine(System.in)
    val server = new GatewayServer.GatewayServerBuilder(new Harness)
      .javaPort(0)
      .authToken(secret)
      .build()
    server.start()
    println(server.getListeningPort)
    BareJvm.awaitEnd(System.in)
    // No orderly end: a store left open may hold threads that would keep the process alive.
    Runtime.getRuntime.halt(0)
  }

  private def unknown(what: String, handle: Long): Exception =
    new IllegalStateException(s"there is no open $what of number $handle")

  private def providerSpec(json: JsonNode, codec: RowCodec): ProviderSpec = ProviderSpec(
    className = json.get("class").textValue,
    root = json.get("root").textValue,
    keySchema = codec.keySchema,
    valueSchema = codec.valueSchema,
    operatorId = json.path("operator").longValue,
    partitionId = json.path("partition").intValue,
    storeName = json.path("store").asText("default"),
    prefixColumns = json.path("prefixColumns").intValue,
    formatVersion = json.path("format").asInt(1),
    conf = json.path("conf").properties.asScala.map(e => e.getKey -> e.getValue.asText).toMap)
}
