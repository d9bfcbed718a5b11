//! The command `braid-lab bench`: selects the workload, the scale and the form of the output.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};

pub use crate::error::Error;
use crate::harness::keep::Keep;
use crate::harness::machine::Machine;
use crate::harness::report::{Document, Report};
use crate::harness::table;
use crate::workload::paper;
use crate::workload::stage::Stage;
use crate::workload::trackers;
use crate::workload::{
    airports, all, arrivals, blocked, bulk, changes, churn, cluster, commit, hot_cold, idle,
    inserts, isolation, keys, load, log, overwrite, paged, paths, reads, reopen, requests, rmw,
    scan, smallbank, sysbench, tatp, timeline, tpcc, tpch, trace, updates, ycsb,
};

/// Measure Braid on this machine.
///
/// A workload compares its subjects in one run of several rounds. In each round every subject runs
/// once, in turn; the results are medians over the rounds. Bars are limits for the figures. They
/// are judged only at the scale that they were set for, which is the default.
#[derive(Args, Clone, Debug)]
pub struct Command {
    #[command(subcommand)]
    workload: Workload,

    /// Also draw charts (SVG; PNG too if built with the feature `png`) and write the figures (CSV,
    /// JSON) into this directory.
    ///
    /// A run of many figures (all, paper) continues an interrupted run with the same arguments in
    /// the same directory: figures that exist are not measured again.
    #[arg(long, value_name = "DIR", global = true)]
    out: Option<PathBuf>,

    /// Measure figures again that exist.
    #[arg(long, global = true, requires = "out")]
    again: bool,

    /// Exit with a failure if a bar is missed.
    #[arg(long, global = true)]
    check: bool,
}

