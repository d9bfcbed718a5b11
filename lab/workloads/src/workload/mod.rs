//! The workloads, one in each file: the transactions, the compared subjects, and the bars for the
//! figures.

pub(crate) mod airports;
pub(crate) mod all;
pub(crate) mod arrivals;
pub(crate) mod bars;
pub(crate) mod blocked;
pub(crate) mod book;
pub(crate) mod bulk;
pub(crate) mod changes;
pub(crate) mod churn;
pub(crate) mod cluster;
pub(crate) mod commit;
pub(crate) mod contenders;
pub(crate) mod encoding;
pub(crate) mod fio;
pub(crate) mod flights;
pub(crate) mod hot_cold;
pub(crate) mod idle;
pub(crate) mod inserts;
pub(crate) mod isolation;
pub(crate) mod keys;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod overwrite;
pub(crate) mod paced;
pub(crate) mod paged;
pub(crate) mod paper;
pub(crate) mod paths;
pub(crate) mod points;
pub(crate) mod reads;
pub(crate) mod reopen;
pub(crate) mod requests;
pub(crate) mod rmw;
pub(crate) mod scan;
pub(crate) mod smallbank;
pub(crate) mod stage;
pub(crate) mod sysbench;
pub(crate) mod tatp;
pub(crate) mod timeline;
pub(crate) mod tpcc;
pub(crate) mod tpch;
pub(crate) mod trace;
pub(crate) mod trackers;
pub(crate) mod updates;
pub(crate) mod ycsb;

/// The error of a transaction that misses a record which the workload has loaded.
#[cold]
pub(crate) fn missing_record() -> braiddb::Error {
    braiddb::Error::Panicked("a record that the workload has loaded is missing".to_owned())
}
