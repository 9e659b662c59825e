package org.apache.spark.sql.floe.tools

import java.lang.reflect.Modifier

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.floe.{MemoryLayout, Slabs}
import org.apache.spark.unsafe.Platform

/**
 * The shared memory as this side sees it, for `tests/test_layout.py`.
 *
 * One line of JSON comes in: a slab of the Python process, and by the name of each structure a
 * place to read from and one to write to. One line goes out: every constant of the layout, what
 * was read, and what was written, field by field.
 */
object LayoutProbe {
  import MemoryLayout._

  private final case class Field(name: String, offset: Int, bytes: Int)
  private final case class Struct(bytes: Int, fields: Field*)

  /** Names are those of the dtypes in `python/floe/format/layout.py`. */
  private val Structs = Map(
    "ENTRY" -> Struct(EntryBytes,
      Field("key", KeyRef, 8), Field("hot", Hot, 8), Field("cold", Cold, 8),
      Field("expiry", Expiry, 8), Field("key_len", KeyLen, 4), Field("value_len", ValueLen, 4),
      Field("epoch", Epoch, 4), Field("kind", Kind, 4), Field("group", Group, 4),
      Field("next", Next, 4), Field("prev", Prev, 4), Field("used", Used, 4)),
    "UNDO" -> Struct(UndoBytes,
      Field("entry", UndoEntry, 4), Field("born", UndoBorn, 4), Field("hot", UndoHot, 8),
      Field("cold", UndoCold, 8), Field("expiry", UndoExpiry, 8),
      Field("value_len", UndoValueLen, 4), Field("epoch", UndoEpoch, 4),
      Field("kind", UndoKind, 4)),
    "STAGED" -> Struct(StagedBytes,
      Field("key", StagedKeyRef, 8), Field("value", StagedValueRef, 8),
      Field("cold", StagedCold, 8), Field("expiry", StagedExpiry, 8),
      Field("key_len", StagedKeyLen, 4), Field("value_len", StagedValueLen, 4),
      Field("family", StagedFamily, 4), Field("op", StagedOp, 4)),
    "SWITCH" -> Struct(SwitchBytes,
      Field("entry", SwitchEntry, 4), Field("epoch", SwitchEpoch, 4), Field("cold", SwitchCold, 8)))

  def main(args: Array[String]): Unit = {
    val request = BareJvm.json.readTree(BareJvm.readLine(System.in))
    val slabs = new Slabs
    val slab = request.get("slab")
    slabs.map(slab.get("number").asInt, slab.get("path").asText, slab.get("bytes").asLong)
    val answer = BareJvm.json.createObjectNode()
    val numbers = answer.putObject("constants")
    constants().foreach { case (name, value) => numbers.put(name, value) }
    each(request.get("read"), slabs, answer.putObject("read"))((_, field, at) => load(field, at))
    each(request.get("write"), slabs, answer.putObject("written"))(store)
    println(answer)
  }

  /** Every constant of the layout by name, whatever is added there. */
  private def constants(): Seq[(String, Long)] = MemoryLayout.getClass.getDeclaredMethods.toSeq
    .filter(m => Modifier.isPublic(m.getModifiers) && m.getParameterCount == 0)
    .filter(m => m.getReturnType == classOf[Int] || m.getReturnType == classOf[Long])
    .map(m => m.getName -> m.invoke(MemoryLayout).asInstanceOf[Number].longValue)

  /** Visits the fields of `count` records of each structure that `places` names. */
  private def each(places: JsonNode, slabs: Slabs, out: ObjectNode)(
      visit: (Int, Field, Long) => Long): Unit =
    places.properties.asScala.foreach { place =>
      val struct = Structs(place.getKey)
      val start = slabs.address(place.getValue.get(0).asLong)
      val records = out.putArray(place.getKey)
      for (n <- 0 until place.getValue.get(1).asInt) {
        val record = records.addObject()
        struct.fields.foreach { field =>
          record.put(field.name, visit(n, field, start + n.toLong * struct.bytes + field.offset))
        }
      }
    }

  private def load(field: Field, at: Long): Long =
    if (field.bytes == 8) Platform.getLong(null, at) else Platform.getInt(null, at)

  /** Writes a value that no other field of any record has, with all its bytes in use. */
  private def store(record: Int, field: Field, at: Long): Long =
    if (field.bytes == 8) {
      val value = 0x0102030405060708L * (record + 1) + field.offset
      Platform.putLong(null, at, value)
      value
    } else {
      val value = 0x01020304 * (record + 1) + field.offset
      Platform.putInt(null, at, value)
      value
    }
}
