package org.apache.spark.sql.floe.tools

import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.CRC32

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ArrayNode

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.{IntegerType, LongType, StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String

/**
 * Rows of the harness, to and from JSON.
 *
 * {{{
 *   key            [k, s]                  s is a string or null; an integer if the key is "long"
 *   prefix         [k]
 *   value, given   [n, pattern, length]    the pattern repeated up to length characters, or null
 *   value, shown   [n, text]
 *   pair, shown    [k, s, n, text]
 * }}}
 *
 * Long strings cross the wire in neither direction. Given ones are spelled by a pattern; shown ones
 * of more than 64 characters become `#<characters>:<CRC-32 of the UTF-8 bytes>`. Characters are
 * Java's, so patterns keep to the basic plane, where Python counts the same.
 *
 * Encoded rows are the projection's own, overwritten by the next call, exactly as Spark's operators
 * pass them. So a codec serves one script at a time.
 */
final class RowCodec(longKeys: Boolean) {
  import RowCodec._

  val keySchema: StructType =
    new StructType().add("k", IntegerType).add("s", if (longKeys) LongType else StringType)
  val valueSchema: StructType = new StructType().add("n", LongType).add("text", StringType)

  private val projectKey = UnsafeProjection.create(keySchema)
  private val projectPrefix = UnsafeProjection.create(keySchema.take(1).map(_.dataType).toArray)
  private val projectValue = UnsafeProjection.create(valueSchema)

  def key(json: JsonNode): UnsafeRow = {
    val second = json.get(1)
    val s: Any =
      if (longKeys) second.longValue
      else if (second.isNull) null
      else UTF8String.fromString(second.textValue)
    projectKey(new GenericInternalRow(Array[Any](json.get(0).intValue, s)))
  }

  def prefix(json: JsonNode): UnsafeRow =
    projectPrefix(new GenericInternalRow(Array[Any](json.get(0).intValue)))

  def value(json: JsonNode): UnsafeRow = {
    val pattern = json.get(1)
    val text =
      if (pattern.isNull) null
      else UTF8String.fromString(repeat(pattern.textValue, json.get(2).intValue))
    value(json.get(0).longValue, text)
  }

  def value(n: Long, text: UTF8String): UnsafeRow =
    projectValue(new GenericInternalRow(Array[Any](n, text)))

  def showPair(out: ArrayNode, key: UnsafeRow, value: UnsafeRow): Unit = {
    val pair = out.addArray().add(key.getInt(0))
    if (longKeys) pair.add(key.getLong(1))
    else if (key.isNullAt(1)) pair.addNull()
    else pair.add(key.getUTF8String(1).toString)
    showValue(pair, value)
  }

  def showValue(out: ArrayNode, value: UnsafeRow): Unit = {
    out.add(value.getLong(0))
    if (value.isNullAt(1)) out.addNull() else out.add(show(value.getUTF8String(1).toString))
    ()
  }
}

object RowCodec {
  private val LongestShown = 64

  /** The pattern over and over, cut to `length` characters. */
  private def repeat(pattern: String, length: Int): String =
    if (length == 0) "" else pattern.repeat(length / pattern.length + 1).substring(0, length)

  private def show(text: String): String =
    if (text.length <= LongestShown) text
    else {
      val crc = new CRC32
      crc.update(text.getBytes(UTF_8))
      f"#${text.length}:${crc.getValue}%08x"
    }
}
