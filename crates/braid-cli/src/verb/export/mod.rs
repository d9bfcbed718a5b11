//! `export`: a table's records as rows of a file, the reverse of `import`.

#[cfg(feature = "parquet")]
mod parquet;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use braiddb::{Database, Transaction};
use pollster::block_on;
use serde::Serialize;

use super::file_format;
use super::json_text::{Fields, compact, unquoted};
use super::pages::{self, Range};
use super::path_error;
use crate::arguments::{Export, Format};
use crate::output::{self, Output, counted};
use crate::store::AnyTable;

/// What an export did.
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
    if export.columns.is_some() && (format != Format::Csv || export.key.is_none()) {
        bail!("--columns is for CSV with --key");
    }
    let transaction = block_on(db.begin_read_only())?;
    let name = export.table.clone();
    let open = async move |tx: &Transaction| {
        let table = AnyTable::open(tx, &name).await?;
        let first = tx.first(&table.records).await?;
        Ok((table.clone(), first.map(|(_, value)| value.to_vec())))
    };
    let (table, first) = block_on(transaction.step(open))?;
    let rows = RowFormat::new(export, format, delimiter, table.clone(), first.as_deref())?;
    let header = rows.header();
    #[cfg(feature = "parquet")]
    let columns = rows.columns();
    let append = move |page: &mut Vec<u8>, key: &[u8], value: &[u8]| rows.append(page, key, value);
    let pages = |out: &mut (dyn Write + Send)| {
        pages::write(&transaction, &table, Range::all(), append.clone(), out)
    };
    let write = |mut out: File| match format {
        Format::Csv => {
            out.write_all(&header)?;
            pages(&mut out)
        }
        Format::Jsonl => pages(&mut out),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => bail!(file_format::NO_PARQUET),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            // The transaction shows the same records both times.
            let mut columns = parquet::Columns::new(columns);
            pages(&mut parquet::Lines(|fields: &Fields<'_>| {
                columns.see(fields);
                Ok(())
            }))?;
            let mut rows = parquet::Rows::new(columns, out)?;
            let exported = pages(&mut parquet::Lines(|fields: &Fields<'_>| rows.push(fields)))?;
            rows.finish()?;
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

/// Writes a file under another name, which becomes its own when it is on disk.
fn replace(path: &Path, write: impl FnOnce(File) -> Result<u64>) -> Result<u64> {
    let name = path.file_name().with_context(|| format!("{} names no file", path.display()))?;
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = Unfinished(path.with_file_name(unfinished));
    let cannot = || format!("cannot write {}", path.display());
    let file = OpenOptions::new().write(true).create_new(true).open(&unfinished.0);
    let file = file.map_err(|error| match path_error::missing(path, &error) {
        Some(missing) => anyhow!("{missing}; name a file in a directory that is there"),
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

/// A file that is removed, unless it has another name by then.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // There is none once it was renamed.
        _ = fs::remove_file(&self.0);
    }
}

/// How records become rows.
#[derive(Clone, Debug)]
struct RowFormat {
    table: AnyTable,
    format: Format,
    delimiter: u8,
    /// The name of the field that holds the key.
    key: String,
    content: Content,
}

/// What a row holds.
#[derive(Clone, Debug)]
enum Content {
    /// The key, and the value in a field of this name.
    Pair(String),
    /// The fields of the value, which the key is one of.
    Fields {
        /// Their names, in their order, in a CSV file.
        columns: Vec<String>,
        /// Whether these were asked for, although there may be others.
        chosen: bool,
    },
}

impl RowFormat {
    fn new(
        export: &Export,
        format: Format,
        delimiter: u8,
        table: AnyTable,
        first: Option<&[u8]>,
    ) -> Result<Self> {
        let content = match (&export.key, &export.value) {
            (_, Some(value)) => Content::Pair(value.clone()),
            (None, None) => Content::Pair("value".to_owned()),
            (Some(key), None) => {
                let chosen = export.columns.is_some();
                let columns = match (&export.columns, first) {
                    (Some(columns), _) => columns.clone(),
                    (None, Some(first)) => {
                        let text = text(&table, first)?;
                        let fields = Fields::parse(&text).map_err(|reason| no_object(&reason))?;
                        fields.iter().map(|(name, _)| name.to_owned()).collect()
                    }
                    (None, None) => vec![key.clone()],
                };
                if !columns.contains(key) {
                    let columns = columns.join(", ");
                    bail!("the key's field {key:?} is none of the columns, which are {columns}");
                }
                Content::Fields { columns, chosen }
            }
        };
        let key = export.key.clone().unwrap_or_else(|| "key".to_owned());
        if let Content::Pair(value) = &content
            && *value == key
        {
            bail!("the key and the value cannot both be called {key:?}");
        }
        Ok(Self { table, format, delimiter, key, content })
    }

    /// The names of the columns, as far as they are known.
    fn columns(&self) -> Vec<String> {
        match &self.content {
            Content::Pair(value) => vec![self.key.clone(), value.clone()],
            Content::Fields { columns, .. } => columns.clone(),
        }
    }

    /// What stands before the first row of CSV.
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        self.append_csv(&mut header, self.columns());
        header
    }

    /// Appends the row of a record, which for a Parquet file is a line of JSON first.
    fn append(&self, page: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Result<()> {
        let content = match &self.content {
            Content::Pair(name) => return self.append_pair(page, key, name, value),
            Content::Fields { columns, chosen } => (columns, *chosen),
        };
        let mut shown = Vec::new();
        self.table.key.append_text(key, &mut shown)?;
        let shown = String::from_utf8(shown).expect("it is text");
        self.append_fields(page, &shown, value, content)
            .with_context(|| format!("the record {shown:?} cannot be exported"))
    }

    fn append_pair(&self, page: &mut Vec<u8>, key: &[u8], name: &str, value: &[u8]) -> Result<()> {
        let (keys, values) = (&self.table.key, &self.table.value);
        match self.format {
            Format::Csv => {
                let (mut key_text, mut value_text) = (Vec::new(), Vec::new());
                keys.append_text(key, &mut key_text)?;
                values.append_text(value, &mut value_text)?;
                self.append_csv(page, [key_text, value_text]);
            }
            Format::Jsonl | Format::Parquet => {
                page.push(b'{');
                serde_json::to_writer(&mut *page, &self.key)?;
                page.push(b':');
                keys.append_json(key, page)?;
                page.push(b',');
                serde_json::to_writer(&mut *page, name)?;
                page.push(b':');
                values.append_json(value, page)?;
                page.extend_from_slice(b"}\n");
            }
        }
        Ok(())
    }

    fn append_fields(
        &self,
        page: &mut Vec<u8>,
        key: &str,
        value: &[u8],
        (columns, chosen): (&Vec<String>, bool),
    ) -> Result<()> {
        let text = text(&self.table, value)?;
        let fields = Fields::parse(&text).map_err(|reason| no_object(&reason))?;
        let holds = fields.get(&self.key).map(field_text).transpose()?;
        if holds.as_deref() != Some(key) {
            bail!(
                "its field {:?} does not hold its key; give the key a field of its own, with --key and \
                 --value",
                self.key
            );
        }
        if self.format != Format::Csv {
            match text.contains(['\n', '\r']) {
                true => page.extend_from_slice(compact(&text).as_bytes()),
                false => page.extend_from_slice(text.as_bytes()),
            }
            page.push(b'\n');
            return Ok(());
        }
        let other = |(name, _): &(&str, &str)| !columns.iter().any(|column| column == name);
        if !chosen && let Some((name, _)) = fields.iter().find(other) {
            bail!("it has the field {name:?}, and the first record has not; say --columns");
        }
        let column = |name: &String| fields.get(name).map_or(Ok(String::new()), field_text);
        let row: Vec<String> = columns.iter().map(column).collect::<Result<_>>()?;
        self.append_csv(page, row);
        Ok(())
    }

    /// Appends a row of CSV. A field has quotation marks if it would mean something else without them.
    fn append_csv(&self, page: &mut Vec<u8>, fields: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let start = page.len();
        for (number, field) in fields.into_iter().enumerate() {
            let field = field.as_ref();
            if number > 0 {
                page.push(self.delimiter);
            }
            let special =
                |byte: &u8| matches!(*byte, b'"' | b'\n' | b'\r') || *byte == self.delimiter;
            // A byte order mark is none of a field.
            let quoted = field.iter().any(special) || field.starts_with("\u{feff}".as_bytes());
            if !quoted {
                page.extend_from_slice(field);
                continue;
            }
            page.push(b'"');
            for byte in field {
                page.extend(std::iter::repeat_n(*byte, if *byte == b'"' { 2 } else { 1 }));
            }
            page.push(b'"');
        }
        if page.len() == start {
            // A line without anything on it would be no row.
            page.extend_from_slice(b"\"\"");
        }
        page.push(b'\n');
    }
}

fn text(table: &AnyTable, value: &[u8]) -> Result<String> {
    let mut text = Vec::new();
    table.value.append_text(value, &mut text)?;
    Ok(String::from_utf8(text).expect("it is text"))
}

/// A field as text: what a text says, nothing of `null`, and any other as it is written.
fn field_text(json: &str) -> Result<String> {
    match json {
        "null" => Ok(String::new()),
        text if text.starts_with('"') => unquoted(text).map_err(|reason| anyhow!(reason)),
        other => Ok(other.to_owned()),
    }
}

fn no_object(reason: &str) -> anyhow::Error {
    anyhow!(
        "its value is no JSON object ({reason}); give the value a field of its own, with --value"
    )
}
