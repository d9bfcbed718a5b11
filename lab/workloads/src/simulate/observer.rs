//! Observers: transactions that write nothing and learn about keys in every possible way: by
//! values, absences, refused writes, errors that they return, and steps of interactive
//! transactions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use braiddb::{Database, Error, Transaction};
use fastrand::Rng;

use super::crash::Witness;
use super::oracle::{KeyState, Number, Observation, Oracle};
use super::work::{Activity, Failure, Tables, parse};

/// The maximum number of interactive transactions at a time. Each waits for a slot on the worker
/// next to the transaction that runs its steps.
const MAX_INTERACTIVE: u32 = 8;
const MAX_STEPS: u32 = 4;

/// The data that observers need.
#[derive(Clone)]
pub(super) struct Observer {
    db: Database,
    pub(super) tables: Tables,
    pub(super) witness: Witness,
    /// True if a transaction can run another one and wait for it.
    nests: bool,
    interactive: Arc<AtomicU32>,
}

/// Records whether the caller of a failed transaction knows its observations.
pub(super) fn answered_by(oracle: &mut Oracle, number: Number, failure: &Failure) {
    match failure {
        Failure::OnPurpose | Failure::Wrong(_) => oracle.answers.errors += 1,
        Failure::Engine(Error::KeyExists(_) | Error::KeyNotFound(_)) => {
            oracle.answers.refusals += 1
        }
        // An error of the disk, or the close of the database.
        Failure::Engine(_) => return oracle.unanswered(number),
    }
    oracle.answered(number);
}

impl Observer {
    pub(super) fn new(db: &Database, tables: &Tables, witness: &Witness, nests: bool) -> Self {
        let (db, tables, witness) = (db.clone(), tables.clone(), witness.clone());
        Self { db, tables, witness, nests, interactive: Arc::default() }
    }

    /// Observes as transaction `number`.
    pub(super) async fn run(
        &self,
        tx: &Transaction,
        mut random: Rng,
        number: Number,
    ) -> Result<Activity, Failure> {
        // Relaxed: all observers are on one worker.
        let interactive = self.interactive.fetch_add(1, Ordering::Relaxed) < MAX_INTERACTIVE;
        let observed = if self.nests && interactive && random.u32(0..3) == 0 {
            self.observe_in_steps(&mut random, number).await
        } else {
            self.observe(tx, &mut random, number).await
        };
        self.interactive.fetch_sub(1, Ordering::Relaxed);
        observed.map(|()| Activity::Observed)
    }

