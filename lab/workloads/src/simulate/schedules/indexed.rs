//! A table with secondary indexes. Clients create and drop the indexes, and abandon some of these
//! operations, while other clients write. Every client that can read an index compares it with the
//! table in the same snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use braiddb::indexes::{IndexProgress, IndexStage};
use braiddb::simulation::{give_way, pause};
use braiddb::{
    BusyWith, Database, Error, Index, IndexError, IndexKeys, IndexOptions, Table, Transaction,
};
use fastrand::Rng;

use super::super::work::{Failure, kind};
use super::clients::{Clients, NO_PANIC, Pause, pollster};

type Records = Table<u64, u64>;
type Numbers = Index<u64, u64, u64>;

const TABLE: &str = "indexed";
/// The name of each index, and true if it is unique.
const INDEXES: [(&str, bool); 2] = [("parts", false), ("halves", true)];
/// The exclusive upper bound of values; low, so that several records have the same keys.
const VALUES: u64 = 24;
/// The maximum number of times that a reader yields while it waits for an index.
const MAX_WAITED: u32 = 200;

/// Returns the keys of a value in an index.
fn keys_of(unique: bool, value: u64) -> BTreeSet<u64> {
    match unique {
        true => (value % 2 == 0).then_some(value / 2).into_iter().collect(),
        false if value % 7 == 0 => BTreeSet::new(),
        false => [value % 3, 10 + value % 4].into(),
    }
}

/// The table and the clients' handles of its indexes.
pub(super) struct Indexed {
    table: Records,
    handles: Arc<Handles>,
}

/// The indexes as returned by the last successful call.
#[derive(Default)]
struct Handles([Mutex<Option<Numbers>>; 2]);

impl Handles {
    fn get(&self, number: usize) -> Option<Numbers> {
        self.0[number].lock().expect(NO_PANIC).clone()
    }
}

impl Indexed {
    /// # Errors
    /// The same errors as opening a table.
    pub(super) async fn open(db: &Database, paged: bool) -> Result<Self, Error> {
        let open =
            async move |tx: &Transaction| tx.open_or_create_table_with(TABLE, kind(paged)).await;
        Ok(Self { table: db.run(open).await?, handles: Default::default() })
    }
}

async fn attach(db: &Database, table: &Records, number: usize) -> Result<Numbers, Error> {
    attach_watched(db, table, number, |_| {}).await
}

async fn attach_watched(
    db: &Database,
    table: &Records,
    number: usize,
    watch: impl FnMut(IndexProgress),
) -> Result<Numbers, Error> {
    let (name, unique) = INDEXES[number];
    let extract = move |value: u64, keys: &mut IndexKeys<'_, u64>| {
        keys_of(unique, value).iter().for_each(|key| keys.push(key));
    };
    let options = IndexOptions::default().unique(unique);
    db.index_watched(table, name, options, extract, watch).await
}

/// Compares an index with its table in both directions.
async fn compare(
    tx: &Transaction,
    table: &Records,
    number: usize,
    index: &Numbers,
) -> Result<(), Failure> {
    let (name, unique) = INDEXES[number];
    let (mut scan, mut expected) = (tx.scan(table, ..)?, BTreeSet::new());
    while let Some((key, value)) = scan.next().await? {
        expected.extend(keys_of(unique, value).into_iter().map(|part| (part, key, value)));
    }
    let (mut scan, mut found) = (tx.scan_by(index, ..)?, Vec::new());
    while let Some(one) = scan.next().await? {
        found.push(one);
    }
    if !expected.iter().eq(&found) {
        return Err(Failure::Wrong(format!(
            "index {name} has {found:?}, and should have {expected:?}"
        )));
    }
    let (mut entries, mut reverse) = (tx.entries_by(index, ..)?.rev(), Vec::new());
    while let Some(entry) = entries.next().await? {
        reverse.push(entry);
    }
    if !expected.iter().rev().map(|(part, key, _)| (*part, *key)).eq(reverse.iter().copied()) {
        return Err(Failure::Wrong(format!(
            "index {name} has {reverse:?}, and should have {expected:?}"
        )));
    }
    Ok(())
}

