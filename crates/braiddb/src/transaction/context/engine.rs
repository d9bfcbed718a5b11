//! Engine: the state that the workers of one database share.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::counters::{Removals, WorkerCounters};
use super::durability_level::Durability;
use super::error::OperationError;
#[cfg(feature = "experiment")]
use super::isolation::Certifier;
use super::isolation::Isolation;
#[cfg(feature = "experiment")]
use super::safety_net::SafetyNet;
use super::starvation_guard::StarvationGuard;
use super::tables::Tables;
use super::wall_clock::{SteadyClock, WallClock};
use super::{fault::PlantedPanic, guest_places::status_rows, write_restriction::WriteRestriction};
use crate::log::{ColdStore, Log, LogWatch, WaitingWorkers, WeakLogFiles};
use crate::memory::{MemoryCounters, MemoryKind};
use crate::page::{PageError, PageSpace, PageSpaceStats, PagedTable, ShrinkResult, has_zones};
use crate::reclaim::{Domain, MAX_GUESTS};
use crate::record::Records;
use crate::rid::TableId;
use crate::sched::{Failure, Job};
use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{Mutex, OnceLock, RwLock};
use crate::transaction::memory::budget::Budget;
use crate::transaction::memory::garbage::GarbageList;
use crate::transaction::memory::memory_watch::BYTES_PER_CHECK;
use crate::transaction::memory::page_share::{MAX_SHRINK_FRAMES, MemoryUse};
use crate::transaction::memory::recent_commits::{RecentChange, RecentCommits};
use crate::transaction::schedule::checkpoints::Checkpoints;
use crate::transaction::schedule::disk_reserve::DiskRoom;
use crate::transaction::schedule::marked_tables::BulkSweeps;
use crate::transaction::schedule::sweep_schedule::Sweeps;
use crate::version::{Horizon, Readers, StatusTable};

/// Maximum number of resident pages. Address space is reserved for all of them; memory is allocated
/// on use.
const MAX_FRAMES: u32 = if cfg!(any(test, braid_simulation)) { 1 << 16 } else { 1 << 24 };
/// Maximum decrease of the page limit per step. An allocation that needs a frame must first free as
/// much.
const MAX_SHRINK_STEP_BYTES: u64 = 256 << 10;
/// Maximum number of page limit decreases per call during recovery.
const MAX_SHRINK_STEPS: usize = 32;
/// Divisor: the fraction of the budget for records queued for replay.
const REPLAY_BUDGET_DIVISOR: u64 = 8;
/// Maximum number of pages.
const MAX_PAGES: u64 = if cfg!(any(test, braid_simulation)) { 1 << 18 } else { 1 << 32 };

/// Engine configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineOptions {
    pub(crate) workers: usize,
    /// Maximum number of transactions that run on a worker, and of those that wait on it for
    /// something outside the engine.
    pub(crate) max_open: usize,
    pub(crate) durability: Durability,
    /// If set, all transactions are refused writes.
    pub(crate) read_only: bool,
    /// Default isolation level.
    pub(crate) isolation: Isolation,
    /// How long an interactive transaction may wait for its next step.
    pub(crate) interactive_idle: Option<Duration>,
    /// Maximum age at which an interactive transaction still accepts steps.
    pub(crate) interactive_age: Option<Duration>,
    #[cfg(feature = "experiment")]
    pub(crate) certifier: Certifier,
    /// Memory budget in bytes for tables, indexes and the log's ring.
    pub(crate) memory_budget: Option<u64>,
    /// Maximum number of resident pages; `None` if the memory budget determines it.
    pub(crate) page_frames: Option<u32>,
    /// Page size in bytes, for an in-memory database only.
    pub(crate) page_bytes: usize,
    /// Maximum bytes of versions per transaction on paged tables.
    pub(crate) version_bytes: Option<u64>,
    /// Maximum number of a worker's pending transfers before a transaction that needs storage
    /// fails.
    pub(crate) shed_beyond: Option<usize>,
    /// Checkpoint interval in bytes of log.
    pub(crate) checkpoint_bytes: u64,
    pub(crate) housekeeping: &'static dyn Housekeeping,
}

