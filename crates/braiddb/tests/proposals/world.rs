//! A database with tables of every kind, and random transactions on them whose results depend on
//! everything that they read.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use braiddb::{Database, Error, Index, IndexOptions, Table, TableOptions, Transaction};
use pollster::block_on;

use crate::common::Watched;
use crate::expiring::{Clock, TTL};

/// Number of kinds of tables: in memory or paged, with or without indexes, with or without expiry.
const KINDS: usize = 8;
/// Number of keys of a table. Few, so that transactions meet.
const KEYS: u64 = 24;
/// Number of unique index keys. Fewer than records, so that they run out and are swapped.
const OWNERS: u64 = 20;
const GROUPS: u64 = 4;

pub type Rows = Table<u64, [u8]>;
type ByByte = Index<u64, u64, [u8]>;

/// A table and its indexes.
#[derive(Clone)]
pub struct Kind {
    pub rows: Rows,
    pub expires: bool,
    /// Unique, by the first byte; and by the second one. Other records have none.
    pub indexes: Option<(ByByte, ByByte)>,
}

#[derive(Clone)]
pub struct World {
    pub db: Database,
    pub kinds: Vec<Kind>,
}

fn table_name(kind: usize) -> String {
    format!("kind.{kind}")
}

impl World {
    /// Opens or creates the tables of a database in a directory, or in memory.
    pub fn open(directory: Option<&Path>, clock: &Clock) -> Self {
        let options = clock.options();
        let db = match directory {
            Some(directory) => Database::open(directory, options).unwrap().watched(),
            None => Database::in_memory(options).unwrap().watched(),
        };
        let kinds = (0..KINDS).map(|kind| Kind::open(&db, kind)).collect();
        Self { db, kinds }
    }

    /// Returns all records with their expiry, and all index entries.
    pub fn contents(&self) -> Vec<Contents> {
        self.kinds.iter().map(|kind| kind.contents(&self.db)).collect()
    }
}

/// Records with their expiry, and entries of both indexes.
pub type Contents = (BTreeMap<u64, (Vec<u8>, Option<u64>)>, Vec<(u64, u64)>, Vec<(u64, u64)>);

impl Kind {
    fn open(db: &Database, kind: usize) -> Self {
        let [is_paged, is_indexed, expires] = [1, 2, 4].map(|bit| kind & bit != 0);
        let mut options = TableOptions::default();
        if is_paged {
            options = options.paged();
        }
        if expires {
            options = options.ttl(Duration::from_millis(TTL));
        }
        let name = table_name(kind);
        let open = async move |tx: &Transaction| {
            tx.open_or_create_table_with::<u64, [u8]>(&name, options).await
        };
        let rows = db.run_blocking(open).unwrap();
        let index = |name, byte: usize, options| {
            let extract = move |value: &[u8], keys: &mut braiddb::IndexKeys<'_, u64>| {
                if let Some(key) = value.get(byte).filter(|key| **key > 0) {
                    keys.push(&u64::from(*key));
                }
            };
            block_on(db.index(&rows, name, options, extract)).unwrap()
        };
        let indexes = is_indexed.then(|| {
            let unique = IndexOptions::default().unique(true);
            (index("by_owner", 0, unique), index("by_group", 1, IndexOptions::default()))
        });
        Self { rows, expires, indexes }
    }

    fn contents(&self, db: &Database) -> Contents {
        let kind = self.clone();
        let read = async move |tx: &Transaction| {
            let (mut records, mut entries) = (BTreeMap::new(), [Vec::new(), Vec::new()]);
            let mut scan = tx.scan(&kind.rows, ..)?;
            while let Some((key, value)) = scan.next().await? {
                records.insert(key, (value.to_vec(), None));
            }
            if kind.expires {
                for (key, (_, expiry)) in &mut records {
                    let at = tx.expires_at(&kind.rows, key).await?.expect("just read");
                    let since = at.duration_since(std::time::UNIX_EPOCH).unwrap();
                    *expiry = Some(since.as_millis() as u64);
                }
            }
            if let Some((by_owner, by_group)) = &kind.indexes {
                for (index, entries) in [by_owner, by_group].into_iter().zip(&mut entries) {
                    let mut scan = tx.entries_by(index, ..)?;
                    while let Some(entry) = scan.next().await? {
                        entries.push(entry);
                    }
                }
            }
            let [owners, groups] = entries;
            Ok((records, owners, groups))
        };
        db.run_blocking(read).unwrap()
    }
}

/// A random value, with index keys; sometimes large.
fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let bytes = match random.u16(..200) {
        0 => random.usize(5000..30_000),
        1..10 => 0,
        _ => random.usize(1..40),
    };
    let mut value: Vec<u8> = (0..bytes).map(|byte| (byte % 251) as u8).collect();
    if let [owner, ..] = &mut *value {
        *owner = random.u64(..=OWNERS) as u8;
    }
    if let [_, group, ..] = &mut *value {
        *group = random.u64(..=GROUPS) as u8;
    }
    value
}

