//! Which tables a feed is of.

use crate::database::Table;

/// A table that a feed is to give: by its name, whichever table has that when something is committed; or by a handle, whatever
/// its name is then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FeedTable(Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Name(String),
    Number(u32),
}

impl From<&str> for FeedTable {
    fn from(name: &str) -> Self {
        Self(Kind::Name(name.to_owned()))
    }
}

impl From<&&str> for FeedTable {
    fn from(name: &&str) -> Self {
        Self::from(*name)
    }
}

impl From<String> for FeedTable {
    fn from(name: String) -> Self {
        Self(Kind::Name(name))
    }
}

impl From<&String> for FeedTable {
    fn from(name: &String) -> Self {
        Self(Kind::Name(name.clone()))
    }
}

impl<K: ?Sized, V: ?Sized> From<&Table<K, V>> for FeedTable {
    fn from(table: &Table<K, V>) -> Self {
        Self(Kind::Number(table.core.id.0))
    }
}

/// The tables of a feed.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted(Option<Vec<FeedTable>>);

impl Wanted {
    /// Of no table.
    pub(super) fn none() -> Self {
        Self(Some(Vec::new()))
    }

    pub(super) fn add(&mut self, table: FeedTable) {
        self.0.get_or_insert_default().push(table);
    }

    /// Whether a table is among them; if none were named, all are.
    pub(super) fn has(&self, id: u32, name: &str) -> bool {
        let is = |table: &FeedTable| match &table.0 {
            Kind::Name(wanted) => wanted == name,
            Kind::Number(wanted) => *wanted == id,
        };
        self.0.as_ref().is_none_or(|wanted| wanted.iter().any(is))
    }
}
