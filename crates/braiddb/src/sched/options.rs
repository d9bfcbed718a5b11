//! Options of the workers.

use super::policy::{Policy, Width};

/// Options of the workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutorOptions {
    pub(crate) workers: usize,
    pub(crate) pin: bool,
    pub(crate) policy: Policy,
    pub(crate) hot_width: Width,
    pub(crate) cold_width: usize,
    pub(crate) max_open: usize,
    /// Maximum number of concurrent storage reads on one worker.
    pub(crate) read_depth: usize,
    /// Number of trace slices kept for each worker; none if zero.
    pub(crate) trace: usize,
    /// Seed for random decisions: whether tasks suspend at optional points, and in which order they
    /// run.
    pub(crate) seed: Option<u64>,
}
