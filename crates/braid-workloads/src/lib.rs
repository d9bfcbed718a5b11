//! Workloads that measure Braid, and the inside of `braid bench`.
//!
//! Layers, each importing only those below it: `bench` (the command), `workload` (one file each),
//! `engine` (databases under test and how they are driven) beside `reference` (bare baselines),
//! `scale` (arguments and settings), `harness` (measuring and telling), `random` and `error`.

pub mod bench;
mod engine;
mod error;
mod harness;
mod random;
mod reference;
mod scale;
pub mod simulate;
pub mod torture;
mod workload;