/// Generates the subcommands and their dispatch from one list of workloads. A `cfg` condition of a
/// workload is written before it, after an `@`.
macro_rules! workloads {
    ($($(@ $condition:meta;)? $(#[$attribute:meta])* $name:ident($arguments:ty),)*) => {
        #[derive(Subcommand, Clone, Debug)]
        enum Workload {
            $($(#[cfg($condition)])? $(#[$attribute])* $name($arguments),)*
        }

        impl Workload {
            fn run(&self, stage: &mut Stage) -> Result<Vec<Report>, Error> {
                Ok(match self {
                    $($(#[cfg($condition)])? Self::$name(arguments) => arguments.run(stage)?.into(),)*
                })
            }
        }
    };
}

workloads! {
    /// Import the world's airports and fly between them: durable and in memory, braided and
    /// sequential.
    #[command(
        after_help = "A round is one second here. --records limits the airports imported. Example: braid-lab bench airports --dir ./flights --out charts"
    )]
    Airports(airports::AirportsArguments),
    /// 10 uniform reads a transaction, compared with a bare lookup loop.
    #[command(
        after_help = "Examples:\n  braid-lab bench reads -n 20M\n  braid-lab bench reads -n 5M --sweep --no-reference --out charts"
    )]
    Reads(reads::ReadsArguments),
    /// 10 uniform reads a transaction, by keys of several lengths and forms.
    #[command(after_help = "Example: braid-lab bench keys -n 20M --forms UUID")]
    Keys(keys::KeysArguments),
    /// 10 blind updates a transaction.
    Updates(updates::UpdatesArguments),
    /// 10 read-modify-writes a transaction.
    Rmw(rmw::RmwArguments),
    /// Scans of 100 records.
    Scan(scan::ScanArguments),
    /// 1 read-modify-write a transaction: group commit against no log and one sync a commit.
    #[command(
        after_help = "Give --dir to choose the disk; the system's temporary directory may be memory."
    )]
    Commit(commit::CommitArguments),
    /// Serializable and Snapshot: reads, writes, scans, uniform and skewed; abort rates.
    Isolation(isolation::IsolationArguments),
    /// TPC-C: durable and in memory, serializable and under snapshots, braided and sequential.
    #[command(
        after_help = "Give --dir to choose the disk. A warehouse takes some 100 MB for each of the five databases. Examples:\n  braid-lab bench tpcc --dir DIR\n  braid-lab bench tpcc --dir DIR --warehouses 100 --subjects serializable,snapshot\n  braid-lab bench tpcc --versions"
    )]
    Tpcc(tpcc::TpccArguments),
    /// Queries 1, 6 and 12 of TPC-H, alone and during refreshes: in memory, paged, and four times
    /// as large as memory.
    #[command(
        after_help = "--records are orders: 1.5M is scale 1, and takes 5 GB of memory and 1 GB of disk; 15M is scale 10. A round runs queries for --seconds, each at least once. Example: braid-lab bench tpch --dir DIR"
    )]
    Tpch(tpch::TpchArguments),
    /// SmallBank with a hotspot: durable and in memory, serializable and under snapshots, braided
    /// and sequential.
    #[command(
        after_help = "Give --dir to choose the disk. Example: braid-lab bench smallbank --dir DIR --hotspot 1000,100,10"
    )]
    Smallbank(smallbank::SmallbankArguments),
    /// The OLTP scripts of sysbench: durable and in memory, serializable and under snapshots,
    /// braided and sequential.
    #[command(
        after_help = "Give --dir to choose the disk. --records are rows of each table. Example: braid-lab bench sysbench --dir DIR --scripts read-write --distribution special --tables 10 -n 100k"
    )]
    Sysbench(sysbench::SysbenchArguments),
    /// TATP: durable and in memory, serializable and under snapshots, braided and sequential.
    #[command(
        after_help = "Give --dir to choose the disk. --records are subscribers. Example: braid-lab bench tatp --dir DIR"
    )]
    Tatp(tatp::TatpArguments),
    /// YCSB A to F under both isolation levels and both certifiers, over skew and length of
    /// transactions.
    #[command(
        after_help = "Example: braid-lab bench ycsb --workloads a --theta 0.5,0.7,0.9,0.99 --operations 1,10 --out charts"
    )]
    Ycsb(ycsb::YcsbArguments),
    /// 10 reads a transaction, some of records on disk, under the four schedulers.
    #[command(
        after_help = "Give --dir to choose the disk. Takes a quarter of an hour and 10 GiB of memory."
    )]
    HotCold(hot_cold::HotColdArguments),
    /// One insert a transaction: at the end of the key range, where all inserts meet, and over the
    /// whole range.
    #[command(after_help = "--records are loaded before. Example: braid-lab bench inserts -n 5M")]
    Inserts(inserts::InsertsArguments),
    /// Load in key order, in memory and durably: records a second, bytes a record.
    #[command(
        after_help = "A round loads all --records into a new database; --seconds and --transactions have no effect. Give --dir to choose the disk."
    )]
    Load(load::LoadArguments),
    /// Log bandwidth: by block size, workers and flush unit, compared with fio.
    #[command(
        after_help = "Give --dir to choose the disk. Needs 3 GB of it; fio is used if it is installed."
    )]
    Log(log::LogArguments),
    /// Overwrite a data set repeatedly: space used on disk, and the cost of compaction.
    #[command(
        after_help = "A round writes every record once. Needs 25 GB of disk; give --dir to choose it."
    )]
    Overwrite(overwrite::OverwriteArguments),
    /// Durable commits with and without a change feed that follows them; rate of a feed over a
    /// backlog.
    #[command(
        after_help = "A round commits, or returns, --records transactions. Give --dir to choose the disk."
    )]
    Changes(changes::ChangesArguments),
    /// Open a database: from a checkpoint, and by replaying its log.
    #[command(
        after_help = "A round opens each database once. Needs 8 GB of disk; give --dir to choose it."
    )]
    Reopen(reopen::ReopenArguments),
    /// 10 uniform reads or updates a transaction of a paged table: all in memory, and four times as
    /// large as memory.
    #[command(
        after_help = "Nothing is logged. fio is used if it is installed. Needs 1 GB of disk and 2 GB of memory; give --dir to choose the disk."
    )]
    Paged(paged::PagedArguments),
    /// Load a paged table, and change all records of a table five times as large as its memory, in
    /// bulk operations.
    #[command(
        after_help = "A round loads, and changes, all --records; readers alone run for --seconds. Give --dir to choose the disk, of which a million records need some 700 MB. 10 GB of data: braid-lab bench bulk --dir DIR -n 60M --rounds 1"
    )]
    Bulk(bulk::BulkArguments),
    /// The read path nested, flattened by hand, and boxed.
    #[command(after_help = "All paths run on one worker at the same width: --width, or 24.")]
    Paths(paths::PathsArguments),
    /// Ten minutes of reads and updates over data four times as large as the memory budget.
    #[command(
        after_help = "One round of --seconds is run. Needs 15 GB of disk; give --dir to choose it."
    )]
    Timeline(timeline::TimelineArguments),
    /// The cost of a trace; charts of what slots run and wait for.
    #[command(after_help = "Charts are drawn into the directory of --out.")]
    Trace(trace::TraceArguments),
    /// The log's hole trackers alone, with 1 to 64 threads.
    #[command(after_help = "--records and --transactions have no effect.")]
    Trackers(trackers::TrackersArguments),
    /// Update few records many times during a long read; memory must stay bounded.
    #[command(after_help = "It runs --transactions updates (default: 100M) once.")]
    Churn(churn::ChurnArguments),
    /// Processor time of an idle open database.
    #[command(after_help = "It waits for --seconds, once.")]
    Idle(idle::IdleArguments),
    /// Rate and processor time of single operations by clients on their own threads.
    #[command(after_help = "Each kind of request runs for --seconds, once.")]
    Requests(requests::RequestArguments),
    /// Latency of reads while a transaction blocks the thread of its worker.
    #[command(after_help = "A round reads for --seconds while a worker is blocked.")]
    Blocked(blocked::BlockedArguments),
    /// Reads next to a transaction that never waits: the delay until its worker notices them.
    #[command(after_help = "A round reads for --seconds, three times.")]
    Arrivals(arrivals::ArrivalsArguments),
    /// Clusters of processes on this machine: writes, reads, conflicts, failover, catch-up.
    #[command(
        after_help = "Builds and runs a program of crates/braid-cluster; its --help lists the arguments."
    )]
    Cluster(cluster::ClusterArguments),
    /// The figures of the papers that Braid's ideas come from, with Braid's own figures.
    #[command(
        after_help = "Give --dir to choose the disk; several, separated by commas, for the figure that compares disks. Examples:\n  braid-lab bench paper --list\n  braid-lab bench paper corobase-5.2 --out charts\n  braid-lab bench paper all -n 5M -s 0.5 --dir DIR --out results"
    )]
    Paper(paper::PaperArguments),
    /// Every workload with bars, and the table of bars.
    #[command(
        after_help = "Takes about a quarter of an hour and 14 GiB of memory. Add --check to fail when a bar is missed, and the global --json for one document."
    )]
    All(all::AllArguments),
}

