package org.apache.spark.sql.floe

import java.io.{IOException, RandomAccessFile}
import java.lang.reflect.Field
import java.nio.{Buffer, ByteBuffer, MappedByteBuffer}
import java.nio.channels.FileChannel

import org.apache.spark.unsafe.Platform

/**
 * The slabs of one sidecar, mapped into this JVM. A slab is allocated by the sidecar before its
 * number is ever spoken, mapped here once through `/proc/<pid>/fd/<n>`, and never moves. The open
 * file keeps the memory alive when the sidecar dies, and is what the next sidecar adopts.
 */
private[floe] final class Slabs {
  import MemoryLayout._

  private final class Slab(val file: RandomAccessFile, val map: MappedByteBuffer)

  /** Address of each slab by number; replaced, never changed, so readers need no lock. */
  @volatile private var bases: Array[Long] = new Array[Long](16)
  @volatile private var slabs: Array[Slab] = new Array[Slab](16)

  def address(ref: Long): Long = bases((ref >>> SlabBits).toInt) + (ref & SlabMask)

  /** A view of `bytes` bytes at `ref`, for channels and checksums. */
  def buffer(ref: Long, bytes: Int): ByteBuffer = {
    val view = slabs((ref >>> SlabBits).toInt).map.duplicate()
    val offset = (ref & SlabMask).toInt
    view.limit(offset + bytes)
    view.position(offset)
    view.slice().order(java.nio.ByteOrder.LITTLE_ENDIAN)
  }

  def isMapped(number: Int): Boolean = number < slabs.length && slabs(number) != null

  def map(number: Int, path: String, bytes: Long): Unit = synchronized {
    if (!isMapped(number)) {
      val file = new RandomAccessFile(path, "rw")
      val mapped = file.getChannel.map(FileChannel.MapMode.READ_WRITE, 0, bytes)
      val base = Slabs.addressOf(mapped)
      if (Platform.getLong(null, base) != SlabMagic ||
          Platform.getInt(null, base + 8) != Version || Platform.getInt(null, base + 12) != number) {
        file.close()
        throw new IOException(s"$path is not slab $number of memory layout $Version")
      }
      if (number >= slabs.length) {
        val size = Integer.highestOneBit(number) << 1
        bases = java.util.Arrays.copyOf(bases, size)
        slabs = java.util.Arrays.copyOf(slabs, size)
      }
      val newBases = bases.clone()
      val newSlabs = slabs.clone()
      newBases(number) = base
      newSlabs(number) = new Slab(file, mapped)
      slabs = newSlabs
      bases = newBases
    }
  }

  /** Lets go of a slab in which the sidecar says that no extent is left: nobody points into it. */
  def unmap(number: Int): Unit = synchronized {
    if (isMapped(number)) {
      val slab = slabs(number)
      val newSlabs = slabs.clone()
      newSlabs(number) = null
      slabs = newSlabs
      slab.file.close()
      Slabs.unmap(slab.map) // now, and not with the garbage: the budget counts it as free
    }
  }

  /** (number, descriptor in this process, bytes) of every slab, for a new sidecar to adopt. */
  def held: Seq[(Int, Int, Long)] = {
    val now = slabs
    now.indices.collect { case n if now(n) != null =>
      (n, Slabs.descriptor(now(n).file), now(n).map.capacity().toLong)
    }
  }

  def close(): Unit = synchronized(slabs.indices.foreach(unmap))
}

private[floe] object Slabs {
  private val unsafe: sun.misc.Unsafe = {
    val field = classOf[sun.misc.Unsafe].getDeclaredField("theUnsafe")
    field.setAccessible(true)
    field.get(null).asInstanceOf[sun.misc.Unsafe]
  }

  // Read through Unsafe so that no --add-opens is needed for java.nio and java.io.
  private def offsetOf(field: Field): Long = unsafe.objectFieldOffset(field)
  private val addressOffset = offsetOf(classOf[Buffer].getDeclaredField("address"))
  private val descriptorOffset = offsetOf(classOf[java.io.FileDescriptor].getDeclaredField("fd"))

  private def addressOf(buffer: MappedByteBuffer): Long = unsafe.getLong(buffer, addressOffset)
  private def unmap(buffer: MappedByteBuffer): Unit = unsafe.invokeCleaner(buffer)
  private def descriptor(file: RandomAccessFile): Int = unsafe.getInt(file.getFD, descriptorOffset)

  /** Orders this thread's writes to shared memory before whatever it publishes next. */
  def releaseFence(): Unit = java.lang.invoke.VarHandle.releaseFence()
  def fullFence(): Unit = java.lang.invoke.VarHandle.fullFence()
}
