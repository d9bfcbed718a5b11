//! Runs of rows in few allocations, and rejected rows.

use crate::codec::to_hex;
use crate::shown::quoted;

/// Rows of a file: keys and values in one buffer.
#[derive(Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

/// Length of the key prefix that the sort compares first.
const HEAD: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Row {
    line: u64,
    start: usize,
    key: u32,
    value: u32,
}

/// A rejected row.
#[derive(Debug)]
pub struct Rejected {
    pub line: u64,
    pub reason: String,
}

impl Rows {
    /// Adds a row.
    pub fn push(&mut self, line: u64, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let length = |bytes: &[u8]| {
            u32::try_from(bytes.len()).expect("longer keys and values were rejected")
        };
        self.rows.push(Row { line, start, key: length(key), value: length(value) });
    }

    /// Adds the rows of another run.
    pub fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.rows.extend(other.rows.iter().map(|row| Row { start: row.start + start, ..*row }));
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The memory of the rows, including that for sorting.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.rows.len() * (size_of::<Row>() + size_of::<([u8; HEAD], usize)>())
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    /// The line, the key and the value of a row.
    pub fn get(&self, number: usize) -> (u64, &[u8], &[u8]) {
        let row = self.rows[number];
        let (key, value) = self.bytes[row.start..].split_at(row.key as usize);
        (row.line, key, &value[..row.value as usize])
    }

    /// Sorts the rows by key, and rejects rows whose key occurs on an earlier line.
    pub fn sort(&mut self, rejections: &mut Rejections) {
        let Self { bytes, rows } = self;
        let key = |row: &Row| &bytes[row.start..row.start + row.key as usize];
        if rows.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])) {
            return;
        }
        // Most comparisons need only the prefixes, which are contiguous in memory.
        let mut order: Vec<([u8; HEAD], usize)> = Vec::with_capacity(rows.len());
        for (number, row) in rows.iter().enumerate() {
            let (mut head, key) = ([0; HEAD], key(row));
            let length = key.len().min(HEAD);
            head[..length].copy_from_slice(&key[..length]);
            order.push((head, number));
        }
        order.sort_unstable_by(|(head, row), (other_head, other)| {
            let by_head = u128::from_be_bytes(*head).cmp(&u128::from_be_bytes(*other_head));
            by_head.then_with(|| {
                let (row, other) = (&rows[*row], &rows[*other]);
                key(row).cmp(key(other)).then(row.line.cmp(&other.line))
            })
        });
        *rows = order.into_iter().map(|(_, row)| rows[row]).collect();
        rows.dedup_by(|row, before| {
            let same = key(row) == key(before);
            if same {
                rejections.add(Rejected { line: row.line, reason: repeated(key(row)) });
            }
            same
        });
    }
}

/// The reason for rejecting a duplicate key.
pub fn repeated(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.contains(char::is_control) => {
            format!("an earlier row has its key {}", quoted(text))
        }
        _ => format!("an earlier row has its key, which is encoded as {}", to_hex(key)),
    }
}

/// The number of rejected rows, and the first of them.
#[derive(Debug, Default)]
pub struct Rejections {
    pub count: u64,
    first: Vec<Rejected>,
}

/// Maximum number of rejected rows that are printed.
const MAX_PRINTED: usize = 20;

impl Rejections {
    /// Adds a rejected row.
    pub fn add(&mut self, rejected: Rejected) {
        self.count += 1;
        self.first.push(rejected);
        if self.first.len() >= 2 * MAX_PRINTED {
            self.keep_first();
        }
    }

    /// Moves the rejected rows of `other` here.
    pub fn append(&mut self, other: &mut Self) {
        self.count += std::mem::take(&mut other.count);
        self.first.append(&mut other.first);
        self.keep_first();
    }

    fn keep_first(&mut self) {
        self.first.sort_by_key(|rejected| rejected.line);
        self.first.truncate(MAX_PRINTED);
    }

    /// Prints the rejected rows to standard error. `unit` is line or row.
    pub fn print(&mut self, name: &str, unit: &str) {
        self.keep_first();
        for Rejected { line, reason } in &self.first {
            eprintln!("braid: {name} {unit} {line}: rejected: {reason}");
        }
        let more = self.count - self.first.len() as u64;
        if more > 0 {
            eprintln!("braid: and {more} more rejected {}", if more == 1 { "row" } else { "rows" });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sort_keeps_the_first_line_of_equal_keys() {
        let (mut rows, mut rejected) = (Rows::default(), Rejections::default());
        for (line, key, value) in [(2, "b", "1"), (3, "a", "22"), (4, "b", ""), (5, "", "3")] {
            rows.push(line, key.as_bytes(), value.as_bytes());
        }
        let mut more = Rows::default();
        more.push(7, b"a", b"no");
        rows.append(&more);
        rows.sort(&mut rejected);
        let all: Vec<(u64, &[u8], &[u8])> = (0..rows.len()).map(|row| rows.get(row)).collect();
        assert_eq!(all, [(5, &b""[..], &b"3"[..]), (3, b"a", b"22"), (2, b"b", b"1")]);
        rejected.keep_first();
        let lines: Vec<u64> = rejected.first.iter().map(|row| row.line).collect();
        assert_eq!(lines, [4, 7]);
        assert!(rejected.first[0].reason.contains("\"b\""), "{rejected:?}");
    }

    #[test]
    fn the_first_rejected_rows_are_kept() {
        let mut rejections = Rejections::default();
        for line in (0..1000).rev() {
            rejections.add(Rejected { line, reason: String::new() });
        }
        rejections.keep_first();
        let lines: Vec<u64> = rejections.first.iter().map(|row| row.line).collect();
        assert_eq!((rejections.count, lines), (1000, (0..MAX_PRINTED as u64).collect()));
    }
}
