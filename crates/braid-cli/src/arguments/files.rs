//! Arguments of `import` and `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Questions;
use crate::key_column::{self, KeyColumn};

/// Arguments of `import`.
#[derive(Args, Debug)]
#[group(skip)]
pub struct Import {
    /// File to read, or - for standard input.
    pub file: PathBuf,
    /// Table to import into. Created if it does not exist.
    #[arg(long, short)]
    pub table: String,
    /// Column (CSV, Parquet) or field (JSON) that holds the key. Several, separated by commas, make
    /// a tuple.
    ///
    /// The keys of a new table have a type: u64 or i64 if all of the first rows have whole numbers,
    /// otherwise str. To choose it, append it to the name: id:str, id:u64. Other types are the
    /// widths u8 to u128 and i8 to i128, f32, f64, bool, bytes, uuid, time, and tuples of these for
    /// a column of arrays: 'id:(str,u64)'.
    #[arg(long, short, value_name = "COLUMNS", value_parser = KeyColumns::parse, required_unless_present = "row_number")]
    key: Vec<KeyColumns>,
    /// Use the number of the row in the file, from 1, as the key.
    #[arg(long, conflicts_with = "key")]
    pub row_number: bool,
    /// Column or field that holds the value: text, a number, or JSON. By default the value is the
    /// whole row as a JSON object.
    #[arg(long)]
    pub value: Option<String>,
    /// Format of the file. By default its extension decides: .csv, .tsv, .jsonl, .ndjson, .json or
    /// .parquet, with .gz or .zst if it is compressed.
    #[arg(long)]
    pub format: Option<Format>,
    /// Separator of the fields of a CSV file: one character, or tab.
    #[arg(long, value_parser = delimiter, value_name = "CHARACTER")]
    pub delimiter: Option<u8>,
    /// The header of the CSV file names the type of each column, as braid export --typed writes it:
    /// str, number, bool or json, or the type of the keys. Empty fields without quotation marks are
    /// null.
    #[arg(long)]
    pub typed: bool,
    /// Import the valid rows even if others are rejected.
    #[arg(long)]
    pub skip_rejected: bool,
    /// Create a paged table, whose records and index may exceed memory. Its keys have at most 512
    /// bytes. A new table whose index would exceed --memory is always paged.
    #[arg(long)]
    pub paged: bool,
}

impl Import {
    /// The columns of the key, in order.
    pub fn key(&self) -> impl Iterator<Item = &KeyColumn> {
        self.key.iter().flat_map(|KeyColumns(columns)| columns)
    }
}

/// The columns of one `--key`.
#[derive(Clone, Debug)]
struct KeyColumns(Vec<KeyColumn>);

impl KeyColumns {
    fn parse(word: &str) -> Result<Self, String> {
        key_column::parse(word).map(Self)
    }
}

/// Arguments of `export`.
#[derive(Args, Debug)]
#[group(skip)]
pub struct Export {
    /// File to write, or - for standard output.
    pub file: PathBuf,
    /// Table to export.
    #[arg(long, short)]
    pub table: String,
    /// Column or field that holds the key, or several for a tuple. Without --value the other columns
    /// are the fields of the values, which must be JSON objects or structs.
    #[arg(long, short, value_delimiter = ',', value_name = "COLUMNS")]
    pub key: Option<Vec<String>>,
    /// Column or field for the unchanged value.
    #[arg(long)]
    pub value: Option<String>,
    /// Name the type of each column in the header of a CSV file, such as id:u64, name:str or
    /// age:number, and distinguish null from empty text. braid import --typed restores both, and
    /// the types of the keys.
    #[arg(long)]
    pub typed: bool,
    /// Which records to export, and what of them.
    #[command(flatten)]
    pub questions: Questions,
    /// Format of the file. By default its extension decides: .csv, .tsv, .jsonl, .ndjson or
    /// .parquet.
    #[arg(long)]
    pub format: Option<Format>,
    /// Separator of the fields of a CSV file: one character, or tab.
    #[arg(long, value_parser = delimiter, value_name = "CHARACTER")]
    pub delimiter: Option<u8>,
}

/// Parses a delimiter of CSV, which is one byte.
fn delimiter(word: &str) -> Result<u8, String> {
    match word.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        b"\"" | b"\n" | b"\r" => Err("this character cannot separate fields".to_owned()),
        [byte] => Ok(*byte),
        _ => Err("give one ASCII character, or tab".to_owned()),
    }
}

/// Format of a file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values. The first row names the columns.
    Csv,
    /// One JSON object per line. An import also reads an array of objects.
    Jsonl,
    /// Apache Parquet. Needs a build with --features parquet.
    Parquet,
}
