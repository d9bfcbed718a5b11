//! Converts rows of a Parquet file to JSON objects. Values without a JSON type become strings.
//! Values that JSON cannot represent exactly are rejected.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, bail};
use chrono::{DateTime, NaiveDate, SecondsFormat};
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use serde_json::value::RawValue;

use super::parse::position;
use super::source::Watched;
use crate::codec::json_text::Fields;
use crate::codec::{append_json, dashed, json_error, to_hex};

/// Calls `each` for every row with its number, from 1, and its JSON object or the reason for its
/// rejection.
///
/// # Errors
/// If the file is not a Parquet file or is damaged, lacks one of the `required` columns, or has columns
/// that cannot be read exactly. The first error of `each`.
pub fn read(
    watched: &Watched,
    file: File,
    name: &str,
    required: &[&str],
    mut each: impl FnMut(u64, Result<&str, String>) -> Result<()>,
) -> Result<()> {
    let unreadable = || format!("{name} cannot be read as a Parquet file");
    let reader = guarded(|| Ok(SerializedFileReader::new(file)?)).with_context(unreadable)?;
    let schema = reader.metadata().file_metadata().schema_descr().root_schema();
    let names: Vec<&str> = schema.get_fields().iter().map(|column| column.name()).collect();
    for column in required {
        position(&names, column, name)?;
    }
    let columns = schema.get_fields().iter().map(|column| {
        let shape = Shape::of(column).with_context(|| format!("{name} column {:?}", column.name()));
        Ok((text_of(column.name()), shape?))
    });
    let columns: Vec<(String, Shape)> = columns.collect::<Result<_>>()?;
    let broken = || format!("nothing was imported: {name} cannot be read to its end");
    let (mut number, mut object) = (0, Vec::new());
    for group in 0..reader.num_row_groups() {
        let group = guarded(|| Ok(reader.get_row_group(group)?)).with_context(broken)?;
        let mut rows = guarded(|| Ok(group.get_row_iter(None)?)).with_context(broken)?;
        while let Some(row) = guarded(|| Ok(rows.next().transpose()?)).with_context(broken)? {
            number += 1;
            object.clear();
            match append_object(&row, &columns, &mut object) {
                Ok(()) => each(number, Ok(std::str::from_utf8(&object).expect("JSON is text")))?,
                Err(reason) => each(number, Err(reason))?,
            }
        }
        watched.passed(u64::try_from(group.metadata().compressed_size()).unwrap_or(0));
    }
    Ok(())
}

/// Calls the Parquet reader, which panics on some damaged files.
fn guarded<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read,
        Err(_) => bail!("the file is damaged, or has an unsupported encoding"),
    }
}

/// The JSON form of the fields of a column.
#[derive(Debug)]
enum Shape {
    /// By the type of the field.
    Plain,
    /// A string with JSON text.
    Json,
    Uuid,
    /// A time stamp, in UTC or in local time.
    Moment {
        utc: bool,
        nanoseconds: bool,
    },
    /// Nanoseconds since midnight.
    TimeOfDay,
    Object(Vec<(String, Shape)>),
    List(Box<Shape>),
    Map(Box<(Shape, Shape)>),
}

impl Shape {
    fn of(column: &Type) -> Result<Self> {
        let element = Self::of_element(column)?;
        let about = column.get_basic_info();
        let repeated = about.has_repetition() && about.repetition() == Repetition::REPEATED;
        Ok(if repeated { Self::List(Box::new(element)) } else { element })
    }

    /// The shape of a field, or of the element of a repeated field.
    fn of_element(column: &Type) -> Result<Self> {
        if column.is_primitive() {
            return Self::of_leaf(column);
        }
        let parts = column.get_fields();
        match (column.get_basic_info().converted_type(), parts) {
            (ConvertedType::LIST, [part]) => {
                let element = if is_element(part, column) { part } else { &part.get_fields()[0] };
                Ok(Self::List(Box::new(Self::of_element(element)?)))
            }
            (ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE, [part]) if part.is_group() => {
                match part.get_fields() {
                    [element] => Ok(Self::List(Box::new(Self::of(element)?))),
                    [key, value] => Ok(Self::Map(Box::new((Self::of(key)?, Self::of(value)?)))),
                    _ => bail!("is not a map"),
                }
            }
            (ConvertedType::NONE, _) => {
                let field = |part: &_| -> Result<_> {
                    let part: &Type = part;
                    Ok((text_of(part.name()), Self::of(part)?))
                };
                let fields = parts.iter().map(|part| field(part.as_ref()));
                Ok(Self::Object(fields.collect::<Result<_>>()?))
            }
            _ => bail!("has an unsupported type"),
        }
    }

