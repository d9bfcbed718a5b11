//! External merge sort: sorted runs in an unnamed temporary file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;

use super::rows::{Rejected, Rejections, Rows, repeated};

/// Size of the write buffer.
const WRITTEN_BYTES: usize = 1 << 20;
/// Minimum size of a read.
const MIN_READ_BYTES: u64 = 4 << 10;
/// Header of a row: its line, and the lengths of its key and its value, little-endian.
const HEAD_BYTES: usize = 16;

/// Context of I/O errors.
const CANNOT_USE: &str = "cannot use a temporary file";

/// Runs in a file that the operating system deletes when the file is closed or the process ends.
#[derive(Debug)]
pub struct Spilled {
    file: BufWriter<File>,
    /// End of each run, which is the start of the next.
    ends: Vec<u64>,
}

impl Spilled {
    /// Creates the file in a directory.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(directory: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(directory)?;
        Ok(Self { file: BufWriter::with_capacity(WRITTEN_BYTES, file), ends: Vec::new() })
    }

    /// Adds a sorted run.
    ///
    /// # Errors
    /// I/O errors.
    pub fn add(&mut self, run: &Rows) -> Result<()> {
        let mut end = self.ends.last().copied().unwrap_or(0);
        for row in 0..run.len() {
            let (line, key, value) = run.get(row);
            let length =
                |part: &[u8]| u32::try_from(part.len()).expect("rows are limited to 64 MiB");
            let mut head = [0; HEAD_BYTES];
            head[..8].copy_from_slice(&line.to_le_bytes());
            head[8..12].copy_from_slice(&length(key).to_le_bytes());
            head[12..].copy_from_slice(&length(value).to_le_bytes());
            for part in [&head, key, value] {
                self.file.write_all(part)?;
                end += part.len() as u64;
            }
        }
        self.ends.push(end);
        Ok(())
    }

    /// Merges the runs in key order, with about `bytes` of memory for reading.
    ///
    /// # Errors
    /// I/O errors.
    pub fn merge(&mut self, bytes: u64) -> Result<Merge> {
        self.file.flush()?;
        let file = self.file.get_ref().try_clone()?;
        let piece = (bytes / self.ends.len().max(1) as u64).max(MIN_READ_BYTES);
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let runs = starts.zip(&self.ends).map(|(at, end)| RunReader::new(at, *end, piece));
        let mut merge = Merge { file, runs: runs.collect(), next: BinaryHeap::new(), last: None };
        for run in 0..merge.runs.len() {
            merge.advance(run, Vec::new())?;
        }
        Ok(merge)
    }
}

/// Sorted runs. All but the last are in a file.
#[derive(Debug, Default)]
pub struct Gathered {
    last: Option<Rows>,
    spilled: Option<Spilled>,
}

impl Gathered {
    /// Holds a single run.
    pub fn of(run: Rows) -> Self {
        Self { last: Some(run), spilled: None }
    }

    /// Keeps a run in memory, and writes the previous run to a file in `directory`. Returns the
    /// memory of the previous run.
    ///
    /// # Errors
    /// I/O errors.
    pub fn add(&mut self, run: Rows, directory: &Path) -> anyhow::Result<Option<Rows>> {
        let Some(before) = self.last.replace(run) else { return Ok(None) };
        let cannot = || format!("cannot write a temporary file to {}", directory.display());
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            None => self.spilled.insert(Spilled::new(directory).with_context(cannot)?),
        };
        spilled.add(&before).with_context(cannot)?;
        Ok(Some(before))
    }

    /// Ends the input. If several runs exist, writes the last one to the file too, and empties its
    /// memory.
    ///
    /// # Errors
    /// I/O errors.
    pub fn end(&mut self) -> anyhow::Result<()> {
        let last = self.last.as_mut().expect("at least an empty run was loaded");
        if let Some(spilled) = &mut self.spilled {
            spilled.add(last).context(CANNOT_USE)?;
            last.clear();
        }
        Ok(())
    }

    /// Returns the rows of a single run; or an empty run to fill, and the merge of several runs,
    /// which takes about `bytes` of memory.
    ///
    /// # Errors
    /// I/O errors.
    pub fn rows(&mut self, bytes: u64) -> anyhow::Result<(Rows, Option<Merge>)> {
        let rows = self.last.take().unwrap_or_default();
        let merge = self.spilled.as_mut().map(|spilled| spilled.merge(bytes));
        Ok((rows, merge.transpose().context(CANNOT_USE)?))
    }
}

/// The rows of several runs in key order.
#[derive(Debug)]
pub struct Merge {
    file: File,
    runs: Vec<RunReader>,
    /// The next key and line of each run that has one.
    next: BinaryHeap<Reverse<(Vec<u8>, u64, usize)>>,
    last: Option<Vec<u8>>,
}

