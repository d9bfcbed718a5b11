//! SQLite, through `rusqlite`. The settings follow its documentation for speed at the required
//! durability:
//!
//! - A write-ahead log, with `synchronous` FULL (each commit is synced) or OFF.
//! - A memory map over the file (for a quarter of a budget, because otherwise the page cache holds
//!   it twice).
//! - Prepared statements, the key as the row id, and a connection for each client.
//!
//! Writers wait for one another at a mutex, which is fairer and faster than the sleeps of SQLite's
//! busy handler.

use std::sync::{Mutex, PoisonError};

use rusqlite::{CachedStatement, Connection, params};

use super::{each_record, pieces};
use crate::answer::{Answer, Failure, Missing, increment};
use crate::call::Call;
use crate::store::{Client, Reply, Setup, Store};
use crate::tpcc::{Access, Trade, run_at_once};

pub struct Sqlite {
    setup: Setup,
    /// Held by the writing client.
    writer: Mutex<()>,
    /// Keeps the database and its write-ahead log open.
    first: Mutex<Connection>,
}

impl Sqlite {
    pub fn open(setup: &Setup) -> Result<Self, Failure> {
        let first = connect(setup)?;
        first.execute_batch(
            "CREATE TABLE IF NOT EXISTS records (key INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT",
        )?;
        Ok(Self { setup: setup.clone(), writer: Mutex::new(()), first: Mutex::new(first) })
    }
}

fn connect(setup: &Setup) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open(setup.directory.join("records.sqlite"))?;
    connection.busy_timeout(std::time::Duration::from_secs(60))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", synchronous(setup))?;
    connection.pragma_update(None, "mmap_size", i64::try_from(map(setup)).unwrap_or(i64::MAX))?;
    connection.pragma_update(None, "cache_size", -(cache_kib(setup) as i64))?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(connection)
}

fn synchronous(setup: &Setup) -> &'static str {
    if setup.synced { "full" } else { "off" }
}

fn map(setup: &Setup) -> u64 {
    setup.budget.map_or_else(|| setup.ample_cache(), |budget| budget / 4)
}

/// The cache size of each connection. Mapped pages are not cached again, but written pages are.
fn cache_kib(setup: &Setup) -> u64 {
    match setup.budget {
        Some(budget) => (budget / 4 / setup.clients.max(1) as u64 / 1024).max(2_000),
        None => 16 << 10,
    }
}

impl Store for Sqlite {
    fn settings(&self) -> String {
        format!(
            "version {}, write-ahead log, synchronous {}, a map of {} MiB, a cache of {} MiB a connection, one writer at a \
             time by a mutex",
            rusqlite::version(),
            synchronous(&self.setup),
            map(&self.setup) >> 20,
            cache_kib(&self.setup) >> 10
        )
    }

    fn load(&self, records: u64) -> Result<(), Failure> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in pieces(records) {
            let tx = first.unchecked_transaction()?;
            {
                let mut insert = tx.prepare_cached("INSERT INTO records VALUES (?1, ?2)")?;
                each_record(piece, self.setup.value_bytes, |key, value| {
                    insert.execute(params![key as i64, value]).map(drop)
                })?;
            }
            tx.commit()?;
        }
        first.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    fn client(&self) -> Result<Box<dyn Client + '_>, Failure> {
        Ok(Box::new(Caller { store: self, connection: connect(&self.setup)?, value: Vec::new() }))
    }
}

struct Caller<'s> {
    store: &'s Sqlite,
    connection: Connection,
    value: Vec<u8>,
}

/// Adds one record to `answer`, and copies its value into `copy` if given.
fn read(
    select: &mut CachedStatement<'_>,
    key: u64,
    answer: &mut Answer,
    copy: Option<&mut Vec<u8>>,
) -> Result<(), Failure> {
    let mut rows = select.query(params![key as i64])?;
    let row = rows.next()?.ok_or(Missing(key))?;
    let value = row.get_ref(0)?.as_blob()?;
    answer.add(key, value);
    if let Some(copy) = copy {
        copy.clear();
        copy.extend_from_slice(value);
    }
    Ok(())
}

impl Caller<'_> {
    fn trade(&self, trade: &Trade) -> Result<Answer, Failure> {
        let connection = &self.connection;
        let reads = trade.only_reads();
        let _writer =
            (!reads).then(|| self.store.writer.lock().unwrap_or_else(PoisonError::into_inner));
        let begin = if reads { "BEGIN" } else { "BEGIN IMMEDIATE" };
        connection.prepare_cached(begin)?.execute([])?;
        let mut select = connection.prepare_cached("SELECT value FROM records WHERE key = ?1")?;
        let mut put = connection.prepare_cached("REPLACE INTO records VALUES (?1, ?2)")?;
        let mut delete = connection.prepare_cached("DELETE FROM records WHERE key = ?1")?;
        let answer = run_at_once(trade, |access| {
            match access {
                Access::Get(key) => {
                    let mut rows = select.query(params![key as i64])?;
                    let Some(row) = rows.next()? else { return Ok(None) };
                    return Ok(Some(row.get_ref(0)?.as_blob()?.to_vec()));
                }
                Access::Put(key, value) => _ = put.execute(params![key as i64, value])?,
                Access::Delete(key) => _ = delete.execute(params![key as i64])?,
            }
            Ok(None)
        })?;
        connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(answer)
    }
}

impl Client for Caller<'_> {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure> {
        let mut answer = Answer::default();
        let one = "SELECT value FROM records WHERE key = ?1";
        match call {
            Call::Read(keys) => {
                self.connection.prepare_cached("BEGIN")?.execute([])?;
                {
                    let mut select = self.connection.prepare_cached(one)?;
                    for key in &**keys {
                        read(&mut select, *key, &mut answer, None)?;
                    }
                }
                self.connection.prepare_cached("COMMIT")?.execute([])?;
            }
            Call::Modify(keys) => {
                // The mutex protects no data, so a panic elsewhere corrupts nothing.
                let _writer = self.store.writer.lock().unwrap_or_else(PoisonError::into_inner);
                self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
                {
                    let mut select = self.connection.prepare_cached(one)?;
                    let mut update = self
                        .connection
                        .prepare_cached("UPDATE records SET value = ?2 WHERE key = ?1")?;
                    for key in &**keys {
                        read(&mut select, *key, &mut answer, Some(&mut self.value))?;
                        increment(&mut self.value);
                        update.execute(params![*key as i64, self.value])?;
                    }
                }
                self.connection.prepare_cached("COMMIT")?.execute([])?;
            }
            Call::Trade(trade) => answer = self.trade(trade)?,
            Call::Scan { from, limit } => {
                let mut select = self.connection.prepare_cached(
                    "SELECT key, value FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2",
                )?;
                let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
                let mut rows = select.query(params![*from as i64, limit])?;
                while let Some(row) = rows.next()? {
                    answer.add(row.get::<_, i64>(0)? as u64, row.get_ref(1)?.as_blob()?);
                }
            }
        }
        Ok(Reply { answer, conflicts: 0 })
    }
}