    fn of_leaf(column: &Type) -> Result<Self> {
        let about = column.get_basic_info();
        match (about.logical_type_ref(), about.converted_type(), column.get_physical_type()) {
            (_, _, Physical::INT96) => {
                bail!(
                    "has 96-bit time stamps of an old format; write them as micro- or nanoseconds"
                )
            }
            (_, ConvertedType::INTERVAL, _) => bail!("has intervals, which are not supported"),
            (Some(LogicalType::Json), ..) | (_, ConvertedType::JSON, _) => Ok(Self::Json),
            (Some(LogicalType::Uuid), ..) => Ok(Self::Uuid),
            (Some(LogicalType::Timestamp(moment)), ..) => Ok(Self::Moment {
                utc: moment.is_adjusted_to_u_t_c,
                nanoseconds: moment.unit == TimeUnit::NANOS,
            }),
            (Some(LogicalType::Time(time)), ..) if time.unit == TimeUnit::NANOS => {
                Ok(Self::TimeOfDay)
            }
            _ => Ok(Self::Plain),
        }
    }

    /// Appends a field as JSON, or returns the reason why it cannot be represented.
    fn append(&self, field: &Field, out: &mut Vec<u8>) -> Result<(), String> {
        match (self, field) {
            (_, Field::Null) => out.extend_from_slice(b"null"),
            (Self::Object(columns), Field::Group(row)) => append_object(row, columns, out)?,
            (Self::List(element), Field::ListInternal(list)) => {
                append_list(list.elements(), out, |field, out| element.append(field, out))?;
            }
            (Self::Map(parts), Field::MapInternal(map)) => {
                // Keys may have any type, so the map becomes an array of pairs.
                append_list(map.entries(), out, |(key, value), out| {
                    out.push(b'[');
                    parts.0.append(key, out)?;
                    out.push(b',');
                    parts.1.append(value, out)?;
                    out.push(b']');
                    Ok(())
                })?;
            }
            (Self::Json, Field::Str(text)) => append_raw(text, out)?,
            (Self::Uuid, Field::Bytes(bytes)) => append_json(&uuid(bytes.data())?, out),
            (Self::Moment { utc, nanoseconds }, _) => {
                append_json(&moment(field, *nanoseconds, *utc)?, out);
            }
            (Self::TimeOfDay, Field::Long(time)) => append_json(&time_of_day(*time, 9)?, out),
            (Self::Plain, _) => append_plain(field, out)?,
            _ => return Err("it has a field with another type than its column".to_owned()),
        }
        Ok(())
    }
}

/// Returns whether the repeated field of a list is the element itself, and not a group around it.
/// Uses the rules of the Parquet reader.
fn is_element(repeated: &Type, list: &Type) -> bool {
    let about = repeated.get_basic_info();
    if repeated.is_primitive() {
        return true;
    }
    let parts = repeated.get_fields();
    let repeats = |part: &Type| part.get_basic_info().repetition() == Repetition::REPEATED;
    if about.converted_type() == ConvertedType::LIST || matches!(parts, [part] if repeats(part)) {
        return false;
    }
    let name = repeated.name();
    parts.len() > 1 || name == "array" || name.strip_suffix("_tuple") == Some(list.name())
}

fn append_object(row: &Row, columns: &[(String, Shape)], out: &mut Vec<u8>) -> Result<(), String> {
    out.push(b'{');
    for (number, ((_, field), (name, shape))) in row.get_column_iter().zip(columns).enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        shape.append(field, out).map_err(|reason| format!("column {name}: {reason}"))?;
    }
    out.push(b'}');
    Ok(())
}

fn append_list<T>(
    elements: &[T],
    out: &mut Vec<u8>,
    mut append: impl FnMut(&T, &mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    out.push(b'[');
    for (number, element) in elements.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        append(element, out)?;
    }
    out.push(b']');
    Ok(())
}