/// Work for the engine that needs code of the layers above.
pub(crate) trait Housekeeping: std::fmt::Debug + Sync {
    /// Creates the task that writes a checkpoint.
    fn checkpoint_job(&self) -> Job;

    /// Estimates the size of a checkpoint's file in bytes.
    fn estimate_checkpoint_file(&self, engine: &Engine) -> u64;

    /// Returns the id of the table or index that a catalog row defines.
    fn table_id_of(&self, key: &[u8], value: &[u8]) -> Option<TableId>;
}

/// Shared state of a database's workers.
///
/// Invariant: a table lives as long as the engine, unless it was never committed or is dropped
/// (`tables.rs`).
pub(crate) struct Engine {
    pub(crate) log: Log,
    pub(crate) status: StatusTable,
    pub(crate) horizon: Horizon,
    pub(in crate::transaction) readers: Readers,
    pub(crate) checkpoints: Arc<Checkpoints>,
    /// The clock that decides when records expire.
    pub(in crate::transaction) steady_clock: SteadyClock,
    /// Schedule of sweeps of expired records.
    pub(crate) sweeps: Sweeps,
    pub(crate) housekeeping: &'static dyn Housekeeping,
    pub(in crate::transaction) disk_room: DiskRoom,
    pub(crate) domain: Arc<Domain>,
    pub(crate) memory: Arc<MemoryCounters>,
    pub(crate) durability: Durability,
    /// Set if the database was opened read-only; then even its memory is not changed.
    pub(crate) read_only: bool,
    pub(crate) write_restriction: WriteRestriction,
    pub(crate) isolation: Isolation,
    pub(crate) interactive_idle: Option<Duration>,
    pub(crate) interactive_age: Option<Duration>,
    /// Set once the engine has panicked; then nothing is acknowledged any more.
    pub(crate) failure: Arc<Failure>,
    /// Empty except in the engine's own tests.
    pub(crate) planted_panic: PlantedPanic,
    /// Counters of each worker, then those of each place of a guest.
    pub(crate) counters: Box<[CachePadded<WorkerCounters>]>,
    /// Reader of records that are not resident.
    store: Option<ColdStore>,
    budget: Option<Arc<Budget>>,
    pub(in crate::transaction) shed_beyond: Option<usize>,
    pub(in crate::transaction) tables: Arc<Tables>,
    /// Held shared by blocking calls that use the log's files.
    files_usable: RwLock<bool>,
    /// Garbage and unfinished rollbacks of workers that have stopped.
    leftovers: Mutex<Vec<(GarbageList, VecDeque<RecentChange>)>>,
    /// Number of workers that have no task left and will receive none.
    drained: AtomicU32,
    pub(in crate::transaction) waiting: WaitingWorkers,
    /// Followers of the log outside the workers.
    pub(crate) watch: Arc<LogWatch>,
    pub(in crate::transaction) starvation_guard: CachePadded<StarvationGuard>,
    /// The serial safety net, if it replaces read validation.
    #[cfg(feature = "experiment")]
    pub(in crate::transaction) safety_net: Option<SafetyNet>,
    snapshots: AtomicU32,
    /// Recent commits of each worker to paged tables.
    pub(in crate::transaction) recent: Box<[CachePadded<RecentCommits>]>,
    /// Dropped tables whose records are being deleted.
    pub(crate) removals: Removals,
    /// Tables with marks of bulk operations to sweep.
    pub(in crate::transaction) bulk_sweeps: BulkSweeps,
    /// Maximum bytes of versions per transaction on paged tables.
    pub(in crate::transaction) version_bytes: Option<u64>,
    /// Maximum number of resident pages if others can be on disk; `None` if the budget determines
    /// it.
    page_frames: Option<u32>,
    /// Page size in bytes, for an in-memory database only.
    page_bytes: usize,
    /// The pages of paged tables, once such a table exists.
    pages: OnceLock<Arc<PageSpace>>,
}