    /// Observes in an interactive transaction that runs inside transaction `number`, in steps, each
    /// of which returns an answer.
    async fn observe_in_steps(&self, random: &mut Rng, number: Number) -> Result<(), Failure> {
        let transaction = self.db.begin().await?;
        for _ in 0..random.u32(1..=MAX_STEPS) {
            let (observer, mut random) = (self.clone(), random.fork());
            let step =
                async move |tx: &Transaction| observer.observe(tx, &mut random, number).await;
            let answer = transaction.try_step(step).await;
            self.witness.answer(|oracle| match &answer {
                Ok(()) => {
                    oracle.answers.steps += 1;
                    oracle.answered(number);
                }
                Err(failure) => answered_by(oracle, number, failure),
            });
            if answer.is_err() {
                // The transaction may have written by now.
                return Ok(transaction.abort().await?);
            }
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Makes one observation.
    async fn observe(
        &self,
        tx: &Transaction,
        random: &mut Rng,
        number: Number,
    ) -> Result<(), Failure> {
        let see = |key, state| {
            let seen = Observation { snapshot: tx.snapshot_lsn(), key, state };
            self.witness.with(|oracle| oracle.saw(number, seen));
        };
        let key = self.key(random);
        let marks = &self.tables.marks;
        match random.u32(0..8) {
            0 => {
                let value = tx.get(&self.tables.turns, &key).await?;
                see(key, KeyState::Taker(value.and_then(parse).map(|(_, by)| by)));
            }
            1 => see(key, KeyState::Marked(tx.get(marks, &self.tables.mark(key)).await?.is_some())),
            2 => see(key, KeyState::Marked(tx.contains(marks, &self.tables.mark(key)).await?)),
            3 => {
                let keys = [key, self.key(random)];
                let names = keys.map(|key| self.tables.mark(key));
                let found = tx.multi_get(marks, names.iter().map(String::as_str)).await?;
                for (key, found) in keys.into_iter().zip(found) {
                    see(key, KeyState::Marked(found.is_some()));
                }
            }
            4 => self.scan(tx, random.bool(), see).await?,
            5 => self.observe_an_end(tx, random.bool(), see).await?,
            _ => return self.observe_by_writing(tx, key, random, see).await,
        }
        if random.u32(0..3) == 0 { Err(Failure::OnPurpose) } else { Ok(()) }
    }

    /// Returns a key, usually one that was just written.
    fn key(&self, random: &mut Rng) -> u64 {
        let recent = self.witness.with(|oracle| oracle.recent().to_vec());
        if recent.is_empty() || random.u32(0..3) == 0 {
            return random.u64(self.tables.keys());
        }
        recent[random.usize(0..recent.len())]
    }

    async fn scan(
        &self,
        tx: &Transaction,
        reverse: bool,
        see: impl Fn(u64, KeyState),
    ) -> Result<(), Error> {
        let scan = tx.scan(&self.tables.marks, ..)?;
        let (mut scan, mut found) = (if reverse { scan.rev() } else { scan }, Vec::new());
        while let Some((name, _)) = scan.next().await? {
            found.push(name);
        }
        for key in self.tables.keys() {
            see(key, KeyState::Marked(found.contains(&self.tables.mark(key))));
        }
        Ok(())
    }

    /// Reads the first mark or the last one: all marks before it, or after it, are absent.
    async fn observe_an_end(
        &self,
        tx: &Transaction,
        last: bool,
        see: impl Fn(u64, KeyState),
    ) -> Result<(), Error> {
        let marks = &self.tables.marks;
        let found = if last { tx.last(marks).await? } else { tx.first(marks).await? };
        let found = found.map(|(name, _)| name);
        for key in self.tables.keys() {
            let name = self.tables.mark(key);
            let beyond =
                found.as_ref().is_none_or(|end| if last { name > *end } else { name < *end });
            if beyond || found.as_ref() == Some(&name) {
                see(key, KeyState::Marked(!beyond));
            }
        }
        Ok(())
    }

    /// Observes by a write, which is rolled back if it succeeds.
    async fn observe_by_writing(
        &self,
        tx: &Transaction,
        key: u64,
        random: &mut Rng,
        see: impl Fn(u64, KeyState),
    ) -> Result<(), Failure> {
        let (marks, name) = (&self.tables.marks, self.tables.mark(key));
        let written = match random.u32(0..3) {
            0 => {
                let there = tx.delete(marks, &name).await?;
                see(key, KeyState::Marked(there));
                return if there { Err(Failure::OnPurpose) } else { Ok(()) };
            }
            1 => {
                let updated = tx.update(marks, &name, &0).await;
                match &updated {
                    Ok(()) => see(key, KeyState::Marked(true)),
                    Err(Error::KeyNotFound(_)) => see(key, KeyState::Marked(false)),
                    Err(_) => {}
                }
                updated
            }
            _ => {
                let inserted = tx.insert(marks, &name, &0).await;
                match &inserted {
                    Ok(()) => see(key, KeyState::Marked(false)),
                    Err(Error::KeyExists(_)) => see(key, KeyState::Marked(true)),
                    Err(_) => {}
                }
                inserted
            }
        };
        match written {
            Ok(()) => Err(Failure::OnPurpose),
            Err(Error::KeyExists(_) | Error::KeyNotFound(_)) if random.bool() => Ok(()),
            refused => Ok(refused?),
        }
    }
}
