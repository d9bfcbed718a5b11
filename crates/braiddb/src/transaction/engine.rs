//! What the workers of one database share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::budget::Budget;
use super::bulk::BulkSweeps;
use super::checkpoints::Checkpoints;
use super::clear::Removals;
use super::counters::WorkerCounters;
use super::error::OperationError;
use super::evict::LOOK_BYTES;
use super::expiry::{SteadyClock, WallClock};
use super::fault::PlantedPanic;
use super::garbage::GarbageList;
#[cfg(feature = "experiment")]
use super::isolation::Certifier;
use super::isolation::Isolation;
use super::page_share::{SHRINK, Use};
use super::recent_commits::{RecentChange, RecentCommits};
#[cfg(feature = "experiment")]
use super::safety_net::SafetyNet;
use super::starvation_guard::Turnstile;
use super::sweep::Sweeps;
use super::tables::Tables;
use crate::log::{ColdStore, Log, LogWatch, WaitingWorkers, WeakLogFiles};
use crate::memory::{Kind, MemoryCounters};
use crate::page::{PageError, PageSpace, PageStats, PagedTable, Shrunk, has_zones};
use crate::reclaim::Domain;
use crate::record::Records;
use crate::rid::TableId;
use crate::sched::{Failure, Job};
use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::{Mutex, OnceLock, RwLock};
use crate::version::{Horizon, Readers, StatusTable};

/// Pages of paged tables in memory, at most: address space is reserved for them, memory is taken as they
/// are used.
const FRAMES: u32 = if cfg!(any(test, braid_simulation)) { 1 << 16 } else { 1 << 24 };
/// By how many bytes less pages may take at a time: who needs a frame meanwhile gives as much back first.
const MAX_SHRINK: u64 = 256 << 10;
/// How often memory of pages is given back at one look during recovery, at most.
const MAX_SHRINKS: usize = 32;
/// What part of the budget records take that are to be replayed.
const REPLAYED_PART: u64 = 8;
/// Pages there are, at most.
const PAGES: u64 = if cfg!(any(test, braid_simulation)) { 1 << 18 } else { 1 << 32 };

/// When a transaction's result leaves the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Durability {
    /// When all that it depends on is on disk: what it wrote, what it read, and what it was told was
    /// not there. That goes for every answer: a value, an error of the transaction's own, a refusal
    /// such as [`KeyExists`](crate::Error::KeyExists), a step of an interactive transaction. If the
    /// log fails before, the log's error comes in its place. Commits share flushes.
    #[default]
    Group,
    /// As soon as its commit is decided; its log follows at once but is not waited for. A crash
    /// may lose the last moments, never the order: also moments of which somebody was told, whether
    /// by a value, an absence or an error.
    Relaxed,
    /// As soon as its commit is decided; nothing is logged, and nothing is waited for.
    Volatile,
}

/// How an engine is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineOptions {
    pub(crate) workers: usize,
    /// Transactions that a worker runs at most, and that wait on it for something outside.
    pub(crate) most_open: usize,
    pub(crate) durability: Durability,
    /// Whether all transactions are refused writes.
    pub(crate) read_only: bool,
    /// That of transactions which do not say otherwise.
    pub(crate) isolation: Isolation,
    /// How long an interactive transaction may wait for its next step.
    pub(crate) interactive_idle: Option<Duration>,
    /// How long after its beginning it may be given steps.
    pub(crate) interactive_age: Option<Duration>,
    #[cfg(feature = "experiment")]
    pub(crate) certifier: Certifier,
    /// Bytes that tables, indexes and the log's ring may take together.
    pub(crate) memory_budget: Option<u64>,
    /// Pages of paged tables that may be in memory; none if the memory budget says how many.
    pub(crate) page_frames: Option<u32>,
    /// Bytes of a page of paged tables, of a database in memory only.
    pub(crate) page_bytes: usize,
    /// Bytes of versions that a transaction may have of paged tables.
    pub(crate) version_bytes: Option<u64>,
    /// Transfers of a worker beyond which a transaction that needs storage fails, if one is to.
    pub(crate) shed_beyond: Option<usize>,
    /// Bytes of log after which a checkpoint is written.
    pub(crate) checkpoint_bytes: u64,
    /// Makes the task that writes it.
    pub(crate) checkpoint_job: fn() -> Job,
    /// Estimates the bytes of its file.
    pub(crate) estimate_checkpoint_file: fn(&Engine) -> u64,
}

