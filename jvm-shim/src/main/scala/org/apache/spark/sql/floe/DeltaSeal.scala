package org.apache.spark.sql.floe

import java.nio.{ByteBuffer, ByteOrder}
import java.util.{HexFormat, UUID}
import java.util.zip.CRC32

import com.fasterxml.jackson.databind.JsonNode

/** A version and the commit that made it. Version 0 is empty and nobody's. */
private[floe] final case class Point(version: Long, id: Option[UUID])

/**
 * Completes deltas: Python formed the bytes and named the places in their trailer; who the commit
 * is, on what it stands, and the checksum over all of it are known only now. A commit that changed
 * nothing is a template with these places filled, and calls nobody.
 */
private[floe] final class DeltaSeal(greeting: JsonNode) {
  private val places = greeting.get("seal")
  private val trailerBytes = places.get("bytes").asInt
  private val crcAt = places.get("crc").asInt
  private val template = HexFormat.of().parseHex(greeting.get("emptyDelta").asText)
  private val deltaName = greeting.get("deltaName").asText
  private val aliasName = greeting.get("aliasName").asText

  def name(version: Long, id: UUID): String =
    deltaName.replace("{version}", version.toString).replace("{id}", id.toString)

  def alias(version: Long): String = aliasName.replace("{version}", version.toString)

  def empty(): Seq[ByteBuffer] = Seq(ByteBuffer.wrap(template.clone()).order(ByteOrder.LITTLE_ENDIAN))

  /** Fills the trailer, which lies whole in the last of `pieces`. */
  def seal(pieces: Seq[ByteBuffer], point: Point, parent: Point, snapshot: Option[Point]): Unit = {
    val last = pieces.last
    val trailer = last.limit() - trailerBytes
    last.putLong(trailer + places.get("version").asInt, point.version)
    putId(last, trailer + places.get("id").asInt, point.id)
    putId(last, trailer + places.get("parent").asInt, parent.id)
    last.putLong(trailer + places.get("snapshotVersion").asInt, snapshot.map(_.version).getOrElse(0L))
    putId(last, trailer + places.get("snapshotId").asInt, snapshot.flatMap(_.id))
    val crc = new CRC32
    pieces.init.foreach(piece => crc.update(piece.duplicate()))
    val covered = last.duplicate()
    covered.limit(trailer + crcAt)
    crc.update(covered)
    last.putInt(trailer + crcAt, crc.getValue.toInt)
  }

  private def putId(buffer: ByteBuffer, at: Int, id: Option[UUID]): Unit = {
    val bytes = buffer.duplicate().order(ByteOrder.BIG_ENDIAN)
    bytes.putLong(at, id.map(_.getMostSignificantBits).getOrElse(0L))
    bytes.putLong(at + 8, id.map(_.getLeastSignificantBits).getOrElse(0L))
  }
}
