//! In which format a file of records is, as the arguments or its name say.

use std::path::Path;

use anyhow::{Result, bail};

use crate::arguments::Format;

/// What stands for standard input or output.
const STANDARD: &str = "-";

/// What to do where a name does not tell the format.
const SAY: &str = "say --format csv, jsonl (one JSON object a line) or parquet";

/// Error of builds without the feature `parquet`.
#[cfg(not(feature = "parquet"))]
pub const NO_PARQUET: &str = "this build has no Parquet support; build it with: cargo install \
                              --path crates/braid-cli --features parquet";

/// The format of a file, and what stands between its fields if it is CSV.
///
/// # Errors
/// If nobody says, or a delimiter is given for a format that has none.
pub fn of(path: &Path, format: Option<Format>, delimiter: Option<u8>) -> Result<(Format, u8)> {
    let name = path.display();
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let ending = ending.to_ascii_lowercase();
    let format = match (format, &*ending) {
        (Some(format), _) => format,
        (None, "csv" | "tsv") => Format::Csv,
        (None, "jsonl" | "ndjson") => Format::Jsonl,
        (None, "parquet") => Format::Parquet,
        (None, _) if is_standard(path) => {
            bail!("{name} has no ending that tells its format; {SAY}")
        }
        (None, _) => bail!(
            "{name} does not end as files of a known format do: in .csv, .tsv, .jsonl, .ndjson or .parquet; {SAY}"
        ),
    };
    if delimiter.is_some() && format != Format::Csv {
        bail!("--delimiter is for CSV, and {name} is not");
    }
    #[cfg(not(feature = "parquet"))]
    if format == Format::Parquet {
        bail!(NO_PARQUET);
    }
    let usual = if ending == "tsv" { b'\t' } else { b',' };
    Ok((format, delimiter.unwrap_or(usual)))
}

/// Whether a path stands for standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_name_tells_the_format() {
        let told = |name: &str| of(Path::new(name), None, None).map_err(|error| error.to_string());
        for (name, format, delimiter) in [
            ("a.csv", Format::Csv, b','),
            ("a.b.CSV", Format::Csv, b','),
            ("dir.x/a.Tsv", Format::Csv, b'\t'),
            ("a.jsonl", Format::Jsonl, b','),
            ("a.ndjson", Format::Jsonl, b','),
            #[cfg(feature = "parquet")]
            ("a.parquet", Format::Parquet, b','),
        ] {
            assert_eq!(told(name), Ok((format, delimiter)), "{name}");
        }
        for name in ["a", "a.csv.gz", "a.json", "dir.csv/a", ".csv"] {
            let said = told(name).unwrap_err();
            assert!(said.starts_with(name) && said.contains(".ndjson or .parquet"), "{said}");
            assert!(said.contains("--format csv, jsonl"), "{said}");
        }
        assert!(told("-").unwrap_err().starts_with("- has no ending"));
    }
}
