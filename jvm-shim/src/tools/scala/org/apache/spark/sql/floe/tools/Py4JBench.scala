package org.apache.spark.sql.floe.tools

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.FileChannel
import java.nio.file.{Path, StandardOpenOption}
import java.util.Random
import java.util.concurrent.CountDownLatch

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import py4j.ClientServer

/** What Python answers; the twin of `PingTarget` in floe/cli/bench.py. */
trait PingTarget {
  def ping(): Int
  def take(payload: Array[Byte]): Int
  def get(key: Long): Long
}

/**
 * What it costs to ask Python, and what it costs to read memory that Python filled
 * (`floe bench py4j`).
 *
 * The JVM is the client, as in Floe: threads of this process call one Python process. The same
 * table is then read twice, by a call for each row and as mapped memory.
 *
 * Standard input is one line of JSON: port, secret, threads, calls, payloadBytes, table, slotBits,
 * keys. Each result is a JSON line: what, threads, calls, us (median of a call), us_mean, first_us
 * (the slowest first call, which opens a connection), per_second (of all threads together).
 */
final class Py4JBench(settings: JsonNode) {
  private val calls = settings.get("calls").intValue
  private val keys = settings.get("keys").intValue

  private val client = new ClientServer.ClientServerBuilder()
    .pythonPort(settings.get("port").intValue)
    .authToken(settings.get("secret").textValue)
    .autoStartJavaServer(false)
    .build()
  private val target =
    client.getPythonServerEntryPoint(Array(classOf[PingTarget])).asInstanceOf[PingTarget]

  def run(): Unit = {
    settings.get("threads").asScala.map(_.intValue).foreach { threads =>
      measure("ping", threads, calls)(_ => target.ping())
    }
    val payload = new Array[Byte](settings.get("payloadBytes").intValue)
    measure("payload", 1, math.max(1, calls / 20))(_ => target.take(payload))
    val random = new Random(42)
    measure("row by call", 1, calls)(_ => target.get(1L + random.nextInt(keys)))
    measureMapped(random)
  }

  private def measure(what: String, threads: Int, calls: Int)(call: Int => Unit): Unit = {
    val times = Array.ofDim[Long](threads, calls)
    val first = new Array[Long](threads)
    val connected = new CountDownLatch(threads)
    val workers = (0 until threads).map { t =>
      new Thread(() => {
        first(t) = time(call(0))
        connected.countDown()
        connected.await()
        for (i <- 0 until calls) times(t)(i) = time(call(i))
      })
    }
    workers.foreach(_.start())
    connected.await()
    val elapsed = time(workers.foreach(_.join()))
    val all = times.flatten
    report(what, threads, all.length, median(all.map(_.toDouble)), all.length * 1e9 / elapsed) {
      _.put("us_mean", all.sum / 1e3 / all.length).put("first_us", first.max / 1e3)
    }
  }

  /** Many reads for one time: a single one is shorter than the clock's own cost. */
  private def measureMapped(random: Random): Unit = {
    val table = new MappedTable(settings.get("table").textValue, settings.get("slotBits").intValue)
    val wanted = Array.fill(keys)(1L + random.nextInt(keys))
    def readAll(): Unit = wanted.foreach { key =>
      require(table.get(key) == key * key, "Python's table reads wrong")
    }
    val ns = median(Array.fill(50)(time(readAll()) / keys.toDouble))
    report("row by mapped memory", 1, keys, ns, 1e9 / ns)(identity)
  }

  private def report(what: String, threads: Int, calls: Int, ns: Double, perSecond: Double)(
      more: ObjectNode => ObjectNode): Unit =
    println(more(BareJvm.json.createObjectNode()
      .put("what", what).put("threads", threads).put("calls", calls)
      .put("us", ns / 1e3).put("per_second", perSecond)))

  private def median(times: Array[Double]): Double = times.sorted.apply(times.length / 2)

  private def time(work: => Unit): Long = {
    val start = System.nanoTime()
    work
    System.nanoTime() - start
  }
}

object Py4JBench {
  def main(args: Array[String]): Unit = {
    new Py4JBench(BareJvm.json.readTree(BareJvm.readLine(System.in))).run()
    System.out.flush()
    Runtime.getRuntime.halt(0)
  }
}

/**
 * A hash table of (key, value) slots of 8 + 8 bytes in a file that Python wrote, mapped.
 *
 * Key 0 is an empty slot; a key sits at the first free slot from the top bits of its product with
 * a constant on, as in floe/cli/bench.py.
 */
final class MappedTable(file: String, slotBits: Int) {
  private val memory: ByteBuffer = {
    val channel = FileChannel.open(Path.of(file), StandardOpenOption.READ)
    try channel.map(FileChannel.MapMode.READ_ONLY, 0, 16L << slotBits)
      .order(ByteOrder.LITTLE_ENDIAN)
    finally channel.close()
  }

  def get(key: Long): Long = {
    var slot = ((key * MappedTable.Multiplier) >>> (64 - slotBits)).toInt
    var found = memory.getLong(slot << 4)
    while (found != key && found != 0L) {
      slot = (slot + 1) & ((1 << slotBits) - 1)
      found = memory.getLong(slot << 4)
    }
    if (found == 0L) -1L else memory.getLong((slot << 4) + 8)
  }
}

object MappedTable {
  /** 2^64 divided by the golden ratio: spreads consecutive keys evenly. */
  private val Multiplier = 0x9e3779b97f4a7c15L
}
