//! Catalog rows of indexes.
//!
//! Key: `braid.index.`, the table number as ten decimal digits, a full stop, and the index name.
//! Value, little-endian:
//!
//! - number of the entry table, `u32`
//! - stage, one byte: 1 building, 2 ready, 3 dropping
//! - one byte: 1 if unique, 0 otherwise
//! - version, `u32`
//! - number of the indexed table, `u32`
//! - the name of that table and the type of the index keys, each as a length `u16` and UTF-8 bytes
//! - one byte with the value 2. A build without support for indexes reports it as damage and so
//!   refuses to open the database

use std::ops::Bound;
use std::sync::Arc;

use crate::record::Records;
use crate::rid::{CATALOG, TableId};
use crate::transaction::{CatalogRow, Engine};
use crate::types::{DecodeError, KeyBuffer};

const PREFIX: &str = "braid.index.";
const LAST: u8 = 2;

/// The stage of an index. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum IndexStage {
    /// The index is being built, or its build was interrupted;
    /// [`Database::index`](crate::Database::index) continues it.
    Building,
    /// The index can be read.
    Ready,
    /// The index was dropped, and its entries are being deleted.
    Dropping,
}

/// An index, as listed in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct IndexDescription {
    /// The index's name, unique within its table.
    pub name: String,
    /// The name of the indexed table.
    pub table: String,
    /// The number of the entry table, unique for the life of the database.
    pub id: u32,
    /// True if no two records may have the same key.
    pub unique: bool,
    /// The version of the key function.
    pub version: u32,
    /// The type of the index keys.
    pub key_type: String,
    /// The stage of the index.
    pub stage: IndexStage,
    #[serde(skip)]
    pub(in crate::database) table_id: u32,
}

/// Returns the catalog key of an index.
pub(super) fn row_key(table_id: u32, name: &str) -> Vec<u8> {
    format!("{PREFIX}{table_id:010}.{name}").into_bytes()
}

/// Returns whether a catalog key belongs to an index.
pub(in crate::database) fn is_row_key(key: &[u8]) -> bool {
    key.starts_with(PREFIX.as_bytes())
}

/// Returns the bounds of all index rows in the catalog.
pub(super) fn row_bounds() -> (Bound<KeyBuffer>, Bound<KeyBuffer>) {
    let (mut low, mut high) = (KeyBuffer::new(), KeyBuffer::new());
    low.extend_from_slice(PREFIX.as_bytes());
    // `/` is the character after the full stop.
    high.extend_from_slice(b"braid.index/");
    (Bound::Included(low), Bound::Excluded(high))
}

impl IndexDescription {
    /// Returns the entry table, and the row.
    pub(in crate::database) fn catalog_row(&self, engine: &Engine) -> (Arc<Records>, CatalogRow) {
        let catalog = engine.table(CATALOG);
        let key = row_key(self.table_id, &self.name);
        (engine.table(TableId(self.id)), CatalogRow { catalog, key, value: self.encode() })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.id.to_le_bytes().to_vec();
        bytes.push(match self.stage {
            IndexStage::Building => 1,
            IndexStage::Ready => 2,
            IndexStage::Dropping => 3,
        });
        bytes.push(u8::from(self.unique));
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.table_id.to_le_bytes());
        for text in [&self.table, &self.key_type] {
            let length = u16::try_from(text.len()).expect("checked when the index was created");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.push(LAST);
        bytes
    }

    pub(in crate::database) fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::parse(key, bytes).ok_or_else(|| DecodeError::new("an index in the catalog"))
    }

    fn parse(key: &[u8], bytes: &[u8]) -> Option<Self> {
        let name = key.strip_prefix(PREFIX.as_bytes())?.get(11..)?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        let (id, rest) = bytes.split_first_chunk::<4>()?;
        let ([stage, unique], rest) = rest.split_first_chunk::<2>()?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (table_id, mut rest) = rest.split_first_chunk::<4>()?;
        let stage = match stage {
            1 => IndexStage::Building,
            2 => IndexStage::Ready,
            3 => IndexStage::Dropping,
            _ => return None,
        };
        let mut texts = [const { String::new() }; 2];
        for text in &mut texts {
            let (length, tail) = rest.split_first_chunk::<2>()?;
            let (bytes, tail) = tail.split_at_checked(u16::from_le_bytes(*length).into())?;
            *text = String::from_utf8(bytes.to_vec()).ok()?;
            rest = tail;
        }
        if rest != [LAST] || *unique > 1 {
            return None;
        }
        let [table, key_type] = texts;
        Some(Self {
            name,
            table,
            id: u32::from_le_bytes(*id),
            unique: *unique == 1,
            version: u32::from_le_bytes(*version),
            key_type,
            stage,
            table_id: u32::from_le_bytes(*table_id),
        })
    }

    /// Describes the properties that must match whenever the index is attached.
    pub(super) fn definition(&self) -> String {
        let unique = if self.unique { "unique" } else { "not unique" };
        format!("{unique}, version {}, keys of type {}", self.version, self.key_type)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_parts_and_are_told_from_damage() {
        for stage in [IndexStage::Building, IndexStage::Ready, IndexStage::Dropping] {
            let row = IndexDescription {
                name: "by.name".to_owned(),
                table: "persons".to_owned(),
                id: 9,
                unique: true,
                version: 77,
                key_type: "str".to_owned(),
                stage,
                table_id: 1_234_567_890,
            };
            let (key, bytes) = (row_key(row.table_id, &row.name), row.encode());
            assert!(is_row_key(&key));
            let (low, high) = row_bounds();
            let Bound::Included(low) = low else { unreachable!() };
            let Bound::Excluded(high) = high else { unreachable!() };
            assert!(low[..] <= key[..] && key[..] < high[..]);
            assert_eq!(IndexDescription::decode(&key, &bytes).unwrap(), row);
            for length in 0..bytes.len() {
                assert!(IndexDescription::decode(&key, &bytes[..length]).is_err());
            }
        }
    }
}
