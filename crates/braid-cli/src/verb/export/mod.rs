//! `export`: writes the records of a table as rows of a file, the reverse of `import`.

#[cfg(feature = "parquet")]
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod reader;
mod row_format;
mod row_types;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use braiddb::{Database, Transaction};
use pollster::block_on;
use serde::Serialize;

#[cfg(feature = "parquet")]
use self::lines::ObjectLines;
use self::reader::Reader;
use self::row_format::RowFormat;
use super::{file_format, path_error};
use crate::any_table::AnyTable;
use crate::arguments::{Export, Format};
#[cfg(feature = "parquet")]
use crate::codec::json_text::Fields;
use crate::output::{self, Output, counted};

/// Result of an export.
#[derive(Debug, Serialize)]
struct Report<'e> {
    table: &'e str,
    exported: u64,
}

/// Exports a table.
pub fn run(db: &Database, export: &Export, output: &Output) -> Result<ExitCode> {
    if export.file.is_dir() {
        bail!("{}; name a file in it", path_error::directory(&export.file));
    }
    let (format, delimiter) = file_format::of(&export.file, export.format, export.delimiter)?;
    if export.typed && format != Format::Csv {
        bail!("--typed is for CSV; other formats keep types without it");
    }
    if export.questions.count && format == Format::Parquet {
        bail!("--count is for CSV and JSON lines");
    }
    let transaction = block_on(db.transaction().read_only(true).begin())?;
    let name = export.table.clone();
    let open = async move |tx: &Transaction| AnyTable::open(tx, &name).await;
    let table = block_on(transaction.step(open))?;
    let reader = Reader::new(&transaction, table, export)?;
    let mut rows = RowFormat::new(&reader, export, format, delimiter)?;
    if export.typed {
        rows.type_columns(&reader)?;
    }
    let write = |mut out: File| match format {
        _ if reader.query.count => {
            let count = reader.count()?;
            let document = rows.count(count);
            out.write_all(&document)?;
            Ok(1)
        }
        Format::Csv => {
            let mut out = WithHeader { header: rows.header(), out };
            let exported = reader.write(&rows, &mut out)?;
            out.finish()?;
            Ok(exported)
        }
        Format::Jsonl => reader.write(&rows, &mut out),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => bail!(file_format::NO_PARQUET),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            // The transaction returns the same records in both passes.
            let mut columns = parquet::Columns::new(rows.columns());
            reader.write(
                &rows,
                ObjectLines(|fields: &Fields<'_>| {
                    columns.see(fields);
                    Ok(())
                }),
            )?;
            let mut file = parquet::Rows::new(columns, out)?;
            let exported =
                reader.write(&rows, ObjectLines(|fields: &Fields<'_>| file.push(fields)))?;
            file.finish()?;
            Ok(exported)
        }
    };
    if file_format::is_standard(&export.file) {
        write(output::stdout()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let exported = replace(&export.file, write)?;
    if output.json {
        output.document(&Report { table: &export.table, exported })?;
    } else {
        let (table, file) = (&export.table, export.file.display());
        output.line(&format!("exported {} of {table:?} to {file}", counted(exported, "record")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a header before the first rows, so that an error in them is reported without it.
struct WithHeader {
    header: Vec<u8>,
    out: File,
}

impl WithHeader {
    /// Writes the header of a file without rows.
    fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.header)
    }
}

impl Write for WithHeader {
    fn write(&mut self, page: &[u8]) -> io::Result<usize> {
        if !page.is_empty() {
            self.out.write_all(&std::mem::take(&mut self.header))?;
        }
        self.out.write(page)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a file under a temporary name, and renames it once it is on disk.
fn replace(path: &Path, write: impl FnOnce(File) -> Result<u64>) -> Result<u64> {
    let name = path.file_name().with_context(|| format!("{} names no file", path.display()))?;
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = Unfinished(path.with_file_name(unfinished));
    let cannot = || format!("cannot write {}", path.display());
    let file = OpenOptions::new().write(true).create_new(true).open(&unfinished.0);
    let file = file.map_err(|error| match path_error::missing(path, &error) {
        Some(missing) => anyhow!("{missing}; name a file in an existing directory"),
        None => anyhow!(error).context(cannot()),
    })?;
    let written = write(file.try_clone().with_context(cannot)?)?;
    file.sync_all().with_context(cannot)?;
    fs::rename(&unfinished.0, path).with_context(cannot)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(directory.unwrap_or(Path::new(".")));
    directory.and_then(|directory| directory.sync_all()).with_context(cannot)?;
    Ok(written)
}

/// A file that is deleted on drop, unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Fails if the file was renamed.
        _ = fs::remove_file(&self.0);
    }
}
