package org.apache.spark.sql.floe.tools

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ArrayNode

import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, StateStore,
  StateStoreIterator, UnsafeRowPair}

/**
 * Runs a list of operations on an open store; the result is a list with one answer for each.
 *
 * {{{
 *   ["put", key, value]      null
 *   ["remove", key]          null
 *   ["get", key]             value or null
 *   ["exists", key]          true or false
 *   ["scan"]                 pairs, in the order of the store
 *   ["prefix", prefix]       pairs
 *   ["evict", bound]         the pairs with k < bound, each removed while the scan goes on
 *   ["bump", bound]          the pairs with k < bound, each put again with n + 1 during the scan
 * }}}
 *
 * The last two are what Spark's operators do to a store: they write with the very rows that an
 * open iterator lent them, and read other keys in between.
 */
final class StoreScript(codec: RowCodec, store: ReadStateStore) {
  private val family = StateStore.DEFAULT_COL_FAMILY_NAME

  def run(operations: JsonNode): ArrayNode = {
    val answers = BareJvm.json.createArrayNode()
    operations.forEach(operation => answer(answers, operation))
    answers
  }

  private def answer(out: ArrayNode, operation: JsonNode): Unit = operation.get(0).textValue match {
    case "put" =>
      writable.put(codec.key(operation.get(1)), codec.value(operation.get(2)), family)
      out.addNull()
      ()
    case "remove" =>
      writable.remove(codec.key(operation.get(1)), family)
      out.addNull()
      ()
    case "get" =>
      val row = store.get(codec.key(operation.get(1)), family)
      if (row == null) out.addNull() else codec.showValue(out.addArray(), row)
      ()
    case "exists" =>
      out.add(store.keyExists(codec.key(operation.get(1)), family))
      ()
    case "scan" =>
      show(out.addArray(), store.iterator(family))
    case "prefix" =>
      show(out.addArray(), store.prefixScan(codec.prefix(operation.get(1)), family))
    case "evict" =>
      eachBelow(operation, out.addArray()) { pair => writable.remove(pair.key, family) }
    case "bump" =>
      eachBelow(operation, out.addArray())(bump)
    case other =>
      throw new IllegalArgumentException(s"no such operation: $other")
  }

  private def show(out: ArrayNode, pairs: StateStoreIterator[UnsafeRowPair]): Unit =
    try pairs.foreach(pair => codec.showPair(out, pair.key, pair.value))
    finally pairs.close()

  private def eachBelow(operation: JsonNode, out: ArrayNode)(write: UnsafeRowPair => Unit): Unit = {
    val bound = operation.get(1).intValue
    val pairs = store.iterator(family)
    try pairs.filter(_.key.getInt(0) < bound).foreach { pair =>
      codec.showPair(out, pair.key, pair.value)
      write(pair)
    } finally pairs.close()
  }

  private def bump(pair: UnsafeRowPair): Unit = {
    store.get(pair.key, family)
    val text = if (pair.value.isNullAt(1)) null else pair.value.getUTF8String(1)
    writable.put(pair.key, codec.value(pair.value.getLong(0) + 1, text), family)
  }

  private def writable: StateStore = store match {
    case writable: StateStore => writable
    case _ => throw new UnsupportedOperationException("a read handle cannot write")
  }
}
