package org.apache.spark.sql.floe

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

/** The little JSON that the control plane needs. */
private[floe] object Json {
  private val mapper = new ObjectMapper()

  def read(text: String): JsonNode = mapper.readTree(text)
  def write(node: JsonNode): String = mapper.writeValueAsString(node)

  def obj(fields: (String, Any)*): ObjectNode = {
    val node = mapper.createObjectNode()
    fields.foreach { case (name, value) => node.set[JsonNode](name, toNode(value)) }
    node
  }

  def fromMap(map: Map[String, String]): ObjectNode = obj(map.toSeq: _*)

  def arr(items: Iterable[Any]): ArrayNode = {
    val node = mapper.createArrayNode()
    items.foreach(item => node.add(toNode(item)))
    node
  }

  private def toNode(value: Any): JsonNode = value match {
    case node: JsonNode => node
    case items: Iterable[_] => arr(items)
    case (a, b) => arr(Seq(a, b))
    case (a, b, c) => arr(Seq(a, b, c))
    case Some(some) => toNode(some)
    case None | null => mapper.nullNode()
    case other => mapper.valueToTree[JsonNode](other)
  }
}
