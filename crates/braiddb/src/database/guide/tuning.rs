//! Finding out why a service is slow, or takes much memory or disk space.
//!
//! [`Database::stats`](crate::Database::stats) has the figures named below. `braid top --from FILE`
//! shows them live ([monitoring](super::operation)). Compare two moments under the same load, as in
//! the example at the end of this page.
//!
//! # Slow
//!
//! | symptom | figures | cause | remedy |
//! |---|---|---|---|
//! | a commit takes milliseconds | `suspensions.commit` grows as fast as `committed` | each commit waits for the disk | let more clients commit at the same time, because one flush serves all that wait; put several writes into one transaction; use [`Durability::Relaxed`](crate::Durability) if a crash may lose the last moments |
//! | more clients do not help | `committed` per second stays the same, one worker thread is always busy | the closures compute much | keep computation outside of the closure; raise [`Options::workers`](crate::Options::workers) |
//! | many attempts fail | `retries`, `aborted.conflict`, `aborted.certification` | transactions write, or read and write, the same records | read and write a record with one call such as [`fetch_update`](crate::Transaction::fetch_update); divide a counter into several records; begin with the write that conflicts; use [`Isolation::Snapshot`](crate::Isolation) if write skew is acceptable |
//! | single requests are late | `workers[].longest_stretch` above a few milliseconds | a closure computes or blocks without a wait | move the computation outside; never call a blocking function in a closure ([executors](super::executors)) |
//! | reads are slow and the disk is busy | `suspensions.storage`, `pages.faults` | the records read do not fit in the memory budget | raise [`Options::memory_budget`](crate::Options::memory_budget); create tables of small records as [paged](crate::TableOptions::paged), which read a page of neighbours at a time |
//! | writes pause | `suspensions.log_space` | the log ring is full, the disk is full, or writers outrun a checkpoint | raise [`Tuning::log_ring_bytes`](crate::Tuning::log_ring_bytes); compare `log.extensions_refused`; a faster disk |
//! | [`Error::Overloaded`](crate::Error::Overloaded) | `workers[].cold`, `workers[].parked` near their limits | requests arrive faster than they end | reject requests earlier, or raise [`Tuning::cold_width`](crate::Tuning::cold_width) and [`Tuning::max_open`](crate::Tuning::max_open) |
//! | opening takes long | `recovery.log_bytes`, `recovery.elapsed` | much log to replay | lower [`Tuning::checkpoint_bytes`](crate::Tuning::checkpoint_bytes); call [`close`](crate::Database::close) before the process ends |
//! | a test or a debug build is slow | | the engine is compiled without optimisation | the profile below |
//!
//! # Large
//!
//! | symptom | figures | cause | remedy |
//! |---|---|---|---|
//! | memory stays above the budget | `memory.resident` far above the sum of the others | values and results that the program holds, or memory that the C allocator keeps | hold fewer results at a time ([`visit`](crate::Scan::visit), [pages of results](super::results)); set the environment variable `MALLOC_MMAP_THRESHOLD_=131072` for the GNU allocator, or use another one |
//! | old versions grow | `versions_waiting` grows | a snapshot or an interactive transaction is open | close it; lower [`Options::interactive_idle`](crate::Options::interactive_idle) and [`Options::interactive_age`](crate::Options::interactive_age) |
//! | the log grows | `log.disk_bytes` several times the data | an open snapshot, or a change slot that no program reads any more | close it; remove the slot ([change feeds](super::change_feed)); then call [`compact`](crate::Database::compact) |
//! | deleted data still takes disk space | `removals_under_way` is zero | segments of the log are freed when they have few live records | [`compact`](crate::Database::compact) |
//! | a small disk is half full of reserve | `log.reserve_bytes` | space for checkpoints and compaction on a full disk | lower [`Tuning::log_segment_bytes`](crate::Tuning::log_segment_bytes) when the database is created |
//!
//! # Debug builds
//!
//! A build without optimisation runs the engine many times slower. These lines in the `Cargo.toml` of
//! a program's workspace optimise the engine, and not the program itself:
//!
//! ```toml
//! [profile.dev.package.braiddb]
//! opt-level = 3
//! ```
//!
//! The engine is then compiled once, in two and a half processor minutes instead of one. Microseconds
//! a record, in a debug build of a program with 50 000 records in memory (one worker, two shared
//! cores, November 2026):
//!
//! | | without these lines | with them |
//! |---|---|---|
//! | [`load`](crate::StagedTable::load) of a staged table | 22 | 6.1 |
//! | inserts of a postcard struct, 1000 in each transaction | 30 | 9.2 |
//! | reads in one transaction | 14 | 4.4 |
//! | a scan | 1.7 | 0.5 |
//! | [`Database::get`](crate::Database::get) | 9.9 | 0.6 |
//! | processor seconds of the whole program | 0.75 | 0.15 |
//!
//! The compiler generates closures, the methods of [`Table`](crate::Table) types and serialization
//! in the program's own crate, without optimisation. `opt-level = 1` in `[profile.dev]` optimises
//! these too. The engine's own futures are compiled with the engine, so these lines apply to them.
//!
//! # Comparing two moments
//!
//! ```
//! use braiddb::{Database, Options, Stats, block_on};
//!
//! /// Describes what transactions waited for between two moments.
//! fn waits(before: &Stats, after: &Stats) -> String {
//!     let committed = (after.committed - before.committed).max(1) as f64;
//!     let per_commit = |before: u64, after: u64| (after - before) as f64 / committed;
//!     format!(
//!         "per commit: {:.2} waits for the flush, {:.2} for storage, {:.2} retries",
//!         per_commit(before.suspensions.commit, after.suspensions.commit),
//!         per_commit(before.suspensions.storage, after.suspensions.storage),
//!         per_commit(before.retries, after.retries),
//!     )
//! }
//!
//! fn main() -> Result<(), braiddb::Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let table = db.create_table::<u64, u64>("numbers").await?;
//!         let before = db.stats();
//!         for number in 0..100 {
//!             db.put(&table, &number, &number).await?;
//!         }
//!         let text = waits(&before, &db.stats());
//!         assert_eq!(
//!             text,
//!             "per commit: 0.00 waits for the flush, 0.00 for storage, 0.00 retries"
//!         );
//!         Ok(())
//!     })
//! }
//! ```
