//! The tables that exist at a position in the log, derived from the catalog's records. The log
//! itself contains only table numbers.
//!
//! A feed that starts in the past takes the current tables and undoes the catalog's later changes,
//! newest first. Each change must therefore contain the previous state. Dropping a table lists it
//! as dropped, with its name, in the same transaction. Renaming a table inserts the new name and
//! deletes the old one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::database::catalog::{CatalogEntry, is_reserved};
use crate::database::dropped_row::DroppedTable;
use crate::database::table_description::TableDescription;
use crate::log::RecordKind;
use crate::types::DecodeError;

/// A table, as known to a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownTable {
    pub(super) id: u32,
    pub(super) name: Arc<str>,
    /// If true, values start with the expiry time of their record.
    pub(super) expires: bool,
}

impl From<&TableDescription> for KnownTable {
    fn from(table: &TableDescription) -> Self {
        Self {
            id: table.id,
            name: table.name.as_str().into(),
            expires: table.options.ttl.is_some(),
        }
    }
}

/// A change of a table itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TableEvent {
    Created(KnownTable),
    Published(KnownTable),
    Dropped(KnownTable),
    /// The table with its old name, and its new name.
    Renamed(KnownTable, Arc<str>),
}

/// The catalog rows written by one transaction.
#[derive(Debug, Default)]
pub(super) struct CatalogRows {
    inserted: Vec<KnownTable>,
    /// Table names.
    deleted: Vec<String>,
    dropped: Vec<DroppedTable>,
    /// Numbers of tables that are no longer listed as dropped or staged.
    unlisted: BTreeSet<u32>,
}

impl CatalogRows {
    /// Adds a record of the catalog.
    ///
    /// # Errors
    /// An error if it does not decode.
    pub(super) fn add(
        &mut self,
        kind: RecordKind,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), DecodeError> {
        if kind == RecordKind::Delete {
            match (DroppedTable::id_of(key), std::str::from_utf8(key)) {
                (Some(id), _) => _ = self.unlisted.insert(id),
                (None, Ok(name)) if !is_reserved(name) => self.deleted.push(name.to_owned()),
                _ => {}
            }
            return Ok(());
        }
        match CatalogEntry::decode(key, value)? {
            // An update changes only the types.
            CatalogEntry::Table(table)
                if kind == RecordKind::Insert && !is_reserved(&table.name) =>
            {
                self.inserted.push(KnownTable::from(&table));
            }
            CatalogEntry::DroppedTable(table) => self.dropped.push(table),
            CatalogEntry::Table(_) | CatalogEntry::Index(_) => {}
        }
        Ok(())
    }

    /// Returns whether the transaction created this table, according to the records added so far.
    pub(super) fn has_made(&self, id: u32) -> bool {
        self.inserted.iter().any(|table| table.id == id)
    }

    /// Returns the transaction's changes of tables.
    pub(super) fn into_events(self) -> Vec<TableEvent> {
        let Self { mut inserted, deleted, dropped, unlisted } = self;
        let mut events = Vec::new();
        for name in deleted {
            if let Some(DroppedTable { id, name, expires }) =
                dropped.iter().find(|dropped| dropped.name == name).cloned()
            {
                events.push(TableEvent::Dropped(KnownTable { id, name: name.into(), expires }));
            } else if let Some(KnownTable { id, name: to, expires }) = inserted.pop() {
                // A rename is always a separate transaction.
                let table = KnownTable { id, name: name.into(), expires };
                events.push(TableEvent::Renamed(table, to));
            }
        }
        events.extend(inserted.into_iter().map(|table| match unlisted.contains(&table.id) {
            true => TableEvent::Published(table),
            false => TableEvent::Created(table),
        }));
        events
    }
}

/// The existing user tables, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownTables(BTreeMap<u32, KnownTable>);

impl KnownTables {
    pub(super) fn new(tables: &[TableDescription]) -> Self {
        Self(tables.iter().map(|table| (table.id, KnownTable::from(table))).collect())
    }

