//! One schedule: a small database with several workers, and a few clients that use all features. It
//! ends with a close. Many schedules also crash the disk and check the recovered state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow, bail, ensure};
use braiddb::simulation::{
    CrashCounts, Faults, Finding, Runner, ScheduleOptions, ScheduleReport, ScheduleResult,
    SimulatedDisk, describe_by, found_wrong, pause, spawn, switch_threads,
};
use braiddb::{
    BusyWith, Certifier, Database, Error, MemoryLimit, Options, Policy, Table, Transaction, Tuning,
    Width,
};
use fastrand::Rng;

use super::super::oracle::Oracle;
use super::super::work::{Failure, Paged, Scale, Tables, kind};
use super::clients::{Clients, Mix, NO_PANIC, pollster};
use super::feeds::{self, Feeds};
use super::histories::{self, Histories};
use super::indexed::{self, Indexed};
use super::records::{self, Records};
use crate::history::History;

/// The maximum number of steps of a schedule: far more than the longest needs. A schedule that
/// exceeds it makes no progress.
const MAX_STEPS: u64 = 10_000_000;

/// Separates the choice of options from a seed's other draws.
const OPTIONS: u64 = 0x6f70_7469_6f6e_7321;

/// The totals over schedules.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(super) struct Counts {
    pub(super) schedules: u64,
    pub(super) steps: u64,
    pub(super) switches: u64,
    pub(super) committed: u64,
    pub(super) conflicts: u64,
    pub(super) failed_certifications: u64,
    pub(super) stale_reads: u64,
    pub(super) snapshots_extended: u64,
    pub(super) evicted: u64,
    pub(super) pruned: u64,
    pub(super) freed: u64,
    pub(super) reclaimed: u64,
    pub(super) segments_freed: u64,
    pub(super) crashes: u64,
    pub(super) closed_early: u64,
    /// Crashes after which a history was recovered.
    pub(super) histories_recovered: u64,
    /// Schedules with paged tables, and their committed transactions.
    pub(super) with_paged_tables: u64,
    pub(super) committed_beside_pages: u64,
    /// Paged schedules with indexes, and with change feeds.
    pub(super) of_paged_indexes: u64,
    pub(super) of_paged_feeds: u64,
    /// Evicted pages, and pages that were loaded again.
    pub(super) pages_evicted: u64,
    pub(super) page_faults: u64,
    pub(super) inner_page_faults: u64,
    /// Committed bulk operations, and leaves that leaf cleanup inspected.
    pub(super) bulk_operations: u64,
    pub(super) bulk_leaves_swept: u64,
    /// Transactions that another worker took over from a blocked worker.
    pub(super) taken_over: u64,
    /// Transactions that change feeds returned, and slot advances.
    pub(super) followed: u64,
    pub(super) slots_advanced: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        self.switches += other.switches;
        self.committed += other.committed;
        self.conflicts += other.conflicts;
        self.failed_certifications += other.failed_certifications;
        self.stale_reads += other.stale_reads;
        self.snapshots_extended += other.snapshots_extended;
        self.evicted += other.evicted;
        self.pruned += other.pruned;
        self.freed += other.freed;
        self.reclaimed += other.reclaimed;
        self.segments_freed += other.segments_freed;
        self.crashes += other.crashes;
        self.closed_early += other.closed_early;
        self.histories_recovered += other.histories_recovered;
        self.with_paged_tables += other.with_paged_tables;
        self.committed_beside_pages += other.committed_beside_pages;
        self.of_paged_indexes += other.of_paged_indexes;
        self.of_paged_feeds += other.of_paged_feeds;
        self.pages_evicted += other.pages_evicted;
        self.page_faults += other.page_faults;
        self.inner_page_faults += other.inner_page_faults;
        self.bulk_operations += other.bulk_operations;
        self.bulk_leaves_swept += other.bulk_leaves_swept;
        self.taken_over += other.taken_over;
        self.followed += other.followed;
        self.slots_advanced += other.slots_advanced;
    }
}

