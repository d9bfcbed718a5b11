//! Opening the database that the command works on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use braiddb::{
    BusyWith, Database, Durability, Error, LogError, OpenStage, Options, Table, Transaction,
};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use crate::codec::{KeyType, ValueType};
use crate::trace::TraceArguments;

/// The tables that this command makes.
pub type TextTable = Table<str, str>;

/// Threads that `--threads` takes at most: as many as a database has workers.
const MAX_THREADS: usize = 256;
/// MiB that `--memory` takes at least: the log's buffer, where memory is little, and one for records.
const MIN_MEMORY: u64 = 33;
/// As many bytes as numbers count.
const MAX_MEMORY: u64 = u64::MAX >> 20;

/// What the help lists the arguments under that all verbs have which work on a database: behind those of each verb.
pub const HEADING: &str = "Database";

/// Which database, and how to open it.
#[derive(Args, Debug)]
pub struct StoreArguments {
    /// Directory of the database.
    #[arg(help_heading = HEADING, long, env = "BRAID_DB", default_value = "braid.db")]
    pub db: PathBuf,
    /// Worker threads, from 1 to 256; by default one a core.
    #[arg(help_heading = HEADING, long = "threads", value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// When a write counts as done.
    #[arg(help_heading = HEADING, long, default_value = "group")]
    pub durability: DurabilityArgument,
    /// MiB of memory for records, indexes and the log's buffer (64 MiB, or 32 in less than 256); records beyond stay on
    /// disk. By default half of what the machine, or the control group, has. The index of a table that is not paged stays in
    /// memory however large it is, some 60 bytes a record: of one that is (import --paged, or an import whose index would
    /// exceed this) it leaves memory too. What the command itself takes, some 20 MiB, is beside it.
    #[arg(help_heading = HEADING, long, value_name = "MIB", value_parser = mebibytes)]
    pub memory: Option<u64>,

    #[command(flatten)]
    pub trace: TraceArguments,
}

/// A number of worker threads.
fn threads(word: &str) -> Result<usize, String> {
    let threads = word.parse().ok().filter(|threads| (1..=MAX_THREADS).contains(threads));
    threads.ok_or_else(|| format!("give a number of threads from 1 to {MAX_THREADS}"))
}

/// A number of MiB, or with a unit: 64, 64MiB, 1G.
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
        .ok_or_else(|| format!("give a number of MiB from {MIN_MEMORY}, as 64, 64MiB or 1GiB"))
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DurabilityArgument {
    /// When it is on disk.
    Group,
    /// At once; it is on disk moments later.
    Relaxed,
}

impl StoreArguments {
    /// Opens the database, which must be there.
    pub fn open_existing(&self) -> Result<Database> {
        self.open(false)
    }

    /// Opens the database, which must be there, to be only read; another process may have it open.
    pub fn open_to_read(&self) -> Result<Database> {
        self.open_with(self.options().read_only(true))
    }

    /// Opens the database, or makes it.
    pub fn open_or_create(&self) -> Result<Database> {
        self.open(true)
    }

    /// Opens the database, or makes it, to load much: what is written is on disk once the database is closed.
    /// It may have its own share of the memory.
    pub fn open_for_load(&self, memory_bytes: Option<u64>) -> Result<Database> {
        let mut options = self.options().create(true).durability(Durability::Relaxed);
        if let Some(bytes) = memory_bytes {
            options = options.memory_budget(bytes);
        }
        self.open_with(options)
    }

    /// Opens the database in another directory than the arguments say.
    pub fn open_at(&self, directory: &Path) -> Result<Database> {
        self.trace.keep(|| open(directory, self.options().create(false)))
    }

    /// Whether there is something where the database is to be.
    pub fn is_there(&self) -> bool {
        self.db.exists()
    }

    /// What `--memory` says.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory.map(|mebibytes| mebibytes << 20)
    }

    fn open(&self, create: bool) -> Result<Database> {
        self.open_with(self.options().create(create))
    }

    fn options(&self) -> Options {
        // Who types may take all the time there is.
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

/// Waits until what is left of a command which was interrupted is deleted, and its space given back: a command may be over
/// before the workers have done that beside it.
fn finish_removals(db: &Database) {
    let removals = || db.stats().removals_under_way;
    if removals() == 0 {
        return;
    }
    let bar = ProgressBar::new_spinner();
    bar.set_message("giving back the space of tables that were dropped");
    bar.enable_steady_tick(Duration::from_millis(100));
    while removals() > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    bar.finish_and_clear();
}

/// Asks until no checkpoint is in the way: a database that was just opened may write one by itself.
pub fn once_free<T>(mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match ask() {
            Err(Error::Busy(BusyWith::Checkpoint)) => std::thread::sleep(Duration::from_millis(10)),
            answer => return answer,
        }
    }
}

/// Opens a database, and shows how far it is if that takes a while.
fn open(directory: &Path, options: Options) -> Result<Database> {
    // Quick openings show nothing.
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

/// A table of any types.
#[derive(Clone, Debug)]
pub struct AnyTable {
    /// With keys and values as they are stored.
    pub records: Table<[u8], [u8]>,
    pub key: KeyType,
    pub value: ValueType,
    /// Whether records and index lie on pages.
    pub paged: bool,
}

impl AnyTable {
    /// Opens a table that must be there.
    pub async fn open(tx: &Transaction, name: &str) -> Result<Self, Error> {
        let (records, description) = tx.open_encoded_table(name).await?;
        let key = KeyType::named(&description.key_type);
        let value = ValueType::named(&description.value_type);
        Ok(Self { records, key, value, paged: description.options.paged })
    }
}

/// Opens a table that must be there.
pub fn existing_table(db: &Database, name: &str) -> Result<AnyTable, Error> {
    let name = name.to_owned();
    db.run_blocking(async move |tx| AnyTable::open(tx, &name).await)
}

/// Opens a table, or makes one of text.
pub fn table(db: &Database, name: &str) -> Result<AnyTable, Error> {
    match existing_table(db, name) {
        Err(Error::TableNotFound(_)) => {
            let _: TextTable = pollster::block_on(db.open_or_create_table(name))?;
            existing_table(db, name)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_a_number_within_limits() {
        for (word, number) in [("1", 1), ("256", MAX_THREADS)] {
            assert_eq!(threads(word), Ok(number));
        }
        for word in ["0", "257", "-1", "18446744073709551616", "two", ""] {
            assert_eq!(threads(word).unwrap_err(), "give a number of threads from 1 to 256");
        }
    }

    #[test]
    fn memory_is_told_in_mebibytes_or_with_a_unit() {
        for (word, told) in
            [("64", 64), ("64MiB", 64), ("100mb", 100), ("2G", 2048), ("1GiB", 1024)]
        {
            assert_eq!(mebibytes(word), Ok(told), "{word}");
        }
        for word in
            ["", "MiB", "32", "-64", "64 MiB", "64k", "99999999999999999999", "20000000000000"]
        {
            assert!(mebibytes(word).unwrap_err().contains("64MiB"), "{word}");
        }
    }
}
