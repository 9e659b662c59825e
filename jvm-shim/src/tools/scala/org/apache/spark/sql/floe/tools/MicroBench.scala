package org.apache.spark.sql.floe.tools

import java.io.File
import java.lang.management.ManagementFactory

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.util.Utils

/** A provider under test with its stores of n keys: a plain one, and one for prefix scans. */
final class Contender(val name: String, val n: Int, spec: (String, Int) => ProviderSpec) {
  val plain = new BenchStore(spec("plain", 0))
  lazy val grouped = new BenchStore(spec("grouped", 1))

  /** Where opening a store costs as much as its size, fewer repetitions must do. */
  val abortRepeats: Int = if (n <= 100000) 5 else 2
  val scanRepeats: Int = if (n <= 100000) 5 else 1

  def stores(withGrouped: Boolean): Seq[BenchStore] =
    if (withGrouped) Seq(plain, grouped) else Seq(plain)
}

/**
 * Compares providers operation by operation, side by side in one JVM (`floe bench micro`).
 *
 * In every round each contender runs each operation once, and the order of contenders rotates, so
 * that a slow minute of the machine hurts all of them. A round's figure is the median of its
 * repetitions. Rounds before the first are for the JIT and count for nothing. Rows are built before
 * the clock starts, and garbage of one contender is collected before the next is timed.
 *
 * Standard input is one line of JSON: root, contenders (name, class, conf, format, maxKeys), keys,
 * ops, rounds, warmups, batch, seed. Results are JSON lines on standard output: op, n, contender,
 * rows (covered by one time), ns_per_row (median of the rounds), rounds (each round's); or, for a
 * contender that failed, contender, n, error. Progress goes to standard error.
 */
final class MicroBench(settings: JsonNode) {
  private val batchSize = settings.get("batch").intValue
  private val rounds = settings.get("rounds").intValue
  private val seed = settings.get("seed").longValue
  private val root = new File(settings.get("root").textValue)
  private val wanted = settings.get("ops").asScala.map(_.textValue).toSet
  private val rows = new BenchRows(grouped = false)
  private val groupedRows = new BenchRows(grouped = true)
  private val heap = new Heap

  def run(): Unit = {
    var warmups = settings.get("warmups").intValue
    settings.get("keys").asScala.map(_.intValue).foreach { n =>
      race(n, warmups)
      // Code stays compiled; later sizes only have to warm their caches.
      warmups = math.min(warmups, 1)
    }
  }

  private def race(n: Int, warmups: Int): Unit = {
    // A second store of the largest size would double the time of filling for little news.
    val withGrouped = wanted("prefix-scan") && n <= MicroBench.LargestGrouped
    val ops = BenchOps.all
      .filter(op => wanted(op.name) && (withGrouped || op.name != "prefix-scan"))
    val times = mutable.Map.empty[(BenchOp, Contender), Vector[Double]].withDefaultValue(Vector())
    var contenders = settings.get("contenders").asScala.toSeq
      .filter(c => n <= c.path("maxKeys").asInt(Int.MaxValue))
      .flatMap(c => guarded(c.get("name").textValue, n)(fill(c, n, withGrouped)))
    for (round <- -warmups until rounds; (op, index) <- ops.zipWithIndex) {
      if (index == 0) announce(n, round)
      val turn = new BenchTurn(rows, groupedRows, n, batchSize, seed + 1000L * round + index)
      for (contender <- rotated(contenders, round + warmups + index)) {
        timed(op, contender, turn) match {
          case None => contenders = contenders.filter(_ != contender)
          case Some(ns) => if (round >= 0) times((op, contender)) :+= ns
        }
      }
      if (index == ops.size - 1) contenders.foreach(_.stores(withGrouped).foreach(_.maintain()))
    }
    for (op <- ops; contender <- contenders) report(op, contender, times((op, contender)))
    contenders.foreach(_.stores(withGrouped).foreach(_.close()))
    Utils.deleteRecursively(new File(root, n.toString))
  }

  /** Nanoseconds a row: the median of a turn's repetitions. */
  private def timed(op: BenchOp, contender: Contender, turn: BenchTurn): Option[Double] = {
    heap.settle()
    guarded(contender.name, contender.n) {
      median(op.time(contender, turn).map(_.toDouble)) / op.rows(contender.n, batchSize)
    }
  }

  private def fill(json: JsonNode, n: Int, withGrouped: Boolean): Contender = {
    val name = json.get("name").textValue
    progress(s"$n keys: filling $name")
    val conf = json.get("conf").properties.asScala.map(e => e.getKey -> e.getValue.asText).toMap
    def spec(store: String, prefixColumns: Int) = ProviderSpec(
      className = json.get("class").textValue,
      root = new File(root, s"$n/$name/$store").getPath,
      keySchema = BenchRows.keySchema,
      valueSchema = BenchRows.valueSchema,
      prefixColumns = prefixColumns,
      formatVersion = json.path("format").asInt(1),
      conf = conf)
    val contender = new Contender(name, n, spec)
    contender.plain.fill(rows, n)
    if (withGrouped) contender.grouped.fill(groupedRows, n)
    contender
  }

  /** None if the contender failed; the reason is a result too. */
  private def guarded[A](contender: String, n: Int)(work: => A): Option[A] =
    try Some(work) catch {
      case e @ (NonFatal(_) | _: LinkageError | _: OutOfMemoryError) =>
        e.printStackTrace()
        println(BareJvm.json.createObjectNode()
          .put("contender", contender).put("n", n).put("error", e.toString))
        None
    }

  private def report(op: BenchOp, contender: Contender, times: Seq[Double]): Unit = {
    val line = BareJvm.json.createObjectNode()
      .put("op", op.name)
      .put("n", contender.n)
      .put("contender", contender.name)
      .put("rows", op.rows(contender.n, batchSize))
      .put("ns_per_row", median(times))
    val each = line.putArray("rounds")
    times.foreach(each.add(_))
    println(line)
  }

  private def rotated[A](items: Seq[A], by: Int): Seq[A] = {
    val (front, back) = items.splitAt(by % math.max(1, items.size))
    back ++ front
  }

  private def median(times: Seq[Double]): Double = {
    val sorted = times.sorted
    (sorted((sorted.size - 1) / 2) + sorted(sorted.size / 2)) / 2
  }

  private def announce(n: Int, round: Int): Unit =
    progress(s"$n keys: " + (if (round < 0) "warming up" else s"round ${round + 1} of $rounds"))

  private def progress(text: String): Unit = Console.err.println(text)
}

object MicroBench {
  private val LargestGrouped = 1000000

  def main(args: Array[String]): Unit = {
    BareJvm.quietLogs()
    new MicroBench(BareJvm.json.readTree(BareJvm.readLine(System.in))).run()
    // Stores may have left threads behind.
    System.out.flush()
    Runtime.getRuntime.halt(0)
  }
}

/**
 * Collects garbage between timings, once enough of it has come together.
 *
 * A store that copies its map at every open leaves garbage which the concurrent collector would
 * otherwise clear away on the other core while the next contender is timed.
 */
final class Heap {
  private val memory = ManagementFactory.getMemoryMXBean
  private var floor = 0L

  def settle(): Unit =
    if (used - floor > Heap.TolerableGarbageBytes) {
      System.gc()
      floor = used
    }

  private def used: Long = memory.getHeapMemoryUsage.getUsed
}

object Heap {
  private val TolerableGarbageBytes = 256L << 20
}
