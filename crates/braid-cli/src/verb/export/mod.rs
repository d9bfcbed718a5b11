//! `export`: writes the records of a table as rows of a file, the reverse of `import`.

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
    if export.columns.is_some() && (format != Format::Csv || export.key.is_none()) {
        bail!("--columns is for CSV with --key");
    }
    let transaction = block_on(db.transaction().read_only(true).begin())?;
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
            // The transaction returns the same records in both passes.
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

/// The conversion of records to rows.
#[derive(Clone, Debug)]
struct RowFormat {
    table: AnyTable,
    format: Format,
    delimiter: u8,
    /// The name of the field that holds the key.
    key: String,
    content: Content,
}

/// The fields of a row.
#[derive(Clone, Debug)]
enum Content {
    /// The key, and the value in a field with this name.
    Pair(String),
    /// The fields of the value, including the key.
    Fields {
        /// Names of the columns of a CSV file, in order.
        columns: Vec<String>,
        /// The user named the columns. Other fields are omitted.
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
                        let fields =
                            Fields::parse(&text).map_err(|reason| not_an_object(&reason))?;
                        fields.iter().map(|(name, _)| name.to_owned()).collect()
                    }
                    (None, None) => vec![key.clone()],
                };
                if !columns.contains(key) {
                    let columns = columns.join(", ");
                    bail!("the columns {columns} do not include the field {key:?} of the key");
                }
                Content::Fields { columns, chosen }
            }
        };
        let key = export.key.clone().unwrap_or_else(|| "key".to_owned());
        if let Content::Pair(value) = &content
            && *value == key
        {
            bail!("the key and the value cannot both be named {key:?}");
        }
        Ok(Self { table, format, delimiter, key, content })
    }

    /// The known names of the columns.
    fn columns(&self) -> Vec<String> {
        match &self.content {
            Content::Pair(value) => vec![self.key.clone(), value.clone()],
            Content::Fields { columns, .. } => columns.clone(),
        }
    }

    /// The header line of CSV.
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        self.append_csv(&mut header, self.columns());
        header
    }

    /// Appends the row of a record. For a Parquet file it is an intermediate line of JSON.
    fn append(&self, page: &mut Vec<u8>, key: &[u8], value: &[u8]) -> Result<()> {
        let content = match &self.content {
            Content::Pair(name) => return self.append_pair(page, key, name, value),
            Content::Fields { columns, chosen } => (columns, *chosen),
        };
        let mut shown = Vec::new();
        self.table.key.append_text(key, &mut shown)?;
        let shown = String::from_utf8(shown).expect("the codec appends text");
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
        let fields = Fields::parse(&text).map_err(|reason| not_an_object(&reason))?;
        let holds = fields.get(&self.key).map(field_text).transpose()?;
        if holds.as_deref() != Some(key) {
            bail!(
                "its field {:?} does not hold its key; write key and value to separate fields with \
                 --key and --value",
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
            bail!(
                "it has the field {name:?}, which the first record does not have; name the \
                 columns with --columns"
            );
        }
        let column = |name: &String| fields.get(name).map_or(Ok(String::new()), field_text);
        let row: Vec<String> = columns.iter().map(column).collect::<Result<_>>()?;
        self.append_csv(page, row);
        Ok(())
    }

    /// Appends a row of CSV. Fields have quotation marks only where they are necessary.
    fn append_csv(&self, page: &mut Vec<u8>, fields: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let start = page.len();
        for (number, field) in fields.into_iter().enumerate() {
            let field = field.as_ref();
            if number > 0 {
                page.push(self.delimiter);
            }
            let special =
                |byte: &u8| matches!(*byte, b'"' | b'\n' | b'\r') || *byte == self.delimiter;
            // Without quotation marks, a byte order mark would be lost on import.
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
            // An import would skip an empty line.
            page.extend_from_slice(b"\"\"");
        }
        page.push(b'\n');
    }
}

fn text(table: &AnyTable, value: &[u8]) -> Result<String> {
    let mut text = Vec::new();
    table.value.append_text(value, &mut text)?;
    Ok(String::from_utf8(text).expect("the codec appends text"))
}

/// The text of a field: the content of a string, an empty text for `null`, and the JSON of others.
fn field_text(json: &str) -> Result<String> {
    match json {
        "null" => Ok(String::new()),
        text if text.starts_with('"') => unquoted(text).map_err(|reason| anyhow!(reason)),
        other => Ok(other.to_owned()),
    }
}

fn not_an_object(reason: &str) -> anyhow::Error {
    anyhow!(
        "its value is not a JSON object ({reason}); write the value to a separate field with \
         --value"
    )
}
