//! What rows take in the index of a table that is not paged, which stays in memory however little `--memory` allows.

use braiddb::Database;

use super::rows::Rows;

const MIB: u64 = 1 << 20;
/// Bytes of a row in the nodes of an index that is filled in the order of its keys, and its place in the list of records.
const ROW_BYTES: u64 = 18 + 8;
/// Keys that are no longer lie in the nodes.
const MOST_INLINE_BYTES: usize = 8;
/// Bytes beside a key that lies outside.
const BESIDE_BYTES: u64 = 16;
/// Up to this much memory the log's buffer is the smaller one, as `--memory` says.
const LITTLE_MEMORY: u64 = 256 * MIB;

/// The bytes of an index, about.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexBytes(u64);

impl IndexBytes {
    /// Adds some rows.
    pub fn add(&mut self, rows: &Rows) {
        for row in 0..rows.len() {
            let (_, key, _) = rows.get(row);
            let outside = key.len() > MOST_INLINE_BYTES;
            self.0 += ROW_BYTES + if outside { key.len() as u64 + BESIDE_BYTES } else { 0 };
        }
    }

    /// Warns, on standard error, if rows and what there is in memory already take more than `memory` leaves them.
    pub fn warn(self, db: &Database, memory: u64) {
        let there = db.stats().memory;
        let bytes = self.0 + there.index_nodes + there.keys + there.indirection;
        if let Some(warning) = warning(bytes, memory) {
            eprintln!("braid: {warning}");
        }
    }
}

/// What is said of indexes that take more than the memory leaves them.
fn warning(bytes: u64, memory: u64) -> Option<String> {
    let log = if memory < LITTLE_MEMORY { 32 * MIB } else { 64 * MIB };
    let left = memory.saturating_sub(log);
    (bytes > left).then(|| {
        format!(
            "with these rows the index takes some {} MiB, and stays in memory, though --memory leaves {} MiB \
             beside the log's buffer; give more memory, or import into a new table with --paged, whose index \
             leaves memory",
            bytes.div_ceil(MIB),
            left / MIB
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_keys_take_less_than_long_ones() {
        let bytes = |key: &str| {
            let (mut rows, mut bytes) = (Rows::default(), IndexBytes::default());
            rows.push(1, key.as_bytes(), b"value");
            rows.push(2, key.as_bytes(), b"");
            bytes.add(&rows);
            bytes.0
        };
        assert_eq!((bytes("8 bytes!"), bytes("9 bytes!!")), (2 * 26, 2 * (26 + 25)));
    }

    #[test]
    fn what_the_memory_leaves_beside_the_log_is_the_limit() {
        assert_eq!(warning(36 * MIB, 68 * MIB), None);
        let said = warning(36 * MIB + 1, 68 * MIB).unwrap();
        assert!(said.contains("some 37 MiB") && said.contains("leaves 36 MiB"), "{said}");
        assert_eq!(warning(192 * MIB, 256 * MIB), None);
        assert!(warning(193 * MIB, 256 * MIB).unwrap().contains("--paged"));
    }
}
