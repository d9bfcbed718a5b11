//! The selection of tables in a feed.

use crate::database::Table;

/// A table selected for a feed. A name selects the table that has this name at the time of a
/// commit. A handle selects its table under any name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FeedTable(TableSelector);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TableSelector {
    Name(String),
    Id(u32),
}

impl From<&str> for FeedTable {
    fn from(name: &str) -> Self {
        Self(TableSelector::Name(name.to_owned()))
    }
}

impl From<&&str> for FeedTable {
    fn from(name: &&str) -> Self {
        Self::from(*name)
    }
}

impl From<String> for FeedTable {
    fn from(name: String) -> Self {
        Self(TableSelector::Name(name))
    }
}

impl From<&String> for FeedTable {
    fn from(name: &String) -> Self {
        Self(TableSelector::Name(name.clone()))
    }
}

impl<K: ?Sized, V: ?Sized> From<&Table<K, V>> for FeedTable {
    fn from(table: &Table<K, V>) -> Self {
        Self(TableSelector::Id(table.core.id.0))
    }
}

/// The tables of a feed.
#[derive(Clone, Debug, Default)]
pub(super) struct TableSelection(Option<Vec<FeedTable>>);

impl TableSelection {
    /// Selects no table.
    pub(super) fn none() -> Self {
        Self(Some(Vec::new()))
    }

    pub(super) fn add(&mut self, table: FeedTable) {
        self.0.get_or_insert_default().push(table);
    }

    /// Returns whether a table is selected. Without a selection, all tables are.
    pub(super) fn has(&self, id: u32, name: &str) -> bool {
        let is = |table: &FeedTable| match &table.0 {
            TableSelector::Name(selected) => selected == name,
            TableSelector::Id(selected) => *selected == id,
        };
        self.0.as_ref().is_none_or(|selected| selected.iter().any(is))
    }
}
