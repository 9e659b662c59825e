package org.apache.spark.sql.floe

import java.io.{BufferedReader, File, InputStreamReader, IOException}
import java.net.InetAddress
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import java.security.SecureRandom
import java.util.HexFormat
import java.util.concurrent.TimeUnit
import javax.net.SocketFactory

import com.fasterxml.jackson.databind.JsonNode
import py4j.{CallbackClient, Gateway}

/**
 * One life of a sidecar: the process, its greeting, and the Py4J connections to it. It ends when
 * its standard input does, so it cannot outlive this JVM.
 */
private[floe] final class SidecarProcess private (
    process: Process, val greeting: JsonNode, token: String, val log: File) {

  private val client = new CallbackClient(greeting.get("port").asInt, InetAddress.getLoopbackAddress,
    token, 0L, TimeUnit.SECONDS, SocketFactory.getDefault, false, 0)
  private val gateway = new Gateway(new Object, client)
  private val door = client.getPythonServerEntryPoint(gateway, Array(classOf[SidecarDoor]))
    .asInstanceOf[SidecarDoor]

  /** Which life of its [[Sidecar]] this is; set when it has adopted the memory in use. */
  @volatile var life = 0
  val pid: Long = greeting.get("pid").asLong
  def isAlive: Boolean = process.isAlive
  def call(message: String): String = door.call(message)

  /** Ends it for good; whatever it was doing is repeated by its successor. */
  def kill(): Unit = {
    process.destroyForcibly()
    client.shutdown()
  }

  /** Memory that is the process's alone: not slabs, not libraries that the page cache holds. */
  def privateBytes: Long = try {
    val status = Files.readAllLines(Paths.get(s"/proc/$pid/status"), UTF_8).toArray.map(_.toString)
    status.find(_.startsWith("RssAnon:")).map(_.split("\\s+")(1).toLong << 10).getOrElse(0L)
  } catch { case _: IOException => 0L }

  /** Waits a little: the kernel buries a killed process before the JVM hears of it. */
  def diesWithin(seconds: Long): Boolean = process.waitFor(seconds, TimeUnit.SECONDS)

  def epitaph: String = SidecarProcess.epitaph(process, log)
}

/** It was killed before it could answer: nothing is wrong with it that a new one would share. */
private[floe] final class SidecarDied(message: String, cause: Throwable = null)
  extends java.io.IOException(message, cause)

private[floe] object SidecarProcess {
  private val KilledBySignal = 128

  /** Starts a sidecar and waits for its answer. */
  def start(conf: FloeConf, log: File): SidecarProcess = {
    val token = HexFormat.of().formatHex(SecureRandom.getSeed(24))
    val builder = new ProcessBuilder(conf.python, "-P", "-m", "floe.sidecar")
    // A sidecar has a few short-lived threads; thread pools of numeric libraries only cost memory.
    Seq("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
      .foreach(builder.environment().put(_, "1"))
    // glibc gives each thread its own heap; two are enough for the few control connections.
    builder.environment().put("MALLOC_ARENA_MAX", "2")
    builder.redirectError(
      if (canAppend(log)) ProcessBuilder.Redirect.appendTo(log) else ProcessBuilder.Redirect.DISCARD)
    val process = try builder.start() catch {
      case e: IOException => throw new FloeException(FloeErrors.InvalidRequest,
        s"cannot run ${conf.python}: ${e.getMessage}. Set ${FloeConf.Prefix}python (or" +
          " spark.pyspark.python, PYSPARK_PYTHON) to a Python with the floe package", e)
    }
    try {
      val hello = Json.obj(
        "token" -> token,
        "jvm" -> ProcessHandle.current().pid(),
        "heapBytes" -> Runtime.getRuntime.maxMemory(),
        "layout" -> MemoryLayout.Version,
        "floe" -> Floe.Version,
        "conf" -> Json.fromMap(conf.settings))
      try {
        process.getOutputStream.write((Json.write(hello) + "\n").getBytes(UTF_8))
        process.getOutputStream.flush()
      } catch { case _: IOException => } // it has ended already; what it said is in the log
      val answer = awaitLine(process, conf, log)
      if (answer.has("error")) throw FloeErrors.fromWire(answer.get("error"))
      new SidecarProcess(process, answer, token, log)
    } catch {
      case e: Throwable =>
        process.destroyForcibly()
        throw e
    }
  }

  /** A log that cannot be written is no reason not to run. */
  private def canAppend(log: File): Boolean =
    try { log.createNewFile(); log.canWrite } catch { case _: IOException => false }

  private def awaitLine(process: Process, conf: FloeConf, log: File): JsonNode = {
    val reader = new BufferedReader(new InputStreamReader(process.getInputStream, UTF_8))
    val line = new java.util.concurrent.CompletableFuture[String]()
    val thread = new Thread(() => line.complete(
      try reader.readLine() catch { case _: IOException => null }), "floe-sidecar-greeting")
    thread.setDaemon(true)
    thread.start()
    val answer = try line.get(conf.startTimeoutMs, TimeUnit.MILLISECONDS) catch {
      case _: java.util.concurrent.TimeoutException =>
        throw new FloeException(FloeErrors.Unavailable, s"the sidecar (${conf.python} -m" +
          s" floe.sidecar) gave no answer in ${conf.startTimeoutMs} ms; raise" +
          s" ${FloeConf.Prefix}sidecar.startTimeoutMs on a slow machine. ${tail(log)}")
    }
    if (answer == null) {
      process.waitFor(5, TimeUnit.SECONDS)
      if (!process.isAlive && process.exitValue() > KilledBySignal) {
        throw new SidecarDied(epitaph(process, log))
      }
      throw new FloeException(FloeErrors.InvalidRequest, s"${conf.python} cannot run the sidecar:" +
        s" ${epitaph(process, log)}. It needs Python 3.11 or later with the floe package, on every" +
        s" executor; choose another with ${FloeConf.Prefix}python")
    }
    try Json.read(answer) catch {
      case e: com.fasterxml.jackson.core.JsonProcessingException =>
        throw new FloeException(FloeErrors.InvalidRequest, s"${conf.python} is no sidecar: its first" +
          s" words are '${answer.take(200)}'. Choose a Python that prints nothing of its own with" +
          s" ${FloeConf.Prefix}python", e)
    }
  }

  private def epitaph(process: Process, log: File): String =
    (if (process.isAlive) "still running" else s"exit code ${process.exitValue()}") + ". " + tail(log)

  private def tail(log: File): String = {
    val lines = try Files.readAllLines(log.toPath, UTF_8).toArray.takeRight(8).mkString("\n  ") catch {
      case _: IOException => "(no log)"
    }
    s"Last lines of ${log.getPath}:\n  $lines"
  }
}