/// Appends JSON text on one line.
fn append_raw(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let json: &RawValue =
        serde_json::from_str(text).map_err(|error| json_error::with_place(&error))?;
    let line = json.get().replace(['\n', '\r'], " ");
    // Rejects an object with duplicate fields.
    if line.starts_with('{') {
        Fields::parse(&line)?;
    }
    out.extend_from_slice(line.as_bytes());
    Ok(())
}

fn append_plain(field: &Field, out: &mut Vec<u8>) -> Result<(), String> {
    match field {
        Field::Bool(_)
        | Field::Byte(_)
        | Field::Short(_)
        | Field::Int(_)
        | Field::Long(_)
        | Field::UByte(_)
        | Field::UShort(_)
        | Field::UInt(_)
        | Field::ULong(_) => out.extend_from_slice(field.to_string().as_bytes()),
        // Keeps every digit. The text of a whole number ends with a point.
        Field::Decimal(_) => {
            out.extend_from_slice(field.to_string().trim_end_matches('.').as_bytes());
        }
        Field::Float16(number) => append_number(f32::from(*number), out),
        Field::Float(number) => append_number(*number, out),
        Field::Double(number) => append_number(*number, out),
        Field::Str(text) => append_json(text, out),
        Field::Bytes(bytes) => append_json(&to_hex(bytes.data()), out),
        Field::Date(days) => {
            let date = NaiveDate::from_epoch_days(*days).ok_or_else(|| no_time(*days))?;
            append_json(&date.to_string(), out);
        }
        Field::TimeMillis(time) => append_json(&time_of_day((*time).into(), 3)?, out),
        Field::TimeMicros(time) => append_json(&time_of_day(*time, 6)?, out),
        Field::TimestampMillis(_) | Field::TimestampMicros(_) => {
            append_json(&moment(field, false, true)?, out);
        }
        _ => return Err("it has a field with another type than its column".to_owned()),
    }
    Ok(())
}

/// Appends a number. One that JSON cannot represent becomes the string `NaN`, `inf` or `-inf`.
fn append_number(number: impl Into<f64> + serde::Serialize + Copy, out: &mut Vec<u8>) {
    let value: f64 = number.into();
    match value.is_finite() {
        true => serde_json::to_writer(out, &number).expect("writing to memory does not fail"),
        false => append_json(&value.to_string(), out),
    }
}

fn no_time(number: impl std::fmt::Display) -> String {
    format!("{number} is out of range for a time")
}

/// Formats a time stamp by RFC 3339, without an offset if it is local time.
fn moment(field: &Field, nanoseconds: bool, utc: bool) -> Result<String, String> {
    let (moment, digits) = match *field {
        Field::TimestampMillis(time) => {
            (DateTime::from_timestamp_millis(time), SecondsFormat::Millis)
        }
        Field::TimestampMicros(time) => {
            (DateTime::from_timestamp_micros(time), SecondsFormat::Micros)
        }
        Field::Long(time) if nanoseconds => {
            (Some(DateTime::from_timestamp_nanos(time)), SecondsFormat::Nanos)
        }
        _ => (None, SecondsFormat::Secs),
    };
    let moment = moment.ok_or_else(|| no_time(field))?;
    let text = moment.to_rfc3339_opts(digits, true);
    Ok(if utc { text } else { text.trim_end_matches('Z').to_owned() })
}

/// Formats a time since midnight, counted in units of 10^-`digits` seconds.
fn time_of_day(time: i64, digits: u32) -> Result<String, String> {
    let second = 10_i64.pow(digits);
    if !(0..86_400 * second).contains(&time) {
        return Err(no_time(time));
    }
    let (seconds, rest) = (time / second, time % second);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let digits = digits as usize;
    Ok(format!("{hours:02}:{minutes:02}:{:02}.{rest:0digits$}", seconds % 60))
}

fn uuid(bytes: &[u8]) -> Result<String, String> {
    let uuid = bytes.try_into();
    uuid.map(dashed).map_err(|_| format!("a UUID has 16 bytes, this one has {}", bytes.len()))
}

/// A name as a JSON string.
fn text_of(name: &str) -> String {
    serde_json::to_string(name).expect("text is JSON")
}