/// Runs the schedule of a seed. `workers` limits the number of workers that the seed can choose.
///
/// # Errors
/// Returns the first problem found.
pub(super) fn run(
    runner: &Runner,
    seed: u64,
    workers: (usize, usize),
    trace: bool,
) -> Result<(Counts, ScheduleReport), Box<Finding>> {
    let options = ScheduleOptions { seed, max_steps: MAX_STEPS, trace };
    let body = move || {
        let ran = Schedule::draw(seed, workers).run();
        ran.unwrap_or_else(|error| found_wrong(format!("{error:#}")))
    };
    match runner.run(options, body) {
        ScheduleResult::Over(mut counts, report) => {
            (counts.schedules, counts.steps, counts.switches) = (1, report.steps, report.switches);
            Ok((counts, report))
        }
        ScheduleResult::Found(finding) => Err(finding),
    }
}

/// The choices of the seed.
struct Schedule {
    seed: u64,
    random: Rng,
    workers: usize,
    keys: u64,
    faults: Faults,
    clients: u64,
    /// The number of disk operations after which the disk crashes for a check of the recovered
    /// state.
    crash_at: Option<u64>,
    closes_early: bool,
}

/// The replies to clients about turns and histories.
#[derive(Clone, Default)]
struct Witness {
    oracle: Arc<Mutex<Oracle>>,
    history: Arc<Mutex<History>>,
    feeds: Arc<Mutex<feeds::Log>>,
    /// True if the history is complete.
    whole: bool,
}

impl Witness {
    /// Returns the number of replies so far.
    fn replies(&self) -> Replies {
        let turns = self.oracle.lock().expect(NO_PANIC).replies();
        let history = self.history.lock().expect(NO_PANIC).len();
        Replies { turns, history, feeds: self.feeds.lock().expect(NO_PANIC).len() }
    }
}

/// The number of replies at a moment.
#[derive(Clone, Copy, Debug)]
struct Replies {
    turns: usize,
    history: usize,
    feeds: usize,
}

/// The disk in the state of the crash, and the number of replies at that time.
type Crash = Arc<Mutex<Option<(SimulatedDisk, Replies)>>>;

/// Opens or creates a table of records.
fn open_records(db: &Database, name: &'static str, paged: bool) -> Result<Table<u64, u64>> {
    let open = async move |tx: &Transaction| tx.open_or_create_table_with(name, kind(paged)).await;
    db.run_blocking(open).context("tables")
}

/// Fills the table with this number of records, divided among the clients.
fn fill(db: &Database, table: Table<u64, u64>, clients: u64, count: u64) -> Result<Records> {
    let filled: Vec<u64> = (0..count).collect();
    let (of_table, keys) = (table.clone(), filled.clone());
    let fill = async move |tx: &Transaction| {
        for key in &keys {
            tx.insert(&of_table, key, key).await?;
        }
        Ok::<_, Error>(())
    };
    db.run_blocking(fill).context("filling the index")?;
    Ok(Records::new(table, clients, &filled))
}

impl Schedule {
    fn draw(seed: u64, workers: (usize, usize)) -> Self {
        let mut random = Rng::with_seed(seed);
        fastrand::seed(seed);
        let mut faults = Faults { max_delay: random.u32(0..12), ..Faults::default() };
        if random.u32(0..4) == 0 {
            faults.short_transfers = 6;
        }
        if random.u32(0..16) == 0 {
            (faults.errors, faults.failed_syncs) = (100, 100);
        }
        let crash_at = (random.u32(0..3) == 0).then(|| random.u64(20..160));
        Self {
            seed,
            workers: random.usize(workers.0..=workers.1),
            keys: random.u64(2..7),
            faults,
            clients: random.u64(2..5),
            crash_at,
            closes_early: random.u32(0..8) == 0,
            random,
        }
    }

    fn fails(&self) -> bool {
        self.faults.errors > 0
    }

    /// Returns a number that chooses options independently of random draws and of the clients'
    /// work. Each option is therefore combined with each kind of work.
    fn chosen(&self) -> u64 {
        Rng::with_seed(self.seed ^ OPTIONS).u64(..)
    }

    fn certifier(&self) -> Certifier {
        match self.chosen() % 5 {
            // The safety net has no snapshots, so no feeds that begin with a snapshot.
            0 if !Mix::is_of_feeds(self.seed) => Certifier::SerialSafetyNet,
            _ => Certifier::ReadValidation,
        }
    }

