//! What Braid and its peers have in common: a store of records of 8 bytes and some, which clients call.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Failure};
use crate::call::Call;
use crate::stores;
use crate::stores::braid::Braid;

/// What a call met, and how often it was tried in vain before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reply {
    pub answer: Answer,
    pub conflicts: u64,
}

/// A store that is open. Every call is one transaction, serializable, and when it returns its commit is as durable as
/// the [`Setup`] says.
pub trait Store: Send + Sync {
    /// How it is set up, in words: everything that is not its default, and why.
    fn settings(&self) -> String;
    /// Fills the store, which is empty, in the order of the keys; then lets it do what it does for data that stays.
    fn load(&self, records: u64) -> Result<(), Failure>;
    /// A client, which makes one call after the other on the thread that asked for it.
    fn client(&self) -> Result<Box<dyn Client + '_>, Failure>;
    /// The engine, if it is Braid, which takes calls in other ways too.
    fn braid(&self) -> Option<&Braid> {
        None
    }
    /// Ends it; no client is left. Others end when they are dropped.
    fn close(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Who calls a store.
pub trait Client {
    /// Runs a transaction, again if it met a conflict.
    fn run(&mut self, call: &Call) -> Result<Reply, Failure>;
}

/// How a store is opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Where it is, or is to be.
    pub directory: PathBuf,
    pub value_bytes: usize,
    /// Bytes of keys and values, once it is loaded.
    pub data_bytes: u64,
    /// Whether a call returns only when its commit is on disk; else nobody waits for the disk.
    pub synced: bool,
    /// Bytes that the process and the page cache for it may take; `None` for as many as the data needs.
    pub budget: Option<u64>,
    /// Clients that call it at the same time, at most.
    pub clients: usize,
    /// Of Braid: worker threads, and whether they stay on cores.
    pub workers: usize,
    pub pin: bool,
    /// Of Braid: whether its records are those of a paged table.
    pub paged: bool,
}

impl Setup {
    /// For a cache that holds all of the data with what a store has around it.
    pub fn ample_cache(&self) -> u64 {
        (self.data_bytes * 4).max(64 << 20)
    }
}

/// The stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub enum Kind {
    Braid,
    Lmdb,
    Redb,
    #[cfg(feature = "rocksdb")]
    #[value(name = "rocksdb")]
    RocksDb,
    Fjall,
    Sqlite,
}

impl Kind {
    /// As tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Braid => "Braid",
            Self::Lmdb => "LMDB",
            Self::Redb => "redb",
            #[cfg(feature = "rocksdb")]
            Self::RocksDb => "RocksDB",
            Self::Fjall => "fjall",
            Self::Sqlite => "SQLite",
        }
    }

    /// Opens the store of that kind, which is made if it is not there.
    pub fn open(self, setup: &Setup) -> Result<Box<dyn Store>, Failure> {
        std::fs::create_dir_all(&setup.directory)?;
        Ok(match self {
            Self::Braid => Box::new(Braid::open(setup)?),
            Self::Lmdb => Box::new(stores::lmdb::Lmdb::open(setup)?),
            Self::Redb => Box::new(stores::redb::Redb::open(setup)?),
            #[cfg(feature = "rocksdb")]
            Self::RocksDb => Box::new(stores::rocksdb::RocksDb::open(setup)?),
            Self::Fjall => Box::new(stores::fjall::Fjall::open(setup)?),
            Self::Sqlite => Box::new(stores::sqlite::Sqlite::open(setup)?),
        })
    }
}
