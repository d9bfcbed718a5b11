//! Which tables there are at a place in the log, by what the catalog's records say: the log has numbers of tables only.
//!
//! A feed that begins anywhere takes the tables that there are now, and takes back what the catalog's changes between
//! there and now did, newest first. So each of these changes must tell what was there before: a table that was dropped is
//! listed as such, with its name, in the same transaction; one that got another name is inserted by that and deleted by
//! the old one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::database::catalog::{Row, TableDescription, is_reserved};
use crate::database::drop::DroppedTable;
use crate::log::RecordKind;
use crate::types::DecodeError;

/// A table, as a feed knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownTable {
    pub(super) id: u32,
    pub(super) name: Arc<str>,
    /// Its values begin with the moment at which their records expire.
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

/// What a transaction did to a table as such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TableEvent {
    Created(KnownTable),
    Published(KnownTable),
    Dropped(KnownTable),
    /// The table, by its old name, and its new one.
    Renamed(KnownTable, Arc<str>),
}

/// The rows of the catalog that one transaction wrote.
#[derive(Debug, Default)]
pub(super) struct CatalogRows {
    inserted: Vec<KnownTable>,
    /// Names.
    deleted: Vec<String>,
    dropped: Vec<DroppedTable>,
    /// Numbers of tables that are no longer listed as dropped, or staged.
    unlisted: BTreeSet<u32>,
}

impl CatalogRows {
    /// Takes a record of the catalog's.
    ///
    /// # Errors
    /// When it does not decode.
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
        match Row::decode(key, value)? {
            // An update is of its types only.
            Row::Table(table) if kind == RecordKind::Insert && !is_reserved(&table.name) => {
                self.inserted.push(KnownTable::from(&table));
            }
            Row::DroppedTable(table) => self.dropped.push(table),
            Row::Table(_) | Row::Index(_) => {}
        }
        Ok(())
    }

    /// Whether the transaction made this table, as far as its records were taken.
    pub(super) fn has_made(&self, id: u32) -> bool {
        self.inserted.iter().any(|table| table.id == id)
    }

    /// What the transaction did.
    pub(super) fn into_events(self) -> Vec<TableEvent> {
        let Self { mut inserted, deleted, dropped, unlisted } = self;
        let mut events = Vec::new();
        for name in deleted {
            if let Some(DroppedTable { id, name, expires }) =
                dropped.iter().find(|dropped| dropped.name == name).cloned()
            {
                events.push(TableEvent::Dropped(KnownTable { id, name: name.into(), expires }));
            } else if let Some(KnownTable { id, name: to, expires }) = inserted.pop() {
                // A renaming is a transaction of its own.
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

/// The tables there are, by their numbers; those that have a name, and are not the engine's own.
#[derive(Clone, Debug, Default)]
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
