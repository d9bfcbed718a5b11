//! Random histories of overlapping transactions, decided in three ways in the same order:
//!
//! - by the certifier, for their executions (`Database::execute`) at a known entry;
//! - by a naive model, which compares the records that each pair of transactions used;
//! - by the engine, as interleaved interactive transactions of another database.
//!
//! Compared are:
//!
//! - The certifier and the model decide each transaction alike: valid, changed, or too old. The model
//!   derives the used records from the operations and a map, not from the encoded sets.
//! - If the certifier accepts a transaction, the engine commits it. Its results in the engine, in the
//!   execution, and in a serial execution in the order of the entries are equal.
//! - The engine alone may refuse a transaction, at an operation that writes a record which an open
//!   transaction has written. That transaction is left out.
//! - The engine alone may accept a transaction, because it extends snapshots, and commits
//!   transactions without writes as of an earlier state. Its results are those of a serial
//!   execution: at its commit, or without writes at a state since its begin. Both databases then
//!   continue with the decision of the engine.
//! - Now and then, the contents of both databases and the map are equal.
//!
//! `OPERATIONS=10000000 cargo test --release -p braiddb-tests --test proposals histories --
//! --nocapture` runs many, on all processors.

use std::collections::{BTreeSet, VecDeque};

use braiddb::proposals::{CertificationConflict, KeySet, OrderedCertifier, Proposal};
use braiddb::{Database, Error, InteractiveTransaction, Options, TableOptions};
use futures_util::future::join_all;
use pollster::block_on;

use crate::common::{Watched, with_limit};
use crate::steps::{Place, State, Step, Tables, Uses, contents, run_all, run_all_on_map};

const WINDOW: u64 = 6;
const MAX_OPEN: usize = 4;
/// Histories that run at the same time on each pair of databases, in different tables. So the threads
/// of the databases have work at each wake-up.
const HISTORIES: u64 = 32;

/// Decisions, and operations of all transactions.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    transactions: u64,
    operations: u64,
    accepted: u64,
    /// Refused by the certifier and the engine.
    changed: u64,
    too_old: u64,
    /// Accepted by the engine alone: as if they had run at their commit, or before.
    only_engine: u64,
    only_engine_earlier: u64,
    /// Refused by the engine alone, because an open transaction had written the same record.
    held: u64,
}

struct Side {
    db: Database,
    tables: Tables,
}

impl Side {
    /// Creates the tables of a history.
    fn new(db: &Database, history: u64) -> Self {
        let options = TableOptions::default();
        let kinds = [("memory", options), ("paged", options.paged())];
        let tables = kinds.map(|(kind, options)| {
            let name = format!("{kind}.{history}");
            block_on(db.create_table_with(&name, options)).unwrap()
        });
        Self { db: db.clone(), tables }
    }

    async fn execute(&self, steps: &[Step]) -> Proposal<Vec<Vec<u64>>> {
        let (tables, steps) = (self.tables.clone(), steps.to_vec());
        let execution = self.db.execute(async move |tx| run_all(tx, &tables, &steps).await);
        execution.await.unwrap()
    }

    async fn contents(&self) -> State {
        let tables = self.tables.clone();
        self.db.run(async move |tx| contents(tx, &tables).await).await.unwrap()
    }
}

/// A transaction that has begun in the engine, and was executed for the certifier.
struct Open {
    steps: Vec<Step>,
    done: usize,
    transaction: InteractiveTransaction,
    /// Results of the engine.
    seen: Vec<Vec<u64>>,
    proposal: Proposal<Vec<Vec<u64>>>,
    uses: Uses,
    base: u64,
    /// Number of the state in which it began.
    begun: usize,
}

impl Open {
    /// Records that the engine may hold for this transaction.
    fn held(&self) -> impl Iterator<Item = Place> + '_ {
        self.steps[..self.done].iter().flat_map(Step::may_write)
    }
}

struct History {
    random: fastrand::Rng,
    engine: Side,
    /// Executes and applies for the certifier.
    other: Side,
    certifier: OrderedCertifier,
    /// Contents of both databases.
    state: State,
    /// The contents since the oldest open transaction began, and the number of the first of them.
    past: VecDeque<State>,
    past_start: usize,
    /// Written records of each entry.
    written: Vec<(u64, BTreeSet<Place>)>,
    open: Vec<Open>,
    /// No transaction has begun since the last entry, so the next one may join it.
    can_join: bool,
    counts: Counts,
}

