//! Tables that do not exist.

use std::fmt;

use super::Error;

/// A table that does not exist, and tables that do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingTable {
    /// The requested name.
    pub name: String,
    /// The first tables of the database, at most eight, sorted by name. `None` if they are unknown,
    /// for example because a handle of a dropped table was used.
    pub existing: Option<Vec<String>>,
    /// The database has further tables.
    pub has_more: bool,
}

impl MissingTable {
    /// Returns the error for a table of this name, while the existing tables are unknown.
    ///
    /// ```
    /// use braiddb::{Error, MissingTable};
    ///
    /// let error = Error::from(MissingTable::new("drafts"));
    /// assert!(matches!(&error, Error::TableNotFound(missing) if missing.name == "drafts"));
    /// ```
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), existing: None, has_more: false }
    }
}

impl From<MissingTable> for Error {
    fn from(missing: MissingTable) -> Self {
        Error::TableNotFound(Box::new(missing))
    }
}

impl fmt::Display for MissingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {:?} does not exist", self.name)?;
        match self.existing.as_deref() {
            None => f.write_str("; create it first, or correct the name"),
            Some([]) => f.write_str(", and the database has no tables; create it first"),
            Some(existing) => {
                f.write_str("; create it first, or use one of the existing tables, ")?;
                for (at, name) in existing.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ", " })?;
                    write!(f, "{name:?}")?;
                }
                f.write_str(if self.has_more { " and more" } else { "" })
            }
        }
    }
}
