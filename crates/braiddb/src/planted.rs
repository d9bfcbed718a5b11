//! Planted bugs, which prove that the simulation or the models find them. Builds without `--cfg
//! braid_simulation` and `--cfg loom` do not contain them.

#[cfg(all(braid_simulation, not(loom)))]
use crate::sync::statistic::{AtomicUsize, Ordering};

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs, reason = "each is described by its name, where it is planted")]
pub enum Bug {
    SkippedSync = 1,
    EarlyAcknowledgement,
    ReadAheadOfDurable,
    TombstoneNotNoted,
    RefusalNotNoted,
    ReclaimedBeforeDurable,
    ErrorBeforeDurable,
    StepBeforeDurable,
    LostWakeUp,
    WrongTail,
    StaleAddress,
    CheckpointRace,
    FreedLiveSegment,
    FreedSegmentLeft,
    FreedSegmentOfSnapshot,
    SignalLoweredAfterLook,
    OtherWorkersNotWoken,
    GivenUpWaitCounted,
    EvictionBesidePruning,
    CommittingTakenForActive,
    StaleNameNotLookedUpAgain,
    NewerVersionWrittenOver,
    SplitUnnoticedByReaders,
    RemovalUnnoticedByReaders,
    OptimisticReadNotValidated,
    FreedOneEpochEarly,
    FreedAheadOfHorizon,
    BeginNotPublished,
    YoungerReadersNotListed,
    ReadersAfterListsIgnored,
    MergeUnnoticedByReaders,
    CertifiedBeforeDraw,
    CertifiedBesideCommitting,
    AbsenceNotNoted,
    RefusedInsertNotNoted,
    UnseenNotCertified,
    RangeTrimmedShort,
    UndoneWriteNotNoted,
    GracePeriodSkipped,
    MissingEntryNotBuried,
    UsableBeforeBuilt,
    UnbuiltTakenForReady,
    DroppedTableFreedEarly,
    ExtensionNotCertified,
    #[cfg(feature = "experiment")]
    ReadersNotAwaited,
    VersionNotDurable,
    CheckpointBeforeTablesListed,
    CheckpointAheadOfLog,
    DeletionByKeyNotReplayed,
    PartsAppliedWithoutCommit,
    PlaceBeforeImage,
    PageLeavesThoughChanged,
    PageNotCheckedAfterFault,
    LoadWaitersNotWoken,
    BulkNotCertified,
    OldBulkMarksLeft,
    ParentNotDirtyAfterSplit,
    EmptiedLeafTakenForEmpty,
    RoomForUndoNotKept,
    PlaceOfCheckpointReused,
    ZoneNotSynced,
    UnsettledImageListed,
    UndecidedSlotListed,
    ListingEndsEarly,
    OrphanDropped,
    DirtyPagesNotFollowed,
    DeferredWorkNotRetried,
    PausedWorkerNotWoken,
    FedAheadOfDurable,
    FreedHeldSegment,
    // Found by models.
    #[cfg(test)]
    ChainLookedUpAfterValidation,
    ValidatedWithoutFence,
    CommitLsnClearedEarly,
    GuestPlacesVisitedEarly,
    OrphanAfterPlace,
    ChangeFreedAtOnce,
    ChangePushedWithoutLatch,
    ChangeTakenOutWithoutLatch,
    CollectorRetiresAllItCuts,
    ChainFreedWithItsEntry,
    PrunedChangeRetiredEarly,
}

#[cfg(braid_simulation)]
impl Bug {
    /// Bugs in durability, which simulated crashes find.
    pub const DURABILITY: [Self; 10] = [
        Self::SkippedSync,
        Self::EarlyAcknowledgement,
        Self::ReadAheadOfDurable,
        Self::LostWakeUp,
        Self::WrongTail,
        Self::StaleAddress,
        Self::CheckpointRace,
        Self::FreedLiveSegment,
        Self::FreedSegmentLeft,
        Self::FreedSegmentOfSnapshot,
    ];

    /// Bugs in the recovery of paged tables.
    pub const PAGES: [Self; 10] = [
        Self::VersionNotDurable,
        Self::CheckpointBeforeTablesListed,
        Self::CheckpointAheadOfLog,
        Self::DeletionByKeyNotReplayed,
        Self::PartsAppliedWithoutCommit,
        Self::PlaceOfCheckpointReused,
        Self::ZoneNotSynced,
        Self::UnsettledImageListed,
        Self::UndecidedSlotListed,
        Self::ListingEndsEarly,
    ];

    /// Bugs that return results other than values before what they depend on is durable; simulated
    /// crashes find them too.
    pub const ANSWERS: [Self; 5] = [
        Self::TombstoneNotNoted,
        Self::RefusalNotNoted,
        Self::ReclaimedBeforeDurable,
        Self::ErrorBeforeDurable,
        Self::StepBeforeDurable,
    ];