impl Engine {
    /// Creates an engine without tables. `store` is the opened log, even if `log` is only a clock.
    pub(crate) fn new(
        options: &EngineOptions,
        log: Log,
        store: Option<ColdStore>,
        domain: Arc<Domain>,
        memory: Arc<MemoryCounters>,
    ) -> Self {
        let EngineOptions { workers, max_open, durability, memory_budget, read_only, .. } =
            *options;
        Self {
            budget: memory_budget.map(|bytes| Arc::new(Budget::new(bytes, log.ring_bytes()))),
            log,
            store,
            shed_beyond: options.shed_beyond,
            status: StatusTable::new(status_rows(workers, durability, read_only), 2 * max_open),
            horizon: Horizon::new(workers),
            readers: Readers::new(workers),
            checkpoints: Arc::new(Checkpoints::new(options.checkpoint_bytes)),
            steady_clock: SteadyClock::default(),
            sweeps: Sweeps::default(),
            housekeeping: options.housekeeping,
            disk_room: DiskRoom::new(durability != Durability::Volatile),
            domain,
            memory,
            durability,
            read_only,
            write_restriction: WriteRestriction::default(),
            isolation: options.isolation,
            interactive_idle: options.interactive_idle,
            interactive_age: options.interactive_age,
            failure: Arc::default(),
            planted_panic: PlantedPanic::default(),
            counters: (0..workers + MAX_GUESTS).map(|_| CachePadded::default()).collect(),
            tables: Arc::new(Tables::new()),
            files_usable: RwLock::new(true),
            leftovers: Mutex::default(),
            drained: AtomicU32::new(0),
            waiting: WaitingWorkers::new(workers),
            watch: Arc::default(),
            starvation_guard: CachePadded::default(),
            snapshots: AtomicU32::new(0),
            #[cfg(feature = "experiment")]
            safety_net: (options.certifier == Certifier::SerialSafetyNet)
                .then(|| SafetyNet::new(workers)),
            recent: (0..workers).map(|_| CachePadded::default()).collect(),
            removals: Removals::default(),
            bulk_sweeps: BulkSweeps::default(),
            version_bytes: options.version_bytes,
            page_frames: options.page_frames,
            page_bytes: options.page_bytes,
            pages: OnceLock::new(),
        }
    }

    /// Replaces the clock that decides when records expire.
    pub(crate) fn with_wall_clock(mut self, clock: WallClock) -> Self {
        self.steady_clock = SteadyClock::new(clock);
        self
    }

    pub(crate) fn workers(&self) -> usize {
        self.waiting.workers()
    }

    /// Returns the table with this id; creates it on its first use. If the table was dropped, the
    /// result is an unlisted table that no transaction may use.
    pub(crate) fn table(&self, id: TableId) -> Arc<Records> {
        self.tables.get_or_make(id, || self.new_table(id))
    }

    /// Returns the table with this id for recovery, which does not know yet which tables exist.
    pub(crate) fn recovered_table(&self, id: TableId) -> Arc<Records> {
        self.tables.recover(id, || self.new_table(id))
    }

    /// Ends the recovery of tables: only the catalog and those with these ids exist.
    pub(crate) fn end_recovery_of_tables(&self, existing: BTreeSet<u32>) {
        self.tables.end_recovery(existing);
    }

    fn new_table(&self, id: TableId) -> Records {
        let evicts = self.budget.is_some();
        let table = Records::new(id, self.memory.clone(), self.store.clone(), evicts);
        #[cfg(feature = "experiment")]
        if self.safety_net.is_some() {
            return table.with_access_stamps();
        }
        table
    }

    /// Lists a new table whose records are on these pages.
    pub(in crate::transaction) fn add_paged(&self, id: TableId, pages: PagedTable) -> Arc<Records> {
        self.tables.get_or_make(id, || Records::on_pages(id, self.memory.clone(), pages))
    }

    /// Counts a snapshot until the result is dropped.
    pub(crate) fn count_snapshot(self: &Arc<Self>) -> OpenSnapshot {
        // Relaxed: the counter guards no data. A task that checks too early waits for a snapshot,
        // or does not.
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        OpenSnapshot(self.clone())
    }