    /// Returns 0 if no table is paged, otherwise a number that selects the paged tables. The safety
    /// net does not certify reads of paged tables.
    fn paged(&self) -> u64 {
        let chosen = self.chosen();
        if matches!(chosen % 5, 1 | 2) { chosen >> 32 | 1 } else { 0 }
    }

    /// Returns the number of page frames: about one for each table, the minimum that a table needs.
    /// Tables with change feeds also need frames for large values, and tables with indexes for
    /// index entries.
    fn page_frames(&self) -> Option<u32> {
        let chosen = self.chosen() >> 8;
        let least = if Mix::has_more_tables(self.seed) { 6 } else { 3 };
        (chosen % 4 > 0).then_some(least + u32::from(chosen >> 8 & 3 == 0))
    }

    fn options(&mut self) -> Options {
        let (certifier, page_frames) = (self.certifier(), self.page_frames());
        let random = &mut self.random;
        let policies = [Policy::DualQueue, Policy::DualQueue, Policy::Batch, Policy::Pipeline];
        let segments = [16 << 10, 32 << 10, 64 << 10];
        let checkpoints = [12 << 10, 48 << 10, 1 << 30];
        // Hardly more than the log ring takes: every record is evicted as soon as possible.
        let budget = (random.u32(0..3) > 0).then_some((32 << 20) + 1);
        let room = if random.u32(0..4) == 0 { random.u64(16 << 10..48 << 10) } else { u64::MAX };
        // A slot retains the log, so the disk must be large enough.
        let room = if Mix::is_of_feeds(self.seed) { u64::MAX } else { room };
        let tuning = Tuning::default()
            .policy(policies[random.usize(0..policies.len())])
            .hot_width(Width::Fixed(random.usize(1..6)))
            .max_open(64)
            .certifier(certifier)
            .log_ring_bytes(32 << 20)
            .log_segment_bytes(segments[random.usize(0..segments.len())])
            .checkpoint_bytes(checkpoints[random.usize(0..checkpoints.len())])
            .page_frames(page_frames)
            .log_room_bytes(room);
        Options::default().workers(self.workers).memory_budget(budget).tuning(tuning)
    }

    fn scale(&self) -> Scale {
        Scale { keys: self.keys, large: (2, 0), paged: Paged::some(self.paged()) }
    }

    /// Runs the schedule on its main thread.
    fn run(mut self) -> Result<Counts> {
        let disk = SimulatedDisk::new(self.seed);
        let (mut witness, crash) = (Witness::default(), Crash::default());
        self.watch(&disk, &witness, &crash);
        disk.set_faults(Faults { errors: 0, failed_syncs: 0, ..self.faults });
        let (options, seed) = (self.options(), self.random.u64(..));
        let db = Database::open_simulated(&disk, options, seed).context("making the database")?;
        let described = db.clone();
        describe_by(move || format!("{:#?}", described.stats()));
        let mut counts = self.serve(db, &disk, &mut witness)?;
        disk.unwatch();
        disk.set_faults(Faults::default());
        counts.committed = witness.oracle.lock().expect(NO_PANIC).committed();
        if self.paged() > 0 {
            (counts.with_paged_tables, counts.committed_beside_pages) = (1, counts.committed);
        } else {
            (counts.of_paged_indexes, counts.of_paged_feeds) = (0, 0);
        }
        (counts.followed, counts.slots_advanced) = witness.feeds.lock().expect(NO_PANIC).counts();
        let crash = crash.lock().expect(NO_PANIC).take();
        if let Some((disk, replies)) = crash {
            counts.crashes += 1;
            counts.histories_recovered +=
                self.recover(&disk, &witness, replies).context("after the crash")?;
        } else if self.random.u32(0..8) == 0 {
            self.recover(&disk, &witness, witness.replies()).context("opened again")?;
        }
        Ok(counts)
    }

    fn watch(&mut self, disk: &SimulatedDisk, witness: &Witness, crash: &Crash) {
        let Some(crash_at) = self.crash_at else { return };
        let (witness, crash, seed) = (witness.clone(), crash.clone(), self.random.u64(..));
        disk.watch(move |moment| {
            if moment.operation() == crash_at {
                let replies = witness.replies();
                let disk = moment.crash(seed, &mut CrashCounts::default());
                *crash.lock().expect(NO_PANIC) = Some((disk, replies));
            }
        });
    }

