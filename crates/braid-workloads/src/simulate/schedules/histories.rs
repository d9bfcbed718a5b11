//! Transactions of a schedule whose every answer is held, at the end, against the serial order that the
//! database tells.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use braiddb::simulation::pause;
use braiddb::{Error, Index, RunOptions, Table, Transaction};
use fastrand::Rng;

use super::clients::{Clients, NO_PANIC, Pause, pollster};
use crate::history::{self, History, Shape};

/// What was told of one table.
pub(super) struct Histories {
    table: Table<u64, u64>,
    /// Of some tables.
    index: Option<Index<u64, u64, u64>>,
    history: Mutex<History>,
    /// Whether a transaction may be committed or not, so that the history is not known whole.
    unknown: AtomicBool,
}

impl Histories {
    pub(super) fn new(table: Table<u64, u64>, index: Option<Index<u64, u64, u64>>) -> Self {
        Self { table, index, history: Mutex::default(), unknown: AtomicBool::new(false) }
    }

    /// Holds the history against the order that was told.
    pub(super) fn check(&self) -> Result<(), String> {
        // Relaxed: the clients are over.
        if self.unknown.load(Ordering::Relaxed) {
            return Ok(());
        }
        let history = std::mem::take(&mut *self.history.lock().expect(NO_PANIC));
        history.replay(&mut BTreeMap::new())
    }
}

impl Clients {
    /// A transaction whose every answer is noted.
    pub(super) fn add_to_history(&self, random: &mut Rng) {
        let (table, seed) = (self.histories.table.clone(), random.u64(..));
        let index = self.histories.index.clone();
        let read_only = random.u8(..6) == 0;
        let shape = Shape { keys: 2 + self.keys, operations: 6, read_only };
        let pauses = random.u8(..3) == 0;
        let body = async move |tx: &Transaction| {
            let choices = &mut Rng::with_seed(seed ^ u64::from(tx.attempt()));
            let answers = history::transaction(tx, &table, index.as_ref(), shape, choices).await?;
            if pauses {
                Pause(false).await;
            }
            Ok::<_, Error>(answers)
        };
        let told = match random.u8(..3) {
            0 => pollster(async {
                let options = RunOptions::default().read_only(read_only);
                let tx = self.db.begin_with(options).await?;
                let mut answers = tx.step(body.clone()).await?;
                pause(random.u64(0..400));
                answers.append(&mut tx.step(body).await?);
                Ok((tx.commit().await?, answers))
            }),
            _ => {
                let options = RunOptions::default().read_only(read_only).max_attempts(6);
                let ran = pollster(self.db.run_with(options, body));
                ran.map(|outcome| (outcome.commit_lsn, outcome.value))
            }
        };
        match told {
            Ok((lsn, answers)) => self.histories.history.lock().expect(NO_PANIC).add(lsn, answers),
            Err(Error::Conflict { .. } | Error::NotSerializable { .. }) => {}
            Err(error) => {
                // Relaxed: looked at when the clients are over.
                self.histories.unknown.store(true, Ordering::Relaxed);
                self.excuse("a transaction of the history", &error);
            }
        }
    }
}
