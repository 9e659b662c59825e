package org.apache.spark.sql.floe.tools

import java.io.InputStream

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.logging.log4j.Level

import org.apache.spark.internal.Logging
import org.apache.spark.util.Utils

/** What the main classes of this jar share: they run on Spark's jars, but without Spark. */
object BareJvm extends Logging {

  /** Messages between these programs and Python are JSON. */
  val json: ObjectMapper = new ObjectMapper

  /**
   * Errors only. Stores log several lines at every open and commit, which would fill the terminal
   * and, in a benchmark, be measured. Spark configures log4j at the first use of any logger, so a
   * logger is used before the level is set.
   */
  def quietLogs(): Unit = {
    log.isErrorEnabled
    Utils.setLogLevel(Level.ERROR)
  }

  /** The next line of `in`, read byte by byte so that nothing behind it is consumed. */
  def readLine(in: InputStream): String =
    Iterator.continually(in.read()).takeWhile(b => b != '\n' && b >= 0).map(_.toChar).mkString

  /** Returns when the other end of `in` is gone: closed, or its process dead. */
  def awaitEnd(in: InputStream): Unit = {
    val buffer = new Array[Byte](1024)
    while (in.read(buffer) >= 0) ()
  }
}