    /// Runs the clients, checks the final state, and closes the database.
    fn serve(
        &mut self,
        db: Database,
        disk: &SimulatedDisk,
        witness: &mut Witness,
    ) -> Result<Counts> {
        let (certifier, paged) = (self.certifier(), self.paged() > 0);
        let (scale, disk_fails, random) = (self.scale(), self.fails(), &mut self.random);
        let tables =
            db.run_blocking(async move |tx| Tables::open(tx, scale).await).context("tables")?;
        let table = open_records(&db, "records", paged)?;
        let mix = Mix::draw(self.seed, random);
        let is_indexed = mix == Mix::History && random.bool();
        let name = if mix == Mix::History { histories::NAME } else { "records" };
        let noted = open_records(&db, name, paged)?;
        let index = is_indexed
            .then(|| pollster(histories::open_index(&db, &noted)))
            .transpose()
            .context("the index of a history")?;
        let indexed = pollster(Indexed::open(&db, paged)).context("tables")?;
        // Enough records for several leaves of the index, or none.
        let filled = if mix == Mix::Records || random.bool() {
            random.u64(5..records::MAX_FILLED)
        } else {
            0
        };
        let records = fill(&db, table, self.clients, filled)?;
        let feeds = (mix == Mix::Feeds)
            .then(|| pollster(Feeds::open(&db, paged, witness.feeds.clone())))
            .transpose()
            .context("the table that is followed")?;
        disk.set_faults(self.faults);
        let clients = Arc::new(Clients {
            db: db.clone(),
            tables,
            records,
            mix,
            histories: Histories::new(noted, index, witness.history.clone(), certifier, paged),
            indexed,
            feeds,
            keys: self.keys,
            seed: self.seed,
            workers: self.workers,
            oracle: witness.oracle.clone(),
            numbers: AtomicU64::new(1),
            floors: Mutex::default(),
            problem: Mutex::default(),
            disk_fails,
            closing: AtomicBool::new(false),
        });
        switch_threads(true);
        let (count, steps) = (self.clients, mix.steps(random));
        let mut running: Vec<_> = (0..count)
            .map(|client| {
                let clients = clients.clone();
                spawn(&format!("client {client}"), move || clients.run(client, steps))
            })
            .collect();
        if self.closes_early {
            let clients_waiting = clients.clone();
            running.push(spawn("client that waits", move || clients_waiting.wait_for_ever()));
            pause(random.u64(0..8000));
            // Relaxed: a client reads it only after the database returned the error `Closed`.
            clients.closing.store(true, Ordering::Relaxed);
            self.close(&db)?;
        }
        running.into_iter().for_each(braiddb::simulation::Client::join);
        if let Some(problem) = clients.problem.lock().expect(NO_PANIC).take() {
            bail!(problem);
        }
        clients.histories.check().map_err(|problem| anyhow!("not serializable: {problem}"))?;
        witness.whole = clients.histories.is_whole();
        witness.feeds.lock().expect(NO_PANIC).check().map_err(|problem| anyhow!(problem))?;
        if !self.closes_early && !self.fails() {
            self.contents_are_right(&clients).context("at the end")?;
        }
        let clients = Arc::into_inner(clients).ok_or_else(|| anyhow!("clients have ended"))?;
        self.end(db, clients)
    }

    fn contents_are_right(&self, clients: &Clients) -> Result<()> {
        let (tables, table) = (clients.tables.clone(), clients.records.table.clone());
        let read = async move |tx: &Transaction| {
            Ok::<_, Failure>((tables.contents(tx).await?, records::scan(tx, &table).await?))
        };
        let (contents, found) = clients.db.transaction().try_run_blocking(read)?.value;
        if clients.mix == Mix::Indexes
            && let Some(problem) = indexed::problem(&clients.db)?
        {
            bail!(problem);
        }
        let oracle = clients.oracle.lock().expect(NO_PANIC);
        oracle.check(&contents, oracle.replies())?;
        match clients.records.problem(&found, &clients.records.floors()) {
            Some(problem) => bail!(problem),
            None => Ok(()),
        }
    }