impl Merge {
    /// Adds rows to `rows` until they take about `bytes`, and rejects rows whose key occurs on an
    /// earlier line. Returns `false` after the last row.
    ///
    /// # Errors
    /// I/O errors.
    pub fn fill(
        &mut self,
        rows: &mut Rows,
        bytes: u64,
        rejected: &mut Rejections,
    ) -> anyhow::Result<bool> {
        while (rows.bytes() as u64) < bytes {
            let Some(Reverse((key, line, run))) = self.next.pop() else { return Ok(false) };
            if self.last.as_ref() == Some(&key) {
                rejected.add(Rejected { line, reason: repeated(&key) });
            } else {
                rows.push(line, &key, self.runs[run].value());
            }
            let spare = self.last.replace(key).unwrap_or_default();
            self.advance(run, spare).context(CANNOT_USE)?;
        }
        Ok(true)
    }

    /// Advances to the next row of a run.
    fn advance(&mut self, run: usize, mut key: Vec<u8>) -> Result<()> {
        let reader = &mut self.runs[run];
        if reader.read(&self.file)? {
            key.clear();
            key.extend_from_slice(reader.key());
            self.next.push(Reverse((key, reader.line, run)));
        }
        Ok(())
    }
}

/// Reads a run row by row.
#[derive(Debug)]
struct RunReader {
    /// The unread range of the file.
    at: u64,
    end: u64,
    piece: u64,
    buffer: Vec<u8>,
    /// Start of the next row in the buffer.
    next: usize,
    line: u64,
    /// Start of the key and of the value in the buffer.
    key: usize,
    value: usize,
}

impl RunReader {
    fn new(at: u64, end: u64, piece: u64) -> Self {
        Self { at, end, piece, buffer: Vec::new(), next: 0, line: 0, key: 0, value: 0 }
    }

    /// Reads the next row. Returns `false` after the last row.
    fn read(&mut self, file: &File) -> Result<bool> {
        if self.next == self.buffer.len() && self.at == self.end {
            return Ok(false);
        }
        self.need(file, HEAD_BYTES)?;
        let head = &self.buffer[self.next..][..HEAD_BYTES];
        let length = |at: usize| {
            let bytes = head[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes) as usize
        };
        self.line = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
        let (key, value) = (length(8), length(12));
        self.need(file, HEAD_BYTES + key + value)?;
        self.key = self.next + HEAD_BYTES;
        self.value = self.key + key;
        self.next = self.value + value;
        Ok(true)
    }

    /// Reads until the buffer has `bytes` from the start of the next row.
    fn need(&mut self, file: &File, bytes: usize) -> Result<()> {
        if self.buffer.len() - self.next >= bytes {
            return Ok(());
        }
        self.buffer.drain(..self.next);
        self.next = 0;
        let (kept, missing) = (self.buffer.len(), (bytes - self.buffer.len()) as u64);
        let more = missing.max(self.piece).min(self.end - self.at);
        self.buffer.resize(kept + more as usize, 0);
        file.read_exact_at(&mut self.buffer[kept..], self.at)?;
        self.at += more;
        Ok(())
    }

    fn key(&self) -> &[u8] {
        &self.buffer[self.key..self.value]
    }

    fn value(&self) -> &[u8] {
        &self.buffer[self.value..self.next]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged_in_key_order() {
        let (mut rejected, mut line) = (Rejections::default(), 0);
        let mut spilled = Spilled::new(&std::env::temp_dir()).unwrap();
        // One run is empty, and one has a value longer than a read.
        for run in 0..7_u64 {
            let mut rows = Rows::default();
            for row in 0..(run * 100) {
                line += 1;
                let key = format!("{:05}", row * 7 + run);
                let long = if row == 50 { 100_000 } else { 3 };
                rows.push(line, key.as_bytes(), key.repeat(long).as_bytes());
            }
            line += 1;
            if run > 0 {
                rows.push(line, b"99999", b"first");
            }
            rows.sort(&mut rejected);
            spilled.add(&rows).unwrap();
        }
        assert_eq!(rejected.count, 0);
        let mut merge = spilled.merge(1).unwrap();
        let (mut rows, mut all, mut more) = (Rows::default(), Vec::new(), true);
        while more {
            more = merge.fill(&mut rows, 10_000, &mut rejected).unwrap();
            all.extend((0..rows.len()).map(|row| {
                let (line, key, value) = rows.get(row);
                (line, String::from_utf8(key.to_vec()).unwrap(), value.len())
            }));
            rows.clear();
        }
        assert_eq!(all.len(), 2100 + 1);
        assert!(all.is_sorted_by(|a, b| a.1 < b.1));
        assert!(all[..2100].iter().all(|(_, _, bytes)| *bytes == 15 || *bytes == 500_000));
        assert_eq!(all[2100], (102, "99999".to_owned(), 5), "the row of the first line");
        assert_eq!(rejected.count, 5);
    }
}