/// Writes to the table. Checks that refused writes are refused correctly and ignores them. A bulk
/// operation has no savepoints.
async fn write(
    tx: &Transaction,
    table: &Records,
    halves: Option<&Numbers>,
    (keys, is_bulk, random): (u64, bool, &mut Rng),
) -> Result<(), Failure> {
    let mut savepoint = None;
    for _ in 0..random.u32(1..5) {
        let (key, value) = (random.u64(0..keys), random.u64(0..VALUES));
        let written = match random.u32(0..if is_bulk { 7 } else { 8 }) {
            0..3 => tx.put(table, &key, &value).await,
            3 => tx.insert(table, &key, &value).await,
            4 => tx.update(table, &key, &value).await,
            5 | 6 => tx.delete(table, &key).await.map(drop),
            _ => match savepoint.take() {
                Some(savepoint) => tx.rollback_to(&savepoint).await,
                None => {
                    savepoint = Some(tx.savepoint());
                    Ok(())
                }
            },
        };
        match written {
            Ok(()) | Err(Error::KeyExists(_) | Error::KeyNotFound(_)) => {}
            Err(Error::UniqueViolation(_)) => {
                let Some(halves) = halves.filter(|_| random.bool()) else { continue };
                let owner = tx.get_by(halves, &(value / 2)).await?.map(|(owner, _)| owner);
                if owner.is_none_or(|owner| owner == key) {
                    let message =
                        format!("value {value} of key {key} was refused, and {owner:?} has it");
                    return Err(Failure::Wrong(message));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Clients {
    pub(super) fn write_indexed(&self, random: &mut Rng) {
        let (table, halves) = (self.indexed.table.clone(), self.indexed.handles.get(1));
        let (seed, keys, gives_up) = (random.u64(..), 2 * self.keys, random.u32(0..6) == 0);
        let (tables, is_bulk) = ([table.clone()], self.is_bulk(self.number()));
        let write = async move |tx: &Transaction| {
            let mut random = Rng::with_seed(seed ^ u64::from(tx.attempt()));
            write(tx, &table, halves.as_ref(), (keys, is_bulk, &mut random)).await?;
            if random.u32(0..3) == 0 {
                Pause(false).await;
            }
            if gives_up { Err(Failure::OnPurpose) } else { Ok(()) }
        };
        let written = match is_bulk {
            true => pollster(self.db.transaction().try_run_bulk(tables, write)),
            false => pollster(self.db.transaction().try_run(write)),
        };
        match written {
            Ok(_) | Err(Failure::OnPurpose) => {}
            Err(Failure::Engine(Error::Index(error)))
                if matches!(*error, IndexError::NotFound { .. }) => {}
            // Another client creates or drops the index.
            Err(Failure::Engine(Error::Busy(BusyWith::TableChange { .. }))) if is_bulk => {}
            Err(failure) => self.excuse_failure("a write to a table with indexes", &failure),
        }
    }

    /// Compares an index with its table in a snapshot that may be older than the index.
    pub(super) fn look_by_index(&self, random: &mut Rng) {
        let number = random.usize(0..INDEXES.len());
        let (table, handles) = (self.indexed.table.clone(), self.indexed.handles.clone());
        let (pauses, awaits) = ([0, 2, 20, 60][random.usize(0..4)], random.bool());
        let compared = pollster(self.db.transaction().max_attempts(8).try_run(
            async move |tx: &Transaction| {
                for _ in 0..pauses {
                    Pause(false).await;
                }
                // Until there is one: created since this transaction began.
                for _ in 0..if awaits { MAX_WAITED } else { 0 } {
                    if handles.get(number).is_some() {
                        break;
                    }
                    Pause(false).await;
                }
                let Some(index) = handles.get(number) else { return Ok(()) };
                compare(tx, &table, number, &index).await?;
                Pause(false).await;
                compare(tx, &table, number, &index).await
            },
        ));
        match compared {
            Ok(_) => {}
            Err(Failure::Engine(Error::Index(error)))
                if matches!(*error, IndexError::NotFound { .. }) => {}
            Err(failure) => self.excuse_failure("a read of an index", &failure),
        }
    }

    /// Creates an index, sometimes slowly, so that readers begin before it is built and still run
    /// when it becomes available.
    pub(super) fn create_index(&self, random: &mut Rng, number: usize) {
        let slow = random.bool();
        let watch = |_| {
            if slow {
                pause(random.u64(1..2000));
            }
        };
        match pollster(attach_watched(&self.db, &self.indexed.table, number, watch)) {
            Ok(index) => *self.indexed.handles.0[number].lock().expect(NO_PANIC) = Some(index),
            Err(error) => self.excuse_index("the creation of an index", &error),
        }
    }

    pub(super) fn drop_index(&self, random: &mut Rng) {
        let (name, _) = INDEXES[random.usize(0..INDEXES.len())];
        if let Err(error) = pollster(self.db.drop_index(&self.indexed.table, name)) {
            self.excuse_index("the dropping of an index", &error);
        }
    }

    /// Creates or drops an index and abandons the operation. After it abandons a drop, it may
    /// create the index again.
    pub(super) fn give_up_index(&self, random: &mut Rng) {
        let (number, drops) = (random.usize(0..INDEXES.len()), random.bool());
        self.lose_interest(random, number, drops);
        if drops && random.bool() {
            self.create_index(random, number);
        }
    }

    fn lose_interest(&self, random: &mut Rng, number: usize, drops: bool) {
        let (db, table) = (&self.db, &self.indexed.table);
        let mut change = pin!(async move {
            match drops {
                true => db.drop_index(table, INDEXES[number].0).await,
                false => attach(db, table, number).await.map(drop),
            }
        });
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..random.u32(1..12) {
            match change.as_mut().poll(&mut context) {
                Poll::Ready(Ok(())) => return,
                Poll::Ready(Err(error)) => return self.excuse_index("an index", &error),
                Poll::Pending => {}
            }
            match random.bool() {
                true => give_way(),
                false => pause(random.u64(1..400)),
            }
        }
    }

    fn excuse_index(&self, what: &str, error: &Error) {
        let excused = match error {
            Error::Busy(BusyWith::TableChange { .. }) => true,
            Error::Index(error) => {
                matches!(**error, IndexError::NotFound { .. } | IndexError::DuplicateKey { .. })
            }
            _ => false,
        };
        if !excused {
            self.excuse(what, error);
        }
    }
}

/// Attaches every existing index, creates the missing ones, and compares them with the table. Call
/// it only when no other client is active. Returns the first difference.
///
/// # Errors
/// Returns errors of reading the indexes.
pub(super) fn problem(db: &Database) -> Result<Option<String>, Error> {
    // Opened with the kind that it was created with.
    let table = pollster(Indexed::open(db, false))?.table;
    wait_for_changes(db, &table)?;
    for number in 0..INDEXES.len() {
        if let Some(problem) = index_problem(db, &table, number)? {
            return Ok(Some(problem));
        }
    }
    Ok(None)
}

/// Waits until no change of the table's indexes runs or is queued. An abandoned drop continues, and
/// may still wait in its worker's queue. Calls are distributed to workers in turn and each queue is
/// first-in, first-out.
fn wait_for_changes(db: &Database, table: &Records) -> Result<(), Error> {
    let (workers, mut undisturbed) = (db.stats().workers.len(), 0);
    while undisturbed < 2 * workers {
        undisturbed = match pollster(db.drop_index(table, "never created")) {
            Err(Error::Index(error)) if matches!(*error, IndexError::NotFound { .. }) => {
                undisturbed + 1
            }
            Err(Error::Busy(BusyWith::TableChange { .. })) => {
                pause(100);
                0
            }
            dropped => return dropped,
        };
    }
    Ok(())
}

fn index_problem(db: &Database, table: &Records, number: usize) -> Result<Option<String>, Error> {
    let (name, unique) = INDEXES[number];
    let index = match pollster(attach(db, table, number)) {
        Ok(index) => index,
        Err(Error::Index(error)) if unique && matches!(*error, IndexError::DuplicateKey { .. }) => {
            let refused = || format!("index {name} is refused for no duplicate");
            return Ok((!pollster(duplicate(db, table))?).then(refused));
        }
        Err(error) => return Err(error),
    };
    let records = table.clone();
    let compared = pollster(
        db.try_run(async move |tx: &Transaction| compare(tx, &records, number, &index).await),
    );
    if let Err(failure) = compared {
        return Ok(Some(format!("index {name}: {failure}")));
    }
    // Abandoned operations end in this time.
    pause(5000);
    let rows = pollster(db.indexes())?;
    Ok(match rows.iter().find(|row| row.name == name).map(|row| row.stage) {
        Some(IndexStage::Ready) => None,
        _ => Some(format!("index {name} was attached, and the catalog has {rows:?}")),
    })
}

/// Returns true if two records have the same key in the unique index.
async fn duplicate(db: &Database, table: &Records) -> Result<bool, Error> {
    let table = table.clone();
    db.run(async move |tx: &Transaction| {
        let (mut scan, mut owners) = (tx.scan(&table, ..)?, BTreeMap::new());
        while let Some((key, value)) = scan.next().await? {
            for half in keys_of(true, value) {
                if owners.insert(half, key).is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    })
    .await
}
