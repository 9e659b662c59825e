package org.apache.spark.sql.floe

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * One owner at a time. A stamp is taken when a version is opened and given back by commit, abort,
 * release or the end of the task; whoever comes meanwhile waits, with a deadline and the name of
 * the holder in the error. A handle checks its stamp on every call, so a task that lost it fails
 * instead of writing into somebody else's epoch.
 */
private[floe] final class Stamps(id: StateStoreId, timeoutMs: Long) {
  private var last = 0L
  private var holder = ""
  @volatile private var current_ = 0L
  private var closed = false

  def current: Long = current_

  def acquire(): Long = synchronized {
    val deadline = System.nanoTime() + timeoutMs * 1000000L
    while (current_ != 0 && !closed) {
      val left = (deadline - System.nanoTime()) / 1000000L
      if (left <= 0) throw FloeErrors.stampTimeout(id, holder, timeoutMs)
      wait(left)
    }
    if (closed) throw FloeErrors.closed(id, "opening a version")
    last += 1
    current_ = last
    holder = Option(TaskContext.get()).map { task =>
      s"task ${task.taskAttemptId()} (partition ${task.partitionId()}, stage ${task.stageId()}," +
        s" attempt ${task.attemptNumber()}, thread ${Thread.currentThread().getName})"
    }.getOrElse(s"thread ${Thread.currentThread().getName}")
    last
  }

  def release(stamp: Long): Unit = synchronized {
    if (current_ == stamp) {
      current_ = 0
      notifyAll()
    }
  }

  def close(): Unit = synchronized {
    closed = true
    notifyAll()
  }
}
