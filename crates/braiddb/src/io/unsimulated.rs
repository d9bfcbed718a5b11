//! Placeholder types for builds without a simulated disk; they have no values.

use std::ops::Range;
use std::path::PathBuf;

use super::{Device, File, OpenMode};

/// Uninhabited type of a simulated disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SimulatedDisk {}

/// Uninhabited type of a simulated file.
#[derive(Clone, Debug)]
pub(super) enum DiskHandle {}

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
    pub(super) fn handle(&self, _path: PathBuf) -> File {
        match *self {}
    }

    pub(super) fn unlock(&self) {
        match *self {}
    }

    pub(super) fn open(&self, _name: &str, _mode: OpenMode) -> std::io::Result<DiskHandle> {
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

impl DiskHandle {
    pub(super) fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> std::io::Result<usize> {
        match *self {}
    }

    pub(super) fn write_all_at(&self, _bytes: &[u8], _offset: u64) -> std::io::Result<()> {
        match *self {}
    }

    pub(super) fn sync(&self) -> std::io::Result<()> {
        match *self {}
    }

    pub(super) fn renamed(&self, _path: PathBuf) -> File {
        match *self {}
    }

    pub(super) fn truncate(&self, _bytes: u64) -> std::io::Result<()> {
        match *self {}
    }

    pub(super) fn deallocate(&self, _part: Range<u64>) -> std::io::Result<()> {
        match *self {}
    }

    pub(super) fn parts_with_space(&self) -> Vec<Range<u64>> {
        match *self {}
    }

    pub(super) fn length(&self) -> u64 {
        match *self {}
    }

    pub(super) fn allocate(&self, _bytes: u64) -> std::io::Result<()> {
        match *self {}
    }
}
