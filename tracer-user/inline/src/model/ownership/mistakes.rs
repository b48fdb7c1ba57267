//! Mistakes that the model finds.

/// Step of the protocol that is left out or done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipMistake {
    /// The owner defers an access by stores.
    DeferredByStores,
    /// A cell is taken by stores.
    TakenByStores,
    /// Another thread takes the cell of writes alone.
    ReadsNotTaken,
    /// The order of a record is read before the cells are taken.
    OrderBeforeCells,
    /// Neither the slot nor the cells are looked at after the order was read.
    NotLookedAgain,
    /// The deferred access remains in the cell that is taken.
    FlushedTwice,
    /// A deferred access is recorded although its owner has changed the cell meanwhile.
    FailedTakeRecorded,
    /// The order of a deferred access's record is read before the access is seen.
    FlushOrderedBeforeLoad,
    /// The order of a deferred access's record is read after the cell was taken.
    FlushOrderedAfterChange,
    /// The slot of a deferred access's record is reserved after the cell was taken.
    FlushReservedAfterChange,
    /// An access that finds another thread later than at its first look begins no epoch.
    LateNotBegun,
    /// Accesses are deferred in an epoch before the record that begins it is published.
    BegunBeforePublished,
    /// A thread does not give its slot back before a signal.
    SlotKept,
    /// The epoch that a record has begun which a signal interrupts stays as it is.
    EpochKept,
    /// A thread that has taken a cell gives its slot back before a signal, and begins anew.
    ExchangeRewound,
}
