//! What rows take in the index of a table that is not paged, which stays in memory however little `--memory` allows: so a new
//! table whose index would take more is made a paged one.

use std::fmt;

use braiddb::{Database, MAX_PAGED_KEY_BYTES};

use super::rows::Rows;

const MIB: u64 = 1 << 20;
/// Bytes of a row in the nodes of an index that is filled in the order of its keys, and its place in the list of records.
const ROW_BYTES: u64 = 18 + 8;
/// Keys that are no longer lie in the nodes.
const MAX_INLINE_BYTES: usize = 8;
/// Bytes beside a key that lies outside.
const BESIDE_BYTES: u64 = 16;

/// What rows take in an index, about, if the keys of all are different, and none is there already.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexBytes {
    bytes: u64,
    longest_key: usize,
}

/// An index that takes more than the memory leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// MiB of the index, and of what is left for it.
    index: u64,
    left: u64,
    longest_key: usize,
}

impl IndexBytes {
    /// Adds some rows.
    pub fn add(&mut self, rows: &Rows) {
        for row in 0..rows.len() {
            let (_, key, _) = rows.get(row);
            let outside = key.len() > MAX_INLINE_BYTES;
            self.bytes += ROW_BYTES + if outside { key.len() as u64 + BESIDE_BYTES } else { 0 };
            self.longest_key = self.longest_key.max(key.len());
        }
    }

    /// Whether the rows, and what there is in memory already, take more than the database's budget leaves beside the log's
    /// ring.
    pub fn too_large(self, db: &Database) -> Option<TooLarge> {
        let there = db.stats().memory;
        let there_bytes = there.index_nodes + there.keys + there.indirection;
        self.exceeds(there_bytes, there.budget?.saturating_sub(there.ring))
    }

    fn exceeds(self, there: u64, left: u64) -> Option<TooLarge> {
        let bytes = self.bytes + there;
        let (index, left_mib) = (bytes.div_ceil(MIB), left / MIB);
        let found = TooLarge { index, left: left_mib, longest_key: self.longest_key };
        (bytes > left).then_some(found)
    }
}

impl TooLarge {
    /// Whether the rows can be on pages instead.
    pub fn may_be_paged(self) -> bool {
        self.longest_key <= MAX_PAGED_KEY_BYTES
    }

    /// What is said where the rows go onto pages for it.
    pub fn told(self, table: &str) -> String {
        let Self { index, left, .. } = self;
        format!(
            "the index of these rows may take {index} MiB of memory, and --memory leaves {left} MiB: so the records of \
             the new table {table:?}, and its index, lie on pages, as with --paged"
        )
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, left, longest_key } = self;
        write!(
            f,
            "with these rows the index may take {index} MiB, and stays in memory, though --memory leaves {left} MiB; give \
             more memory"
        )?;
        match self.may_be_paged() {
            true => f.write_str(", or import into a new table, which is made one on pages, whose index leaves memory"),
            false => write!(
                f,
                ": it cannot leave it, for a key has {longest_key} bytes, and keys of tables on pages have {MAX_PAGED_KEY_BYTES} at \
                 most"
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
    fn short_keys_take_less_than_long_ones() {
        let bytes = |key| of_keys(&[key, key]).bytes;
        assert_eq!((bytes("8 bytes!"), bytes("9 bytes!!")), (2 * 26, 2 * (26 + 25)));
    }

    #[test]
    fn what_the_budget_leaves_is_the_limit() {
        let none = IndexBytes::default();
        assert_eq!(none.exceeds(36 * MIB, 36 * MIB), None);
        let found = none.exceeds(36 * MIB + 1, 36 * MIB).unwrap();
        assert_eq!(found, TooLarge { index: 37, left: 36, longest_key: 0 });
        let said = none.exceeds(193 * MIB, 192 * MIB).unwrap().to_string();
        assert!(said.contains("may take 193 MiB") && said.contains("leaves 192 MiB"), "{said}");
        assert!(said.contains("on pages"), "{said}");
    }

    #[test]
    fn keys_that_are_too_long_for_pages_stay_in_memory() {
        let long = |bytes| of_keys(&["k".repeat(bytes).as_str()]).exceeds(64 * MIB, 36 * MIB);
        assert!(long(MAX_PAGED_KEY_BYTES).unwrap().may_be_paged());
        let found = long(MAX_PAGED_KEY_BYTES + 1).unwrap();
        assert!(!found.may_be_paged() && found.to_string().contains("a key has 513 bytes"));
    }
}
