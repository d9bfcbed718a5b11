//! The file, or standard input, that is imported.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::{Format, Import};
use crate::verb::{file_format, path_error};

/// The source of the rows.
#[derive(Debug)]
pub struct Source {
    /// Name in messages.
    pub name: String,
    pub format: Format,
    /// Separator of the fields of a CSV file.
    pub delimiter: u8,
    pub reader: Watched,
}

impl Source {
    /// Opens the file or standard input.
    ///
    /// # Errors
    /// If the file cannot be read, or its format is unknown.
    pub fn open(import: &Import) -> Result<Self> {
        let path = &import.file;
        let standard = file_format::is_standard(path);
        let name = if standard { "standard input".to_owned() } else { path.display().to_string() };
        let file = if standard { None } else { Some(open(path)?) };
        let (format, delimiter) = file_format::of(path, import.format, import.delimiter)?;
        if standard && format == Format::Parquet {
            bail!(
                "Parquet cannot be read from standard input, because its index is at the end; \
                 name a file"
            );
        }
        let (file, bytes): (Box<dyn Read + Send>, u64) = match file {
            None => (Box::new(io::stdin()), 0),
            Some((file, bytes)) => (Box::new(file), bytes),
        };
        Ok(Self { name, format, delimiter, reader: Watched { file, bar: bar(bytes) } })
    }
}

/// Opens a file. Returns it with its size.
fn open(path: &Path) -> Result<(File, u64)> {
    let read = || format!("cannot read {}", path.display());
    let file = File::open(path).map_err(|error| match path_error::missing(path, &error) {
        Some(missing) => anyhow!("{missing}; name an existing file, or - for standard input"),
        None => anyhow!(error).context(read()),
    })?;
    let about = file.metadata().with_context(read)?;
    if about.is_dir() {
        let hint = match path.join(path_error::IDENTITY_FILE).is_file() {
            true => "name a file; to restore a backup use braid restore",
            false => "name a file in it: CSV, JSON lines or Parquet",
        };
        bail!("{}; {hint}", path_error::directory(path));
    }
    if about.is_file()
        && let Some((kind, unpack)) = compression(&file)
    {
        let name = path.display();
        bail!(
            "{name} is compressed with {kind}; decompress it first: {unpack} {name} | braid \
             import - --format csv (or jsonl)"
        );
    }
    Ok((file, about.len()))
}

/// The compression of a file, by its first bytes, and the command that decompresses it.
fn compression(file: &File) -> Option<(&'static str, &'static str)> {
    const KINDS: [(&[u8], &str, &str); 4] = [
        (b"\x1f\x8b\x08", "gzip", "gzip -dc"),
        (b"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
        (b"\xfd7zXZ\0", "xz", "xz -dc"),
        (b"PK\x03\x04", "zip", "unzip -p"),
    ];
    let mut first = [0; 6];
    // The import reports read errors later.
    let filled = file.read_at(&mut first, 0).unwrap_or(0);
    let kind = KINDS.iter().find(|(begins, ..)| first[..filled].starts_with(begins));
    kind.map(|(_, kind, unpack)| (*kind, *unpack))
}

/// A file with a progress bar on the terminal.
pub struct Watched {
    file: Box<dyn Read + Send>,
    bar: ProgressBar,
}

#[cfg(feature = "parquet")]
impl Watched {
    /// Counts bytes that another reader of the file has read.
    pub fn passed(&self, bytes: u64) {
        self.bar.inc(bytes);
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watched({} bytes read)", self.bar.position())
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.bar.inc(bytes as u64);
        Ok(bytes)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn bar(bytes: u64) -> ProgressBar {
    let template = match bytes {
        0 => "importing {spinner} {decimal_bytes} {decimal_bytes_per_sec}",
        _ => "importing {wide_bar} {decimal_bytes}/{decimal_total_bytes} {eta}",
    };
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::new(bytes).with_style(style)
}