impl From<Report> for Vec<Report> {
    fn from(report: Report) -> Self {
        vec![report]
    }
}

impl Command {
    /// Runs the workload and writes its report to standard output: tables for people, or one JSON
    /// document. Progress is written to standard error if that is a terminal.
    ///
    /// # Errors
    /// When the engine fails, the scale does not fit the machine, or a file cannot be written; and
    /// [`Error::BarsMissed`] under `--check`.
    pub fn run(&self, json: bool) -> Result<(), Error> {
        let document = self.measure(json)?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        if json {
            serde_json::to_writer(&mut out, &document).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else {
            table::write(&mut out, &document)?;
        }
        out.flush()?;
        match document.missed() {
            missed if self.check && missed > 0 => Err(Error::BarsMissed(missed)),
            _ => Ok(()),
        }
    }

    fn measure(&self, json: bool) -> Result<Document, Error> {
        let keep = self.out.as_deref().map(Keep::new);
        let mut stage = Stage { keep: keep.clone(), again: self.again, json, ..Stage::default() };
        let mut reports = self.workload.run(&mut stage)?;
        if let Some(keep) = keep {
            let arguments = format!("{:?}", self.workload);
            // Reports with files were kept one by one.
            for report in reports.iter_mut().filter(|report| report.figures.is_empty()) {
                let name = report.workload.clone();
                keep.write(&name, &arguments, std::slice::from_mut(report))?;
            }
        }
        Ok(Document { machine: Machine::here(), reports })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::limit::with_limit;

    /// Several times the duration of a quick workload.
    const LIMIT_SECONDS: u64 = 600;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        command: Command,
    }

    fn run(arguments: &[&str]) -> Document {
        let program = Program::try_parse_from([&["bench"], arguments].concat()).unwrap();
        program.command.measure(false).unwrap()
    }

    #[test]
    fn help_and_arguments_are_sound() {
        use clap::CommandFactory;
        Program::command().debug_assert();
        let help = Program::command().render_long_help().to_string();
        for workload in ["airports", "reads", "churn", "all", "--out"] {
            assert!(help.contains(workload), "{workload} is missing in\n{help}");
        }
        let mut reads = Program::command();
        let help = reads.find_subcommand_mut("reads").unwrap().render_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("[default: 50M]"), "{help}");
        for (arguments, limits) in [
            (["bench", "reads", "--rounds", "0"], "from 1 to 1000"),
            (["bench", "smallbank", "--hotspot", "100,1"], "from 2 to 1000000000"),
            (["bench", "tpcc", "--suppliers", "0"], "from 1 to 10000"),
            (["bench", "tpcc", "--warehouses", "65536"], "from 1 to 65535"),
        ] {
            let refused = Program::try_parse_from(arguments).map(drop).unwrap_err().to_string();
            let said = format!("give a whole number {limits}");
            assert!(refused.contains(&said), "{arguments:?}: {refused}");
        }
        assert!(Program::try_parse_from(["bench", "reads", "-s", "1", "-t", "5"]).is_err());
    }

