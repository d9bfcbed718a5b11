//! The arguments of the command line, and their help.

mod files;
mod questions;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use files::{Export, Format, Import};
pub use questions::{Questions, Scan};

use crate::negative_numbers::with_negative_numbers;
use crate::store::StoreArguments;

/// Import, query, check and back up a Braid database.
///
/// A database is a directory: braid.db, or the one that --db or BRAID_DB names. The commands import,
/// put and shell create it if it does not exist.
///
/// Tables that braid put creates hold text: keys are strings, and so are values. An import stores
/// each row as a JSON object, under a key that is a number or text. Tables of a program may have
/// other types. Their numbers are written as numbers, bytes as 0x00ff, tuples as JSON arrays, and
/// structs and enums as in serde's JSON: braid put users '[7, "ada"]' '{"age": 36, "plan": "Free"}'.
/// Records of older versions of a struct are shown with the fields that they have. Values of types
/// that only the program can decode are shown as bytes, and written as bytes without a check.
///
/// Commands that only read (get, scan, export, tables, stats, check, changes, log) write nothing to the
/// directory, and work while a program has the database open. They show what was committed when
/// they opened it. All other commands need exclusive access.
#[derive(Debug, Parser)]
#[command(name = "braid", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 success, 1 the key does not exist, 2 wrong usage, 3 failure, \
4 rows rejected.\n\n\
Examples:\n  braid demo\n  braid import airports.csv --table airports --key icao\n  \
braid get airports LJLJ\n  braid scan airports --prefix LJ --limit 5 --json"
)]
pub struct Arguments {
    /// Print JSON, one document per line.
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Verb,
}

