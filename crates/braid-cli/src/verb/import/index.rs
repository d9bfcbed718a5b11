//! Estimate of the memory of an index. The index of a table that is not paged always stays in
//! memory, even beyond `--memory`. A new table whose index would exceed it is therefore created as
//! a paged table.

use std::fmt;

use braiddb::{Database, MAX_PAGED_KEY_BYTES};

use super::rows::Rows;

const MIB: u64 = 1 << 20;
/// Bytes of a row in the nodes of an index that is filled in key order, and in the list of records.
const ROW_BYTES: u64 = 18 + 8;
/// Keys up to this length are stored in the nodes.
const MAX_INLINE_BYTES: usize = 8;
/// Overhead of a key that is stored outside the nodes.
const OUTSIDE_BYTES: u64 = 16;

/// Estimated bytes of rows in an index, if all keys are new.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexBytes {
    bytes: u64,
    longest_key: usize,
}

/// An index that exceeds the memory available for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// MiB of the index, and MiB available.
    index: u64,
    left: u64,
    longest_key: usize,
}

impl IndexBytes {
    /// Adds rows.
    pub fn add(&mut self, rows: &Rows) {
        for row in 0..rows.len() {
            let (_, key, _) = rows.get(row);
            let outside = key.len() > MAX_INLINE_BYTES;
            self.bytes += ROW_BYTES + if outside { key.len() as u64 + OUTSIDE_BYTES } else { 0 };
            self.longest_key = self.longest_key.max(key.len());
        }
    }

    /// Returns an error if the rows and the existing indexes exceed the memory budget without the
    /// ring of the log.
    pub fn too_large(self, db: &Database) -> Option<TooLarge> {
        let memory = db.stats().memory;
        let existing = memory.index_nodes + memory.keys + memory.indirection;
        self.exceeds(existing, memory.budget?.saturating_sub(memory.ring))
    }

    fn exceeds(self, existing: u64, left: u64) -> Option<TooLarge> {
        let bytes = self.bytes + existing;
        let (index, left_mib) = (bytes.div_ceil(MIB), left / MIB);
        let found = TooLarge { index, left: left_mib, longest_key: self.longest_key };
        (bytes > left).then_some(found)
    }
}

impl TooLarge {
    /// Returns whether a paged table can hold the rows.
    pub fn may_be_paged(self) -> bool {
        self.longest_key <= MAX_PAGED_KEY_BYTES
    }

    /// The message if the new table is created as a paged table.
    pub fn paged_message(self, table: &str) -> String {
        let Self { index, left, .. } = self;
        format!(
            "the index of these rows may take {index} MiB, and --memory leaves {left} MiB; the new \
             table {table:?} is created as a paged table, as with --paged"
        )
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, left, longest_key } = self;
        write!(
            f,
            "with these rows the index may take {index} MiB of memory, but --memory leaves {left} \
             MiB; raise --memory"
        )?;
        match self.may_be_paged() {
            true => f.write_str(
                ", or import into a new table, which is created as a paged table, \
                whose index may exceed memory",
            ),
            false => write!(
                f,
                " (the table cannot be paged: a key has {longest_key} bytes, and keys of paged \
                 tables have at most {MAX_PAGED_KEY_BYTES})"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_keys(keys: &[&str]) -> IndexBytes {
        let (mut rows, mut bytes) = (Rows::default(), IndexBytes::default());
        for (line, key) in (1..).zip(keys) {
            rows.push(line, key.as_bytes(), b"value");
        }
        bytes.add(&rows);
        bytes
    }

    #[test]
    fn short_index_keys_use_fewer_bytes() {
        let bytes = |key| of_keys(&[key, key]).bytes;
        assert_eq!((bytes("8 bytes!"), bytes("9 bytes!!")), (2 * 26, 2 * (26 + 25)));
    }

    #[test]
    fn the_remaining_budget_is_the_limit() {
        let none = IndexBytes::default();
        assert_eq!(none.exceeds(36 * MIB, 36 * MIB), None);
        let found = none.exceeds(36 * MIB + 1, 36 * MIB).unwrap();
        assert_eq!(found, TooLarge { index: 37, left: 36, longest_key: 0 });
        let said = none.exceeds(193 * MIB, 192 * MIB).unwrap().to_string();
        assert!(said.contains("may take 193 MiB") && said.contains("leaves 192 MiB"), "{said}");
        assert!(said.contains("paged table"), "{said}");
    }

    #[test]
    fn keys_too_long_for_pages_stay_in_memory() {
        let long = |bytes| of_keys(&["k".repeat(bytes).as_str()]).exceeds(64 * MIB, 36 * MIB);
        assert!(long(MAX_PAGED_KEY_BYTES).unwrap().may_be_paged());
        let found = long(MAX_PAGED_KEY_BYTES + 1).unwrap();
        assert!(!found.may_be_paged() && found.to_string().contains("a key has 513 bytes"));
    }
}
