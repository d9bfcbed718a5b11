//! Handles that do not keep a database open.

use std::sync::{Arc, Weak};

use super::handle::{Database, Shared};

/// A handle that does not keep its database open, from [`Database::downgrade`]. Use it in code that
/// only observes the database, such as a metrics page or a watchdog, and must not delay its
/// closing.
///
/// ```
/// use braiddb::{Database, Error, Options};
///
/// fn main() -> Result<(), Error> {
///     let db = Database::in_memory(Options::default().workers(1))?;
///     let weak = db.downgrade();
///     assert!(weak.upgrade().is_some());
///     drop(db);
///     assert!(weak.upgrade().is_none());
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct WeakDatabase {
    shared: Weak<Shared>,
    may_write: bool,
}

impl WeakDatabase {
    /// Returns a handle of the database, or `None` if all other handles were dropped. After
    /// [`Database::close`], handles still exist; calls on them fail with [`crate::Error::Closed`].
    ///
    /// Dropping the last handle closes the database and waits until that is done. The handle
    /// returned here may become the last one.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, WeakDatabase};
    ///
    /// /// Returns the number of committed transactions while the database is in use.
    /// fn committed(db: &WeakDatabase) -> Option<u64> {
    ///     Some(db.upgrade()?.stats().committed)
    /// }
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let weak = db.downgrade();
    ///     assert!(committed(&weak).is_some());
    ///     drop(db);
    ///     assert_eq!(committed(&weak), None);
    ///     Ok(())
    /// }
    /// ```
    pub fn upgrade(&self) -> Option<Database> {
        self.shared.upgrade().map(|shared| Database { shared, may_write: self.may_write })
    }
}

impl std::fmt::Debug for WeakDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakDatabase")
    }
}

impl Database {
    /// Returns a handle that does not keep this database open. [`WeakDatabase::upgrade`] converts
    /// it to a full handle while another one exists.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let weak = db.downgrade();
    ///     assert!(weak.upgrade().is_some());
    ///     drop(db);
    ///     assert!(weak.upgrade().is_none());
    ///     Ok(())
    /// }
    /// ```
    pub fn downgrade(&self) -> WeakDatabase {
        WeakDatabase { shared: Arc::downgrade(&self.shared), may_write: self.may_write }
    }
}
