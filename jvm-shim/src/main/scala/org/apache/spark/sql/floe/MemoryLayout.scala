package org.apache.spark.sql.floe

/**
 * The bytes that the shim and the sidecar share: twin of `python/floe/format/layout.py`. A test
 * writes each structure on one side and reads it on the other; change both files or neither.
 *
 * A '''ref''' is a place in the executor's memory that both processes understand: the slab's
 * number above, the offset inside the slab below. Every slab begins with a header page, so ref 0
 * never names data and stands for "none".
 */
private[floe] object MemoryLayout {
  val Version = 1

  // Refs ----------------------------------------------------------------------------------------
  val SlabBits = 26
  val SlabMask: Long = (1L << SlabBits) - 1
  val SlabHeaderBytes = 4096
  val SlabMagic = 0x31424c53454f4c46L // "FLOESLB1", little endian

  // Entries: one cache line each, so that a hit touches one line of metadata ----------------------
  val PageBits = 10
  val PageEntries: Int = 1 << PageBits
  val EntryBytes = 64
  val PageBytes: Int = PageEntries * EntryBytes

  val KeyRef = 0 // ref of [hash: 8 bytes][key bytes]
  val Hot = 8 // ref of the value, 0 when it is not in memory
  val Cold = 16 // marker of the value in the log, 0 when none: the entry is dirty
  val Expiry = 24 // event time in ms after which the row may go; Long.MaxValue: never
  val KeyLen = 32
  val ValueLen = 36
  val Epoch = 40 // the epoch that touched the entry last
  val Kind = 44 // family in the low 16 bits, flags above
  val Group = 48 // entry number of the group, 0: the entry is its own group
  val Next = 52 // next member of the group; in a group entry its first member
  val Prev = 56
  val Used = 60 // the epoch that last asked for the entry
  val FamilyMask = 0xffff
  val DeadFlag = 0x10000 // removed; stays linked until nobody can ask for it
  val GroupFlag = 0x20000 // a group's anchor, not a row
  val FreeFlag = 0x40000 // on the free list
  /** What must be equal besides the key's bytes for a probe to hit. */
  val IdentityMask: Int = FamilyMask | GroupFlag
  /** Flags of entries that hold no row of the current version. */
  val NotARow: Int = DeadFlag | GroupFlag | FreeFlag

  // Undo records ----------------------------------------------------------------------------------
  val UndoBytes = 48
  val UndoEntry = 0 // entry number
  val UndoBorn = 4 // 1: the entry did not exist before
  val UndoHot = 8
  val UndoCold = 16
  val UndoExpiry = 24
  val UndoValueLen = 32
  val UndoEpoch = 36
  val UndoKind = 40

  // Staged rows: what Python read from files, for the shim to link ----------------------------------
  val StagedBytes = 48
  val StagedKeyRef = 0
  val StagedValueRef = 8
  val StagedCold = 16
  val StagedExpiry = 24
  val StagedKeyLen = 32
  val StagedValueLen = 36
  val StagedFamily = 40
  val StagedOp = 44
  val OpPut = 0
  val OpRemove = 1

  // Switch lists: markers that Python hands out after a flush ----------------------------------------
  val SwitchBytes = 16
  val SwitchEntry = 0
  val SwitchEpoch = 4
  val SwitchCold = 8

  val Never: Long = Long.MaxValue
}