impl History {
    fn new([engine, other]: &[Database; 2], seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            engine: Side::new(engine, seed),
            other: Side::new(other, seed),
            certifier: OrderedCertifier::new(WINDOW),
            state: State::new(),
            past: VecDeque::from([State::new()]),
            past_start: 0,
            written: Vec::new(),
            open: Vec::new(),
            can_join: false,
            counts: Counts::default(),
        }
    }

    async fn run(mut self, operations: u64) -> Counts {
        let mut rounds = 0_u64;
        while self.counts.operations < operations || !self.open.is_empty() {
            let has_room = self.open.len() < MAX_OPEN && self.counts.operations < operations;
            if self.open.is_empty() || has_room && self.random.bool() {
                self.begin().await;
                continue;
            }
            let at = self.random.usize(..self.open.len());
            if self.open[at].done < self.open[at].steps.len() {
                self.step(at).await;
            } else {
                self.commit(at).await;
            }
            rounds += 1;
            if rounds.is_multiple_of(500) {
                self.check_contents().await;
            }
        }
        self.check_contents().await;
        self.counts
    }

    async fn check_contents(&mut self) {
        assert_eq!(self.engine.contents().await, self.state);
        assert_eq!(self.other.contents().await, self.state);
        let mut copy = OrderedCertifier::starting_at(WINDOW, self.certifier.oldest_snapshot());
        for (entry, keys) in self.certifier.recorded() {
            copy.record(entry, KeySet::decode(keys.as_bytes()).unwrap());
        }
        copy.advance(self.certifier.newest());
        assert_eq!(copy, self.certifier);
        self.certifier = copy;
    }

    async fn begin(&mut self) {
        self.counts.transactions += 1;
        let count = self.random.usize(1..8);
        let steps: Vec<_> = (0..count).map(|_| Step::random(&mut self.random)).collect();
        let transaction = self.engine.db.begin().await.unwrap();
        let proposal = self.other.execute(&steps).await;
        let (seen, uses) = run_all_on_map(&mut self.state.clone(), &steps);
        assert_eq!(proposal.value, seen, "the execution of {steps:?}");
        let newest = self.certifier.newest();
        // An older one is safe.
        let base = match self.random.u8(..10) {
            0 => newest.saturating_sub(self.random.u64(..4)),
            _ => newest,
        };
        self.can_join = false;
        let (seen, done, begun) = (Vec::new(), 0, self.past_start + self.past.len() - 1);
        self.open.push(Open { steps, done, transaction, seen, proposal, uses, base, begun });
    }

    /// Runs some operations of a transaction in the engine.
    async fn step(&mut self, at: usize) {
        let open = &self.open[at];
        let more = self.random.usize(1..=open.steps.len() - open.done);
        let (steps, tables) =
            (open.steps[open.done..][..more].to_vec(), self.engine.tables.clone());
        let written: BTreeSet<_> = steps.iter().flat_map(Step::may_write).collect();
        let ran = open.transaction.step(async move |tx| run_all(tx, &tables, &steps).await).await;
        match ran {
            Ok(seen) => {
                let open = &mut self.open[at];
                open.done += more;
                open.seen.extend(seen);
            }
            Err(Error::Conflict { .. } | Error::NotSerializable { .. }) => {
                let open = self.open.swap_remove(at);
                // A conflict may have ended it.
                _ = open.transaction.abort().await;
                self.counts.operations += open.steps.len() as u64;
                if self.open.iter().flat_map(Open::held).any(|place| written.contains(&place)) {
                    self.counts.held += 1;
                    return;
                }
                let decided = self.certify(&open.proposal, &open.uses, open.base);
                assert!(!decided, "only the engine refuses {:?}", open.steps);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the certifier's decision, which must be that of the model.
    fn certify(&mut self, proposal: &Proposal<Vec<Vec<u64>>>, uses: &Uses, base: u64) -> bool {
        let decided = self.certifier.certify(&proposal.reads, &proposal.writes.keys(), base);
        let is_too_old = base < self.certifier.newest().saturating_sub(WINDOW);
        let later = self.written.iter().filter(|(entry, _)| *entry > base);
        let mut later = later.flat_map(|(_, written)| written);
        let is_changed =
            later.any(|place| uses.reads.contains(place) || uses.writes.contains(place));
        let by_model = match (is_too_old, is_changed) {
            (true, _) => "too old",
            (_, true) => "changed",
            _ => "valid",
        };
        let (by_certifier, count) = match decided {
            Ok(()) => ("valid", &mut self.counts.accepted),
            Err(CertificationConflict::TooOld { .. }) => ("too old", &mut self.counts.too_old),
            Err(CertificationConflict::Changed { .. }) => ("changed", &mut self.counts.changed),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(by_certifier, by_model, "{uses:?} at {base}: {:?}", self.written);
        *count += 1;
        by_certifier == "valid"
    }

    async fn commit(&mut self, at: usize) {
        let open = self.open.swap_remove(at);
        self.counts.operations += open.steps.len() as u64;
        let by_engine = match open.transaction.commit().await {
            Ok(_) => true,
            Err(Error::Conflict { .. } | Error::NotSerializable { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        let by_certifier = self.certify(&open.proposal, &open.uses, open.base);
        assert!(by_engine || !by_certifier, "only the certifier accepts {:?}", open.steps);
        if by_certifier {
            assert_eq!(open.seen, open.proposal.value, "{:?}", open.steps);
            let can_join = self.can_join;
            self.record(&open.steps, &open.seen, open.proposal, can_join).await;
        } else if by_engine {
            let (serial, _) = run_all_on_map(&mut self.state.clone(), &open.steps);
            if open.seen == serial {
                self.counts.only_engine += 1;
                let proposal = self.other.execute(&open.steps).await;
                self.record(&open.steps, &open.seen, proposal, false).await;
            } else {
                // Without writes, it is serializable where it read: at its begin, or where a write
                // that found nothing to change extended its snapshot.
                let is_as_of = |state: &State| {
                    let (seen, uses) = run_all_on_map(&mut state.clone(), &open.steps);
                    seen == open.seen && uses.writes.is_empty()
                };
                let since = open.begun.saturating_sub(self.past_start);
                assert!(self.past.iter().skip(since).any(is_as_of), "{:?}", open.steps);
                self.counts.only_engine_earlier += 1;
            }
        }
    }

    /// Records and applies a transaction that is valid at the newest entry. Its results must be those of
    /// a serial execution.
    async fn record(
        &mut self,
        steps: &[Step],
        seen: &[Vec<u64>],
        proposal: Proposal<Vec<Vec<u64>>>,
        can_join: bool,
    ) {
        let (serial, uses) = run_all_on_map(&mut self.state, steps);
        assert_eq!(seen, serial, "{steps:?}");
        let keys = proposal.writes.keys();
        assert_eq!(keys.points().count(), uses.writes.len(), "{steps:?}");
        if proposal.writes.is_empty() {
            return;
        }
        let joins = can_join && self.random.bool();
        let entry = self.certifier.newest() + if joins { 0 } else { self.random.u64(1..3) };
        self.certifier.record(entry, keys);
        self.written.push((entry, uses.writes));
        self.written.retain(|(entry, _)| *entry + 2 * WINDOW > self.certifier.newest());
        let writes = proposal.writes;
        self.other.db.run(async move |tx| tx.apply(&writes).await).await.unwrap();
        self.can_join = true;
        self.past.push_back(self.state.clone());
        let newest = self.past_start + self.past.len() - 1;
        let oldest = self.open.iter().map(|open| open.begun).min().unwrap_or(newest);
        self.past.drain(..oldest - self.past_start);
        self.past_start = oldest;
    }
}

#[test]
fn histories_are_decided_as_by_a_model_and_by_the_engine() {
    let asked = std::env::var("OPERATIONS").ok();
    let default = if cfg!(debug_assertions) { 40_000 } else { 400_000 };
    let operations = asked.as_ref().map_or(default, |asked| asked.parse().unwrap());
    let threads =
        if asked.is_some() { std::thread::available_parallelism().unwrap().get() } else { 1 };
    let seconds = 120 + operations / 2000;
    with_limit(seconds, move |_| {
        let open = || Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let databases: Vec<_> = (0..threads).map(|_| [open(), open()]).collect();
        let each = operations.div_ceil(threads as u64 * HISTORIES);
        let run = |(thread, databases): (u64, &[Database; 2])| {
            let seeds = thread * HISTORIES..(thread + 1) * HISTORIES;
            let histories = seeds.map(|seed| History::new(databases, seed).run(each));
            block_on(join_all(histories))
        };
        let counts: Vec<Counts> = std::thread::scope(|scope| {
            let threads = (0..).zip(&databases).map(|part| scope.spawn(move || run(part)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let sum = |count: fn(&Counts) -> u64| counts.iter().map(count).sum::<u64>();
        let all = Counts {
            transactions: sum(|counts| counts.transactions),
            operations: sum(|counts| counts.operations),
            accepted: sum(|counts| counts.accepted),
            changed: sum(|counts| counts.changed),
            too_old: sum(|counts| counts.too_old),
            only_engine: sum(|counts| counts.only_engine),
            only_engine_earlier: sum(|counts| counts.only_engine_earlier),
            held: sum(|counts| counts.held),
        };
        println!("{all:?}");
        let few = all.operations / 2000;
        let enough = [all.accepted, all.changed, all.too_old, all.held, all.only_engine_earlier];
        assert!(all.only_engine > few && enough.into_iter().all(|count| count > few), "{all:?}");
    });
}
