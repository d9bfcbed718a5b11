//! One seed: a database on a simulated disk runs transactions and is crashed at many of its disk
//! operations. Each crash is recovered and compared with the oracle. Some runs continue from a
//! recovered state and are crashed again.

use std::ops::Range;

use anyhow::{Context, Result, anyhow, bail, ensure};
use braiddb::simulation::{CrashCounts, FaultCounts, Faults, SimulatedDisk};
use braiddb::{BusyWith, Database, Error, HoleTracker, Options, Policy, Tuning, Width};
use serde::Serialize;

use super::crash::{Crash, Witness};
use super::held_snapshot::HeldSnapshot;
use super::observer::Observer;
use super::oracle::{Answers, Contents, Number, Oracle};
use super::work::{self, Scale, Tables};
use crate::bounds::{self, DiskUse};

/// The maximum number of generations: a generation runs on the state that the one before left.
const MAX_GENERATIONS: u32 = 3;

/// The amount of work of one seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Transactions in a generation.
    pub(super) transactions: u64,
    /// The approximate number of crashes in a generation.
    pub(super) crashes: u64,
    /// Damaged bytes in the final state of a generation.
    pub(super) flips: u64,
}

/// The results of seeds.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Tally {
    /// Recovered crashes.
    pub(super) crash_states: u64,
    /// Crashes during a recovery, out of these.
    pub(super) in_recovery: u64,
    /// Committed transactions.
    pub(super) committed: u64,
    /// Seeds with some or all tables on pages.
    pub(super) with_paged_tables: u64,
    /// Log segments that compaction freed.
    pub(super) segments_freed: u64,
    /// Segments that reused the file of another segment.
    pub(super) segments_reused: u64,
    /// Versions that were evicted.
    pub(super) evicted: u64,
    /// Evicted pages, and pages that were loaded again.
    pub(super) pages_evicted: u64,
    pub(super) page_faults: u64,
    pub(super) inner_page_faults: u64,
    /// Committed bulk operations.
    pub(super) bulk_operations: u64,
    /// Snapshots that were open during half of a generation.
    pub(super) snapshots: u64,
    /// Bytes between pages that compaction freed.
    pub(super) page_bytes_freed: u64,
    /// Damaged bytes, each on a separate copy of a closed database.
    pub(super) flips: u64,
    /// Damaged bytes that an error reported, out of these. The others hit unused bytes.
    pub(super) flips_reported: u64,
    /// Runs that ended with an error of the disk.
    pub(super) poisoned: u64,
    /// Databases that could not be opened while the disk failed.
    pub(super) not_opened: u64,
    pub(super) answers: Answers,
    pub(super) faults: FaultCounts,
    pub(super) crashes: CrashCounts,
}

impl Tally {
    /// Returns the names of counted events that never happened.
    pub(super) fn silent(&self) -> Result<Vec<String>> {
        let mut rest = vec![serde_json::to_value(self).context("listing the counters")?];
        let mut silent = Vec::new();
        while let Some(serde_json::Value::Object(counts)) = rest.pop() {
            for (name, count) in counts {
                match count {
                    serde_json::Value::Number(count) if count.as_u64() == Some(0) => {
                        silent.push(name);
                    }
                    nested => rest.extend(nested.is_object().then_some(nested)),
                }
            }
        }
        Ok(silent)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.crash_states += other.crash_states;
        self.in_recovery += other.in_recovery;
        self.committed += other.committed;
        self.with_paged_tables += other.with_paged_tables;
        self.segments_freed += other.segments_freed;
        self.segments_reused += other.segments_reused;
        self.evicted += other.evicted;
        self.pages_evicted += other.pages_evicted;
        self.page_faults += other.page_faults;
        self.inner_page_faults += other.inner_page_faults;
        self.bulk_operations += other.bulk_operations;
        self.snapshots += other.snapshots;
        self.page_bytes_freed += other.page_bytes_freed;
        self.flips += other.flips;
        self.flips_reported += other.flips_reported;
        self.poisoned += other.poisoned;
        self.not_opened += other.not_opened;
        self.answers.add(&other.answers);
        self.faults.add(&other.faults);
        self.crashes.add(&other.crashes);
    }
}

