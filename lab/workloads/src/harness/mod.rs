//! The measuring harness: rounds, samples, statistics, tables and charts. It is independent of the
//! engine; workloads pass subjects to it.

pub mod chart;
mod interned;
pub mod keep;
mod lanes;
pub mod latency;
pub mod machine;
pub mod number;
mod palette;
#[cfg(feature = "png")]
mod picture;
pub mod place;
pub mod process;
pub mod progress;
pub mod report;
pub mod rounds;
pub mod rows;
pub mod spread;
pub mod table;
