//! The measuring harness: rounds, samples, statistics, tables, charts. It knows nothing of the
//! engine; workloads hand it subjects to run.

pub(crate) mod chart;
pub(crate) mod latency;
pub(crate) mod machine;
pub(crate) mod number;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod rounds;
pub(crate) mod spread;
pub(crate) mod table;
