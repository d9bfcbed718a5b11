//! The row of a table in the catalog.
//!
//! Key: the table's name. Value, little-endian: table id `u32`; the key type and the value type,
//! each as a length `u16` and UTF-8 bytes; one byte of flags (1: cold records are not cached, 2:
//! the table is paged, 4: records expire, 8: shapes follow). If records expire, their lifetime in
//! milliseconds follows as `u64`. Then the shapes of the values up to the end of the row: version
//! `u32`, length `u32`, UTF-8 bytes.

use std::time::Duration;

use super::error::Result;
use super::table_options::{MIN_TTL, TableOptions};
use crate::rid::TableId;
use crate::types::{DecodeError, ValueShape};

/// A table, as listed in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct TableDescription {
    /// The table's name.
    pub name: String,
    /// The table's number, unique for the life of the database.
    pub id: u32,
    /// The type of its keys.
    pub key_type: String,
    /// The type of its values.
    pub value_type: String,
    /// The structure of the values in each version of their type, oldest first, for
    /// known versions. Only tables of [`Postcard`](crate::Postcard) values have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<ValueShape>,
    /// The options it was created with.
    pub options: TableOptions,
}

fn malformed() -> DecodeError {
    DecodeError::new("a catalog entry")
}

/// Flag of a catalog entry: cold records of the table are not cached.
const UNCACHED: u8 = 1;
/// Flag of a catalog entry: the records are on pages.
const PAGED: u8 = 2;
/// Flag of a catalog entry: the records expire.
const EXPIRES: u8 = 4;
/// Flag of a catalog entry: it has the shapes of the values.
const SHAPES: u8 = 8;

impl TableDescription {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.id.to_le_bytes().to_vec();
        for name in [&self.key_type, &self.value_type] {
            let length = u16::try_from(name.len()).expect("checked when the table was created");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        let uncached = if self.options.cache_cold { 0 } else { UNCACHED };
        let expires = if self.options.ttl.is_some() { EXPIRES } else { 0 };
        let shapes = if self.shapes.is_empty() { 0 } else { SHAPES };
        bytes.push(uncached | expires | shapes | if self.options.paged { PAGED } else { 0 });
        bytes.extend(self.options.lifetime_ms().into_iter().flat_map(u64::to_le_bytes));
        for ValueShape { version, shape, .. } in &self.shapes {
            let length = u32::try_from(shape.len()).expect("the engine lists no longer shapes");
            bytes.extend_from_slice(&version.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(shape.as_bytes());
        }
        bytes
    }

    /// Returns the table number in a row.
    pub(super) fn id_of(bytes: &[u8]) -> Result<TableId, DecodeError> {
        let id = bytes.first_chunk().ok_or_else(malformed)?;
        Ok(TableId(u32::from_le_bytes(*id)))
    }

    pub(super) fn decode(name: &[u8], bytes: &[u8]) -> Result<Self, DecodeError> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| malformed());
        let id = Self::id_of(bytes)?.0;
        let mut rest = &bytes[size_of::<u32>()..];
        let mut types = [const { String::new() }; 2];
        for kind in &mut types {
            let (length, tail) = rest.split_first_chunk::<2>().ok_or_else(malformed)?;
            let length = usize::from(u16::from_le_bytes(*length));
            let (name, tail) = tail.split_at_checked(length).ok_or_else(malformed)?;
            *kind = text(name)?;
            rest = tail;
        }
        let (&flags, mut rest) = rest.split_first().ok_or_else(malformed)?;
        if flags & !(UNCACHED | PAGED | EXPIRES | SHAPES) != 0 {
            return Err(malformed());
        }
        let mut ttl = None;
        if flags & EXPIRES != 0 {
            let (milliseconds, tail) = rest.split_first_chunk().ok_or_else(malformed)?;
            ttl = Some(Duration::from_millis(u64::from_le_bytes(*milliseconds)).max(MIN_TTL));
            rest = tail;
        }
        let mut shapes = Vec::new();
        // With the flag, at least one shape follows.
        while flags & SHAPES != 0 && (shapes.is_empty() || !rest.is_empty()) {
            let (version, tail) = rest.split_first_chunk().ok_or_else(malformed)?;
            let (length, tail) = tail.split_first_chunk().ok_or_else(malformed)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| malformed())?;
            let (shape, tail) = tail.split_at_checked(length).ok_or_else(malformed)?;
            shapes.push(ValueShape::new(u32::from_le_bytes(*version), text(shape)?));
            rest = tail;
        }
        if !rest.is_empty() {
            return Err(malformed());
        }
        let options =
            TableOptions { cache_cold: flags & UNCACHED == 0, paged: flags & PAGED != 0, ttl };
        let [key_type, value_type] = types;
        Ok(Self { name: text(name)?, id, key_type, value_type, shapes, options })
    }

    /// Records the current type of the values, and its structure. Keeps the structures of other
    /// versions, because values of older versions stay in the table. Returns whether the
    /// description changed.
    pub(super) fn update_values(&mut self, value_type: String, shape: Option<ValueShape>) -> bool {
        let mut shapes = self.shapes.clone();
        if let Some(shape) = shape {
            shapes.retain(|other| other.version != shape.version);
            shapes.push(shape);
            shapes.sort_by_key(|shape| shape.version);
        }
        let has_changed = (&self.value_type, &self.shapes) != (&value_type, &shapes);
        (self.value_type, self.shapes) = (value_type, shapes);
        has_changed
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn shape(version: u32, shape: &str) -> ValueShape {
        ValueShape::new(version, shape.to_owned())
    }

    #[test]
    fn rows_keep_their_parts_and_are_told_from_damage() {
        let shapes = [vec![], vec![shape(1, "u8")], vec![shape(1, "u8"), shape(7, "{a: str}")]];
        for shapes in shapes {
            for ttl in [None, Some(Duration::from_secs(1))] {
                let options = TableOptions { paged: true, ttl, ..TableOptions::default() };
                let (key_type, value_type) = ("u64".to_owned(), "postcard p".to_owned());
                let (name, shapes) = ("t".to_owned(), shapes.clone());
                let row = TableDescription { name, id: 9, key_type, value_type, shapes, options };
                let bytes = row.encode();
                assert_eq!(TableDescription::decode(b"t", &bytes).unwrap(), row);
                for length in 0..bytes.len() {
                    let cut = TableDescription::decode(b"t", &bytes[..length]);
                    // Without its last shapes a row is a row with fewer shapes.
                    assert!(cut.is_err() || row.shapes.len() > 1, "{length}");
                }
                assert!(TableDescription::decode(b"t", &[&bytes[..], &[0]].concat()).is_err());
            }
        }
    }

    #[test]
    fn shapes_of_older_versions_stay_listed() {
        let row = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0]].concat();
        let mut row = TableDescription::decode(b"t", &row).unwrap();
        assert!(row.update_values("postcard p".to_owned(), Some(shape(1, "u8"))));
        assert!(!row.update_values("postcard p".to_owned(), Some(shape(1, "u8"))));
        assert!(row.update_values("postcard p v3".to_owned(), Some(shape(3, "u16"))));
        assert!(row.update_values("postcard p v3".to_owned(), Some(shape(3, "(u16,)"))));
        assert_eq!(row.shapes, [shape(1, "u8"), shape(3, "(u16,)")]);
    }
}