    /// Bugs in eviction and loading of pages; schedules of several workers find them.
    pub const PAGING: [Self; 8] = [
        Self::PlaceBeforeImage,
        Self::PageLeavesThoughChanged,
        Self::PageNotCheckedAfterFault,
        Self::LoadWaitersNotWoken,
        Self::ParentNotDirtyAfterSplit,
        Self::EmptiedLeafTakenForEmpty,
        Self::RoomForUndoNotKept,
        Self::OrphanDropped,
    ];

    /// Bugs that affect only serializable transactions.
    pub const CERTIFICATION: [Self; 9] = [
        Self::CertifiedBeforeDraw,
        Self::CertifiedBesideCommitting,
        Self::AbsenceNotNoted,
        Self::RefusedInsertNotNoted,
        Self::UnseenNotCertified,
        Self::RangeTrimmedShort,
        Self::UndoneWriteNotNoted,
        Self::ExtensionNotCertified,
        Self::ReadersNotAwaited,
    ];

    /// Bugs in creation and dropping of secondary indexes.
    pub const INDEXES: [Self; 5] = [
        Self::GracePeriodSkipped,
        Self::MissingEntryNotBuried,
        Self::UsableBeforeBuilt,
        Self::UnbuiltTakenForReady,
        Self::DroppedTableFreedEarly,
    ];

    /// Bugs in change feeds.
    pub const FEEDS: [Self; 2] = [Self::FedAheadOfDurable, Self::FreedHeldSegment];

    /// Bugs in bulk operations; schedules of several workers find them.
    pub const BULK: [Self; 2] = [Self::BulkNotCertified, Self::OldBulkMarksLeft];

    /// Bugs in concurrency; schedules of several workers find them.
    pub const CONCURRENCY: [Self; 16] = [
        Self::SignalLoweredAfterLook,
        Self::OtherWorkersNotWoken,
        Self::GivenUpWaitCounted,
        Self::EvictionBesidePruning,
        Self::CommittingTakenForActive,
        Self::StaleNameNotLookedUpAgain,
        Self::NewerVersionWrittenOver,
        Self::SplitUnnoticedByReaders,
        Self::RemovalUnnoticedByReaders,
        Self::OptimisticReadNotValidated,
        Self::FreedOneEpochEarly,
        Self::FreedAheadOfHorizon,
        Self::BeginNotPublished,
        Self::YoungerReadersNotListed,
        Self::ReadersAfterListsIgnored,
        Self::MergeUnnoticedByReaders,
    ];
}

#[cfg(all(braid_simulation, not(loom)))]
static PLANTED: AtomicUsize = AtomicUsize::new(0);

/// Plants a bug in this process, or none.
#[cfg(all(braid_simulation, not(loom)))]
pub fn plant(bug: Option<Bug>) {
    // Relaxed: planted before the code that it breaks runs.
    PLANTED.store(bug.map_or(0, |bug| bug as usize), Ordering::Relaxed);
}

/// Runs a test with the bug planted and then without it, and returns both results. A planted bug
/// affects the whole process, so other such tests wait.
#[cfg(all(test, braid_simulation, not(loom)))]
pub(crate) fn with_and_without<R>(bug: Bug, test: impl Fn() -> R) -> (R, R) {
    static TURN: crate::sync::Mutex<()> = crate::sync::Mutex::new(());
    let _turn = TURN.lock();
    plant(Some(bug));
    let with = test();
    plant(None);
    (with, test())
}

/// Returns whether a bug is planted.
#[inline(always)]
pub(crate) fn is_planted(bug: Bug) -> bool {
    #[cfg(all(braid_simulation, not(loom)))]
    // Relaxed: see `plant`.
    return PLANTED.load(Ordering::Relaxed) == bug as usize;
    #[cfg(loom)]
    return modelled::planted() == bug as usize;
    #[cfg(not(any(braid_simulation, loom)))]
    {
        _ = bug;
        false
    }
}

/// In models a bug is planted for a whole process, through its environment, because a failing model
/// may abort the process.
#[cfg(loom)]
mod modelled {
    use crate::sync::OnceLock;

    /// Environment variable with the number of the planted bug.
    pub(crate) const VARIABLE: &str = "BRAID_PLANTED";

    pub(crate) fn planted() -> usize {
        static PLANTED: OnceLock<usize> = OnceLock::new();
        *PLANTED.get_or_init(|| {
            std::env::var(VARIABLE).map_or(0, |number| number.parse().expect("a bug's number"))
        })
    }
}

#[cfg(all(test, loom))]
pub(crate) use modelled::VARIABLE;