    /// Returns whether snapshots are open; these may be held for any time.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.snapshots_open() > 0
    }

    /// Returns the number of open snapshots.
    pub(crate) fn snapshots_open(&self) -> u64 {
        // Relaxed: as above.
        self.snapshots.load(Ordering::Relaxed).into()
    }

    /// Returns true if the serial safety net certifies transactions.
    pub(crate) fn certifies_by_safety_net(&self) -> bool {
        #[cfg(feature = "experiment")]
        return self.safety_net.is_some();
        #[cfg(not(feature = "experiment"))]
        false
    }

    /// Returns whether tables may be paged: the safety net has no access stamps for pages.
    pub(crate) fn may_have_pages(&self) -> bool {
        !self.certifies_by_safety_net()
    }

    /// Creates an empty, unlisted paged table.
    ///
    /// # Errors
    /// Fails if no pages can be allocated.
    pub(crate) async fn empty_pages(&self, id: TableId) -> Result<PagedTable, PageError> {
        PagedTable::create(self.page_space()?.clone(), id, self.memory.clone()).await
    }

    /// Lists a recovered paged table, before any transaction uses it.
    pub(crate) fn list_recovered(&self, id: TableId, pages: PagedTable) {
        let records = pages.stored().records;
        let table = Records::on_pages(id, self.memory.clone(), pages);
        // All changes on the pages are decided.
        table.count().add(0, records.try_into().unwrap_or(i64::MAX));
        self.tables.replace(Arc::new(table));
    }

    /// Allows records of paged tables in the log.
    ///
    /// # Errors
    /// Those of the device.
    pub(in crate::transaction) fn allow_paged(&self) -> Result<(), OperationError> {
        match self.log.files() {
            Some(files) => files.allow_paged().map_err(OperationError::storage),
            None => Ok(()),
        }
    }

    /// Returns the pages of paged tables; creates them on first use.
    ///
    /// # Errors
    /// Fails without memory; those of the operating system.
    pub(crate) fn page_space(&self) -> Result<&Arc<PageSpace>, PageError> {
        if let Some(pages) = self.pages.get() {
            return Ok(pages);
        }
        let files = self.store.as_ref().map(|store| store.files());
        // Without files, all pages stay resident.
        let files =
            files.filter(|files| !self.read_only || has_scratch(files) || are_zones_in(files));
        let page_bytes = self.store.as_ref().map_or(self.page_bytes, ColdStore::page_bytes);
        let frames = self.page_frames.filter(|_| files.is_some()).unwrap_or(MAX_FRAMES);
        let new = PageSpace::new(page_bytes, frames, MAX_PAGES, files)?;
        if self.shares_with(&new) {
            self.share_with_pages(&new);
        }
        Ok(self.pages.get_or_init(|| new))
    }

    /// Returns whether the memory budget limits the resident pages.
    fn shares_with(&self, pages: &PageSpace) -> bool {
        pages.may_leave() && self.budget.is_some() && self.page_frames.is_none()
    }

    /// The pages of paged tables, if they exist and the memory budget limits them.
    pub(in crate::transaction) fn shared_pages(&self) -> Option<&Arc<PageSpace>> {
        self.pages.get().filter(|pages| self.shares_with(pages))
    }

    /// Sets the page limit: the part of the budget that nothing else uses, or the pages' share if
    /// that is larger.
    pub(in crate::transaction) fn share_with_pages(&self, pages: &PageSpace) {
        let Some(budget) = &self.budget else { return };
        let (in_use, versions) = (self.memory.in_use(), self.memory.bytes(MemoryKind::Version));
        let fixed = self.memory.array_bytes() + self.log.ring_bytes() + pages.fixed_bytes();
        let room = budget.bytes().saturating_sub(fixed);
        let taken = pages.memory_bytes();
        let wanted = pages.take_wanted() * PageSpace::frame_bytes(pages.page_bytes());
        let cost = budget.cost(self.bytes_outside_allocator());
        // Allocations of workers between two checks, and as much again until they are evicted.
        let lag = (2 * self.workers() as u64 * BYTES_PER_CHECK).min(room / 4);
        let slack = (room / 16).max(lag);
        let used = MemoryUse { room, slack, in_use, versions, cost, pages: taken, wanted };
        let limit = budget.pages().limit(&used);
        pages.set_memory_limit(limit.max(taken.saturating_sub(MAX_SHRINK_STEP_BYTES)));
    }

    /// Adjusts the page limit during recovery, when no worker does. Must be called periodically.
    pub(crate) fn share_with_recovered_pages(&self) {
        let Some(pages) = self.shared_pages() else { return };
        self.share_with_pages(pages);
        // Outside of the workers, a write is synchronous. The next call handles memory that other
        // threads use until then.
        for _ in 0..MAX_SHRINK_STEPS {
            if pages.shrink(MAX_SHRINK_FRAMES, true) != ShrinkResult::Some {
                break;
            }
        }
    }

    /// Maximum bytes of records queued for replay; `None` without a budget.
    pub(crate) fn room_to_replay(&self) -> Option<u64> {
        self.budget.as_ref().map(|budget| budget.records() / REPLAY_BUDGET_DIVISOR)
    }

    /// Counts bytes of records that were read from the log again.
    pub(in crate::transaction) fn note_loaded(&self, bytes: usize) {
        if self.shared_pages().is_some()
            && let Some(budget) = &self.budget
        {
            budget.pages().note_loaded(bytes as u64);
        }
    }

    /// Statistics of the pages.
    pub(crate) fn page_stats(&self) -> PageSpaceStats {
        self.pages.get().map(|pages| pages.stats()).unwrap_or_default()
    }

    /// The pages of paged tables, once such a table exists.
    pub(crate) fn pages(&self) -> Option<&Arc<PageSpace>> {
        self.pages.get()
    }

    /// Approximate size of the zone files in bytes.
    pub(crate) fn zone_file_bytes(&self) -> u64 {
        self.pages.get().map_or(0, |pages| pages.zone_file_bytes())
    }

    /// Memory of the pages of paged tables in bytes.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.pages.get().map_or(0, |pages| pages.memory_bytes() + pages.fixed_bytes())
    }

    /// Memory outside the allocator in bytes: tables' arrays, pages and the log's ring.
    pub(in crate::transaction) fn bytes_outside_allocator(&self) -> u64 {
        self.memory.array_bytes() + self.page_bytes() + self.log.ring_bytes()
    }

    /// The part of `in_use` above the eviction target; 0 without a budget.
    pub(in crate::transaction) fn excess_memory(&self, in_use: u64) -> u64 {
        let Some(budget) = &self.budget else { return 0 };
        budget.excess(in_use, self.bytes_outside_allocator())
    }

    /// Returns whether memory in use exceeded the target when a worker last checked.
    pub(in crate::transaction) fn memory_is_short(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.is_short())
    }

    /// Notes whether memory is short.
    pub(in crate::transaction) fn note_memory_is_short(&self, short: bool) {
        let Some(budget) = &self.budget else { return };
        if budget.is_short() == short {
            return;
        }
        budget.note_short(short);
        if !short {
            // Another worker may have noted the opposite from a later check, and was just
            // overwritten.
            fence(Ordering::SeqCst);
            budget.note_short(self.excess_memory(self.memory.in_use()) > 0);
        }
    }

    /// Counts evicted versions.
    pub(in crate::transaction) fn note_evicted(&self, bytes: u64) {
        if let Some(budget) = &self.budget
            && budget.note_evicted(bytes)
        {
            budget.look(self.bytes_outside_allocator(), self.memory.taken());
        }
    }

    /// Memory budget in bytes for tables, indexes and the log's ring, if limited.
    pub(crate) fn memory_budget(&self) -> Option<u64> {
        self.budget.as_ref().map(|budget| budget.bytes())
    }

    pub(in crate::transaction) fn budget(&self) -> Option<&Arc<Budget>> {
        self.budget.as_ref()
    }

    /// Returns whether a value that was read from the log should stay resident. A very large one
    /// would displace too much.
    pub(in crate::transaction) fn caches(&self, value_bytes: usize) -> bool {
        self.budget.as_ref().is_none_or(|budget| value_bytes as u64 <= budget.largest_cached())
    }

    /// Maximum number of bytes that a worker reads from the log at a time.
    pub(in crate::transaction) fn max_read_bytes(&self) -> u64 {
        const DEFAULT_READ_BYTES: u64 = 64 << 20;
        let workers = self.workers() as u64;
        self.budget.as_ref().map_or(DEFAULT_READ_BYTES, |budget| budget.max_read_bytes() / workers)
    }

    /// Returns whether a table belongs to this engine.
    pub(crate) fn owns(&self, table: &Records) -> bool {
        std::ptr::eq(table.memory(), &*self.memory)
    }

    /// Allocates an unused table id.
    pub(in crate::transaction) fn take_table_id(&self) -> TableId {
        self.tables.take_id()
    }

    /// Frees such an id, and returns the table that was created for it.
    pub(in crate::transaction) fn release_table_id(&self, id: TableId) -> Option<Arc<Records>> {
        self.tables.release(id)
    }

    /// Marks ids up to `id` as used; for recovery.
    pub(crate) fn raise_table_id(&self, id: TableId) {
        self.tables.raise(id);
    }

    /// The smallest id that no table has had.
    pub(crate) fn next_table_id(&self) -> TableId {
        self.tables.next_id()
    }

    /// The next entries for eviction: see [`Tables::next_stride`].
    pub(in crate::transaction) fn next_stride(&self, most: u64) -> Option<(Arc<Records>, u64)> {
        self.tables.next_stride(most)
    }

    /// Number of indirection entries of all tables.
    pub(in crate::transaction) fn entries(&self) -> u64 {
        self.memory.array_bytes() / size_of::<u64>() as u64
    }

    /// All tables in order of their ids.
    pub(crate) fn tables(&self) -> Vec<Arc<Records>> {
        self.tables.all()
    }

    /// Lets blocking calls use the log's files until the result is dropped; `None` once they are
    /// released.
    pub(crate) fn use_files(&self) -> Option<impl Drop + '_> {
        let usable = self.files_usable.read();
        usable.then_some(usable)
    }

    /// Releases the log's files and the directory as soon as no call uses them; called after the
    /// last worker has stopped.
    pub(crate) fn release_files(&self) {
        let mut usable = self.files_usable.write();
        if std::mem::replace(&mut usable, false) {
            self.pages.get().into_iter().for_each(|pages| pages.remove_zones());
            self.log.release(self.failure.message().is_none());
        }
    }

    /// Notes that a worker has nothing left to do; returns whether it is the last.
    pub(in crate::transaction) fn drained(&self) -> bool {
        // AcqRel: the last worker sees what all others logged.
        self.drained.fetch_add(1, Ordering::AcqRel) as usize + 1 == self.workers()
    }

    /// Takes over the garbage of a stopping worker.
    pub(in crate::transaction) fn leave(
        &self,
        garbage: GarbageList,
        aborted: VecDeque<RecentChange>,
    ) {
        self.leftovers.lock().push((garbage, aborted));
    }
}

