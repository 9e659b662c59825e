package org.apache.spark.sql.floe

import java.io.{File, InputStream, IOException}
import java.nio.ByteBuffer
import java.nio.channels.{Channels, FileChannel}
import java.nio.file.{Files, NoSuchFileException, Path, Paths, StandardCopyOption, StandardOpenOption}
import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{Path => HadoopPath}

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.internal.SQLConf

/**
 * A store's directory in the checkpoint. Publishing a file is atomic: it is there whole or not at
 * all. Names and contents are Python's; here they are bytes.
 */
private[floe] trait DurableFiles {
  /** Where Python reads the files itself, or None when they must be fetched for it. */
  def localDirectory: Option[Path]
  /** The directory as a user would name it. */
  def location: String
  def list(): Seq[String]
  def publish(name: String, content: Seq[ByteBuffer]): Unit
  /**
   * Publishes under `alias` as well, which names the newest of several commits of a version. Where
   * that costs a second upload, only when there are several.
   */
  def publish(name: String, alias: String, content: Seq[ByteBuffer]): Unit
  def upload(local: File, name: String): Unit
  def fetch(name: String, local: File): Unit
  def delete(name: String): Unit
  /** Removes what a process that died left half-written. */
  def sweep(): Unit
}

private[floe] object DurableFiles {
  def apply(directory: HadoopPath, conf: Configuration, fsync: Boolean): DurableFiles = {
    val qualified = directory.getFileSystem(conf).makeQualified(directory)
    val custom = conf.get(SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS.parent.key)
    if (qualified.toUri.getScheme == "file" && custom == null) {
      new NioFiles(Paths.get(qualified.toUri.getPath), fsync)
    } else new ManagedFiles(qualified, conf)
  }
}

/**
 * `file:` with nio: Spark's managers fork processes for permissions on every rename. Written under
 * a hidden temporary name, then moved.
 */
private[floe] final class NioFiles(directory: Path, fsync: Boolean) extends DurableFiles {
  override def localDirectory: Option[Path] = Some(directory)
  override def location: String = directory.toString

  override def list(): Seq[String] =
    Option(directory.toFile.list()).map(_.toSeq).getOrElse(Seq.empty)

  override def publish(name: String, content: Seq[ByteBuffer]): Unit =
    withTemporary(content)(move(_, name))

  override def publish(name: String, alias: String, content: Seq[ByteBuffer]): Unit =
    withTemporary(content) { temporary =>
    try Files.createLink(directory.resolve(name), temporary) catch {
      case _: UnsupportedOperationException | _: IOException => // a file system without hard links
        val copy = newTemporary()
        Files.copy(temporary, copy)
        if (fsync) sync(copy)
        move(copy, name)
    }
    move(temporary, alias)
  }

  override def upload(local: File, name: String): Unit = {
    val temporary = newTemporary()
    retryingMissingDirectory {
      try Files.createLink(temporary, local.toPath) catch { // another file system
        case e: NoSuchFileException if !Files.exists(directory) => throw e
        case _: UnsupportedOperationException | _: IOException => Files.copy(local.toPath, temporary)
      }
    }
    if (fsync) sync(temporary)
    move(temporary, name)
  }

  override def fetch(name: String, local: File): Unit =
    Files.copy(directory.resolve(name), local.toPath, StandardCopyOption.REPLACE_EXISTING)

  override def delete(name: String): Unit = Files.deleteIfExists(directory.resolve(name))

  override def sweep(): Unit = {
    val longAgo = System.currentTimeMillis() - NioFiles.AbandonedMs
    list().filter(name => name.startsWith(".") && name.endsWith(NioFiles.Temporary))
      .map(name => directory.resolve(name).toFile)
      .filter(file => file.lastModified() < longAgo).foreach(_.delete())
  }

  private def withTemporary(content: Seq[ByteBuffer])(publish: Path => Unit): Unit = {
    val temporary = newTemporary()
    try {
      val channel = retryingMissingDirectory(
        FileChannel.open(temporary, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE))
      try {
        content.foreach(part => while (part.hasRemaining) channel.write(part))
        if (fsync) channel.force(true)
      } finally channel.close()
      publish(temporary)
    } catch {
      case e: Throwable =>
        try Files.deleteIfExists(temporary) catch { case _: IOException => }
        throw e
    }
  }

  private def newTemporary(): Path =
    directory.resolve(s".${UUID.randomUUID()}${NioFiles.Temporary}")

  private def move(temporary: Path, name: String): Unit = {
    Files.move(temporary, directory.resolve(name), StandardCopyOption.ATOMIC_MOVE)
    if (fsync) sync(directory)
  }

  private def sync(path: Path): Unit = {
    val channel = FileChannel.open(path, StandardOpenOption.READ)
    try channel.force(true) finally channel.close()
  }

  private def retryingMissingDirectory[T](body: => T): T = try body catch {
    case _: NoSuchFileException =>
      Files.createDirectories(directory)
      body
  }
}

private[floe] object NioFiles {
  private val Temporary = ".floe-tmp"
  /** No upload takes that long. */
  private val AbandonedMs = 6L * 60 * 60 * 1000
}

/** Any other file system, through Spark's own manager, as the user configured it. */
private[floe] final class ManagedFiles(directory: HadoopPath, conf: Configuration) extends DurableFiles {
  private lazy val manager = CheckpointFileManager.create(directory, conf)

  override def localDirectory: Option[Path] = None
  override def location: String = directory.toString

  override def list(): Seq[String] =
    if (manager.exists(directory)) manager.list(directory).toSeq.filter(_.isFile).map(_.getPath.getName)
    else Seq.empty

  override def publish(name: String, content: Seq[ByteBuffer]): Unit = {
    if (!manager.exists(directory)) manager.mkdirs(directory)
    val out = manager.createAtomic(new HadoopPath(directory, name), overwriteIfPossible = true)
    try {
      val channel = Channels.newChannel(out)
      content.foreach(part => while (part.hasRemaining) channel.write(part))
      out.close()
    } catch {
      case e: Throwable =>
        out.cancel()
        throw e
    }
  }

  /** Two commits of a version each have a name of their own; only then the alias says which. */
  override def publish(name: String, alias: String, content: Seq[ByteBuffer]): Unit = {
    publish(name, content.map(_.duplicate()))
    val siblings = alias.stripSuffix(".delta") + "_"
    if (list().exists(other => other.startsWith(siblings) && other.endsWith(".delta") && other != name)) {
      delete(alias) // managers differ in what an existing file means to a rename
      publish(alias, content)
    }
  }

  override def upload(local: File, name: String): Unit = {
    val channel = FileChannel.open(local.toPath, StandardOpenOption.READ)
    try publish(name, Seq(channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size())))
    finally channel.close()
  }

  override def fetch(name: String, local: File): Unit = reading(name) { in =>
    Files.copy(in, local.toPath, StandardCopyOption.REPLACE_EXISTING)
  }

  override def delete(name: String): Unit = manager.delete(new HadoopPath(directory, name))

  override def sweep(): Unit = () // the manager's own temporary files are the manager's

  private def reading[T](name: String)(read: InputStream => T): T = {
    val in = manager.open(new HadoopPath(directory, name))
    try read(in) finally in.close()
  }
}