/// Shared state of a database's workers.
///
/// Invariant: a table lives as long as the engine, or as the transaction that creates it in vain.
pub(crate) struct Engine {
    pub(crate) log: Log,
    pub(crate) status: StatusTable,
    pub(crate) horizon: Horizon,
    pub(super) readers: Readers,
    pub(crate) checkpoints: Arc<Checkpoints>,
    /// The clock by which records expire.
    pub(super) steady_clock: SteadyClock,
    /// When what has expired is swept.
    pub(crate) sweeps: Sweeps,
    pub(super) checkpoint_job: fn() -> Job,
    estimate_checkpoint_file: fn(&Self) -> u64,
    pub(crate) domain: Arc<Domain>,
    pub(crate) memory: Arc<MemoryCounters>,
    pub(crate) durability: Durability,
    /// Whether the database was opened to be only read: then nothing of it is changed, in memory neither.
    pub(crate) read_only: bool,
    pub(crate) isolation: Isolation,
    pub(crate) interactive_idle: Option<Duration>,
    pub(crate) interactive_age: Option<Duration>,
    /// Whether the engine has panicked; then nothing is acknowledged any more.
    pub(crate) failure: Arc<Failure>,
    /// Nothing, but in the engine's own tests.
    pub(crate) planted_panic: PlantedPanic,
    pub(crate) counters: Box<[CachePadded<WorkerCounters>]>,
    /// Where records that are not in memory are read.
    store: Option<ColdStore>,
    budget: Option<Arc<Budget>>,
    /// See [`EngineOptions`].
    pub(super) shed_beyond: Option<usize>,
    tables: Tables,
    /// Held shared by blocking calls that use the log's files.
    files_usable: RwLock<bool>,
    /// Garbage of workers that have stopped, and changes that were not taken back.
    leftovers: Mutex<Vec<(GarbageList, VecDeque<RecentChange>)>>,
    /// Workers that have no task left and will get none.
    drained: AtomicU32,
    pub(super) waiting: WaitingWorkers,
    /// Who follows the log, outside of the workers.
    pub(crate) watch: Arc<LogWatch>,
    pub(super) turnstile: CachePadded<Turnstile>,
    /// What certifies, if not read validation.
    #[cfg(feature = "experiment")]
    pub(super) safety_net: Option<SafetyNet>,
    /// Snapshots that are open.
    snapshots: AtomicU32,
    /// What each worker's transactions committed lately to paged tables.
    pub(super) recent: Box<[CachePadded<RecentCommits>]>,
    /// Dropped tables whose records are being deleted.
    pub(crate) removals: Removals,
    /// Tables with marks of bulk operations that are to be swept.
    pub(super) bulk_sweeps: BulkSweeps,
    /// Bytes of versions that a transaction may have of paged tables.
    pub(super) version_bytes: Option<u64>,
    /// Pages of paged tables that may be in memory, if others can be on disk; none if the budget says how many.
    page_frames: Option<u32>,
    /// Bytes of a page, of a database in memory only.
    page_bytes: usize,
    /// The pages of paged tables, once there is one.
    pages: OnceLock<Arc<PageSpace>>,
}

