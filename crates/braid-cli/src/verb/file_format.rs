//! The format of a file of records, by the arguments or its name.

use std::path::Path;

use anyhow::{Result, bail};

use crate::arguments::Format;

/// The path that means standard input or output.
const STANDARD: &str = "-";

/// Advice if the format is unknown.
const ADVICE: &str = "use --format csv, jsonl (one JSON object per line) or parquet";

/// Error of builds without the feature `parquet`.
#[cfg(not(feature = "parquet"))]
pub const NO_PARQUET: &str = "this build has no Parquet support; build it with: cargo install \
                              --path crates/braid-cli --features parquet";

/// The format of a file, and the delimiter of CSV.
///
/// # Errors
/// If the format is unknown or not supported by this build, or if another format than CSV has a
/// delimiter.
pub fn of(path: &Path, format: Option<Format>, delimiter: Option<u8>) -> Result<(Format, u8)> {
    let name = path.display();
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let extension = extension.to_ascii_lowercase();
    let format = match (format, &*extension) {
        (Some(format), _) => format,
        (None, "csv" | "tsv") => Format::Csv,
        (None, "jsonl" | "ndjson") => Format::Jsonl,
        (None, "parquet") => Format::Parquet,
        (None, _) if is_standard(path) => {
            bail!("{name} has no extension; {ADVICE}")
        }
        (None, _) => bail!(
            "the extension of {name} is none of .csv, .tsv, .jsonl, .ndjson and .parquet; {ADVICE}"
        ),
    };
    if delimiter.is_some() && format != Format::Csv {
        bail!("--delimiter is for CSV, and {name} is not");
    }
    #[cfg(not(feature = "parquet"))]
    if format == Format::Parquet {
        bail!(NO_PARQUET);
    }
    let default = if extension == "tsv" { b'\t' } else { b',' };
    Ok((format, delimiter.unwrap_or(default)))
}

/// Returns whether a path means standard input or output.
pub fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_decides_the_format() {
        let format_of =
            |name: &str| of(Path::new(name), None, None).map_err(|error| error.to_string());
        for (name, format, delimiter) in [
            ("a.csv", Format::Csv, b','),
            ("a.b.CSV", Format::Csv, b','),
            ("dir.x/a.Tsv", Format::Csv, b'\t'),
            ("a.jsonl", Format::Jsonl, b','),
            ("a.ndjson", Format::Jsonl, b','),
            #[cfg(feature = "parquet")]
            ("a.parquet", Format::Parquet, b','),
        ] {
            assert_eq!(format_of(name), Ok((format, delimiter)), "{name}");
        }
        for name in ["a", "a.csv.gz", "a.json", "dir.csv/a", ".csv"] {
            let said = format_of(name).unwrap_err();
            assert!(said.contains(name) && said.contains(".ndjson and .parquet"), "{said}");
            assert!(said.contains("--format csv, jsonl"), "{said}");
        }
        assert!(format_of("-").unwrap_err().starts_with("- has no extension"));
    }
}
