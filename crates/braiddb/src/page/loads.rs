//! Loads of pages in progress; `fault` states the invariants.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::PageError;
use super::map::{DiskPlace, PageId};
use crate::io::AlignedBuffer;
use crate::planted::{Bug, is_planted};
use crate::sched::RemoteWaiter;
use crate::sync::ModelMutex;

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// Loads in progress of a space, by page.
#[derive(Debug)]
pub(super) struct PageLoads(Box<[ModelMutex<BTreeMap<PageId, ListedLoad>>]>);

/// A load in progress.
#[derive(Debug)]
pub(super) struct ListedLoad {
    pub(super) load: Arc<PageLoad>,
    /// The page was freed: its id and place are released when the load ends.
    pub(super) freed: bool,
}

/// State of a load that is shared by all operations that need the page.
#[derive(Debug)]
pub(super) struct PageLoad {
    pub(super) id: PageId,
    pub(super) place: DiskPlace,
    pub(super) state: ModelMutex<PageLoadState>,
}

#[derive(Debug)]
pub(super) struct PageLoadState {
    pub(super) stage: LoadStage,
    /// Number of operations that need the page.
    pub(super) wanted: usize,
    pub(super) waiters: Vec<RemoteWaiter>,
}

#[derive(Debug)]
pub(super) enum LoadStage {
    /// The image is being read, or an operation is publishing the page.
    Busy,
    /// The image has been read.
    Read(AlignedBuffer),
    /// The load has ended; all waiters receive its error.
    Over(Result<(), PageError>),
}

impl PageLoads {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| ModelMutex::new(BTreeMap::new())).collect())
    }

    pub(super) fn shard(&self, id: PageId) -> &ModelMutex<BTreeMap<PageId, ListedLoad>> {
        &self.0[id.number() as usize % SHARDS]
    }
}

impl PageLoadState {
    /// Advances the load to a stage. Returns the waiters, which the caller wakes.
    pub(super) fn advance_stage(&mut self, stage: LoadStage) -> Vec<RemoteWaiter> {
        self.stage = stage;
        let waiters = std::mem::take(&mut self.waiters);
        if is_planted(Bug::LoadWaitersNotWoken) { Vec::new() } else { waiters }
    }
}