impl Engine {
    /// An engine without tables. `store` is the log that was opened, even where `log` is only a
    /// clock.
    pub(crate) fn new(
        options: &EngineOptions,
        log: Log,
        store: Option<ColdStore>,
        domain: Arc<Domain>,
        memory: Arc<MemoryCounters>,
    ) -> Self {
        let EngineOptions { workers, most_open, durability, memory_budget, .. } = *options;
        let ring_bytes = log.ring_bytes();
        Self {
            log,
            store,
            budget: memory_budget.map(|bytes| Arc::new(Budget::new(bytes, ring_bytes))),
            shed_beyond: options.shed_beyond,
            status: StatusTable::new(workers, 2 * most_open),
            horizon: Horizon::new(workers),
            readers: Readers::new(workers),
            checkpoints: Arc::new(Checkpoints::new(options.checkpoint_bytes)),
            steady_clock: SteadyClock::default(),
            sweeps: Sweeps::default(),
            checkpoint_job: options.checkpoint_job,
            estimate_checkpoint_file: options.estimate_checkpoint_file,
            domain,
            memory,
            durability,
            read_only: options.read_only,
            isolation: options.isolation,
            interactive_idle: options.interactive_idle,
            interactive_age: options.interactive_age,
            failure: Arc::default(),
            planted_panic: PlantedPanic::default(),
            counters: (0..workers).map(|_| CachePadded::default()).collect(),
            tables: Tables::new(),
            files_usable: RwLock::new(true),
            leftovers: Mutex::default(),
            drained: AtomicU32::new(0),
            waiting: WaitingWorkers::new(workers),
            watch: Arc::default(),
            turnstile: CachePadded::default(),
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

    /// The engine with another clock by which records expire.
    pub(crate) fn with_wall_clock(mut self, clock: WallClock) -> Self {
        self.steady_clock = SteadyClock::new(clock);
        self
    }

    pub(crate) fn workers(&self) -> usize {
        self.waiting.workers()
    }

    /// The table with this id, made if it is not there yet.
    pub(crate) fn table(&self, id: TableId) -> Arc<Records> {
        let make = || {
            let evicts = self.budget.is_some();
            let table = Records::new(id, self.memory.clone(), self.store.clone(), evicts);
            #[cfg(feature = "experiment")]
            if self.safety_net.is_some() {
                return table.with_access_stamps();
            }
            table
        };
        self.tables.get_or_make(id, make)
    }

    /// Lists a new table whose records are on these pages.
    pub(super) fn add_paged_table(&self, id: TableId, pages: PagedTable) -> Arc<Records> {
        let make = || Records::new(id, self.memory.clone(), None, false).on_pages(pages);
        self.tables.get_or_make(id, make)
    }

    /// Counts a snapshot until what is returned is dropped.
    pub(crate) fn count_snapshot(self: &Arc<Self>) -> OpenSnapshot {
        // Relaxed: nothing is read under it; who looks too early waits for a snapshot, or does not.
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        OpenSnapshot(self.clone())
    }

    /// Whether there are snapshots, which may be held for any time.
    pub(crate) fn snapshots_open(&self) -> bool {
        // Relaxed: as above.
        self.snapshots.load(Ordering::Relaxed) > 0
    }

    /// Whether tables may have their records on pages: the safety net has no access stamps of them.
    pub(crate) fn may_have_pages(&self) -> bool {
        !self.certifies_by_safety_net()
    }

    /// A table of records on pages that has none and is not listed.
    ///
    /// # Errors
    /// When there are no pages for it.
    pub(crate) async fn empty_pages(&self, id: TableId) -> Result<PagedTable, PageError> {
        PagedTable::create(self.page_space()?.clone(), id, self.memory.clone()).await
    }

    /// Lists a table whose records are on these pages, after recovery, and before anybody uses it.
    pub(crate) fn list_recovered(&self, id: TableId, pages: PagedTable) {
        let records = pages.stored().records;
        let table = Records::new(id, self.memory.clone(), None, false).on_pages(pages);
        // Nothing that is on the pages is undecided.
        table.count().add(0, records.try_into().unwrap_or(i64::MAX));
        self.tables.replace(Arc::new(table));
    }

    /// Lets records of paged tables be logged.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn allow_paged(&self) -> Result<(), OperationError> {
        match self.log.files() {
            Some(files) => files.allow_paged().map_err(OperationError::storage),
            None => Ok(()),
        }
    }

    /// The pages of paged tables, made if there was no such table yet.
    ///
    /// # Errors
    /// When there is no memory for them; the operating system's.
    pub(crate) fn page_space(&self) -> Result<&Arc<PageSpace>, PageError> {
        if let Some(pages) = self.pages.get() {
            return Ok(pages);
        }
        let files = self.store.as_ref().map(|store| store.files());
        // Without files all pages stay in memory.
        let files =
            files.filter(|files| !self.read_only || has_scratch(files) || are_zones_in(files));
        let page_bytes = self.store.as_ref().map_or(self.page_bytes, ColdStore::page_bytes);
        let frames = self.page_frames.filter(|_| files.is_some()).unwrap_or(FRAMES);
        let new = PageSpace::new(page_bytes, frames, PAGES, files)?;
        if self.shares_with(&new) {
            self.share_with_pages(&new);
        }
        Ok(self.pages.get_or_init(|| new))
    }

    /// Whether the memory budget says how many pages may be in memory.
    fn shares_with(&self, pages: &PageSpace) -> bool {
        pages.may_leave() && self.budget.is_some() && self.page_frames.is_none()
    }

    /// The pages of paged tables, if there are some, and the memory budget says how many may be in memory.
    pub(super) fn shared_pages(&self) -> Option<&Arc<PageSpace>> {
        self.pages.get().filter(|pages| self.shares_with(pages))
    }

    /// Says how many bytes pages may take: of what the budget leaves them beside what is in use otherwise, or what is
    /// their share, if that is more.
    pub(super) fn share_with_pages(&self, pages: &PageSpace) {
        let Some(budget) = &self.budget else { return };
        let (in_use, versions) = (self.memory.in_use(), self.memory.bytes(Kind::Version));
        let fixed = self.memory.array_bytes() + self.log.ring_bytes() + pages.fixed_bytes();
        let room = budget.bytes().saturating_sub(fixed);
        let taken = pages.memory_bytes();
        let wanted = pages.take_wanted() * PageSpace::frame_bytes(pages.page_bytes());
        let cost = budget.cost(self.beside_the_allocator());
        // What workers allocate between two looks, and again until that is evicted.
        let lag = (2 * self.workers() as u64 * LOOK_BYTES).min(room / 4);
        let slack = (room / 16).max(lag);
        let used = Use { room, slack, in_use, versions, cost, pages: taken, wanted };
        let limit = budget.pages().limit(&used);
        pages.set_memory_limit(limit.max(taken.saturating_sub(MAX_SHRINK)));
    }

    /// Sees to it that pages take as much memory as they may, while the database is recovered and no worker does. To be called
    /// now and then.
    pub(crate) fn share_with_recovered_pages(&self) {
        let Some(pages) = self.shared_pages() else { return };
        self.share_with_pages(pages);
        // Off the workers a write is over when it has been begun. What others use meanwhile may stay until the next look.
        for _ in 0..MAX_SHRINKS {
            if pages.shrink(SHRINK, true) != Shrunk::Some {
                break;
            }
        }
    }

    /// Bytes that records may take which are to be replayed; none without a budget.
    pub(crate) fn room_to_replay(&self) -> Option<u64> {
        self.budget.as_ref().map(|budget| budget.records() / REPLAYED_PART)
    }

    /// Counts bytes of records that were read from the log again.
    pub(super) fn note_brought_back(&self, bytes: usize) {
        if self.shared_pages().is_some()
            && let Some(budget) = &self.budget
        {
            budget.pages().note_brought_back(bytes as u64);
        }
    }

    /// How full the pages of paged tables are, and what was done with them.
    pub(crate) fn page_stats(&self) -> PageStats {
        self.pages.get().map(|pages| pages.stats()).unwrap_or_default()
    }

    /// The pages of paged tables, once there is one.
    pub(crate) fn pages(&self) -> Option<&Arc<PageSpace>> {
        self.pages.get()
    }

    /// Bytes that zones grow by, at most, for the images of the next checkpoint; and for those of the one after it. So many bytes of
    /// pages may come to be before.
    pub(crate) fn images_of_checkpoints(&self, more: u64) -> [u64; 2] {
        self.pages.get().map_or([0; 2], |pages| pages.images_of_checkpoints(more))
    }

    /// Bytes of the files that pages are in, about.
    pub(crate) fn zone_file_bytes(&self) -> u64 {
        self.pages.get().map_or(0, |pages| pages.zone_file_bytes())
    }

    /// Bytes that the pages of paged tables take in memory.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.pages.get().map_or(0, |pages| pages.memory_bytes() + pages.fixed_bytes())
    }

