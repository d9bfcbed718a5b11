//! A file to which a running program writes its statistics as JSON, one document per line.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, bail};
use braiddb::Stats;

use super::path_error;

/// Bytes at the end of the file that are searched for the last document.
const TAIL_BYTES: u64 = 1 << 20;

/// Statistics, and the time at which the program wrote them.
#[derive(Clone, Debug)]
pub struct Sample {
    pub stats: Stats,
    #[cfg_attr(not(feature = "top"), expect(dead_code, reason = "only the live screen reads it"))]
    pub taken: SystemTime,
    /// State of the node, if the database is of a cluster.
    #[cfg_attr(not(feature = "top"), expect(dead_code, reason = "only the live screen reads it"))]
    pub cluster: Option<serde_json::Value>,
}

/// Reads the last complete line of a file, and ignores a line that the program is still writing.
/// Returns `None` if the file has no complete line.
pub fn read(path: &Path) -> Result<Option<Sample>> {
    let name = path.display();
    if path.is_dir() {
        bail!("{name} is a directory; --from takes a file with statistics");
    }
    let cannot = || format!("cannot read statistics from {name}");
    let mut file = File::open(path).map_err(|error| match path_error::missing(path, &error) {
        Some(missing) => {
            anyhow!("{missing}; name the file to which a program writes its statistics")
        }
        None => anyhow!(error).context(cannot()),
    })?;
    let metadata = file.metadata().with_context(cannot)?;
    let start = metadata.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start)).with_context(cannot)?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).with_context(cannot)?;
    let Some(document) = last_document(&tail) else { return Ok(None) };
    if !tail.contains(&b'\n') && is_cut_short(document) {
        // The program is still writing it.
        return Ok(None);
    }
    let stats = parse(document).with_context(|| {
        format!("the last line of {name} is not the JSON statistics of a database")
    })?;
    Ok(Some(Sample { stats, taken: metadata.modified().with_context(cannot)?, cluster: None }))
}

/// Parses statistics of this version of the engine, or of another, which may have other counters.
pub fn parse(document: &[u8]) -> Result<Stats> {
    let document: serde_json::Value = serde_json::from_slice(document)?;
    document.get("committed").context("it has no field \"committed\"")?;
    Ok(serde_json::from_value(document)?)
}

fn is_cut_short(document: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(document).is_err_and(|error| error.is_eof())
}

/// The last line that ends, or the only line: a program that replaces the whole file may omit the
/// line feed.
fn last_document(tail: &[u8]) -> Option<&[u8]> {
    let whole = match tail.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => &tail[..end],
        None => tail,
    };
    let line = whole.rsplit(|&byte| byte == b'\n').next()?.trim_ascii();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use braiddb::{Database, Options};

    use super::*;
    use crate::limit::{PART_SECONDS, Watched, with_limit};

    #[test]
    fn read_returns_the_last_complete_line() {
        with_limit(PART_SECONDS, |_| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("stats.json");
            let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
            db.run_blocking(async |tx| tx.tables().await).unwrap();
            let line = serde_json::to_string(&db.stats()).unwrap();
            let read_text = |text: &str| {
                std::fs::write(&path, text).unwrap();
                read(&path).map(|sample| sample.map(|sample| sample.stats.committed))
            };
            assert_eq!(read_text(&line).unwrap(), Some(1));
            assert_eq!(read_text(&format!("{{}}\n{line}\n")).unwrap(), Some(1));
            assert_eq!(read_text(&format!("{line}\n{{\"commit")).unwrap(), Some(1));
            assert_eq!(read_text("").unwrap(), None);
            assert_eq!(read_text(&line[..line.len() / 2]).unwrap(), None);
            for wrong in ["{}\n", "7", "text\n", "{\"committed\": \"all\"}\n"] {
                let said = format!("{:#}", read_text(wrong).unwrap_err());
                assert!(said.contains("is not the JSON statistics of a database"), "{said}");
            }
            let missing = read(&directory.path().join("none")).unwrap_err();
            assert!(format!("{missing:#}").contains("there is no file"), "{missing:#}");
            assert!(
                format!("{:#}", read(directory.path()).unwrap_err()).contains("is a directory")
            );
        });
    }
}