/// The results of a transaction's operations: the beginning and the checksum of each result.
#[derive(Default)]
struct Learned(Vec<String>);

impl Learned {
    fn note(&mut self, what: impl Debug) {
        let mut what = format!("{what:?}");
        let sum = crc32c::crc32c(what.as_bytes());
        what.truncate(40);
        self.0.push(format!("{what} {sum:x}"));
    }

    /// Notes an error that leaves the transaction usable.
    fn note_result<T: Debug>(&mut self, result: Result<T, Error>) -> Result<(), Error> {
        match result {
            Ok(value) => self.note((0, value)),
            Err(Error::KeyExists { .. }) => self.note(1),
            Err(Error::KeyNotFound { .. }) => self.note(2),
            Err(Error::UniqueViolation { key, .. }) => self.note((3, key.to_vec())),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Runs the random transaction of a seed. The result is a function of the seed, of what it sees, and
/// of the time.
pub async fn act(tx: &Transaction, kinds: &[Kind], seed: u64) -> Result<Vec<String>, Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut learned = Learned::default();
    let only_reads = random.u8(..8) == 0;
    for _ in 0..random.usize(1..6) {
        let kind = &kinds[random.usize(..kinds.len())];
        if only_reads || random.bool() {
            read(tx, kind, &mut random, &mut learned).await?;
        } else if random.u8(..10) == 0 {
            let savepoint = tx.savepoint();
            write(tx, kind, &mut random, &mut learned).await?;
            if random.bool() {
                tx.rollback_to(&savepoint).await?;
            }
            write(tx, kind, &mut random, &mut learned).await?;
        } else {
            write(tx, kind, &mut random, &mut learned).await?;
        }
    }
    Ok(learned.0)
}

async fn read(
    tx: &Transaction,
    kind: &Kind,
    random: &mut fastrand::Rng,
    learned: &mut Learned,
) -> Result<(), Error> {
    let (key, rows) = (random.u64(..KEYS), &kind.rows);
    let operation = random.u8(..if kind.indexes.is_some() { 8 } else { 5 });
    match operation {
        0 => learned.note(tx.get(rows, &key).await?),
        1 => learned.note(tx.contains(rows, &key).await?),
        2 => learned.note(tx.get_part(rows, &key, |value: &[u8]| value.first().copied()).await?),
        3 => {
            let end = key + random.u64(..6);
            let mut scan = tx.scan(rows, key..end)?;
            if random.bool() {
                scan = scan.rev();
            }
            let mut scan = scan.limit(random.u64(1..4));
            while let Some(record) = scan.next().await? {
                learned.note(record);
            }
        }
        4 => learned.note(tx.count(rows, key..).await?),
        5 => {
            let (by_owner, _) = kind.indexes.as_ref().unwrap();
            learned.note(tx.get_by(by_owner, &random.u64(1..=OWNERS)).await?);
        }
        6 => {
            let (_, by_group) = kind.indexes.as_ref().unwrap();
            let group = random.u64(1..=GROUPS);
            let mut scan = tx.scan_by(by_group, group..=group)?.limit(random.u64(1..5));
            while let Some(hit) = scan.next().await? {
                learned.note(hit);
            }
        }
        _ => {
            let (by_owner, _) = kind.indexes.as_ref().unwrap();
            let mut entries = tx.entries_by(by_owner, key / 2..)?.limit(3);
            while let Some(entry) = entries.next().await? {
                learned.note(entry);
            }
        }
    }
    Ok(())
}

async fn write(
    tx: &Transaction,
    kind: &Kind,
    random: &mut fastrand::Rng,
    learned: &mut Learned,
) -> Result<(), Error> {
    let (key, rows, value) = (random.u64(..KEYS), &kind.rows, value(random));
    let result = match random.u8(..8) {
        0 | 1 => tx.put(rows, &key, &value).await,
        2 => tx.insert(rows, &key, &value).await,
        3 => tx.update(rows, &key, &value).await,
        4 => {
            let deleted = tx.delete(rows, &key).await?;
            learned.note(deleted);
            Ok(())
        }
        5 if kind.expires => {
            let ttl = Duration::from_millis(random.u64(1..3 * TTL));
            tx.put_with_ttl(rows, &key, &value, ttl).await
        }
        5 | 6 => {
            // Exchanges the values of two records, by way of an absent one.
            let other = random.u64(..KEYS);
            let [one, two] = [tx.get(rows, &key).await?, tx.get(rows, &other).await?]
                .map(|value| value.map(<[u8]>::to_vec));
            match (one, two) {
                (Some(one), Some(two)) if key != other => {
                    tx.delete(rows, &key).await?;
                    tx.put(rows, &other, &one).await?;
                    tx.put(rows, &key, &two).await
                }
                _ => Ok(()),
            }
        }
        _ => {
            let change = |old: &[u8]| [old, &[7]].concat();
            learned.note_result(tx.update_with(rows, &key, change).await)?;
            Ok(())
        }
    };
    learned.note_result(result)
}