    /// Bytes that tables' arrays, pages and the log's ring take.
    fn beside_the_allocator(&self) -> u64 {
        self.memory.array_bytes() + self.page_bytes() + self.log.ring_bytes()
    }

    /// Of `in_use` bytes, those above what eviction aims at; 0 without a budget.
    pub(super) fn excess_memory(&self, in_use: u64) -> u64 {
        let Some(budget) = &self.budget else { return 0 };
        budget.excess(in_use, self.beside_the_allocator())
    }

    /// Whether more memory was in use than may be when a worker last looked.
    pub(super) fn memory_is_short(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.is_short())
    }

    /// Notes what a worker saw.
    pub(super) fn note_memory_is_short(&self, short: bool) {
        let Some(budget) = &self.budget else { return };
        if budget.is_short() == short {
            return;
        }
        budget.note_short(short);
        if !short {
            // Another worker may have noted the opposite, later seen and yet overwritten just now.
            fence(Ordering::SeqCst);
            budget.note_short(self.excess_memory(self.memory.in_use()) > 0);
        }
    }

    /// Counts versions that were evicted.
    pub(super) fn note_evicted(&self, bytes: u64) {
        if let Some(budget) = &self.budget
            && budget.note_evicted(bytes)
        {
            budget.look(self.beside_the_allocator(), self.memory.taken());
        }
    }

    /// Bytes that tables, indexes and the log's ring may take together, if that is bounded.
    pub(crate) fn memory_budget(&self) -> Option<u64> {
        self.budget.as_ref().map(|budget| budget.bytes())
    }

    pub(super) fn budget(&self) -> Option<&Arc<Budget>> {
        self.budget.as_ref()
    }

    /// Whether a value that was read from the log is to stay in memory: a very large one would take too
    /// much of it from others.
    pub(super) fn caches(&self, value_bytes: usize) -> bool {
        self.budget.as_ref().is_none_or(|budget| value_bytes as u64 <= budget.largest_cached())
    }

    /// Bytes that a worker reads from the log at a time.
    pub(super) fn most_read_bytes(&self) -> u64 {
        const UNBOUNDED: u64 = 64 << 20;
        let workers = self.workers() as u64;
        self.budget.as_ref().map_or(UNBOUNDED, |budget| budget.most_read_bytes() / workers)
    }

    /// Whether a table is one of this engine's.
    pub(crate) fn owns(&self, table: &Records) -> bool {
        std::ptr::eq(table.memory(), &*self.memory)
    }

    /// A table id that no table has.
    pub(super) fn take_table_id(&self) -> TableId {
        self.tables.take_id()
    }

    /// Takes such an id back, with the table that was made for it.
    pub(super) fn give_table_id_back(&self, id: TableId) -> Option<Arc<Records>> {
        self.tables.give_back(id)
    }

    /// Makes sure that ids up to `id` count as taken; for recovery.
    pub(crate) fn raise_table_id(&self, id: TableId) {
        self.tables.raise(id);
    }

    /// The least id that no table has had.
    pub(crate) fn next_table_id(&self) -> TableId {
        self.tables.next_id()
    }

    /// What eviction is to look at next: see [`Tables::next_stride`].
    pub(super) fn next_stride(&self, most: u64) -> Option<(Arc<Records>, u64)> {
        self.tables.next_stride(most)
    }

    /// Entries of all tables.
    pub(super) fn entries(&self) -> u64 {
        self.memory.array_bytes() / size_of::<u64>() as u64
    }

    /// Every table there is, in the order of their ids.
    pub(crate) fn tables(&self) -> Vec<Arc<Records>> {
        self.tables.all()
    }

    /// Lets blocking calls use the log's files until the result is dropped; `None` once they are
    /// released.
    pub(crate) fn use_files(&self) -> Option<impl Drop + '_> {
        let usable = self.files_usable.read();
        usable.then_some(usable)
    }

    /// When no worker is left: gives up the log's files and the directory, as soon as nobody uses them.
    pub(crate) fn release_files(&self) {
        let mut usable = self.files_usable.write();
        if std::mem::replace(&mut usable, false) {
            self.pages.get().into_iter().for_each(|pages| pages.remove_zones());
            self.log.release(self.failure.message().is_none());
        }
    }

    /// Reports to the log what the next checkpoints will take, so that the disk has room for them.
    pub(crate) fn expect_checkpoint(&self) {
        let file = (self.estimate_checkpoint_file)(self);
        let has_pages = self.tables().iter().any(|table| table.paged().is_some());
        let [images, images_after] = match has_pages {
            // With the pages that come to be until this is called again: at least half full of what is logged.
            true => self.images_of_checkpoints(2 * self.log.bytes_before_next_extension()),
            false => [0; 2],
        };
        // The newest one's file is removed before the one after the next is written.
        let after = file.saturating_sub(self.checkpoints.newest_bytes()) + images_after;
        self.log.expect_checkpoints(file + images, after);
    }

    /// Notes that a worker has nothing left to do; whether it is the last.
    pub(super) fn drained(&self) -> bool {
        // AcqRel: the last one sees what all others logged.
        self.drained.fetch_add(1, Ordering::AcqRel) as usize + 1 == self.workers()
    }

    /// Takes over the garbage of a worker that stops.
    pub(super) fn leave(&self, garbage: GarbageList, aborted: VecDeque<RecentChange>) {
        self.leftovers.lock().push((garbage, aborted));
    }
}

