//! Handles that keep no database open.

use std::sync::{Arc, Weak};

use super::{Database, Shared};

/// A handle that does not keep its database open, from [`Database::downgrade`]: for what looks at a database beside its
/// users, as a page of metrics or a watchdog, and must not put off its closing.
///
/// ```
/// use braiddb::{Database, Error, Options};
///
/// let db = Database::in_memory(Options::default().workers(1))?;
/// let weak = db.downgrade();
/// assert!(weak.upgrade().is_some());
/// drop(db);
/// assert!(weak.upgrade().is_none());
/// # Ok::<_, Error>(())
/// ```
#[derive(Clone)]
pub struct WeakDatabase {
    shared: Weak<Shared>,
}

impl WeakDatabase {
    /// A handle of the database, or `None` once all were dropped. A database that [`Database::close`] closed has
    /// handles still: what is asked of them says [`crate::Error::Closed`].
    ///
    /// Whoever drops the last handle closes the database and waits until that is done: that may be
    /// the one who got it here.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, WeakDatabase};
    ///
    /// /// How many transactions have committed, of a database that is in use.
    /// fn committed(db: &WeakDatabase) -> Option<u64> {
    ///     Some(db.upgrade()?.stats().committed)
    /// }
    ///
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let weak = db.downgrade();
    /// assert!(committed(&weak).is_some());
    /// drop(db);
    /// assert_eq!(committed(&weak), None);
    /// # Ok::<_, Error>(())
    /// ```
    pub fn upgrade(&self) -> Option<Database> {
        self.shared.upgrade().map(|shared| Database { shared })
    }
}

impl std::fmt::Debug for WeakDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakDatabase")
    }
}

impl Database {
    /// A handle that does not keep this database open: [`WeakDatabase::upgrade`] gives a handle that does, while there
    /// is one elsewhere.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options};
    ///
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let weak = db.downgrade();
    /// assert!(weak.upgrade().is_some());
    /// drop(db);
    /// assert!(weak.upgrade().is_none());
    /// # Ok::<_, Error>(())
    /// ```
    pub fn downgrade(&self) -> WeakDatabase {
        WeakDatabase { shared: Arc::downgrade(&self.shared) }
    }
}