/// Returns whether a checkpoint may reference zones in a database's directory.
fn are_zones_in(files: &WeakLogFiles) -> bool {
    files.get().is_some_and(|files| has_zones(&files).unwrap_or(true))
}

/// Returns whether a read-only database has a scratch file for evicted pages.
fn has_scratch(files: &WeakLogFiles) -> bool {
    match files.get().map(|files| files.open_scratch()) {
        Some(Ok(_)) => true,
        Some(Err(error)) => {
            tracing::warn!("no scratch file, all pages stay resident: {error}");
            false
        }
        None => false,
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Workers hold the engine, so all have stopped. Nothing references what they retired, which
        // is freed before the tables it references.
        self.domain.drain();
        for recent in &mut self.recent {
            // SAFETY: no worker is left, and everything retired is freed.
            unsafe { recent.free_leftovers(&self.memory) };
        }
        for (mut garbage, aborted) in self.leftovers.get_mut().drain(..) {
            // SAFETY: no worker is left, so no transaction is active or will begin.
            unsafe { garbage.free_leftovers(&self.memory) };
            for one in aborted {
                // SAFETY: stamped by its transaction, and freed only here.
                unsafe { one.change.free_aborted_at_end(&self.status, &self.memory) };
            }
        }
    }
}

/// An open snapshot, counted until dropped.
pub(crate) struct OpenSnapshot(Arc<Engine>);

impl Drop for OpenSnapshot {
    fn drop(&mut self) {
        // Relaxed: see `count_snapshot`.
        self.0.snapshots.fetch_sub(1, Ordering::Relaxed);
    }
}