/// Whether a checkpoint may lead to zones in a database's directory.
fn are_zones_in(files: &WeakLogFiles) -> bool {
    files.get().is_some_and(|files| has_zones(&files).unwrap_or(true))
}

/// Whether pages of a database that is only read have somewhere to go.
fn has_scratch(files: &WeakLogFiles) -> bool {
    match files.get().map(|files| files.open_scratch()) {
        Some(Ok(_)) => true,
        Some(Err(error)) => {
            tracing::warn!("all pages of paged tables stay in memory: {error}");
            false
        }
        None => false,
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Workers hold the engine, so all have stopped: nothing refers to what they retired, which goes
        // before the tables it leads to.
        self.domain.drain();
        for recent in &mut self.recent {
            // SAFETY: no worker is left, and what was retired is freed.
            unsafe { recent.free_leftovers(&self.memory) };
        }
        for (mut garbage, aborted) in self.leftovers.get_mut().drain(..) {
            // SAFETY: no worker is left, so no transaction is or will be.
            unsafe { garbage.free_leftovers(&self.memory) };
            for one in aborted {
                // SAFETY: stamped by its transaction, and freed here only.
                unsafe { one.change.free_aborted_at_end(&self.status, &self.memory) };
            }
        }
    }
}

/// A snapshot, counted as long as it is open.
pub(crate) struct OpenSnapshot(Arc<Engine>);

impl Drop for OpenSnapshot {
    fn drop(&mut self) {
        // Relaxed: see `count_snapshot`.
        self.0.snapshots.fetch_sub(1, Ordering::Relaxed);
    }
}
