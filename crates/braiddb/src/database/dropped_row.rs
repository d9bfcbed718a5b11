//! Catalog rows of tables that are being dropped.

use std::sync::Arc;

use crate::record::Records;
use crate::rid::{CATALOG, TableId};
use crate::transaction::{CatalogRow, Engine};
use crate::types::DecodeError;

/// Prefix of the catalog key of a dropped table. The table number follows as ten decimal digits.
const PREFIX: &str = "braid.dropped.";
/// The last byte of the catalog value of a dropped table, after the length of its name (`u16`) and
/// the name. A build without support for dropped tables reports this value as damage, and so
/// refuses to open the database.
const LAST: u8 = 3;
/// The last byte for a table whose records expire.
const LAST_EXPIRING: u8 = 4;

/// Returns whether a catalog key belongs to a dropped table.
pub(super) fn is_dropped_key(key: &[u8]) -> bool {
    key.starts_with(PREFIX.as_bytes())
}

/// Returns the catalog key of the dropped table with this number.
pub(super) fn key_of(id: u32) -> Vec<u8> {
    format!("{PREFIX}{id:010}").into_bytes()
}

/// A dropped table whose records are being deleted, or a staged table without a name (`stage.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DroppedTable {
    pub(super) id: u32,
    pub(super) name: String,
    /// True if its records expire.
    pub(super) expires: bool,
}

impl DroppedTable {
    pub(super) fn key(&self) -> Vec<u8> {
        key_of(self.id)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let length = u16::try_from(self.name.len()).expect("checked when the table was created");
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.push(if self.expires { LAST_EXPIRING } else { LAST });
        bytes
    }

    pub(super) fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::parse(key, bytes).ok_or_else(|| DecodeError::new("a dropped table in the catalog"))
    }

    fn parse(key: &[u8], bytes: &[u8]) -> Option<Self> {
        let id = Self::id_of(key)?;
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        let expires = match rest {
            [LAST] => false,
            [LAST_EXPIRING] => true,
            _ => return None,
        };
        Some(Self { id, name, expires })
    }

    /// Returns the table number in the key of such a row.
    pub(super) fn id_of(key: &[u8]) -> Option<u32> {
        let id = key.strip_prefix(PREFIX.as_bytes())?;
        std::str::from_utf8(id).ok()?.parse().ok()
    }

    /// Returns the table of its records, and its catalog row.
    pub(super) fn catalog_row(&self, engine: &Engine) -> (Arc<Records>, CatalogRow) {
        let row =
            CatalogRow { catalog: engine.table(CATALOG), key: self.key(), value: self.encode() };
        (engine.table(TableId(self.id)), row)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::table_description::TableDescription;
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};

    #[test]
    fn rows_keep_their_parts_and_are_told_from_damage() {
        with_limit(PART_SECONDS, |_| {
            for expires in [false, true] {
                let dropped =
                    DroppedTable { id: 1_234_567_890, name: "drafts".to_owned(), expires };
                let (key, bytes) = (dropped.key(), dropped.encode());
                assert!(is_dropped_key(&key) && !is_dropped_key(b"drafts"));
                assert_eq!(DroppedTable::decode(&key, &bytes).unwrap(), dropped);
                for length in 0..bytes.len() {
                    assert!(DroppedTable::decode(&key, &bytes[..length]).is_err());
                }
                assert!(TableDescription::decode(&key, &bytes).is_err());
            }
        });
    }
}