/// Runs a seed.
///
/// # Errors
/// Returns the first lost, partial, misordered or stuck transaction.
pub(super) fn run(seed: u64, plan: Plan) -> Result<Tally> {
    fastrand::seed(seed);
    work::SEED.set(seed);
    let mut tally = Tally::default();
    let disk = SimulatedDisk::new(seed);
    let scale = Scale::long(seed);
    tally.with_paged_tables += u64::from(scale.paged.any());
    generation(&disk, seed, 0, &Contents::default(), (plan, scale), &mut tally)?;
    Ok(tally)
}

/// Runs transactions on a disk that holds `base`, and checks each of its crashes.
fn generation(
    disk: &SimulatedDisk,
    seed: u64,
    number: u32,
    base: &Contents,
    (plan, scale): (Plan, Scale),
    tally: &mut Tally,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed ^ u64::from(number) << 56);
    let witness = Witness::new(disk, Oracle::new(base.clone()), random.fork(), plan);
    let options = options(&mut random);
    disk.set_faults(faults(&mut random));
    // Other policies do not admit transactions during a batch, so a transaction cannot run another
    // one.
    let nests = options.tuning.policy == Policy::DualQueue;
    let in_recovery = match Database::open_simulated(disk, options, random.u64(..)) {
        Ok(db) => {
            let in_recovery = witness.crashes();
            serve(&db, disk, &mut random, (plan, scale, nests), &witness, tally)
                .with_context(|| format!("generation {number}"))?;
            in_recovery
        }
        Err(error) => {
            ensure!(disk.counts().any_failed(), "a disk without faults is refused: {error}");
            tally.not_opened += 1;
            witness.crashes()
        }
    };
    let (mut crashes, counts) = witness.take();
    disk.set_faults(Faults::default());
    tally.faults.add(&disk.counts());
    tally.crashes.add(&counts);
    tally.in_recovery += if number > 0 { in_recovery as u64 } else { 0 };
    tally.committed += witness.with(|oracle| oracle.committed());
    tally.answers.add(&witness.with(|oracle| oracle.answers));
    // The final state of the disk is one more state to recover from.
    let replies = witness.with(|oracle| oracle.replies());
    crashes.push(Crash { disk: disk.copy(seed), moment: CLOSED.to_owned(), replies });
    for crash in crashes {
        let place = || format!("generation {number}, crash at {}", crash.moment);
        let again = random.u64(0..plan.crashes.max(1)) < 2 && number + 1 < MAX_GENERATIONS;
        let untouched = again.then(|| crash.disk.copy(seed));
        let found = recover(&crash.disk, scale, random.u64(..), true).with_context(place)?;
        witness.with(|oracle| oracle.check(&found, crash.replies)).with_context(place)?;
        tally.crash_states += 1;
        if crash.moment == CLOSED {
            // The database was just closed cleanly and therefore records the LSN up to which it is
            // complete.
            damage(&crash.disk, &found, (plan, scale), &mut random, tally).with_context(place)?;
        }
        if let Some(disk) = untouched {
            let seed = random.u64(..);
            generation(&disk, seed, number + 1, &found, (plan, scale), tally)
                .with_context(place)?;
        }
    }
    Ok(())
}

/// The number of bulk operations after the transactions of a generation with paged tables.
const BULK_OPERATIONS: u64 = 6;

/// The moment after the clean close, which is not a crash.
const CLOSED: &str = "the end, after closing";

