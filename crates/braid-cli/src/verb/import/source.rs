//! The file, or standard input, that is imported.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use zstd::stream::read::Decoder;

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
        let (format, delimiter) = format_of(import)?;
        if import.typed && format != Format::Csv {
            bail!("--typed is for CSV, and {name} is not");
        }
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
        let bar = bar(bytes);
        let counted = Counted { file, bar: bar.clone() };
        let unreadable = || format!("cannot read {name}");
        let (compression, file) = Compression::of(counted).with_context(unreadable)?;
        let file: Box<dyn Read + Send> = match compression {
            None => Box::new(file),
            Some(_) if format == Format::Parquet => {
                bail!("{name} is compressed as a whole; decompress it first")
            }
            Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(file)),
            Some(Compression::Zstd) => Box::new(Decoder::new(file).with_context(unreadable)?),
            Some(Compression::Other(kind, convert)) => bail!(
                "{name} is {kind}; convert it first: {convert} {name} | braid import - --format \
                 csv (or jsonl)"
            ),
        };
        Ok(Self { name, format, delimiter, reader: Watched { file, bar } })
    }
}

/// The format of a file by the arguments or its name, without the extension of a compressed file.
fn format_of(import: &Import) -> Result<(Format, u8)> {
    let path = &import.file;
    let extension = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.unwrap_or_default().to_ascii_lowercase()
    };
    let unpacked = match &*extension(path) {
        "gz" | "zst" => path.with_extension(""),
        _ => path.clone(),
    };
    let format = match (import.format, &*extension(&unpacked)) {
        // An array of objects, or one object per line.
        (None, "json") => Some(Format::Jsonl),
        (format, _) => format,
    };
    file_format::of(&unpacked, format, import.delimiter)
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
    Ok((file, about.len()))
}

/// The compression of a file.
enum Compression {
    Gzip,
    Zstd,
    /// Another form, by its name, and the command that converts it.
    Other(&'static str, &'static str),
}

impl Compression {
    /// Determines the compression by the first bytes. Returns a reader of the whole file.
    fn of<R: Read + Send>(mut file: R) -> io::Result<(Option<Self>, impl Read + Send)> {
        let mut first = Vec::new();
        file.by_ref().take(6).read_to_end(&mut first)?;
        let kinds: [(&[u8], Self); 6] = [
            (b"\x1f\x8b\x08", Self::Gzip),
            (b"\x28\xb5\x2f\xfd", Self::Zstd),
            (b"\xfd7zXZ\0", Self::Other("compressed with xz", "xz -dc")),
            (b"PK\x03\x04", Self::Other("compressed with zip", "unzip -p")),
            (b"\xff\xfe", Self::Other("text in UTF-16", "iconv -f utf-16 -t utf-8")),
            (b"\xfe\xff", Self::Other("text in UTF-16", "iconv -f utf-16 -t utf-8")),
        ];
        let kind = kinds.into_iter().find(|(begins, _)| first.starts_with(begins));
        Ok((kind.map(|(_, kind)| kind), io::Cursor::new(first).chain(file)))
    }
}

/// A file with a progress bar of the bytes that were read.
struct Counted {
    file: Box<dyn Read + Send>,
    bar: ProgressBar,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.bar.inc(bytes as u64);
        Ok(bytes)
    }
}

/// The decompressed bytes of a file with a progress bar on the terminal.
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
        self.file.read(buffer)
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
