//! Lists of filled blocks, one of each kind for every filler.

use super::crawling::{ListMark, Producer};
use crate::sync::atomic::AtomicU64;
use crate::sync::{Mutex, SegQueue};

/// A reference to a range's first block in a crawling list.
#[derive(Debug)]
pub(super) struct Hop {
    pub(super) range: u64,
    pub(super) mark: ListMark,
}

/// The lists of one filler.
#[derive(Debug)]
pub(super) struct FillerLists {
    /// Nodes ever appended to the crawling list: its tail.
    pub(super) crawling: AtomicU64,
    pub(super) hopping: SegQueue<Hop>,
    pub(super) owner: Mutex<FillerState>,
}

/// State that only the filler accesses.
#[derive(Debug)]
pub(super) struct FillerState {
    pub(super) crawling: Producer,
    /// The range of the last node.
    pub(super) range: Option<u64>,
}
