//! The database of the command: its arguments, and opening it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use braiddb::maintenance::OpenStage;
use braiddb::{BusyWith, Database, Durability, Error, LogError, Options};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use crate::any_table::AnyTable;
use crate::trace::TraceArguments;

/// Maximum of `--threads`: the maximum number of workers of a database.
const MAX_THREADS: usize = 256;
/// Minimum of `--memory`, in MiB: the smallest buffer of the log, and 1 MiB for records.
const MIN_MEMORY: u64 = 33;
/// Maximum of `--memory`, in MiB: its bytes fit into a `u64`.
const MAX_MEMORY: u64 = u64::MAX >> 20;

/// Heading of the arguments that all verbs with a database share. The help lists it last.
pub const HEADING: &str = "Database";

/// The database, and how to open it.
#[derive(Args, Debug)]
pub struct StoreArguments {
    /// Directory of the database.
    #[arg(help_heading = HEADING, long, env = "BRAID_DB", default_value = "braid.db")]
    pub db: PathBuf,
    /// Worker threads, from 1 to 256. By default one per core.
    #[arg(help_heading = HEADING, long = "threads", value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// When a write is acknowledged.
    #[arg(help_heading = HEADING, long, default_value = "group")]
    pub durability: DurabilityArgument,
    /// MiB of memory for records, indexes and the log buffer. By default half of the memory of the
    /// machine or its control group.
    ///
    /// Records that do not fit stay on disk. The log buffer takes 64 MiB, or 32 MiB of a total
    /// below 256 MiB. The index of a table that is not paged always stays in memory: about 60 bytes
    /// per record. The index of a paged table (import --paged, or a new table whose index would
    /// exceed this limit) is evicted like its records. The command itself takes another 20 MiB.
    #[arg(help_heading = HEADING, long, value_name = "MIB", value_parser = mebibytes)]
    pub memory: Option<u64>,

    #[command(flatten)]
    pub trace: TraceArguments,
}

/// Parses `--threads`.
fn threads(word: &str) -> Result<usize, String> {
    let threads = word.parse().ok().filter(|threads| (1..=MAX_THREADS).contains(threads));
    threads.ok_or_else(|| format!("give a number of threads from 1 to {MAX_THREADS}"))
}

/// Parses `--memory`: a number of MiB, or a number with a unit: 64, 64MiB, 1G.
fn mebibytes(word: &str) -> Result<u64, String> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = word.split_at(digits);
    let each = match unit.to_ascii_lowercase().as_str() {
        "" | "m" | "mb" | "mib" => Some(1),
        "g" | "gb" | "gib" => Some(1024),
        _ => None,
    };
    let mebibytes = number.parse::<u64>().ok().zip(each).and_then(|(n, each)| n.checked_mul(each));
    mebibytes
        .filter(|number| (MIN_MEMORY..=MAX_MEMORY).contains(number))
        .ok_or_else(|| format!("give a number of MiB from {MIN_MEMORY}, such as 64, 64MiB or 1GiB"))
}

/// Time of the acknowledgement of a write.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DurabilityArgument {
    /// Once the write is on disk.
    Group,
    /// Immediately. A crash may lose the last writes.
    Relaxed,
}

impl StoreArguments {
    /// Opens an existing database.
    pub fn open_existing(&self) -> Result<Database> {
        self.open(false)
    }

    /// Opens an existing database to read it. Another process may have it open.
    pub fn open_to_read(&self) -> Result<Database> {
        self.open_with(self.options().read_only(true))
    }

    /// Opens the database, or creates it.
    pub fn open_or_create(&self) -> Result<Database> {
        self.open(true)
    }

    /// Opens or creates the database for a large load: its writes are durable once the database is
    /// closed. `memory_bytes` overrides the memory budget.
    pub fn open_for_load(&self, memory_bytes: Option<u64>) -> Result<Database> {
        let mut options = self.options().create(true).durability(Durability::Relaxed);
        if let Some(bytes) = memory_bytes {
            options = options.memory_budget(bytes);
        }
        self.open_with(options)
    }

