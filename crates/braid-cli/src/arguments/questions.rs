//! Arguments of `scan`, and of questions about records.

use clap::Args;

use super::whole;

/// Conditions, columns, counts and orders of `scan` and `export`.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Questions {
    /// Only records that satisfy this condition: a column, one of = != < <= > >= ~ (contains), and
    /// a value, such as 'age >= 18'. Of several conditions, all must be satisfied.
    ///
    /// The columns are key, the fields of the value, and parts of fields, such as address.city or
    /// lines.0. A value that is no object is the column value. Numbers are compared as numbers, also
    /// if they are text. A missing field equals null only. Text in quotation marks is compared as
    /// text: 'code = "007"'.
    #[arg(long = "where", value_name = "CONDITION", allow_hyphen_values = true)]
    pub conditions: Vec<String>,
    /// Only these columns, in this order.
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub columns: Option<Vec<String>>,
    /// Sort by these columns, such as 'age:desc,name', in memory: null, numbers, text. With --limit
    /// the first records are kept.
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub order: Option<Vec<String>>,
    /// Only count the records.
    #[arg(long)]
    pub count: bool,
}

/// Arguments of `scan`.
#[derive(Args, Debug, Default)]
#[group(skip)]
pub struct Scan {
    /// Table to read.
    pub table: String,
    /// First key of the range.
    #[arg(long, conflicts_with = "after")]
    pub from: Option<String>,
    /// Start the range after this key.
    #[arg(long)]
    pub after: Option<String>,
    /// Last key of the range.
    #[arg(long, conflicts_with = "before")]
    pub to: Option<String>,
    /// End the range before this key.
    #[arg(long)]
    pub before: Option<String>,
    /// Only keys with this prefix: text, bytes (0x00ff), or the first parts of a tuple ('["eu"]').
    #[arg(long, conflicts_with_all = ["from", "after", "to", "before"])]
    pub prefix: Option<String>,
    /// Maximum number of records.
    #[arg(long, short, value_parser = whole)]
    pub limit: Option<u64>,
    /// Print the last key first.
    #[arg(long, short)]
    pub reverse: bool,
    /// Which records to print, and what of them.
    #[command(flatten)]
    pub questions: Questions,
}
