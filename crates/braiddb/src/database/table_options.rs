//! How a table is created.

use std::time::Duration;

use super::error::{Error, Misuse, Result};
use crate::record;
use crate::transaction::Engine;

/// Records that live shorter would be gone before their writer is told that they are there.
pub(super) const MIN_TTL: Duration = Duration::from_millis(1);

/// How a table is created. Start from `TableOptions::default()`.
///
/// ```
/// use std::time::Duration;
///
/// use braiddb::{Database, Error, Options, Table, TableOptions};
///
/// # pollster::block_on(async {
/// let db = Database::in_memory(Options::default().workers(1))?;
/// let hour = Duration::from_hours(1);
/// let sessions: Table<str, str> = db
///     .create_table_with("sessions", TableOptions::default().ttl(hour).cache_cold(false))
///     .await?;
/// let pages: Table<u64, [u8]> = db.create_table_with("pages", TableOptions::default().paged()).await?;
/// # drop((sessions, pages));
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[non_exhaustive]
pub struct TableOptions {
    /// Whether records read from disk stay in memory, as far as [`crate::Options::memory_budget`]
    /// has room. Default: yes. Without it, records that are rarely read again push nothing out.
    pub cache_cold: bool,
    /// Whether the table's records lie on pages, found by a tree of pages, with the latest value of each in
    /// place; older ones are kept beside, only while a transaction may need them. Default: no.
    ///
    /// Pages may leave memory and be read again, as [`Options::memory_budget`](crate::Options::memory_budget) says; in a database in memory
    /// only all stay. Keys have up to 512 bytes, and so have
    /// the entries of secondary indexes, which lie on pages too. Values have up to
    /// [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES), as those of other tables; one of more than 1 KiB lies in pieces on pages of
    /// its own, and who reads it has all of it in memory. In a database with a log, a checkpoint writes the pages that
    /// changed since the last one, and lists all.
    /// With its first paged table a database becomes one of a later format version, which builds before it do not
    /// open.
    pub paged: bool,
    /// How long records live after they were last written, from a millisecond on. Then they are there for no read and no
    /// write, at once; the workers delete them later, which takes an eighth of this time longer, or an hour at most
    /// ([`Stats::expired_swept`](crate::Stats::expired_swept)). Default: for ever.
    ///
    /// With each record the moment is stored at which it expires, so it is the same after a crash, in a copy and in a
    /// backup; it takes 8 bytes of what a value may have. [`Transaction::put_with_ttl`](crate::Transaction::put_with_ttl) gives a record another one; each write of a
    /// record gives it a new one. The time is that of [`Tuning::wall_clock`](crate::Tuning::wall_clock), which a
    /// transaction looks at once, when it first uses such a table; one whose steps come one by one, and a snapshot, when it begins. So a
    /// record is alive for a transaction from its beginning to its end, or never. If the clock is put back, time stands
    /// still until it has caught up, as long as the database is open.
    ///
    /// A table keeps the option that it was created with. Earlier builds do not open a database with such a table.
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
    /// # use braiddb::{Database, Error, Options, Table, TableOptions};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// // Written once, and hardly ever read.
    /// let archive = TableOptions::default().cache_cold(false);
    /// let letters: Table<u64, str> = db.create_table_with("letters", archive).await?;
    /// # drop(letters);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn cache_cold(mut self, cache_cold: bool) -> Self {
        self.cache_cold = cache_cold;
        self
    }

    /// Sets [`TableOptions::paged`].
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table, TableOptions};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let paged = TableOptions::default().paged();
    /// let measurements: Table<(u64, u64), [u8]> = db.create_table_with("measurements", paged).await?;
    /// db.put(&measurements, &(7, 1), &[0, 255]).await?;
    /// assert!(db.tables().await?[0].options.paged);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn paged(mut self) -> Self {
        self.paged = true;
        self
    }

    /// Sets [`TableOptions::ttl`].
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table, TableOptions};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// use std::time::Duration;
    ///
    /// let day = TableOptions::default().ttl(Duration::from_hours(24));
    /// let sessions: Table<str, u64> = db.create_table_with("sessions", day).await?;
    /// db.put(&sessions, "guest", &7).await?;
    /// assert_eq!(db.get(&sessions, "guest").await?, Some(7));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Checks that an engine may have such a table.
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

    /// How long records live, in milliseconds, if they expire.
    pub(super) fn lifetime_ms(&self) -> Option<u64> {
        self.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
    }

    /// Tells the engine how a table was created.
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
