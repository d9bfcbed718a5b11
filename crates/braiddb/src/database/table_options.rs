//! Options for creating a table.

use std::time::Duration;

use super::error::{Error, Misuse, Result};
use crate::record;
use crate::transaction::Engine;

/// Records with a shorter lifetime would expire before their writer learns of the commit.
pub(super) const MIN_TTL: Duration = Duration::from_millis(1);

/// Options for creating a table. Start from `TableOptions::default()`.
///
/// ```
/// use std::time::Duration;
///
/// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let hour = Duration::from_hours(1);
///         let short = TableOptions::default().ttl(hour).cache_cold(false);
///         let sessions: Table<str, str> = db.create_table_with("sessions", short).await?;
///         db.put(&sessions, "a", "ada").await?;
///         let paged = TableOptions::default().paged();
///         let pages: Table<u64, [u8]> = db.create_table_with("pages", paged).await?;
///         db.put(&pages, &1, &[0; 100]).await?;
///         Ok(())
///     })
/// }
/// ```
///
/// A table in memory keeps an index and a record id for each key, also if the record is on disk. A
/// paged table keeps all of it on pages:
#[cfg_attr(doc, doc = concat!("<div>", include_str!("../../docs/record-path.svg"), "</div>\n"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[non_exhaustive]
pub struct TableOptions {
    /// If true, records read from disk stay in memory while [`crate::Options::memory_budget`] has
    /// room. Default: true. Set it to false if records are rarely read again, so that they evict
    /// nothing else.
    pub cache_cold: bool,
    /// If true, the records are stored on pages, in a tree of pages. Each page holds the latest
    /// value of its records. Older values are kept separately while a transaction may need them.
    /// Default: false.
    ///
    /// - **Memory:** pages can be evicted to disk and loaded again, according to
    ///   [`Options::memory_budget`](crate::Options::memory_budget). In a database that exists only
    ///   in memory, all pages stay.
    /// - **Keys:** up to 512 bytes. The same limit holds for entries of secondary indexes, which
    ///   are on pages too.
    /// - **Values:** up to [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES), as in other tables. A value
    ///   larger than 1 KiB is stored in pieces on separate pages; a read loads all of it.
    /// - **Checkpoints:** in a database with a log, a checkpoint writes the pages that changed
    ///   since the previous one, and lists all pages.
    /// - **Format:** the first paged table upgrades the database to a later format version, which
    ///   earlier builds do not open.
    pub paged: bool,
    /// The lifetime of records since their last write, at least one millisecond. An expired record
    /// is immediately invisible for reads and writes. The workers delete it later, after at most an
    /// eighth of the lifetime or an hour, whichever is shorter
    /// ([`Stats::expired_swept`](crate::Stats::expired_swept)). Default: `None`, records do not
    /// expire.
    ///
    /// The expiry time is stored with each record, so it survives a crash, a copy and a backup. It
    /// takes 8 bytes of the maximum value size. Each write of a record sets a new expiry time;
    /// [`Transaction::put_with_ttl`](crate::Transaction::put_with_ttl) sets a different lifetime
    /// for one record.
    ///
    /// The time comes from [`Tuning::wall_clock`](crate::Tuning::wall_clock). A transaction reads
    /// the clock once, when it first uses such a table; interactive transactions and snapshots read
    /// it when they begin. For one transaction, a record is therefore either visible from start to
    /// end, or never. If the clock is set back while the database is open, the database's time
    /// stands still until the clock catches up.
    ///
    /// A table keeps the lifetime with which it was created. Earlier builds do not open a database
    /// with such a table.
    pub ttl: Option<Duration>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { cache_cold: true, paged: false, ttl: None }
    }
}

impl TableOptions {
    /// Sets [`TableOptions::cache_cold`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         // Written once, and rarely read.
    ///         let archive = TableOptions::default().cache_cold(false);
    ///         let letters: Table<u64, str> = db.create_table_with("letters", archive).await?;
    ///         db.put(&letters, &1, "Dear Ben").await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn cache_cold(mut self, cache_cold: bool) -> Self {
        self.cache_cold = cache_cold;
        self
    }

    /// Sets [`TableOptions::paged`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let paged = TableOptions::default().paged();
    ///         let measurements: Table<(u64, u64), [u8]> =
    ///             db.create_table_with("measurements", paged).await?;
    ///         db.put(&measurements, &(7, 1), &[0, 255]).await?;
    ///         assert!(db.tables().await?[0].options.paged);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn paged(mut self) -> Self {
        self.paged = true;
        self
    }

    /// Sets [`TableOptions::ttl`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         use std::time::Duration;
    ///
    ///         let day = TableOptions::default().ttl(Duration::from_hours(24));
    ///         let sessions: Table<str, u64> = db.create_table_with("sessions", day).await?;
    ///         db.put(&sessions, "guest", &7).await?;
    ///         assert_eq!(db.get(&sessions, "guest").await?, Some(7));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Checks that the engine supports a table with these options.
    ///
    /// # Errors
    /// [`Error::Options`]; [`Misuse::NeedsReadValidation`].
    pub(super) fn check(&self, engine: &Engine) -> Result<()> {
        if self.paged && !engine.may_have_pages() {
            return Err(paged_needs_read_validation());
        }
        if self.ttl.is_some_and(|ttl| ttl < MIN_TTL) {
            return Err(Error::Options(
                "ttl is shorter than one millisecond; choose a longer one".to_owned(),
            ));
        }
        Ok(())
    }

    /// Returns the lifetime of records in milliseconds, if they expire.
    pub(super) fn lifetime_ms(&self) -> Option<u64> {
        self.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
    }

    /// Applies the options to the engine's records of the table.
    pub(super) fn apply_to(&self, records: &record::Records, engine: &Engine) {
        records.set_caches(self.cache_cold);
        if let Some(lifetime) = self.lifetime_ms() {
            records.set_lifetime(lifetime);
            if !engine.read_only {
                engine.sweeps.expect(records);
            }
        }
    }
}

pub(super) fn paged_needs_read_validation() -> Error {
    Misuse::NeedsReadValidation { feature: "paged tables" }.into()
}
