//! Contents of a simulated disk: for every file the bytes that a program reads, the bytes that
//! survive any crash, and the writes that a crash may keep, drop, tear or reorder.
//!
//! Invariant: `durable` with all of `unsynced` applied in order equals `sectors`, unless a sync
//! failed. The same holds for the names.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::CrashCounts;
use crate::io::SECTOR_BYTES;

/// Unit of atomic writes.
const ATOM_BYTES: usize = 512;

/// The bytes of a sector; `None` if all are zero.
pub(super) type Sector = Option<Arc<[u8; SECTOR_BYTES]>>;

/// One file.
#[derive(Clone, Debug, Default)]
struct FileNode {
    sectors: Vec<Sector>,
    length: u64,
    durable: Vec<Sector>,
    durable_length: u64,
    /// Unsynced writes, in order.
    unsynced: Vec<(usize, Sector)>,
    /// Sectors before the end that take no space.
    holes: BTreeSet<usize>,
}

/// An unsynced change of names.
#[derive(Clone, Debug)]
enum NameChange {
    Create { name: String, file: usize },
    Rename { from: String, to: String },
    Remove { name: String },
}

/// The files and names of one disk.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskNodes {
    files: Vec<FileNode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    changes: Vec<NameChange>,
}

/// Splits bytes into sectors.
pub(super) fn sectors(bytes: &[u8]) -> impl Iterator<Item = Sector> {
    assert!(bytes.len().is_multiple_of(SECTOR_BYTES), "transfers have whole sectors");
    bytes.chunks_exact(SECTOR_BYTES).map(|sector| {
        let zero = *sector == [0; SECTOR_BYTES];
        (!zero).then(|| Arc::new(sector.try_into().expect("a chunk is a sector")))
    })
}

fn index(offset: u64) -> usize {
    assert!(offset.is_multiple_of(SECTOR_BYTES as u64), "transfers start at sectors");
    (offset / SECTOR_BYTES as u64) as usize
}

fn set(sectors: &mut Vec<Sector>, index: usize, sector: Sector) {
    if sectors.len() <= index {
        sectors.resize(index + 1, None);
    }
    sectors[index] = sector;
}

fn apply(names: &mut BTreeMap<String, usize>, change: &NameChange) {
    match change {
        NameChange::Create { name, file } => _ = names.insert(name.clone(), *file),
        NameChange::Rename { from, to } => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        NameChange::Remove { name } => _ = names.remove(name),
    }
}

impl FileNode {
    fn write(&mut self, offset: u64, written: impl Iterator<Item = Sector>, sync: bool) {
        let first = index(offset);
        // A file system allocates no space between the end of a file and a write after it.
        self.holes.extend(self.length.div_ceil(SECTOR_BYTES as u64) as usize..first);
        let mut after = first;
        for sector in written {
            set(&mut self.sectors, after, sector.clone());
            self.holes.remove(&after);
            if sync {
                set(&mut self.durable, after, sector);
            } else {
                self.unsynced.push((after, sector));
            }
            after += 1;
        }
        let end = (after * SECTOR_BYTES) as u64;
        self.length = self.length.max(end);
        if sync {
            self.unsynced.retain(|(index, _)| !(first..after).contains(index));
            self.durable_length = self.durable_length.max(end);
        }
    }

    fn sync(&mut self) {
        for (index, sector) in self.unsynced.drain(..) {
            set(&mut self.durable, index, sector);
        }
        self.durable_length = self.length;
    }

