//! Export to Parquet. The first pass over the records determines the type of each column, the
//! second pass writes them.
//!
//! A column of numbers has integers or doubles, if these represent each number exactly. A column of
//! mixed types has JSON text. Missing fields become null.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::codec::json_text::{Fields, unquoted};
use crate::query::Comparable;

/// Approximate size of a row group before compression.
const GROUP_BYTES: usize = 16 << 20;

/// The types that occur in each column.
#[derive(Debug)]
pub struct Columns {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    truth: bool,
    text: bool,
    /// Text such as `NaN`, which a column of numbers can hold.
    not_finite: bool,
    number: bool,
    /// Objects or arrays.
    other: bool,
    /// The type represents all numbers exactly.
    i64: bool,
    u64: bool,
    f64: bool,
}

/// The type of a column in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Truth,
    Signed,
    Unsigned,
    Double,
    Text,
    Json,
}

impl Columns {
    /// Columns with these names and no values yet.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut columns = Self { names: Vec::new(), numbers: HashMap::new(), seen: Vec::new() };
        for name in names {
            columns.number(&name);
        }
        columns
    }

    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        let (i64, u64, f64) = (true, true, true);
        self.seen.push(Seen {
            truth: false,
            text: false,
            not_finite: false,
            number: false,
            other: false,
            i64,
            u64,
            f64,
        });
        number
    }

    /// Adds the types of a record.
    pub fn see(&mut self, fields: &Fields<'_>) {
        for (name, json) in fields.iter() {
            let number = self.number(name);
            self.seen[number].see(json);
        }
    }
}

impl Seen {
    fn see(&mut self, json: &str) {
        match json.as_bytes()[0] {
            b'n' => {}
            b't' | b'f' => self.truth = true,
            b'"' if NOT_FINITE.contains(&json) => self.not_finite = true,
            b'"' => self.text = true,
            b'{' | b'[' => self.other = true,
            _ => {
                self.number = true;
                self.i64 &= json != "-0" && json.parse::<i64>().is_ok();
                self.u64 &= json.parse::<u64>().is_ok();
                self.f64 &= is_exactly_a_double(json);
            }
        }
    }

    fn kind(self) -> Kind {
        let is_text = self.text || self.not_finite;
        match (self.truth, is_text, self.number, self.other) {
            (true, false, false, false) => Kind::Truth,
            (false, _, false, false) => Kind::Text,
            (false, false, true, false) if self.i64 => Kind::Signed,
            (false, false, true, false) if self.u64 => Kind::Unsigned,
            (false, _, true, false) if self.f64 && !self.text => Kind::Double,
            _ => Kind::Json,
        }
    }
}

/// Numbers that JSON cannot represent, as strings.
const NOT_FINITE: [&str; 3] = ["\"NaN\"", "\"inf\"", "\"-inf\""];

/// Returns whether a JSON number equals the shortest text of the nearest double.
fn is_exactly_a_double(json: &str) -> bool {
    let Ok(double) = json.parse::<f64>() else { return false };
    let shortest = Comparable::of_word(&format!("{double:e}"));
    double.is_finite() && Comparable::of_word(json) == shortest
}

impl Kind {
    fn column(self, name: &str) -> Result<Type> {
        let (physical, logical) = match self {
            Self::Truth => (Physical::BOOLEAN, None),
            Self::Signed => (Physical::INT64, None),
            Self::Unsigned => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Self::Double => (Physical::DOUBLE, None),
            Self::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Json => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
        };
        let column = Type::primitive_type_builder(name, physical);
        let column = column.with_repetition(Repetition::OPTIONAL).with_logical_type(logical);
        Ok(column.build()?)
    }
}

/// Buffered values of a column.
enum Values {
    Truth(Vec<bool>),
    Integers(Vec<i64>),
    Doubles(Vec<f64>),
    Texts(Vec<ByteArray>),
}

struct Column {
    kind: Kind,
    values: Values,
    /// For each record 1 if it has a value, else 0.
    present: Vec<i16>,
}

impl Column {
    fn new(kind: Kind) -> Self {
        let values = match kind {
            Kind::Truth => Values::Truth(Vec::new()),
            Kind::Signed | Kind::Unsigned => Values::Integers(Vec::new()),
            Kind::Double => Values::Doubles(Vec::new()),
            Kind::Text | Kind::Json => Values::Texts(Vec::new()),
        };
        Self { kind, values, present: Vec::new() }
    }

