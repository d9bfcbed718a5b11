//! Export of [`Stats`] to the facade crate `metrics`, so that Prometheus and other collectors see
//! the figures of the program's databases.

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, gauge};

use super::{
    AbortStats, Database, LogPositions, MemoryStats, PageStats, Stats, SuspensionStats, WorkerStats,
};
use crate::log::LogStats;

impl Database {
    /// Records the figures of [`Database::stats`] with the recorder of the crate `metrics`. Call it
    /// when metrics are collected: in the handler of a Prometheus scrape, or every few seconds. It
    /// does nothing if the program has no recorder, and has no cost between calls.
    ///
    /// Names of counters end in `_total`. Every figure has the label `database`, which
    /// distinguishes several databases of a program.
    ///
    /// Requires the feature `metrics`. `examples/service.rs` serves Prometheus.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     db.record_metrics("accounts");
    ///     Ok(())
    /// }
    /// ```
    pub fn record_metrics(&self, database: &str) {
        MetricsRecorder { database }.stats(&self.stats());
    }
}

/// Records the figures of one database.
struct MetricsRecorder<'d> {
    database: &'d str,
}

impl MetricsRecorder<'_> {
    /// Every figure is named here and below, so a new figure without a metric does not compile.
    fn stats(&self, stats: &Stats) {
        let Stats {
            committed,
            committed_read_only,
            aborted,
            retries,
            snapshots_extended,
            versions_freed,
            versions_pruned,
            versions_waiting,
            versions_evicted,
            records_reclaimed,
            index_entries,
            expired_swept,
            removals_under_way,
            bulk_operations,
            bulk_records,
            bulk_leaves_swept,
            snapshots_open,
            checkpoint_bytes,
            destructor_panics,
            workers,
            suspensions,
            lsn,
            // No labels: the figure of a dropped slot would stay. `lsn.kept` covers all.
            log_holders: _,
            log,
            memory,
            pages,
            recovery,
        } = stats;
        describe_counter!("braid_transactions_committed_total", Unit::Count, "Commits.");
        let writing = committed.saturating_sub(*committed_read_only);
        self.count_by("braid_transactions_committed_total", "kind", "writing", writing);
        let read_only = *committed_read_only;
        self.count_by("braid_transactions_committed_total", "kind", "read_only", read_only);
        self.aborted(aborted);
        self.count("braid_retries_total", "Attempts after the first.", *retries);
        let help = "Snapshots moved forward instead of aborting their transactions.";
        self.count("braid_snapshots_extended_total", help, *snapshots_extended);
        self.count("braid_versions_freed_total", "Superseded versions freed.", *versions_freed);
        let help = "Superseded versions freed while an older snapshot was open.";
        self.count("braid_versions_pruned_total", help, *versions_pruned);
        let help = "Superseded versions that a transaction may still see.";
        self.measure("braid_versions_waiting", Unit::Count, help, *versions_waiting as f64);
        let help = "Versions evicted from memory.";
        self.count("braid_versions_evicted_total", help, *versions_evicted);
        self.count("braid_records_reclaimed_total", "Deleted records freed.", *records_reclaimed);
        let help = "Entries of secondary indexes added or removed.";
        self.count("braid_index_entries_total", help, *index_entries);
        let help = "Expired records deleted by sweeps.";
        self.count("braid_expired_swept_total", help, *expired_swept);
        let help = "Dropped tables and indexes whose records are being deleted.";
        self.measure("braid_removals_under_way", Unit::Count, help, *removals_under_way as f64);
        let help = "Bulk operations committed.";
        self.count("braid_bulk_operations_total", help, *bulk_operations);
        let help = "Records and index entries written by bulk operations.";
        self.count("braid_bulk_records_total", help, *bulk_records);
        let help = "Leaves visited to clean up after bulk operations.";
        self.count("braid_bulk_leaves_swept_total", help, *bulk_leaves_swept);
        let help = "Open snapshots.";
        self.measure("braid_snapshots_open", Unit::Count, help, *snapshots_open as f64);
        let help = "Size of the newest checkpoint's file.";
        self.measure("braid_checkpoint_bytes", Unit::Bytes, help, *checkpoint_bytes as f64);
        let help = "Panics in destructors of callers' values.";
        self.count("braid_destructor_panics_total", help, *destructor_panics);
        for (number, worker) in workers.iter().enumerate() {
            self.worker(number, worker);
        }
        self.suspensions(suspensions);
        self.positions(lsn);
        self.log(log);
        self.memory(memory);
        self.pages(pages);
        let help = "Duration of recovery at the opening of the database.";
        let seconds = recovery.elapsed.as_secs_f64();
        self.measure("braid_recovery_seconds", Unit::Seconds, help, seconds);
    }

    fn aborted(&self, aborted: &AbortStats) {
        let AbortStats {
            conflict,
            certification,
            stale_read,
            requested,
            panic,
            dropped,
            expired,
            log,
        } = *aborted;
        describe_counter!("braid_transactions_aborted_total", Unit::Count, "Aborts, by cause.");
        for (cause, value) in [
            ("conflict", conflict),
            ("certification", certification),
            ("stale_read", stale_read),
            ("requested", requested),
            ("panic", panic),
            ("dropped", dropped),
            ("expired", expired),
            ("log", log),
        ] {
            self.count_by("braid_transactions_aborted_total", "cause", cause, value);
        }
    }

    fn worker(&self, number: usize, worker: &WorkerStats) {
        let WorkerStats {
            hot,
            cold,
            parked,
            foreign,
            width,
            finished,
            sleeps,
            taken_over,
            longest_stretch,
            // Measured only while tracing.
            longest_cpu_stretch: _,
        } = *worker;
        let number = || Label::new("worker", number.to_string());
        describe_gauge!("braid_worker_transactions", Unit::Count, "Open transactions, by state.");
        for (state, value) in
            [("hot", hot), ("cold", cold), ("parked", parked), ("foreign", foreign)]
        {
            let labels = vec![self.database(), number(), Label::new("state", state)];
            gauge!("braid_worker_transactions", labels).set(value as f64);
        }
        let labels = || vec![self.database(), number()];
        let help = "Current capacity of the hot queue, in transactions.";
        describe_gauge!("braid_worker_width", Unit::Count, help);
        gauge!("braid_worker_width", labels()).set(width as f64);
        describe_counter!("braid_worker_finished_total", Unit::Count, "Tasks finished.");
        counter!("braid_worker_finished_total", labels()).absolute(finished);
        describe_counter!("braid_worker_sleeps_total", Unit::Count, "Sleeps in the kernel.");
        counter!("braid_worker_sleeps_total", labels()).absolute(sleeps);
        let help =
            "Transactions taken over by another worker because a closure blocked the thread.";
        describe_counter!("braid_worker_taken_over_total", Unit::Count, help);
        counter!("braid_worker_taken_over_total", labels()).absolute(taken_over);
        let help = "Longest stall: time spent only running transactions.";
        describe_gauge!("braid_worker_longest_stretch_seconds", Unit::Seconds, help);
        let seconds = longest_stretch.as_secs_f64();
        gauge!("braid_worker_longest_stretch_seconds", labels()).set(seconds);
    }

    fn suspensions(&self, suspensions: &SuspensionStats) {
        let SuspensionStats {
            memory,
            undecided,
            storage,
            commit,
            log_space,
            grace_period,
            back_off,
            foreign,
        } = *suspensions;
        describe_counter!("braid_suspensions_total", Unit::Count, "Suspensions, by cause.");
        for (cause, value) in [
            ("memory", memory),
            ("undecided", undecided),
            ("storage", storage),
            ("commit", commit),
            ("log_space", log_space),
            ("grace_period", grace_period),
            ("back_off", back_off),
            ("foreign", foreign),
        ] {
            self.count_by("braid_suspensions_total", "cause", cause, value);
        }
    }

    fn positions(&self, lsn: &LogPositions) {
        let LogPositions { tail, buffered, checkpoint, durable, kept, oldest_begin } = *lsn;
        describe_gauge!("braid_log_position_bytes", Unit::Bytes, "Positions in the log.");
        for (position, value) in [
            ("tail", tail),
            ("buffered", buffered),
            ("checkpoint", checkpoint),
            // Without a log, no LSN becomes durable.
            ("durable", durable.min(tail)),
            ("kept", kept),
            ("oldest_begin", oldest_begin),
        ] {
            self.measure_by("braid_log_position_bytes", "position", position, value);
        }
    }

    fn log(&self, log: &LogStats) {
        let LogStats {
            flushes,
            bytes_written,
            padding_bytes,
            segments_created,
            segments_reused,
            segments_freed,
            disk_bytes,
            reserve_bytes,
            extensions_refused,
            files_open,
            files_reopened,
            #[cfg(feature = "experiment")]
                crawled_bytes: _,
            #[cfg(feature = "experiment")]
                hopped_bytes: _,
        } = *log;
        self.count("braid_log_flushes_total", "Groups of commits written to disk.", flushes);
        self.count("braid_log_written_bytes_total", "Bytes written to the log.", bytes_written);
        let help = "Padding bytes written to the log to fill sectors.";
        self.count("braid_log_padding_bytes_total", help, padding_bytes);
        let help = "Segment files created ahead of need.";
        self.count("braid_log_segments_created_total", help, segments_created);
        let help = "Segment files created by reusing a freed file.";
        self.count("braid_log_segments_reused_total", help, segments_reused);
        let help = "Segment files freed.";
        self.count("braid_log_segments_freed_total", help, segments_freed);
        let help = "Size of all segment files.";
        self.measure("braid_log_disk_bytes", Unit::Bytes, help, disk_bytes as f64);
        let help = "Disk space reserved for use when the disk is full.";
        self.measure("braid_log_reserve_bytes", Unit::Bytes, help, reserve_bytes as f64);
        let help = "Commits refused because the log could not be extended.";
        self.count("braid_log_extensions_refused_total", help, extensions_refused);
        let help = "Database files open in the process.";
        self.measure("braid_log_files_open", Unit::Count, help, files_open as f64);
        let help = "Database files reopened.";
        self.count("braid_log_files_reopened_total", help, files_reopened);
    }

    fn memory(&self, memory: &MemoryStats) {
        let MemoryStats {
            versions,
            index_nodes,
            keys,
            copies,
            reads,
            indirection,
            pages,
            ring,
            budget,
            resident,
        } = *memory;
        describe_gauge!("braid_memory_bytes", Unit::Bytes, "Memory of the database, by kind.");
        for (kind, value) in [
            ("versions", versions),
            ("index_nodes", index_nodes),
            ("keys", keys),
            ("copies", copies),
            ("reads", reads),
            ("indirection", indirection),
            ("pages", pages),
            ("ring", ring),
        ] {
            self.measure_by("braid_memory_bytes", "kind", kind, value);
        }
        let help = "Memory budget; absent without a limit.";
        if let Some(budget) = budget {
            self.measure("braid_memory_budget_bytes", Unit::Bytes, help, budget as f64);
        }
        let help = "Memory of the whole process.";
        self.measure("braid_resident_bytes", Unit::Bytes, help, resident as f64);
    }

    fn pages(&self, pages: &PageStats) {
        let PageStats {
            page_bytes,
            frames,
            resident,
            dirty,
            orphaned,
            faults,
            evicted,
            inner_faults,
            inner_evicted,
            written,
            writes,
            zone_bytes,
            file_bytes,
        } = *pages;
        let help = "Page size of paged tables.";
        self.measure("braid_page_bytes", Unit::Bytes, help, page_bytes as f64);
        let help = "Maximum number of pages in memory.";
        self.measure("braid_page_frames", Unit::Count, help, frames as f64);
        let help = "Pages in memory.";
        self.measure("braid_pages_resident", Unit::Count, help, resident as f64);
        let help = "Pages in memory with changes that are not on disk.";
        self.measure("braid_pages_dirty", Unit::Count, help, dirty as f64);
        let help = "Pages only on disk whose records have older versions in memory.";
        self.measure("braid_pages_orphaned", Unit::Count, help, orphaned as f64);
        self.count("braid_page_faults_total", "Pages loaded from disk.", faults);
        self.count("braid_pages_evicted_total", "Pages evicted from memory.", evicted);
        let help = "Inner pages loaded from disk.";
        self.count("braid_inner_page_faults_total", help, inner_faults);
        let help = "Inner pages evicted from memory.";
        self.count("braid_inner_pages_evicted_total", help, inner_evicted);
        self.count("braid_pages_written_total", "Pages written to disk.", written);
        self.count("braid_page_writes_total", "Write operations for pages.", writes);
        let help = "Disk space of page images.";
        self.measure("braid_page_zone_bytes", Unit::Bytes, help, zone_bytes as f64);
        let help = "Disk space of the files of page images, with free places.";
        self.measure("braid_page_file_bytes", Unit::Bytes, help, file_bytes as f64);
    }

    fn database(&self) -> Label {
        Label::new("database", self.database.to_owned())
    }

    fn count(&self, name: &'static str, help: &'static str, value: u64) {
        describe_counter!(name, Unit::Count, help);
        counter!(name, vec![self.database()]).absolute(value);
    }

    fn count_by(&self, name: &'static str, label: &'static str, is: &'static str, value: u64) {
        counter!(name, vec![self.database(), Label::new(label, is)]).absolute(value);
    }

    fn measure_by(&self, name: &'static str, label: &'static str, is: &'static str, value: u64) {
        gauge!(name, vec![self.database(), Label::new(label, is)]).set(value as f64);
    }

    fn measure(&self, name: &'static str, unit: Unit, help: &'static str, value: f64) {
        describe_gauge!(name, unit, help);
        gauge!(name, vec![self.database()]).set(value);
    }
}