    /// Returns the file after a crash; `keep` is the probability that an unsynced sector is kept.
    fn crash(
        &self,
        in_flight: &[(usize, Sector)],
        keep: f64,
        random: &mut fastrand::Rng,
        counts: &mut CrashCounts,
    ) -> Self {
        let mut left = self.durable.clone();
        for (index, sector) in self.unsynced.iter().chain(in_flight) {
            if random.f64() >= keep {
                counts.dropped += 1;
            } else if random.u8(0..8) == 0 {
                let old = left.get(*index).cloned().flatten();
                set(&mut left, *index, tear(&old, sector, random));
                counts.torn += 1;
            } else {
                set(&mut left, *index, sector.clone());
                counts.kept += 1;
            }
        }
        let length = if random.bool() { self.length } else { self.durable_length };
        left.truncate(length.div_ceil(SECTOR_BYTES as u64) as usize);
        let is_hole = |index: &&usize| left.get(**index).is_some_and(Option::is_none);
        let holes = self.holes.iter().filter(is_hole).copied().collect();
        Self {
            sectors: left.clone(),
            length,
            durable: left,
            durable_length: length,
            unsynced: Vec::new(),
            holes,
        }
    }
}

/// Returns a sector with some atoms of one sector and the remaining atoms of another.
fn tear(old: &Sector, new: &Sector, random: &mut fastrand::Rng) -> Sector {
    let mut torn = old.as_deref().copied().unwrap_or([0; SECTOR_BYTES]);
    for start in (0..SECTOR_BYTES).step_by(ATOM_BYTES) {
        if random.bool() {
            let atom = start..start + ATOM_BYTES;
            match new {
                Some(new) => torn[atom.clone()].copy_from_slice(&new[atom]),
                None => torn[atom].fill(0),
            }
        }
    }
    Some(Arc::new(torn))
}