    /// Adds the value of a record. Returns its approximate size.
    fn push(&mut self, json: Option<&str>) -> Result<usize> {
        let json = json.filter(|json| *json != "null");
        self.present.push(i16::from(json.is_some()));
        let Some(json) = json else { return Ok(size_of::<i16>()) };
        match &mut self.values {
            Values::Truth(values) => values.push(json == "true"),
            // The file stores the bits of a u64 in an i64.
            Values::Integers(values) if self.kind == Kind::Unsigned => {
                values.push(json.parse::<u64>()?.cast_signed());
            }
            Values::Integers(values) => values.push(json.parse()?),
            Values::Doubles(values) => values.push(json.trim_matches('"').parse()?),
            Values::Texts(values) => {
                let text = match self.kind {
                    Kind::Text => unquoted(json).map_err(|reason| anyhow!(reason))?,
                    _ => json.to_owned(),
                };
                values.push(text.into_bytes().into());
            }
        }
        Ok(json.len() + size_of::<ByteArray>())
    }

    /// Writes and clears the values.
    fn write(&mut self, writer: &mut ColumnWriter<'_>) -> Result<()> {
        let present = Some(&*self.present);
        match (&mut self.values, writer) {
            (Values::Truth(values), ColumnWriter::BoolColumnWriter(writer)) => {
                writer.write_batch(values, present, None)?;
                values.clear();
            }
            (Values::Integers(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(values, present, None)?;
                values.clear();
            }
            (Values::Doubles(values), ColumnWriter::DoubleColumnWriter(writer)) => {
                writer.write_batch(values, present, None)?;
                values.clear();
            }
            (Values::Texts(values), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                writer.write_batch(values, present, None)?;
                values.clear();
            }
            _ => unreachable!("the writer has the type of the column"),
        }
        self.present.clear();
        Ok(())
    }
}

/// Writes records to a Parquet file.
pub struct Rows<W: Write + Send> {
    names: Vec<String>,
    columns: Vec<Column>,
    writer: SerializedFileWriter<W>,
    bytes: usize,
}

impl<W: Write + Send> Rows<W> {
    /// Starts a file with these columns.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn new(columns: Columns, out: W) -> Result<Self> {
        let Columns { names, seen, .. } = columns;
        let kinds: Vec<Kind> = seen.into_iter().map(Seen::kind).collect();
        let fields = names.iter().zip(&kinds).map(|(name, kind)| Ok(Arc::new(kind.column(name)?)));
        let fields = fields.collect::<Result<_>>()?;
        let schema = Arc::new(Type::group_type_builder("records").with_fields(fields).build()?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("braid ", env!("CARGO_PKG_VERSION")).to_owned());
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?;
        let columns = kinds.into_iter().map(Column::new).collect();
        Ok(Self { names, columns, writer, bytes: 0 })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn push(&mut self, fields: &Fields<'_>) -> Result<()> {
        for (name, column) in self.names.iter().zip(&mut self.columns) {
            self.bytes += column.push(fields.get(name))?;
        }
        if self.bytes >= GROUP_BYTES {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group.next_column()?.expect("the schema has this many columns");
            column.write(writer.untyped())?;
            writer.close()?;
        }
        group.close()?;
        self.bytes = 0;
        Ok(())
    }

    /// Writes the remaining records and the end of the file.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(mut self) -> Result<()> {
        if self.bytes > 0 {
            self.write_group()?;
        }
        self.writer.close()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(values: &[&str]) -> Kind {
        let mut columns = Columns::new(["a".to_owned()]);
        for value in values {
            columns.see(&Fields::parse(&format!("{{\"a\":{value}}}")).unwrap());
        }
        columns.seen[0].kind()
    }

    #[test]
    fn column_types_represent_their_values_exactly() {
        for (values, expected) in [
            (&["null", "true"][..], Kind::Truth),
            (&["1", "-9223372036854775808"], Kind::Signed),
            (&["1", "18446744073709551615"], Kind::Unsigned),
            (&["-1", "18446744073709551615"], Kind::Json),
            (&["1", "1.10", "-2e3", "0.30000000000000004", "-0", "0.0"], Kind::Double),
            (&["0.1", "9007199254740993"], Kind::Json),
            (&["12345678901234567890123"], Kind::Json),
            (&["1e400"], Kind::Json),
            (&["1e-9223372036854775809"], Kind::Json),
            (&["\"a\"", "\"1\""], Kind::Text),
            (&["\"a\"", "1"], Kind::Json),
            (&["true", "1"], Kind::Json),
            (&["1.5", "\"NaN\""], Kind::Double),
            (&["1", "\"-inf\""], Kind::Double),
            (&["\"NaN\""], Kind::Text),
            (&["1.5", "\"NaN\"", "\"a\""], Kind::Json),
            (&["[1]", "{}"], Kind::Json),
            (&[], Kind::Text),
            (&["null"], Kind::Text),
        ] {
            assert_eq!(kind(values), expected, "{values:?}");
        }
    }
}