    fn close(&self, db: &Database) -> Result<()> {
        match db.close() {
            Err(error) if !self.fails() => Err(error).context("closing"),
            _ => Ok(()),
        }
    }

    /// Closes the database and checks that all its memory is freed.
    fn end(&self, db: Database, clients: Clients) -> Result<Counts> {
        let (stats, mix) = (db.stats(), clients.mix);
        self.close(&db)?;
        let memory = db.memory_probe();
        drop((clients, db));
        describe_by(String::new);
        let bytes = memory.bytes();
        ensure!(bytes == 0, "{bytes} bytes of versions, nodes and keys are never freed");
        Ok(Counts {
            conflicts: stats.aborted.conflict,
            failed_certifications: stats.aborted.certification,
            stale_reads: stats.aborted.stale_read,
            snapshots_extended: stats.snapshots_extended,
            evicted: stats.versions_evicted,
            pages_evicted: stats.pages.evicted,
            page_faults: stats.pages.faults,
            inner_page_faults: stats.pages.inner_faults,
            bulk_operations: stats.bulk_operations,
            bulk_leaves_swept: stats.bulk_leaves_swept,
            of_paged_indexes: u64::from(mix == Mix::Indexes),
            of_paged_feeds: u64::from(mix == Mix::Feeds),
            taken_over: stats.workers.iter().map(|worker| worker.taken_over).sum(),
            pruned: stats.versions_pruned,
            freed: stats.versions_freed,
            reclaimed: stats.records_reclaimed,
            segments_freed: stats.log.segments_freed,
            closed_early: u64::from(self.closes_early),
            ..Counts::default()
        })
    }

    /// Opens a recovered disk and compares it with the recorded answers. Returns the number of
    /// recovered histories.
    fn recover(
        &mut self,
        disk: &SimulatedDisk,
        witness: &Witness,
        replies: Replies,
    ) -> Result<u64> {
        let scale = self.scale();
        let (options, seed) = (self.options(), self.random.u64(..));
        let mut opened = Database::open_simulated(disk, options.clone(), seed);
        if matches!(&opened, Err(Error::MemoryFull(limit)) if matches!(**limit, MemoryLimit::PageFrames { .. }))
        {
            // The minimum that a table needs does not always suffice for the replay.
            let more = options.tuning.page_frames.map(|frames| frames + 2);
            let options = options.tune(|tuning| tuning.page_frames(more));
            opened = Database::open_simulated(disk, options, seed);
        }
        let db = opened.context("opening")?;
        let read = async move |tx: &Transaction| {
            let tables = Tables::open(tx, scale).await?;
            tables.contents(tx).await
        };
        let found = db.run_blocking(read).context("reading everything")?;
        witness.oracle.lock().expect(NO_PANIC).check(&found, replies.turns)?;
        let recovered = histories::recovered(&db).context("reading the history")?;
        if let Some(found) = recovered.as_ref().filter(|_| witness.whole) {
            let history = witness.history.lock().expect(NO_PANIC).clone();
            history.recovered(replies.history, found).map_err(|problem| anyhow!(problem))?;
        }
        let log = witness.feeds.lock().expect(NO_PANIC).clone();
        if Mix::is_of_feeds(self.seed)
            && let Some(problem) = feeds::recovered(&db, &log, replies.feeds)?
        {
            bail!(problem);
        }
        if !pollster(db.indexes())?.is_empty()
            && let Some(problem) = indexed::problem(&db)?
        {
            bail!(problem);
        }
        match db.check() {
            Ok(report) if report.problems.is_empty() => {}
            Ok(report) => bail!("the check finds: {}", report.problems.join("; ")),
            Err(Error::Busy(BusyWith::Checkpoint)) => {}
            Err(error) => return Err(error).context("checking"),
        }
        db.close()?;
        let memory = db.memory_probe();
        drop(db);
        let bytes = memory.bytes();
        ensure!(bytes == 0, "{bytes} bytes of versions, nodes and keys are never freed");
        Ok(u64::from(recovered.is_some_and(|found| !found.is_empty())))
    }
}
