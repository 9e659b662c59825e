package org.apache.spark.sql.floe.tools

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStore,
  StateStoreIterator, UnsafeRowPair}

/**
 * One thing that the benchmark times.
 *
 * @param rows the rows that one time covers, for a store of n keys and a batch of b rows
 * @param time one turn of one contender: the times of its repetitions
 */
final case class BenchOp(
    name: String,
    rows: (Int, Int) => Int,
    time: (Contender, BenchTurn) => Seq[Long])

/**
 * The operations, in the order in which a round runs them.
 *
 * Durable batches come first and reads behind them, because RocksDB reloads its files after an
 * abort and would otherwise be timed while it does, or with cold caches. An untimed batch in front
 * absorbs the reload that the aborts of the round before have left. Every loop counts its answers,
 * so that a store which is fast because it is wrong fails.
 */
object BenchOps {
  private val family = StateStore.DEFAULT_COL_FAMILY_NAME
  private val TinyRows = 100
  private val ReadRepeats = 5
  private val TinyRepeats = 5
  private val BatchRepeats = 2

  val all: Seq[BenchOp] = Seq(
    BenchOp("tiny-batch", (_, _) => TinyRows, { (contender, turn) =>
      contender.plain.committing(getAndPut(turn.batch(0)))
      val slices = (0 until TinyRepeats).map { i =>
        turn.batch(1).slice(i * TinyRows, (i + 1) * TinyRows)
      }
      slices.map(slice => contender.plain.committing(getAndPut(slice)))
    }),
    BenchOp("batch", ofBatch, { (contender, turn) =>
      val batches = (0 until BatchRepeats).map(turn.batch)
      batches.map(batch => contender.plain.committing(getAndPut(batch)))
    }),
    BenchOp("get-hit", ofBatch, { (contender, turn) =>
      val keys = turn.batch(0).present
      contender.plain.reading { store =>
        Seq.fill(ReadRepeats)(counting(keys.length)(found(store, keys)))
      }
    }),
    BenchOp("get-miss", ofBatch, { (contender, turn) =>
      val keys = turn.batch(0).absent
      contender.plain.reading(store => Seq.fill(ReadRepeats)(counting(0)(found(store, keys))))
    }),
    BenchOp("scan", (n, _) => n, { (contender, _) =>
      contender.plain.reading { store =>
        Seq.fill(contender.scanRepeats)(counting(contender.n)(walk(store.iterator(family))))
      }
    }),
    BenchOp("prefix-scan", ofBatch, { (contender, turn) =>
      val prefixes = turn.batch(0).prefixes
      val expected = prefixes.length * BenchRows.KeysPerPrefix
      contender.grouped.reading { store =>
        Seq.fill(ReadRepeats)(counting(expected)(scanPrefixes(store, prefixes)))
      }
    }),
    aborted("put-fresh")((store, batch) => putAll(store, batch.absent, batch.values)),
    aborted("put-overwrite")((store, batch) => putAll(store, batch.present, batch.values)),
    aborted("remove")((store, batch) => removeAll(store, batch.present)),
    aborted("get-put")((store, batch) => getAndPut(batch)(store)),
    BenchOp("load", (n, _) => n, { (contender, turn) =>
      Seq(contender.plain.loading(turn.batch(0).present(0)))
    }))

  private def ofBatch(n: Int, batch: Int): Int = batch

  private def aborted(name: String)(work: (StateStore, BenchBatch) => Unit): BenchOp =
    BenchOp(name, ofBatch, { (contender, turn) =>
      val batch = turn.batch(0)
      Seq.fill(contender.abortRepeats)(contender.plain.aborting(work(_, batch)))
    })

  private def counting(expected: Int)(work: => Int): Long = {
    val start = System.nanoTime()
    val counted = work
    val elapsed = System.nanoTime() - start
    require(counted == expected, s"$counted rows instead of $expected")
    elapsed
  }

  private def found(store: ReadStateStore, keys: Array[UnsafeRow]): Int = {
    var count = 0
    var i = 0
    while (i < keys.length) {
      if (store.get(keys(i), family) != null) count += 1
      i += 1
    }
    count
  }

  private def walk(pairs: StateStoreIterator[UnsafeRowPair]): Int = {
    var count = 0
    while (pairs.hasNext) {
      val pair = pairs.next()
      if (pair.key.numFields == 2 && pair.value.numFields == 1) count += 1
    }
    pairs.close()
    count
  }

  private def scanPrefixes(store: ReadStateStore, prefixes: Array[UnsafeRow]): Int = {
    var count = 0
    var i = 0
    while (i < prefixes.length) {
      count += walk(store.prefixScan(prefixes(i), family))
      i += 1
    }
    count
  }

  private def putAll(
      store: StateStore, keys: Array[UnsafeRow], values: Array[UnsafeRow]): Unit = {
    var i = 0
    while (i < keys.length) {
      store.put(keys(i), values(i), family)
      i += 1
    }
  }

  private def removeAll(store: StateStore, keys: Array[UnsafeRow]): Unit = {
    var i = 0
    while (i < keys.length) {
      store.remove(keys(i), family)
      i += 1
    }
  }

  private def getAndPut(batch: BenchBatch)(store: StateStore): Unit = {
    var i = 0
    while (i < batch.present.length) {
      require(store.get(batch.present(i), family) != null, "a row was lost")
      store.put(batch.present(i), batch.values(i), family)
      i += 1
    }
  }
}
