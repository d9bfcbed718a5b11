//! In which format a file of records is, as the arguments or its name say.

use std::path::Path;

use anyhow::{Result, bail};

use crate::arguments::Format;

/// What stands for standard input or output.
const STANDARD: &str = "-";

/// The format of a file, and what stands between its fields if it is CSV.
///
/// # Errors
/// If nobody says, or a delimiter is given for a format that has none.
pub fn of(path: &Path, format: Option<Format>, delimiter: Option<u8>) -> Result<(Format, u8)> {
    let name = path.display();
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let format = match (format, ending) {
        (Some(format), _) => format,
        (None, "csv" | "tsv") => Format::Csv,
        (None, "jsonl" | "ndjson") => Format::Jsonl,
        (None, "parquet") => Format::Parquet,
        (None, _) if is_standard(path) => bail!("say --format csv, jsonl or parquet"),
        (None, _) => bail!("{name}: say --format csv, jsonl or parquet"),
    };
    if delimiter.is_some() && format != Format::Csv {
        bail!("--delimiter is for CSV, and {name} is not");
    }
    let usual = if ending == "tsv" { b'\t' } else { b',' };
    Ok((format, delimiter.unwrap_or(usual)))
}

/// Whether a path stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD)
}