/// Runs the transactions and closes the database.
fn serve(
    db: &Database,
    disk: &SimulatedDisk,
    random: &mut fastrand::Rng,
    (plan, scale, nests): (Plan, Scale, bool),
    witness: &Witness,
    tally: &mut Tally,
) -> Result<()> {
    let first = witness.with(|oracle| oracle.base().journal.keys().last().map_or(1, |n| n + 1));
    let stuck = || {
        // A stuck transaction never wakes, and closing would wait for it.
        std::mem::forget(db.clone());
        anyhow!("a transaction waits although no operation in progress could wake it")
    };
    let tables =
        work::once(db, disk, async move |tx| Tables::open(tx, scale).await).ok_or_else(stuck)?;
    let tables = match tables {
        Ok(tables) => tables,
        Err(error) => {
            ensure!(
                disk.counts().any_failed(),
                "tables cannot be opened on a disk without faults: {error}"
            );
            tally.poisoned += 1;
            return Ok(());
        }
    };
    let seed = random.u64(..);
    let observer = Observer::new(db, &tables, witness, nests);
    let end = first + plan.transactions;
    // Compaction runs concurrently with the transactions, and before operations that write to the
    // room it freed. Only half of the seeds with paged tables compact, because compaction hides
    // errors of automatic checkpoints.
    let compacts = work::SEED.get() % 4 == 3;
    let beside = compacts.then(|| work::begin_to_compact(db));
    if !run_transactions(db, disk, observer, seed, first..end, tally)? {
        return Err(stuck());
    }
    let after = compacts.then(|| work::begin_to_compact(db));
    for compaction in beside.into_iter().chain(after) {
        match work::compact(disk, compaction).ok_or_else(stuck)? {
            Ok(freed) => tally.page_bytes_freed += freed,
            Err(error) => {
                let failed = disk.counts().any_failed();
                ensure!(failed, "compaction fails on a disk without faults: {error}");
            }
        }
    }
    if !tables.paged().is_empty() {
        let numbers = end..end + BULK_OPERATIONS;
        if !work::run_bulk(db, disk, (&tables, witness), seed, numbers) {
            return Err(stuck());
        }
    }
    work::settle(disk);
    let stats = db.stats();
    if !disk.counts().any_failed() {
        bounds::check_idle(&stats, &DiskUse::of(disk.files()))?;
    }
    tally.segments_freed += stats.log.segments_freed;
    tally.segments_reused += stats.log.segments_reused;
    tally.evicted += stats.versions_evicted;
    tally.pages_evicted += stats.pages.evicted;
    tally.page_faults += stats.pages.faults;
    tally.inner_page_faults += stats.pages.inner_faults;
    tally.bulk_operations += stats.bulk_operations;
    let closed = db.close();
    tally.poisoned += u64::from(closed.is_err());
    ensure!(disk.counts().any_failed() || closed.is_ok(), "closing failed: {:?}", closed.err());
    Ok(())
}

/// Runs transactions. If the seed holds a snapshot, it is open during the second half.
/// Returns `false` if a transaction waits although no operation in progress could wake it.
fn run_transactions(
    db: &Database,
    disk: &SimulatedDisk,
    observer: Observer,
    seed: u64,
    numbers: Range<Number>,
    tally: &mut Tally,
) -> Result<bool> {
    if !HeldSnapshot::is_taken(work::SEED.get()) {
        return work::run(db, disk, observer, seed, numbers);
    }
    let tables = observer.tables.clone();
    let half = numbers.start.midpoint(numbers.end);
    if !work::run(db, disk, observer.clone(), seed, numbers.start..half)? {
        return Ok(false);
    }
    let Some(held) = HeldSnapshot::take(db, disk, &tables) else { return Ok(false) };
    if !work::run(db, disk, observer, seed, half..numbers.end)? {
        return Ok(false);
    }
    // Ends before requested compactions and bulk operations are awaited, which wait for that.
    match held {
        Ok(held) => {
            let Some(checked) = held.check(disk, &tables) else { return Ok(false) };
            checked?;
            tally.snapshots += 1;
        }
        Err(error) => {
            let failed = disk.counts().any_failed();
            ensure!(failed, "no snapshot on a disk without faults: {error}");
        }
    }
    Ok(true)
}

/// Flips bits in the contents of `disk`, each time on a separate copy. The database must report the
/// damage or hold the same contents as before.
fn damage(
    disk: &SimulatedDisk,
    held: &Contents,
    (plan, scale): (Plan, Scale),
    random: &mut fastrand::Rng,
    tally: &mut Tally,
) -> Result<()> {
    let files = disk.files();
    for _ in 0..plan.flips {
        let (name, length) = &files[random.usize(0..files.len())];
        // Most of a segment is empty, so half of the flips hit its start.
        let most = if random.bool() { *length } else { (*length).min(64 << 10) };
        let (offset, bits) = (random.u64(0..most.max(1)), 1 << random.u8(0..8));
        let copy = disk.copy(random.u64(..));
        if !copy.flip(name, offset, bits) {
            continue;
        }
        tally.flips += 1;
        match recover(&copy, scale, random.u64(..), false) {
            Err(_) => tally.flips_reported += 1,
            Ok(found) => ensure!(
                found == *held,
                "bits {bits:#x} of byte {offset} of {name} were changed, and other contents were read"
            ),
        }
    }
    Ok(())
}

