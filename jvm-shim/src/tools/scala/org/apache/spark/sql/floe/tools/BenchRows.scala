package org.apache.spark.sql.floe.tools

import java.util.{BitSet, Random}

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.{DataType, IntegerType, StructType, TimestampType}

/**
 * Rows of the micro benchmark: key (int, timestamp), value int, as in Spark's own
 * StateStoreBasicOperationsBenchmark.
 *
 * A key is a function of its row number, so a store of ten million rows is filled without holding
 * them, and every contender gets the same ones. The integer is the scrambled row number (or, in a
 * store for prefix scans, the scrambled number of its group of four): in no useful order.
 */
final class BenchRows(grouped: Boolean) {
  import BenchRows._

  private val projectKey = UnsafeProjection.create(keySchema)
  private val projectPrefix = UnsafeProjection.create(Array[DataType](IntegerType))
  private val projectValue = UnsafeProjection.create(valueSchema)
  private val keyInput = new GenericInternalRow(2)
  private val intInput = new GenericInternalRow(1)

  /** The key of a row number. The row is overwritten by the next call. */
  def key(row: Int): UnsafeRow = {
    keyInput.setInt(0, scramble(if (grouped) row / KeysPerPrefix else row))
    keyInput.setLong(1, row * 1000L)
    projectKey(keyInput)
  }

  /** A value. The row is overwritten by the next call. */
  def value(v: Int): UnsafeRow = {
    intInput.setInt(0, v)
    projectValue(intInput)
  }

  def keys(rows: Array[Int]): Array[UnsafeRow] = rows.map(key(_).copy())

  def values(rows: Array[Int], salt: Int): Array[UnsafeRow] =
    rows.map(row => value(row * 31 + salt).copy())

  /** The prefixes of groups, not of rows. */
  def prefixes(groups: Array[Int]): Array[UnsafeRow] = groups.map { group =>
    intInput.setInt(0, scramble(group))
    projectPrefix(intInput).copy()
  }
}

object BenchRows {
  val KeysPerPrefix = 4

  val keySchema: StructType =
    new StructType().add("key1", IntegerType).add("key2", TimestampType)
  val valueSchema: StructType = new StructType().add("value", IntegerType)

  /** `count` different numbers below `n`, in random order. */
  def draw(random: Random, n: Int, count: Int): Array[Int] = {
    val drawn = new BitSet(n)
    Iterator.continually(random.nextInt(n)).filter { number =>
      val first = !drawn.get(number)
      drawn.set(number)
      first
    }.take(count).toArray
  }

  /** The finaliser of MurmurHash3: a bijection of 32-bit integers. */
  private def scramble(number: Int): Int = {
    var h = number
    h = (h ^ (h >>> 16)) * 0x85ebca6b
    h = (h ^ (h >>> 13)) * 0xc2b2ae35
    h ^ (h >>> 16)
  }
}

/**
 * The rows of one batch.
 *
 * @param present keys that are in the store, each once, in random order
 * @param absent keys that never are
 * @param values as many values as keys, other ones in every batch
 * @param prefixes prefixes in the store for prefix scans; together they have as many rows
 */
final case class BenchBatch(
    present: Array[UnsafeRow],
    absent: Array[UnsafeRow],
    values: Array[UnsafeRow],
    prefixes: Array[UnsafeRow]) {

  /** Rows `from` until `until` of the keys that are present. */
  def slice(from: Int, until: Int): BenchBatch =
    copy(present = present.slice(from, until), values = values.slice(from, until))
}

/** The batches of one operation in one round: the same for every contender, drawn once. */
final class BenchTurn(rows: BenchRows, grouped: BenchRows, n: Int, size: Int, seed: Long) {
  private val drawn = mutable.Map.empty[Int, BenchBatch]

  def batch(i: Int): BenchBatch = drawn.getOrElseUpdate(i, draw(new Random(seed * 31 + i)))

  private def draw(random: Random): BenchBatch = {
    val numbers = BenchRows.draw(random, n, size)
    BenchBatch(
      present = rows.keys(numbers),
      absent = rows.keys(numbers.map(_ + n)),
      values = rows.values(numbers, random.nextInt()),
      prefixes = grouped.prefixes(
        BenchRows.draw(random, n / BenchRows.KeysPerPrefix, size / BenchRows.KeysPerPrefix)))
  }
}