impl DiskNodes {
    /// Returns the names and the lengths of the files.
    pub(super) fn list(&self) -> Vec<(String, u64)> {
        let name = |(name, file): (&String, &usize)| (name.clone(), self.files[*file].length);
        self.names.iter().map(name).collect()
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Creates a file, or truncates it.
    pub(super) fn create(&mut self, name: &str) -> usize {
        let file = self.files.len();
        self.files.push(FileNode::default());
        self.change(NameChange::Create { name: name.to_owned(), file });
        file
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        self.change(NameChange::Rename { from: from.to_owned(), to: to.to_owned() });
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.change(NameChange::Remove { name: name.to_owned() });
    }

    fn change(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.changes.push(change);
    }

    pub(super) fn length(&self, file: usize) -> u64 {
        self.files[file].length
    }

    /// Returns the number of sectors that are written or allocated in files with a name.
    pub(super) fn used(&self) -> u64 {
        let used = |file: &FileNode| file.length / SECTOR_BYTES as u64 - file.holes.len() as u64;
        self.names.values().map(|file| used(&self.files[*file])).sum()
    }

    /// Returns the number of sectors in a part of a file that take no space yet.
    pub(super) fn missing(&self, file: usize, part: Range<u64>) -> u64 {
        let file = &self.files[file];
        let behind = part.end.saturating_sub(file.length.max(part.start)) / SECTOR_BYTES as u64;
        let sectors = index(part.start)..part.end.div_ceil(SECTOR_BYTES as u64) as usize;
        behind + file.holes.range(sectors).count() as u64
    }

    pub(super) fn allocate(&mut self, file: usize, bytes: u64) {
        let file = &mut self.files[file];
        file.length = file.length.max(bytes);
        file.holes = file.holes.split_off(&(bytes.div_ceil(SECTOR_BYTES as u64) as usize));
    }

    /// Deallocates sectors of a file, which become zero; not durably.
    pub(super) fn deallocate(&mut self, file: usize, part: Range<u64>) {
        let file = &mut self.files[file];
        for sector in index(part.start)..index(part.end.min(file.length)) {
            set(&mut file.sectors, sector, None);
            file.unsynced.push((sector, None));
            file.holes.insert(sector);
        }
    }

    pub(super) fn parts_with_space(&self, file: usize) -> Vec<Range<u64>> {
        let file = &self.files[file];
        let (mut parts, mut start) = (Vec::new(), 0);
        for hole in &file.holes {
            let hole = (hole * SECTOR_BYTES) as u64;
            parts.extend((start < hole).then_some(start..hole));
            start = hole + SECTOR_BYTES as u64;
        }
        parts.extend((start < file.length).then_some(start..file.length));
        parts
    }

    pub(super) fn truncate(&mut self, file: usize, bytes: u64) {
        let file = &mut self.files[file];
        file.length = file.length.min(bytes);
        let sectors = file.length.div_ceil(SECTOR_BYTES as u64) as usize;
        file.sectors.truncate(sectors);
        _ = file.holes.split_off(&sectors);
    }

    /// Reads up to the end of the file; returns the number of bytes.
    pub(super) fn read(&self, file: usize, offset: u64, into: &mut [u8]) -> usize {
        let file = &self.files[file];
        let bytes = file.length.saturating_sub(offset).min(into.len() as u64) as usize;
        for (number, piece) in into[..bytes].chunks_mut(SECTOR_BYTES).enumerate() {
            match file.sectors.get(index(offset) + number).and_then(Option::as_ref) {
                Some(sector) => piece.copy_from_slice(&sector[..piece.len()]),
                None => piece.fill(0),
            }
        }
        bytes
    }

    pub(super) fn write(&mut self, file: usize, offset: u64, bytes: &[u8], sync: bool) {
        self.files[file].write(offset, sectors(bytes), sync);
    }

    pub(super) fn sync(&mut self, file: usize) {
        self.files[file].sync();
    }

    /// Fails a sync: some of the data never becomes durable, although it is still read.
    pub(super) fn fail_sync(&mut self, file: usize, random: &mut fastrand::Rng) {
        self.files[file].unsynced.retain(|_| random.bool());
    }

    pub(super) fn sync_names(&mut self) {
        self.durable_names = self.names.clone();
        self.changes.clear();
    }

    /// Makes everything durable.
    pub(super) fn make_durable(&mut self) {
        for file in &mut self.files {
            // Includes data that a failed sync has dropped.
            file.durable.clone_from(&file.sectors);
            file.sync();
        }
        self.sync_names();
    }

    /// Flips bits of a byte, durably. Returns `false` if the file has no such byte.
    pub(super) fn flip(&mut self, name: &str, offset: u64, bits: u8) -> bool {
        let Some(file) = self.find(name).map(|file| &mut self.files[file]) else { return false };
        if offset >= file.length {
            return false;
        }
        let (index, place) = (offset as usize / SECTOR_BYTES, offset as usize % SECTOR_BYTES);
        for sectors in [&mut file.sectors, &mut file.durable] {
            let old = sectors.get(index).cloned().flatten();
            let mut bytes = old.as_deref().copied().unwrap_or([0; SECTOR_BYTES]);
            bytes[place] ^= bits;
            set(sectors, index, Some(Arc::new(bytes)));
        }
        true
    }

    /// Returns the disk after a crash now. `in_flight` has the writes that were submitted and are
    /// not complete: for each file, the position and contents of each sector.
    pub(super) fn crash(
        &self,
        in_flight: &BTreeMap<usize, Vec<(usize, Sector)>>,
        random: &mut fastrand::Rng,
        counts: &mut CrashCounts,
    ) -> Self {
        // A common probability for the whole crash makes extreme cases more likely.
        let keep = [0.0, 0.1, 0.5, 0.9, 1.0][random.usize(0..5)];
        let none = Vec::new();
        let crashed = |(number, file): (usize, &FileNode)| {
            file.crash(in_flight.get(&number).unwrap_or(&none), keep, random, counts)
        };
        let files = self.files.iter().enumerate().map(crashed).collect();
        let mut names = self.durable_names.clone();
        // Changes of different names are independent, but changes of one name stay in order.
        let mut skipped = BTreeSet::new();
        for change in &self.changes {
            let touched: Vec<&String> = match change {
                NameChange::Create { name, .. } | NameChange::Remove { name } => vec![name],
                NameChange::Rename { from, to } => vec![from, to],
            };
            if touched.iter().any(|name| skipped.contains(*name)) || random.f64() >= keep {
                skipped.extend(touched.into_iter().cloned());
                counts.names_undone += 1;
            } else {
                apply(&mut names, change);
            }
        }
        Self { files, names: names.clone(), durable_names: names, changes: Vec::new() }
    }
}
