//! The common interface of Braid and its peers: a store that maps 8-byte keys to values, which
//! clients call.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Failure};
use crate::call::Call;
use crate::stores;
use crate::stores::braid::Braid;

/// The answer to a call, and the number of failed attempts before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reply {
    pub answer: Answer,
    pub conflicts: u64,
}

/// An open store. Every call is one serializable transaction. When it returns, its commit is as
/// durable as the [`Setup`] requires.
pub trait Store: Send + Sync {
    /// Describes the setup: every setting that is not the default, and the reason.
    fn settings(&self) -> String;
    /// Fills an empty store in key order, then runs the store's maintenance for loaded data.
    fn load(&self, records: u64) -> Result<(), Failure>;
    /// Returns a client, which makes one call after the other on the calling thread.
    fn client(&self) -> Result<Box<dyn Client + '_>, Failure>;
    /// Returns the engine if it is Braid, which also accepts calls in other ways.
    fn braid(&self) -> Option<&Braid> {
        None
    }
    /// Closes the store after all clients are dropped. Other stores close when they are dropped.
    fn close(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// A client of a store.
pub trait Client {
    /// Runs a transaction, and retries after a conflict.
    fn run(&mut self, call: &Call) -> Result<Reply, Failure>;
}

/// The options for opening a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The directory, which may not exist yet.
    pub directory: PathBuf,
    pub value_bytes: usize,
    /// Bytes of keys and values after loading.
    pub data_bytes: u64,
    /// True if a call returns only when its commit is on disk; otherwise calls do not wait for the
    /// disk.
    pub synced: bool,
    /// The maximum bytes of the process and its page cache; `None` for as much as the data needs.
    pub budget: Option<u64>,
    /// The maximum number of concurrent clients.
    pub clients: usize,
    /// For Braid: worker threads, and true if they are bound to cores.
    pub workers: usize,
    pub pin: bool,
    /// For Braid: true if its table is paged.
    pub paged: bool,
}

impl Setup {
    /// Returns the size of a cache that holds all data with a store's overhead.
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
    /// Returns the name in tables.
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

    /// Opens or creates the store of this kind.
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
