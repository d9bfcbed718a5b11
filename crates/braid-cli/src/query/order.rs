//! Sorting of printed records by columns, in memory.

use std::cmp::Ordering;
use std::io::{self, Write};

use anyhow::{Result, bail};

use super::value::Comparable;

/// Maximum memory of the rows that are sorted.
pub const MAX_BYTES: usize = 1 << 30;

/// A column of `--order`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderColumn {
    pub column: String,
    descending: bool,
}

impl OrderColumn {
    /// Parses `column`, `column:asc` or `column:desc`.
    ///
    /// # Errors
    /// If the name is empty.
    pub fn parse(word: &str) -> Result<Self, String> {
        let (column, descending) = match word.rsplit_once(':') {
            Some((column, "desc")) => (column, true),
            Some((column, "asc")) => (column, false),
            _ => (word, false),
        };
        match column.is_empty() {
            true => Err("give the name of a column".to_owned()),
            false => Ok(Self { column: column.to_owned(), descending }),
        }
    }
}

/// Appends a record to sort to a page: the JSON of its columns, and its row.
pub fn append(page: &mut Vec<u8>, columns: &[Option<String>], row: &[u8]) {
    let columns = serde_json::to_vec(columns).expect("text is written to memory");
    for part in [&columns[..], row] {
        page.extend_from_slice(&(part.len() as u64).to_le_bytes());
        page.extend_from_slice(part);
    }
}

/// Receives pages of records, and sorts them.
pub struct Sorter {
    order: Vec<OrderColumn>,
    /// Only as many rows are needed.
    limit: usize,
    rows: Vec<Row>,
    /// Maximum memory of the rows.
    max_bytes: usize,
    bytes: usize,
}

/// The columns of a record, and its text.
type Row = (Vec<Comparable>, Vec<u8>);

/// The memory of a row, also while the list of rows grows and is sorted.
fn memory((columns, text): &Row) -> usize {
    let heap: usize = columns.iter().map(Comparable::heap_bytes).sum();
    2 * size_of::<Row>() + size_of_val(&columns[..]) + heap + text.len()
}

impl Sorter {
    pub fn new(order: Vec<OrderColumn>, limit: u64, max_bytes: usize) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { order, limit, max_bytes, rows: Vec::new(), bytes: 0 }
    }

    /// Returns the sorted rows. Rows that are equal stay in their order.
    pub fn finish(mut self) -> impl Iterator<Item = Vec<u8>> {
        self.sort();
        self.rows.into_iter().map(|(_, row)| row)
    }

    fn sort(&mut self) {
        let order = &self.order;
        self.rows.sort_by(|(one, _), (other, _)| {
            let columns = order.iter().zip(one.iter().zip(other));
            let mut orders = columns.map(|(order, (one, other))| match order.descending {
                true => other.cmp(one),
                false => one.cmp(other),
            });
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
        self.rows.truncate(self.limit);
        self.bytes = self.rows.iter().map(memory).sum();
    }

    fn add(&mut self, mut page: &[u8]) -> Result<()> {
        let mut part = || {
            let (length, rest) = page.split_first_chunk()?;
            let (part, rest) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).ok()?);
            page = rest;
            Some(part)
        };
        while let (Some(columns), Some(row)) = (part(), part()) {
            let columns: Vec<Option<String>> = serde_json::from_slice(columns)?;
            let columns = columns.iter().map(|json| Comparable::of(json.as_deref())).collect();
            let row = (columns, row.to_vec());
            self.bytes += memory(&row);
            self.rows.push(row);
        }
        let (count, is_full) = (self.rows.len(), self.bytes > self.max_bytes);
        if count / 2 > self.limit.max(1000) || is_full && count > self.limit {
            self.sort();
        }
        if self.bytes > self.max_bytes {
            bail!(
                "the records to sort take more than {} MiB of memory; narrow them with --where, or \
                 print the first with --limit",
                self.max_bytes >> 20
            );
        }
        Ok(())
    }
}

impl Write for Sorter {
    /// Expects complete records.
    fn write(&mut self, page: &[u8]) -> io::Result<usize> {
        self.add(page).map_err(io::Error::other)?;
        Ok(page.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(order: &[&str], limit: u64, rows: &[&[&str]]) -> Vec<String> {
        let order = order.iter().map(|word| OrderColumn::parse(word).unwrap()).collect();
        let mut sorter = Sorter::new(order, limit, MAX_BYTES);
        for (number, row) in rows.iter().enumerate() {
            let columns: Vec<_> = row
                .iter()
                .map(|json| Some((*json).to_owned()).filter(|json| !json.is_empty()))
                .collect();
            let mut page = Vec::new();
            append(&mut page, &columns, number.to_string().as_bytes());
            sorter.write_all(&page).unwrap();
        }
        sorter.finish().map(|row| String::from_utf8(row).unwrap()).collect()
    }

    #[test]
    fn rows_are_sorted_by_columns() {
        let rows: &[&[&str]] = &[&["\"b\"", "10"], &["\"a\"", "9"], &["", "9"], &["\"b\"", "9"]];
        assert_eq!(sorted(&["x", "y"], 9, rows), ["2", "1", "3", "0"]);
        assert_eq!(sorted(&["x:desc", "y:asc"], 9, rows), ["3", "0", "1", "2"]);
        assert_eq!(sorted(&["x:desc"], 1, rows), ["0"]);
        let many: Vec<String> = (0..5000).rev().map(|number| number.to_string()).collect();
        let many: Vec<[&str; 1]> = many.iter().map(|number| [&**number]).collect();
        let many: Vec<&[&str]> = many.iter().map(|row| &row[..]).collect();
        assert_eq!(sorted(&["n"], 2, &many), ["4999", "4998"]);
    }

    #[test]
    fn memory_is_bounded() {
        let row = vec![b'x'; 1 << 20];
        let add = |sorter: &mut Sorter, number: usize, row: &[u8]| {
            let mut page = Vec::new();
            append(&mut page, &[Some(number.to_string())], row);
            sorter.add(&page)
        };
        let order = || vec![OrderColumn::parse("n").unwrap()];
        let mut first = Sorter::new(order(), 2, 64 << 20);
        for number in (0..200).rev() {
            add(&mut first, number, &row).unwrap();
            assert!(first.bytes <= 65 << 20, "{}", first.bytes);
        }
        assert_eq!(first.finish().count(), 2);
        let mut all = Sorter::new(order(), u64::MAX, 64 << 20);
        let error = (0..200).find_map(|number| add(&mut all, number, &row).err()).unwrap();
        assert!(error.to_string().contains("--where"), "{error}");
        // Short rows take more memory than their text.
        let mut short = Sorter::new(order(), u64::MAX, 1 << 20);
        assert!((0..12_000).any(|number| add(&mut short, number, b"x").is_err()));
        // The columns count too.
        let (mut wide, text) = (Sorter::new(order(), u64::MAX, 1 << 20), "\"y".repeat(100_000));
        let mut page = Vec::new();
        append(&mut page, &[serde_json::to_string(&text).ok()], b"x");
        assert!((0..9).any(|_| wide.add(&page).is_err()));
    }
}