    pub(super) fn get(&self, id: u32) -> Option<&KnownTable> {
        self.0.get(&id)
    }

    pub(super) fn apply(&mut self, event: &TableEvent) {
        match event {
            TableEvent::Created(table) | TableEvent::Published(table) => self.put(table.clone()),
            TableEvent::Dropped(table) => _ = self.0.remove(&table.id),
            TableEvent::Renamed(table, to) => {
                self.put(KnownTable { name: to.clone(), ..table.clone() });
            }
        }
    }

    pub(super) fn take_back(&mut self, event: &TableEvent) {
        match event {
            TableEvent::Created(table) | TableEvent::Published(table) => {
                self.0.remove(&table.id);
            }
            TableEvent::Dropped(table) | TableEvent::Renamed(table, _) => self.put(table.clone()),
        }
    }

    fn put(&mut self, table: KnownTable) {
        self.0.insert(table.id, table);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::database::TableOptions;

    fn row(id: u32, name: &str, expires: bool) -> (Vec<u8>, Vec<u8>) {
        let options = TableOptions::default();
        let options = if expires { options.ttl(Duration::from_secs(1)) } else { options };
        let (key_type, value_type) = ("u64".to_owned(), "u64".to_owned());
        let (name, shapes) = (name.to_owned(), Vec::new());
        let table = TableDescription { name, id, key_type, value_type, shapes, options };
        (table.name.as_bytes().to_vec(), table.encode())
    }

    fn known(id: u32, name: &str, expires: bool) -> KnownTable {
        KnownTable { id, name: name.into(), expires }
    }

    fn events(rows: &[(RecordKind, Vec<u8>, Vec<u8>)]) -> Vec<TableEvent> {
        let mut catalog = CatalogRows::default();
        for (kind, key, value) in rows {
            catalog.add(*kind, key, value).unwrap();
        }
        catalog.into_events()
    }

    #[test]
    fn what_a_transaction_did_to_tables_is_told_by_the_rows_it_wrote() {
        use RecordKind::{Delete, Insert, Update};
        let insert = |id, name, expires| {
            let (key, value) = row(id, name, expires);
            (Insert, key, value)
        };
        let listed = |kind, id, name: &str, expires| {
            let dropped = DroppedTable { id, name: name.to_owned(), expires };
            (kind, dropped.key(), dropped.encode())
        };
        let delete = |key: &[u8]| (Delete, key.to_vec(), Vec::new());
        let all = [
            events(&[insert(1, "a", false), insert(2, "b", true)]),
            // An update of the value type.
            events(&[(Update, row(1, "a", false).0, row(1, "a", false).1)]),
            events(&[insert(1, "c", false), delete(b"a")]),
            // A table is staged, its row is rewritten, and it is published.
            events(&[listed(Insert, 3, "s", true)]),
            events(&[listed(Update, 3, "s", true)]),
            events(&[insert(3, "s", true), delete(&listed(Insert, 3, "s", true).1)]),
            events(&[delete(b"b"), listed(Insert, 2, "b", true)]),
            events(&[delete(&listed(Insert, 2, "b", true).1)]),
            // Internal tables of the engine.
            events(&[insert(4, "braid.slots", false)]),
        ];
        let expected = [
            TableEvent::Created(known(1, "a", false)),
            TableEvent::Created(known(2, "b", true)),
            TableEvent::Renamed(known(1, "a", false), "c".into()),
            TableEvent::Published(known(3, "s", true)),
            TableEvent::Dropped(known(2, "b", true)),
        ];
        assert_eq!(all.concat(), expected);
        // Applies the events, and undoes them.
        let mut tables = KnownTables::default();
        let mut states = Vec::new();
        for event in &expected {
            states.push(tables.clone());
            tables.apply(event);
        }
        assert_eq!(tables.get(1), Some(&known(1, "c", false)));
        assert_eq!((tables.get(2), tables.get(3)), (None, Some(&known(3, "s", true))));
        for (event, state) in expected.iter().zip(states).rev() {
            tables.take_back(event);
            assert_eq!(tables, state);
        }
    }
}