impl Arguments {
    /// Parses the command line. Prints an error and exits the process if it is wrong.
    pub fn read() -> Self {
        let mut command = with_negative_numbers(Self::command());
        let read = Self::from_arg_matches(&command.get_matches_mut());
        read.unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

/// The verb, with its arguments.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Measure concurrent transactions on this machine, on the world's airports.
    ///
    /// Imports 28 298 airports into a temporary database, and flies between them. Each flight is a
    /// serializable transaction that reads two airports and changes two other records. The table
    /// compares flights one at a time with braided flights, durable on disk and in memory. Then the
    /// demonstration opens the database again, and fails unless it holds every acknowledged flight
    /// exactly once.
    ///
    /// Example: braid demo --dir /mnt/nvme --seconds 5
    Demo(Demo),
    /// Import CSV, JSON or Parquet into a table, all rows or none.
    ///
    /// Each row becomes a JSON object with its columns in their order. In a table of a program whose
    /// values are structs, each row becomes a struct. A new table and a paged table take any number
    /// of rows. Rows for another existing table are written in one
    /// transaction, which must fit into a quarter of the memory. An interrupted import changes no
    /// table. The next command that writes to the database frees its space.
    ///
    /// Example: braid import airports.csv --table airports --key icao
    ///
    /// Files compressed by gzip and zstd are decompressed. JSON is one object per line, or an array
    /// of objects.
    ///
    /// Example: braid import events.jsonl.gz --table events --key region,id:u64
    Import {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
        /// The file, and how to read it.
        #[command(flatten)]
        import: Import,
    },
    /// Export a table to CSV, JSON lines or Parquet.
    ///
    /// The options --key and --value of the import, given again, produce the imported rows: the
    /// same text and the same order of fields, sorted by key. Without them, each row has a field
    /// "key" and a field "value", whatever the types of the table. The file appears under its name
    /// once it is complete and on disk, and replaces an existing file.
    ///
    /// To keep the types of values, import into an existing table of these types: in a table that
    /// braid import creates, values are text. Values of types that only the program can decode are
    /// exported as bytes, such as 0x00ff, and braid import accepts them in this form.
    ///
    /// Example: braid export airports.jsonl --table airports --key icao
    Export {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
        /// The table, and the file to write.
        #[command(flatten)]
        export: Export,
    },
    /// Print the value of a key.
    ///
    /// Exits with code 1 if the key does not exist.
    ///
    /// Example: braid get airports LJLJ
    Get {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
        /// The record to read.
        #[command(flatten)]
        record: RecordName,
    },
    /// Set the value of a key.
    ///
    /// Creates the database and the table if they do not exist.
    ///
    /// Example: braid put names ada 'Ada Lovelace'
    Put {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
        /// The record to write.
        #[command(flatten)]
        record: RecordName,
        /// New value.
        value: String,
    },
    /// Delete a key.
    ///
    /// Exits with code 1 if the key does not exist.
    Delete {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
        /// The record to delete.
        #[command(flatten)]
        record: RecordName,
    },
    /// Print the records of a range of keys, in key order.
    ///
    /// Each record is a line: the key, a tab, the value. Control characters are escaped as in JSON:
    /// \t, \n, \r, and others such as \u001b. Backslashes are not escaped. For exact values use
    /// --json or braid get.
    ///
    /// With --columns, a line has the text of these columns, separated by tabs.
    ///
    /// Example: braid scan airports --prefix LJ --limit 5
    ///
    /// Example: braid scan airports --where 'country = SI' --columns key,name --order name
    Scan {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
        /// The table and the range.
        #[command(flatten)]
        scan: Scan,
    },
    /// List the tables with their sizes, and the indexes.
    ///
    /// With --json, values of tables that are not paged count as cold, because this command has
    /// just opened the database and read none. To see how much of a table is in memory, enter
    /// tables in braid shell.
    ///
    /// Control characters in names are escaped as in JSON, such as \n. With --json, names are
    /// exact.
    Tables {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Drop a table with its indexes and all its records.
    Drop {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
        /// Table to drop.
        table: String,
    },
    /// Rename a table.
    Rename {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
        /// Current name.
        table: String,
        /// New name.
        to: String,
    },
    /// Show statistics: tables, memory, log, transactions, workers.
    ///
    /// Another process may have the database open. The counters of commits, workers and suspensions
    /// belong to this command, which opens the database to read it, with --watch each time. For the
    /// counters of a running program use --from.
    Stats {
        /// Print new statistics every SECONDS seconds until the command is interrupted.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = pause)]
        watch: Option<f64>,
        /// Read the statistics of a running program from the last line of this file, to which the
        /// program writes them as JSON (see braid top).
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// The database, without --from.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Watch transactions, suspensions, log, memory, pages and workers on a live screen.
    ///
    /// If a program has the database open, this command asks it, and shows the state of a node of a
    /// cluster too. The program needs the feature json of braiddb, or writes its statistics to a
    /// file, for example every second, and --from names this file. Its last line is the JSON document
    /// that braid stats --json prints. If no program has the database open, this command opens it.
    ///
    /// Keys: q quits, p pauses. This verb needs a build with --features top.
    Top {
        /// The statistics, and how often to read them.
        #[command(flatten)]
        top: Top,
        /// The database, without --from.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Write a checkpoint, so that the next opening replays less of the log.
    ///
    /// An open database also writes checkpoints automatically. If a program has the database open,
    /// that program writes the checkpoint, also after this command was interrupted.
    Checkpoint {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Free disk space: move live records out of log segments that are mostly garbage.
    ///
    /// Checkpoints also do this automatically. If a program has the database open, that program does
    /// it, also after this command was interrupted.
    Compact {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Copy the current state of the database to a new or empty directory.
    ///
    /// The copy is a database: it can be opened, or restored with braid restore. The command only
    /// reads the database, and a program may have it open.
    ///
    /// Example: braid backup ../copy
    Backup {
        /// Directory of the copy. Created if it does not exist.
        directory: PathBuf,
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Create a database from a backup.
    ///
    /// Copies the backup, and checks every log block and every record of the copy before the copy
    /// gets its name. The backup is only read. The database must not exist yet.
    ///
    /// Example: braid restore ../copy --db ../restored
    Restore {
        /// Directory of the backup.
        backup: PathBuf,
        /// The database to create.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Print committed transactions and their changes, in commit order.
    ///
    /// Prints the transactions that the log still has, or those after a token. Each has a line with
    /// its LSN, and a line for each change: insert, update, delete, or put in a paged table, then
    /// the table, the key and the new value. Keys and values are JSON. The log has no old values.
    /// Another process may have the database open.
    ///
    /// With --json, each transaction is a document with its token: the next call with --from prints
    /// what follows. Tokens of change feeds of programs work too.
    ///
    /// Example: braid changes --table users --follow --json
    Changes {
        /// Which transactions to print.
        #[command(flatten)]
        changes: Changes,
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Print the blocks of the log, in commit order, and what they wrote to each table.
    ///
    /// braid changes prints the keys and values.
    Log {
        /// LSN of the first block. By default the oldest block in the log.
        #[arg(long, default_value_t = 0, value_parser = whole)]
        from: u64,
        /// Maximum number of blocks.
        #[arg(long, default_value_t = u64::MAX, hide_default_value = true, value_parser = whole)]
        limit: u64,
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Check every block of the log, and that every index entry finds its record.
    ///
    /// Writes nothing. Exits with code 3 if the database is damaged. If a program has the database
    /// open, that program checks it, or this command if the program has no socket.
    Check {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Enter commands interactively, each alone or several in one transaction.
    ///
    /// Reads a script from a pipe as well, and stops at the first error. The command help lists the
    /// commands.
    Shell {
        /// The database.
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Run a node of a cluster, which keeps databases on several machines identical.
    ///
    /// Needs the program braid-node, which is built separately: cargo install --path
    /// crates/braid-node. braid node --help lists its arguments.
    #[command(disable_help_flag = true)]
    Node {
        /// Arguments for braid-node.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Administer a cluster: init, add, remove, status, transfer, put, get.
    ///
    /// Needs the program braid-node, like braid node. braid cluster --help lists its arguments.
    #[command(disable_help_flag = true)]
    Cluster {
        /// Arguments for braid-node.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Print a script that completes this command in a shell.
    ///
    /// Example: braid completions bash > ~/.local/share/bash-completion/completions/braid
    Completions {
        /// Shell that runs the script.
        shell: clap_complete::Shell,
    },
    /// Write the manual: braid.1, and a page for each verb.
    Man {
        /// Directory to write to. Created if it does not exist.
        directory: PathBuf,
    },
}

impl Verb {
    /// Returns the database that the verb works on, or `None` for the other verbs.
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
            | Self::Changes { store, .. }
            | Self::Log { store, .. }
            | Self::Check { store, .. }
            | Self::Shell { store, .. } => Some(store),
            _ => None,
        }
    }
}

/// The arguments that name a record.
#[derive(Args, Debug)]
#[group(skip)]
pub struct RecordName {
    /// Name of the table.
    pub table: String,
    /// Key of the record.
    pub key: String,
}

/// Arguments of `demo`.
#[derive(Args, Debug)]
#[group(skip)]
pub struct Demo {
    /// Put the temporary database into this directory, to choose the disk. It is removed
    /// afterwards.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Seconds of each of the four rounds, from 0.05 to 60.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = round_seconds)]
    pub seconds: f64,
}

/// Arguments of `top`.
#[derive(Args, Debug)]
#[group(skip)]
pub struct Top {
    /// File to which a running program writes its statistics.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Seconds between two updates, from 0.05 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub every: f64,
}

/// Arguments of `changes`.
#[derive(Args, Debug)]
#[group(skip)]
pub struct Changes {
    /// Begin after the transactions that this token covers. By default at the oldest transaction in
    /// the log.
    #[arg(long, value_name = "TOKEN")]
    pub from: Option<String>,
    /// Only changes of this table, or of several.
    #[arg(long, short, value_name = "TABLE")]
    pub table: Vec<String>,
    /// Maximum number of transactions.
    #[arg(long, short, value_parser = whole)]
    pub limit: Option<u64>,
    /// Wait for later transactions, until the command is interrupted. Opens the database again every
    /// half second.
    #[arg(long)]
    pub follow: bool,
}

/// Parses a count or an LSN.
fn whole(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| "give a whole number, such as 10".to_owned())
}

/// Parses the seconds of `--watch`.
fn pause(word: &str) -> Result<f64, String> {
    let seconds = word.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "give a number of seconds from 0.01 to 86400".to_owned())
}

/// Parses the seconds of a round of `demo`.
fn round_seconds(word: &str) -> Result<f64, String> {
    let seconds = word.parse().ok().filter(|seconds| (0.05..=60.0).contains(seconds));
    seconds.ok_or_else(|| "give a number of seconds from 0.05 to 60".to_owned())
}

/// Parses the seconds between two updates of `top`.
fn seconds(word: &str) -> Result<f64, String> {
    let seconds = word.parse().ok().filter(|seconds| (0.05..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "give a number of seconds from 0.05 to 3600".to_owned())
}
