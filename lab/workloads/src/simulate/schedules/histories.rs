//! Transactions of a schedule whose answers are all checked, at the end, against the serial order
//! of the database.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use braiddb::simulation::pause;
use braiddb::{
    BusyWith, Certifier, Database, Error, Index, IndexOptions, Misuse, Table, Transaction,
};
use fastrand::Rng;

use super::super::work::Failure;
use super::clients::{Clients, NO_PANIC, Pause, pollster};
use crate::history::{self, History, Shape};

/// The recorded answers about one table.
pub(super) struct Histories {
    table: Table<u64, u64>,
    /// Only some tables have it.
    index: Option<Index<u64, u64, u64>>,
    history: Arc<Mutex<History>>,
    certifier: Certifier,
    /// True if the table is paged and has bulk operations.
    paged: bool,
    /// True if the end of a transaction is unknown, so that the history is incomplete.
    unknown: AtomicBool,
}

impl Histories {
    pub(super) fn new(
        table: Table<u64, u64>,
        index: Option<Index<u64, u64, u64>>,
        history: Arc<Mutex<History>>,
        certifier: Certifier,
        paged: bool,
    ) -> Self {
        Self { table, index, history, certifier, paged, unknown: AtomicBool::new(false) }
    }

    /// Checks the history against the serial order.
    pub(super) fn check(&self) -> Result<(), String> {
        // Relaxed: the clients have ended.
        if self.unknown.load(Ordering::Relaxed) {
            return Ok(());
        }
        let history = self.history.lock().expect(NO_PANIC).clone();
        match self.certifier {
            Certifier::ReadValidation => history.replay(&mut BTreeMap::new()),
            Certifier::SerialSafetyNet => history.check_graph(),
            other => Err(format!("no check of histories is known for the certifier {other:?}")),
        }
    }

    /// Returns true if all committed transactions are known and LSNs give their serial order.
    pub(super) fn is_whole(&self) -> bool {
        // Relaxed: the clients have ended.
        self.certifier == Certifier::ReadValidation && !self.unknown.load(Ordering::Relaxed)
    }
}

/// Reads all records of the history table after a crash, also by the index if it exists. Returns
/// `None` if the table did not exist yet.
///
/// # Errors
/// Returns a difference between index and table, or errors of reading them.
pub(super) fn recovered(db: &Database) -> Result<Option<BTreeMap<u64, u64>>, Failure> {
    let table: Table<u64, u64> = match pollster(db.open_table(NAME)) {
        Err(Error::TableNotFound(_)) => return Ok(None),
        opened => opened?,
    };
    let rows = pollster(db.indexes())?;
    let indexed = rows.iter().any(|row| row.name == INDEX && row.table == NAME);
    let index = indexed.then(|| pollster(open_index(db, &table))).transpose()?;
    let found = pollster(db.try_run(async move |tx: &Transaction| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, BTreeMap::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, value);
        }
        let Some(index) = &index else { return Ok(found) };
        let (mut scan, mut by_index) = (tx.scan_by(index, ..)?, BTreeMap::new());
        while let Some((_, key, value)) = scan.next().await? {
            by_index.insert(key, value);
        }
        if by_index != found {
            let message =
                format!("the index contains {by_index:?}, but the table contains {found:?}");
            return Err(Failure::Wrong(message));
        }
        Ok::<_, Failure>(found)
    }))?;
    Ok(Some(found))
}

/// The names of the table and its index in schedules with histories.
pub(super) const NAME: &str = "history";
const INDEX: &str = "by";

/// Opens the table's index.
///
/// # Errors
/// The same errors as creating an index.
pub(super) async fn open_index(
    db: &Database,
    table: &Table<u64, u64>,
) -> Result<Index<u64, u64, u64>, Error> {
    db.index(table, INDEX, IndexOptions::default(), history::extract).await
}

impl Clients {
    /// Runs a transaction and records all its answers.
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
            Ok::<_, Error>((tx.snapshot_lsn(), answers))
        };
        let draw = random.u8(..3);
        let ended = match draw {
            // Drawn only for paged tables, so that the draws of other seeds stay the same.
            _ if self.histories.paged && random.u8(..4) == 0 => {
                let table = self.histories.table.clone();
                let ran = pollster(self.db.transaction().try_run_bulk(table, body));
                ran.map(|outcome| (outcome.value.0, outcome.commit_lsn, outcome.value.1))
            }
            0 => pollster(async {
                let tx = self.db.transaction().read_only(read_only).begin().await?;
                let (_, mut answers) = tx.step(body.clone()).await?;
                pause(random.u64(0..400));
                let (snapshot, mut more) = tx.step(body).await?;
                answers.append(&mut more);
                Ok((snapshot, tx.commit().await?, answers))
            }),
            _ => {
                let ran =
                    pollster(self.db.transaction().read_only(read_only).max_attempts(6).run(body));
                ran.map(|outcome| (outcome.value.0, outcome.commit_lsn, outcome.value.1))
            }
        };
        match ended {
            Ok((snapshot, lsn, answers)) => {
                self.histories.history.lock().expect(NO_PANIC).add(snapshot, lsn, answers);
            }
            Err(
                Error::Conflict { .. }
                | Error::NotSerializable { .. }
                | Error::Busy(BusyWith::BulkOperation { .. })
                // The transaction tried to roll back to a savepoint.
                | Error::Misuse(Misuse::IncompleteBulkWrite | Misuse::BulkSavepoint),
            ) => {}
            Err(error) => {
                // Relaxed: read after the clients have ended.
                self.histories.unknown.store(true, Ordering::Relaxed);
                self.excuse("a transaction of the history", &error);
            }
        }
    }
}