    /// Checks that each workload runs at a small scale and names its subjects.
    macro_rules! runs_quickly {
        ($($name:ident: $arguments:expr => $subjects:expr;)*) => {$(
            #[test]
            fn $name() {
                with_limit(LIMIT_SECONDS, |_| {
                    let document = run(&$arguments);
                    let measured = document.reports.iter().flat_map(|report| &report.measured);
                    let names: Vec<&str> =
                        measured.clone().map(|subject| &*subject.name).collect();
                    for subject in $subjects {
                        let subject: &str = subject;
                        assert!(names.contains(&subject), "{subject} is not in {names:?}");
                    }
                    for subject in measured {
                        assert!(subject.transactions > 0, "{} did nothing", subject.name);
                    }
                    assert_eq!(document.missed(), 0, "quick figures are not judged");
                    let json = serde_json::to_value(&document).unwrap();
                    assert!(json["machine"]["cores"].as_u64().unwrap() > 0);
                });
            }
        )*};
    }

    runs_quickly! {
        airports: ["airports", "--quick"] => [
            "durable, braided", "in memory, braided, 1 worker", "in memory, sequential",
        ];
        reads: ["reads", "--quick"] => ["braided", "sequential", "bare lookup loop"];
        reads_sweep: ["reads", "--quick", "--sweep"] => ["width that tunes itself", "width 1", "width 48"];
        reads_policies: ["reads", "--quick", "--policies"] => ["batch", "pipeline"];
        updates: ["updates", "--quick"] => ["braided", "sequential"];
        rmw: ["rmw", "-q", "-w", "2"] => ["braided", "sequential", "braided, 2 workers"];
        keys: ["keys", "--quick"] => ["8 bytes, braided", "UUID, sequential"];
        scan: ["scan", "-q", "--width", "4"] => ["braided", "sequential"];
        commit: ["commit", "--quick"] => ["group commit", "volatile", "one sync a commit"];
        hot_cold: ["hot-cold", "--quick"] => ["dual-queue, 10 % cold", "sequential, 50 % cold"];
        isolation: ["isolation", "--quick"] => [
            "10 reads, serializable", "10 reads, snapshot", "10 reads, read-only",
        ];
        tpcc: ["tpcc", "--quick"] => [
            "durable, serializable", "durable, projected", "durable, snapshot", "durable, sequential",
            "in memory, serializable", "in memory, serial safety net", "in memory, sequential",
        ];
        tpch: ["tpch", "--quick"] => [
            "in memory", "in memory, refreshed", "paged", "paged, refreshed", "paged, refreshed in bulk",
            "paged, 4 times the memory", "paged, 4 times the memory, refreshed",
            "paged, 4 times the memory, refreshed in bulk",
        ];
        smallbank: ["smallbank", "--quick"] => [
            "durable, serializable", "durable, snapshot", "in memory, serializable",
            "in memory, serial safety net",
        ];
        sysbench: ["sysbench", "--quick", "--scripts", "read-write,point-select", "--distribution", "special"] => [
            "durable, serializable", "durable, snapshot", "durable, sequential",
            "in memory, serializable", "in memory, serial safety net", "in memory, sequential",
        ];
        tatp: ["tatp", "--quick"] => [
            "durable, serializable", "durable, snapshot", "durable, sequential",
            "in memory, serializable", "in memory, serial safety net", "in memory, sequential",
        ];
        ycsb: ["ycsb", "--quick"] => [
            "A, 1 a transaction, theta 0.99, serializable",
            "A, 1 a transaction, theta 0.99, serial safety net",
            "A, 1 a transaction, theta 0.99, snapshot",
        ];
        load: ["load", "--quick"] => [
            "in key order", "from an iterator", "from an iterator, durable",
        ];
        log: ["log", "--quick"] => [LOG];
        timeline: ["timeline", "--quick"] => ["reads and updates"];
        timeline_paged: ["timeline", "--quick", "--paged"] => ["reads and updates"];
        trace: ["trace", "--quick"] => ["without a trace", "traced"];
        overwrite: ["overwrite", "--quick"] => ["compacting", "keeping everything"];
        changes: ["changes", "--quick"] => ["nobody follows", "a feed follows", "a feed of what was"];
        reopen: ["reopen", "--quick"] => ["from a checkpoint", "replaying the log"];
        reopen_paged: ["reopen", "--quick", "--paged"] => [
            "replaying updates of a paged table, 4 times the memory",
        ];
        paged: ["paged", "--quick"] => [
            "in memory", "paged, all cached", "4 times the memory, an eighth is read",
            "4 times the memory, all is read", "4 times the memory, all is read, sequential",
            "4 times the memory, all is read and changed",
        ];
        bulk: ["bulk", "--quick"] => [
            "transactions", "a bulk operation", "a bulk operation, durable", "readers alone",
            "readers beside a bulk update",
        ];
        paths: ["paths", "--quick"] => ["nested", "boxed"];
        churn: ["churn", "--quick"] => ["updates"];
        idle: ["idle", "--quick"] => [];
        requests: ["requests", "--quick"] => [];
        arrivals: ["arrivals", "--quick"] => [
            "reads, nothing else", "reads beside a transaction of cached reads",
            "reads beside a transaction of scans",
        ];
        tpcc_read_only: ["tpcc", "--quick", "--mix", "read-only", "--subjects", "memory"] => ["in memory, serializable"];
        tpcc_versions: ["tpcc", "--quick", "--versions"] => ["in memory, sequential", "without versions"];
        tpcc_queries: ["tpcc", "--quick", "--mix", "queries", "--suppliers", "20"] => [
            "durable, serializable", "durable, sequential", "in memory, snapshot",
        ];
        inserts: ["inserts", "--quick", "-n", "5k", "-w", "2", "--no-pin"] => [
            "sequential, at the end, 1 workers", "8 interleaved, anywhere, 2 workers",
        ];
        blocked: ["blocked", "--quick"] => ["reads, no worker blocked", "reads, one worker blocked"];
    }

    const LOG: &str = "4 KiB, 1 workers, unit 64 KiB, in-flight marks";

    runs_quickly! {
        trackers: ["trackers", "--quick"] => ["grasshopper, 128 B, 64 threads"];
    }

    #[test]
    fn charts_are_drawn_on_request() {
        with_limit(LIMIT_SECONDS, |_| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("charts");
            let document = run(&["churn", "-q", "--out", path.to_str().unwrap()]);
            let figures = &document.reports[0].figures;
            let count = |end: &str| {
                figures
                    .iter()
                    .filter(|path| path.exists() && path.extension().unwrap() == end)
                    .count()
            };
            // The rates and a line, each as a chart and as rows; and one document of all.
            assert_eq!([count("svg"), count("csv"), count("json")], [2, 2, 1], "{figures:?}");
            assert!([0, 2].contains(&count("png")), "{figures:?}");
        });
    }
}
