//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::store::StoreArguments;

/// A transactional database that hides every wait, on the command line.
///
/// Tables that this command makes hold text: keys are strings, and so are values (an import stores each row
/// as a JSON object). In tables of a program's own types numbers are written as such, bytes as 0x00ff, and
/// tuples as JSON arrays: braid get orders '[7, "ada"]'. Values of types that only the program knows are shown
/// as bytes, and given as such: nothing checks that these are what the program reads.
///
/// Commands that only read (get, scan, export, tables, stats, check, log) write nothing to the database's directory, and
/// work while a program has the database open: they show what was committed when they opened it. All others need it
/// for themselves.
#[derive(Debug, Parser)]
#[command(name = "braid", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 the key is not there, 2 wrong usage, 3 failure, 4 rows rejected.\n\n\
Examples:\n  braid import airports.csv --table airports --key icao\n  \
braid get airports LJLJ\n  braid scan airports --prefix LJ --limit 5 --json"
)]
pub struct Arguments {
    /// Print data as JSON, one document a line.
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Verb,
}

impl Arguments {
    /// Reads the command line; where it is wrong, says so and ends the process.
    pub fn read() -> Self {
        let mut command = with_negative_numbers(Self::command());
        let read = Self::from_arg_matches(&command.get_matches_mut());
        read.unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

/// The command, of which negative numbers are values: where none will do, that is what is said, and not that there is no such
/// option.
fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
        .mut_subcommands(with_negative_numbers)
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Import a CSV file with a header, JSON lines, or a Parquet file into a table, all or nothing.
    ///
    /// Each row becomes a JSON object, with its columns in their order. Into a table that is new, or paged, go as many rows as
    /// there are; into another that is there already, they are written in one transaction, which must fit into a quarter of
    /// the memory.
    /// If the command is interrupted, nothing was imported, and the space that it took is given back when the
    /// database is opened the next time.
    Import {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
        /// What to import.
        #[command(flatten)]
        import: Import,
    },
    /// Write the records of a table to a CSV file, JSON lines, or a Parquet file, as an import reads them.
    ///
    /// What was imported with --key, and with --value if it was, comes out with the same: fields of the same text in
    /// the same order, in the order of the keys. Without both, records have a field "key" and a field "value",
    /// whatever the table's types. A file is there when it is whole and on disk, and then replaces one of its name. Numbers and
    /// tuples come back as such where braid import finds the table there; a table that it makes has keys and values of text.
    /// Values of types that only their program knows are their bytes, such as 0x00ff, which braid import takes there too.
    Export {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
        /// What to export.
        #[command(flatten)]
        export: Export,
    },
    /// Print the value of a key.
    Get {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
        /// Table to read.
        table: String,
        /// Key to look up.
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Give a key a value; makes the table if need be.
    Put {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
        /// Table to write.
        table: String,
        /// Key to write.
        #[arg(allow_negative_numbers = true)]
        key: String,
        /// Its new value.
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Delete a key.
    Delete {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
        /// Table to write.
        table: String,
        /// Key to delete.
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Print the records of a range of keys, in their order.
    ///
    /// Each on a line of its own: the key, a tab, the value. Control characters in a key or a value are shown as JSON
    /// escapes them: \t, \n, \r, and others such as \u001b; backslashes stay as they are. What is to be exact is printed
    /// with --json, or by braid get, which prints a value as it is.
    Scan {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
        /// What to scan.
        #[command(flatten)]
        scan: Scan,
    },
    /// List the tables, how large they are, and their indexes.
    ///
    /// This command has only just opened the database, for itself, so that with --json the values of tables that are not paged
    /// count as cold; tables in braid shell shows what of each table is in memory there.
    ///
    /// Control characters in a name are shown as JSON escapes them, such as \n; with --json names are exact.
    Tables {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Drop a table, with its indexes and all its records.
    Drop {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
        /// Table to drop, of whatever types.
        table: String,
    },
    /// Give a table another name.
    Rename {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
        /// The table's name.
        table: String,
        /// Its new name.
        to: String,
    },
    /// Show what the database holds, and what opening it took. It may be open in another process.
    ///
    /// What was done since the opening (commits, workers, suspensions) is that of this command, which opens the database to read
    /// it, with --watch each time anew; what a program does that runs beside it is shown with --from.
    Stats {
        /// Show it again every so many seconds, as it is then, until the command is interrupted.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = pause)]
        watch: Option<f64>,
        /// Not of a database that this command opens, but of the last line of a file to which a running program writes its
        /// statistics as JSON (see braid top).
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// Which database, without --from.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Watch a database on a live screen: transactions, suspensions by cause, log, disk, memory, pages, workers.
    ///
    /// A database is open in one process at a time. So a program that is to be watched writes its statistics to a file,
    /// every second, say, and --from is that file: its last line is what the statistics are as JSON, as braid stats --json
    /// prints them. Without --from, this command opens the database itself. Keys: q quits, p pauses.
    Top {
        /// What to watch.
        #[command(flatten)]
        top: Top,
        /// Which database, without --from.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Write a checkpoint, so that the next opening need not replay the log before it.
    Checkpoint {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Free segments of the log that hold little that is alive; checkpoints do so by themselves.
    Compact {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Copy the database, as it is now, into an empty directory that opens as one.
    Backup {
        /// Directory to copy to; made if need be.
        directory: PathBuf,
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Make a database of a backup, where there is none yet.
    ///
    /// The copy is checked, every block of its log and every record, before it has its name; the backup is only read.
    Restore {
        /// Directory of the backup.
        backup: PathBuf,
        /// Which database to make.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Print blocks of the log: what transactions committed, in their order.
    Log {
        /// Start at this LSN, where a block starts; by default at the first that is there.
        #[arg(long, default_value_t = 0, value_parser = whole)]
        from: u64,
        /// Print at most so many.
        #[arg(long, default_value_t = u64::MAX, hide_default_value = true, value_parser = whole)]
        limit: u64,
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Check every block of the log, and that every key leads to its record. Nothing is written.
    Check {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Type commands one by one, in transactions if you like.
    Shell {
        /// Which database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Print what a shell needs to complete words of this command.
    ///
    /// For bash: braid completions bash > ~/.local/share/bash-completion/completions/braid
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the pages of the manual, braid.1 and one for each verb.
    Man {
        /// Directory to write to; made if need be.
        directory: PathBuf,
    },
}

impl Verb {
    /// The database that it works on, if it works on one.
    pub fn store(&self) -> Option<&StoreArguments> {
        match self {
            Self::Import { store, .. }
            | Self::Export { store, .. }
            | Self::Get { store, .. }
            | Self::Put { store, .. }
            | Self::Delete { store, .. }
            | Self::Scan { store, .. }
            | Self::Tables { store, .. }
            | Self::Drop { store, .. }
            | Self::Rename { store, .. }
            | Self::Stats { store, .. }
            | Self::Top { store, .. }
            | Self::Checkpoint { store, .. }
            | Self::Compact { store, .. }
            | Self::Backup { store, .. }
            | Self::Restore { store, .. }
            | Self::Log { store, .. }
            | Self::Check { store, .. }
            | Self::Shell { store, .. } => Some(store),
            _ => None,
        }
    }
}

/// A live screen.
#[derive(Args, Debug)]
#[group(skip)]
pub struct Top {
    /// File to which a running program writes its statistics.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Seconds from one look to the next, from 0.05 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub every: f64,
}

/// An import.
#[derive(Args, Debug)]
#[group(skip)]
pub struct Import {
    /// File to read; - for standard input.
    pub file: PathBuf,
    /// Table to import into; made if need be.
    #[arg(long, short)]
    pub table: String,
    /// Column (of a CSV file) or field (of JSON objects) that holds the key.
    #[arg(long, short)]
    pub key: String,
    /// Column or field that holds the value, as it is: as a text, a number, or JSON. By default the value is the
    /// whole row, as a JSON object.
    #[arg(long)]
    pub value: Option<String>,
    /// Format of the file; by default its name's ending tells: .csv, .tsv, .jsonl, .ndjson or
    /// .parquet.
    #[arg(long)]
    pub format: Option<Format>,
    /// What stands between the fields of a CSV file: one character, or tab.
    #[arg(long, value_parser = delimiter, value_name = "CHARACTER")]
    pub delimiter: Option<u8>,
    /// Import the good rows although others are rejected.
    #[arg(long)]
    pub skip_rejected: bool,
    /// Make the table, if it is new, one whose records and index lie on pages, and may exceed memory. Keys of such a
    /// table have 512 bytes at most. A new table whose index would exceed --memory is one anyway.
    #[arg(long)]
    pub paged: bool,
}

/// An export.
#[derive(Args, Debug)]
#[group(skip)]
pub struct Export {
    /// File to write; - for standard output.
    pub file: PathBuf,
    /// Table to export.
    #[arg(long, short)]
    pub table: String,
    /// Column or field that holds the key: of the values, which are JSON objects, or with --value beside the value.
    #[arg(long, short)]
    pub key: Option<String>,
    /// Column or field that is to hold the value as it is.
    #[arg(long)]
    pub value: Option<String>,
    /// Columns of the CSV file, in their order; by default the fields of the first record.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub columns: Option<Vec<String>>,
    /// Format of the file; by default its name's ending tells: .csv, .tsv, .jsonl, .ndjson or
    /// .parquet.
    #[arg(long)]
    pub format: Option<Format>,
    /// What stands between the fields of a CSV file: one character, or tab.
    #[arg(long, value_parser = delimiter, value_name = "CHARACTER")]
    pub delimiter: Option<u8>,
}

/// A number of records, say.
fn whole(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| "give a whole number, such as 10".to_owned())
}

/// Seconds between two looks at statistics.
fn pause(word: &str) -> Result<f64, String> {
    let seconds = word.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "give a number of seconds from 0.01 to 86400".to_owned())
}

/// Seconds between two looks of a live screen.
fn seconds(word: &str) -> Result<f64, String> {
    let seconds = word.parse().ok().filter(|seconds| (0.05..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "give a number of seconds from 0.05 to 3600".to_owned())
}

/// A delimiter of CSV, of one byte.
fn delimiter(word: &str) -> Result<u8, String> {
    match word.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        b"\"" | b"\n" | b"\r" => Err("fields cannot be told by it".to_owned()),
        [byte] => Ok(*byte),
        _ => Err("give one character of ASCII, or tab".to_owned()),
    }
}

/// Format of a file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values, the first row naming the columns.
    Csv,
    /// One JSON object a line.
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

/// A scan.
#[derive(Args, Debug, Default)]
#[group(skip)]
pub struct Scan {
    /// Table to read.
    pub table: String,
    /// First key of the range.
    #[arg(long, conflicts_with = "after", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// The range starts after this key.
    #[arg(long, allow_negative_numbers = true)]
    pub after: Option<String>,
    /// Last key of the range.
    #[arg(long, conflicts_with = "before", allow_negative_numbers = true)]
    pub to: Option<String>,
    /// The range ends before this key.
    #[arg(long, allow_negative_numbers = true)]
    pub before: Option<String>,
    /// Only keys that start so: with a text, with bytes (0x00ff), or with these parts ('["eu"]').
    #[arg(long, conflicts_with_all = ["from", "after", "to", "before"])]
    pub prefix: Option<String>,
    /// At most so many records.
    #[arg(long, short, value_parser = whole, allow_negative_numbers = true)]
    pub limit: Option<u64>,
    /// From the last key to the first.
    #[arg(long, short)]
    pub reverse: bool,
}
