package org.apache.spark.sql.floe

import org.apache.spark.TaskContext

/**
 * A task's hold on a store: the stamp it owns and the epoch it writes. The read handle and the
 * write handle of one task share a lease, and aborting the former never undoes the latter. It ends
 * once: by commit, by abort, or by the end of the task. The pin outlives it until the task's
 * thread is really gone.
 */
private[floe] final class Lease(provider: FloeStateStoreProvider, stamp: Long, epoch: Int) {
  @volatile private var open = true
  /** The handle that may end this lease: the last one that was made from it. */
  private var owner: FloeStateStore = _
  private val task = Option(TaskContext.get())

  task.foreach(_.addTaskCompletionListener[Unit] { _ =>
    finish(commit = false)
    provider.versions.unpin(epoch)
  })

  def hand(store: FloeStateStore): FloeStateStore = {
    owner = store
    store
  }

  def isOpen: Boolean = open

  def check(): Unit = if (!open || provider.stamps.current != stamp) {
    throw FloeErrors.closed(provider.stateStoreId, "an operation")
  }

  def abort(by: FloeStateStore): Unit = if (by eq owner) finish(commit = false)

  def committed(): Unit = finish(commit = true)

  private def finish(commit: Boolean): Unit = synchronized {
    if (open) {
      open = false
      try if (!commit) provider.versions.abort() finally {
        if (task.isEmpty) provider.versions.unpin(epoch)
        provider.stamps.release(stamp)
      }
    }
  }
}