    /// Opens the database in `directory`, with the other arguments.
    pub fn open_at(&self, directory: &Path) -> Result<Database> {
        self.trace.keep(|| open(directory, self.options().create(false)))
    }

    /// Returns whether the path of the database exists.
    pub fn is_there(&self) -> bool {
        self.db.exists()
    }

    /// The bytes of `--memory`.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory.map(|mebibytes| mebibytes << 20)
    }

    fn open(&self, create: bool) -> Result<Database> {
        self.open_with(self.options().create(create))
    }

    fn options(&self) -> Options {
        // A user at a terminal may pause within a transaction.
        let options = Options::default().interactive_idle(None).interactive_age(None);
        let mut options = options.durability(match self.durability {
            DurabilityArgument::Group => Durability::Group,
            DurabilityArgument::Relaxed => Durability::Relaxed,
        });
        if let Some(bytes) = self.memory_bytes() {
            options = options.memory_budget(bytes);
        }
        if let Some(threads) = self.threads {
            options = options.workers(threads);
        }
        self.trace.options(options)
    }

    fn open_with(&self, options: Options) -> Result<Database> {
        let db = self.trace.keep(|| open(&self.db, options))?;
        finish_removals(&db);
        Ok(db)
    }
}

/// Waits until the workers have deleted the tables that an interrupted command left behind, and
/// have freed their space. A short command could otherwise end before them.
fn finish_removals(db: &Database) {
    let removals = || db.stats().removals_under_way;
    if removals() == 0 {
        return;
    }
    let bar = ProgressBar::new_spinner();
    bar.set_message("freeing the space of dropped tables");
    bar.enable_steady_tick(Duration::from_millis(100));
    while removals() > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    bar.finish_and_clear();
}

/// Repeats a request while a checkpoint is in progress. A newly opened database may write one
/// automatically.
pub fn once_free<T>(mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match ask() {
            Err(Error::Busy(BusyWith::Checkpoint)) => std::thread::sleep(Duration::from_millis(10)),
            answer => return answer,
        }
    }
}

/// Opens a database, and shows the progress if this takes long.
fn open(directory: &Path, options: Options) -> Result<Database> {
    // The bar stays hidden for the first half second.
    let bar = ProgressBar::new(0).with_style(style());
    let begin = Instant::now();
    let opened = Database::open_watched(directory, options, |progress| {
        if begin.elapsed() > Duration::from_millis(500) {
            bar.set_message(match progress.stage {
                OpenStage::Checkpoint => "loading the checkpoint",
                _ => "replaying the log",
            });
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        }
    });
    bar.finish_and_clear();
    match opened {
        // The message already names the directory.
        Err(error)
            if matches!(
                error.log_error(),
                Some(LogError::NotADatabase { .. } | LogError::Locked { .. })
            ) =>
        {
            Err(error.into())
        }
        opened => {
            opened.with_context(|| format!("cannot open the database {}", directory.display()))
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {wide_bar} {percent}%").expect("the template is a constant")
}

/// Opens an existing table.
pub fn existing_table(db: &Database, name: &str) -> Result<AnyTable, Error> {
    let name = name.to_owned();
    db.run_blocking(async move |tx| AnyTable::open(tx, &name).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_parses_numbers_within_limits() {
        for (word, number) in [("1", 1), ("256", MAX_THREADS)] {
            assert_eq!(threads(word), Ok(number));
        }
        for word in ["0", "257", "-1", "18446744073709551616", "two", ""] {
            assert_eq!(threads(word).unwrap_err(), "give a number of threads from 1 to 256");
        }
    }

    #[test]
    fn memory_parses_mebibytes_and_units() {
        for (word, expected) in
            [("64", 64), ("64MiB", 64), ("100mb", 100), ("2G", 2048), ("1GiB", 1024)]
        {
            assert_eq!(mebibytes(word), Ok(expected), "{word}");
        }
        for word in
            ["", "MiB", "32", "-64", "64 MiB", "64k", "99999999999999999999", "20000000000000"]
        {
            assert!(mebibytes(word).unwrap_err().contains("64MiB"), "{word}");
        }
    }
}
