//! Placeholder types for builds without a simulated disk; they have no values.

use std::sync::Arc;

use super::file::SimulatedFile;
use super::{Device, OpenMode};

/// Uninhabited type of a simulated disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SimulatedDisk {}

/// Uninhabited type of a directory lock.
#[derive(Debug)]
pub(super) enum SimulatedLock {}

impl SimulatedDisk {
    pub(crate) fn device(&self) -> Box<dyn Device> {
        match *self {}
    }

    pub(crate) fn settle(&self) {
        match *self {}
    }

    pub(super) fn lock(&self) -> Option<SimulatedLock> {
        match *self {}
    }
}

impl SimulatedLock {
    pub(super) fn handle(&self) -> Arc<dyn SimulatedFile> {
        match *self {}
    }

    pub(super) fn unlock(&self) {
        match *self {}
    }

    pub(super) fn open(
        &self,
        _name: &str,
        _mode: OpenMode,
    ) -> std::io::Result<Arc<dyn SimulatedFile>> {
        match *self {}
    }

    pub(super) fn rename(&self, _from: &str, _to: &str) -> std::io::Result<()> {
        match *self {}
    }

    pub(super) fn remove(&self, _name: &str) -> std::io::Result<()> {
        match *self {}
    }

    pub(super) fn list(&self) -> Vec<String> {
        match *self {}
    }

    pub(super) fn available_bytes(&self) -> u64 {
        match *self {}
    }
}