/// Far more than the automatic checkpoints after an open.
const MAX_CHECKPOINTS: usize = 100;

/// Opens the state after a crash and reads all contents. Checks the bounds of an undamaged one.
fn recover(disk: &SimulatedDisk, scale: Scale, seed: u64, bounded: bool) -> Result<Contents> {
    let options = options(&mut fastrand::Rng::with_seed(seed));
    let db = Database::open_simulated(disk, options, seed).context("opening after the crash")?;
    let contents = work::once(&db, disk, async move |tx| {
        let tables = Tables::open(tx, scale).await?;
        let contents = tables.contents(tx).await?;
        Ok((tables, contents))
    });
    let Some(contents) = contents else {
        std::mem::forget(db);
        bail!("reading all records waits although no operation in progress could wake it");
    };
    let (tables, contents) = contents.context("reading everything")?;
    let Some(lengths) = tables.lengths(&db, disk) else {
        std::mem::forget(db);
        bail!("counting waits although no operation in progress could wake it");
    };
    let (lengths, found) = (lengths.context("counting")?, contents.lengths());
    ensure!(lengths == found, "{lengths:?} records are counted, but {found:?} are found");
    drop(tables);
    let mut report = db.check();
    for _ in 0..MAX_CHECKPOINTS {
        if !matches!(report, Err(Error::Busy(BusyWith::Checkpoint))) {
            break;
        }
        // The replay made this checkpoint due.
        work::settle(disk);
        report = db.check();
    }
    let report = report?;
    ensure!(report.problems.is_empty(), "the check finds: {}", report.problems.join("; "));
    if bounded {
        work::settle(disk);
        bounds::check_idle(&db.stats(), &DiskUse::of(disk.files()))?;
    }
    db.close()?;
    Ok(contents)
}

/// Small segments and frequent checkpoints, so that many events happen in a short time.
fn options(random: &mut fastrand::Rng) -> Options {
    let policies = [Policy::DualQueue, Policy::DualQueue, Policy::Batch, Policy::Pipeline];
    let segments = [64 << 10, 256 << 10, 1 << 20];
    let checkpoints = [32 << 10, 128 << 10, 1 << 30];
    // A separate generator, so that the other draws of a seed stay the same.
    let sizes = [4 << 10, 4 << 10, 8 << 10, 16 << 10];
    let page_bytes = fastrand::Rng::with_seed(!random.get_seed()).choice(sizes).expect("some");
    // The order of the draws is part of what a seed means.
    let tuning = Tuning::default()
        .policy(policies[random.usize(0..policies.len())])
        .hot_width(Width::Fixed(random.usize(1..12)))
        .max_open(64)
        .log_segment_bytes(segments[random.usize(0..segments.len())])
        .checkpoint_bytes(checkpoints[random.usize(0..checkpoints.len())])
        .log_ring_bytes(64 << 20);
    // Hardly more than the log's ring takes: everything is evicted as soon as possible.
    let budget = random.bool().then_some((64 << 20) + 1);
    let (tuning, budget) = if HeldSnapshot::is_taken(work::SEED.get()) {
        // Segments that a snapshot sees become dead, and its versions are only in the log.
        (tuning.log_segment_bytes(64 << 10).checkpoint_bytes(32 << 10), Some((64 << 20) + 1))
    } else {
        (tuning, budget)
    };
    let tuning = tuning
        .hole_tracker(HoleTracker::ALL[random.usize(0..HoleTracker::ALL.len())])
        .page_bytes(page_bytes)
        // Fewer frames than pages, soon, but slightly more than one operation needs.
        .page_frames((random.u32(0..4) > 0).then(|| random.u32(10..20)));
    Options::default().memory_budget(budget).tuning(tuning)
}

/// Half of the runs use a disk that only delays; the other disks also fail.
fn faults(random: &mut fastrand::Rng) -> Faults {
    let mut faults = Faults {
        max_delay: random.u32(0..20),
        short_transfers: if random.bool() { 6 } else { 0 },
        ..Faults::default()
    };
    match random.u32(0..8) {
        0 => faults.errors = 300,
        1 => faults.failed_syncs = 100,
        2 => faults.capacity = random.u64(200..2000),
        3 => (faults.errors, faults.failed_syncs) = (2000, 2000),
        _ => {}
    }
    faults
}
