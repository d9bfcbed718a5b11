//! The fields of structs in formats that name them: which of them each record has, and whether a type can do with those.

use super::schema::{FirstRequest, Schema, first_request, not_this_type};
use super::shape::{Refusal, read_fields};

/// Of structs with more fields, or with longer names, the catalog has the name alone.
const MAX_FIELDS: usize = 256;
const MAX_LENGTH: usize = 8_192;

/// The type as a table's description has it: its name and, of a struct, the names of its fields, those with `?` that
/// it can do without: `article {name, pieces?}`.
pub(super) fn describe_fields<T: Schema>(is_human_readable: bool) -> String {
    let name = T::name();
    let FirstRequest::Fields(fields) = first_request::<T>() else { return name };
    let is_long = fields.iter().map(|field| field.len() + 3).sum::<usize>() > MAX_LENGTH;
    // Names that could not be told apart in a list.
    let is_odd = fields.iter().any(|field| field.is_empty() || field.contains([',', '?', '}']));
    if is_long || is_odd || fields.len() > MAX_FIELDS {
        return name;
    }
    let mut needed = Vec::new();
    // Whether the others are not needed either cannot be told if a value is refused.
    let are_all = loop {
        match read_fields::<T>(&needed, is_human_readable) {
            Err(Refusal::MissingField(field)) if !needed.contains(&field) => needed.push(field),
            read => break read.is_ok(),
        }
    };
    let marked = |field: &&str| match are_all && !needed.contains(field) {
        true => format!("{field}?"),
        false => (*field).to_owned(),
    };
    let fields: Vec<String> = fields.iter().map(marked).collect();
    format!("{name} {{{}}}", fields.join(", "))
}

/// Whether records can be read as `T` whose table was created, or last opened, with what [`describe_fields`] called
/// `stored`. Tables that are older than the fields in descriptions have the name alone.
///
/// # Errors
/// What to do.
pub(super) fn reads_fields<T: Schema>(stored: &str, is_human_readable: bool) -> Result<(), String> {
    let list = match stored.strip_prefix(&*T::name()) {
        Some("") => return Ok(()),
        Some(list) => list.strip_prefix(" {").and_then(|list| list.strip_suffix('}')),
        None => None,
    };
    let list = list.ok_or_else(|| not_this_type::<T>(stored))?;
    let FirstRequest::Fields(fields) = first_request::<T>() else { return Ok(()) };
    let stored: Vec<&str> = list.split(", ").filter(|field| !field.is_empty()).collect();
    // What a record may lack it lacks, and what it may have that is not known it has.
    let given = stored.iter().filter_map(|field| match field.strip_suffix('?') {
        Some(field) => Some(field).filter(|field| !fields.contains(field)),
        None => Some(*field),
    });
    let given: Vec<&str> = given.collect();
    let is_lacking = |field: &str| fields.contains(&field) && !given.contains(&field);
    match read_fields::<T>(&given, is_human_readable) {
        // A type by hand may call its fields as it likes.
        Err(Refusal::MissingField(field)) if !is_lacking(field) => Ok(()),
        Err(Refusal::MissingField(field)) if stored.contains(&&*format!("{field}?")) => {
            Err(format!(
                "records may lack the field `{field}`, which was optional: leave it its `#[serde(default)]`, or its `Option`"
            ))
        }
        Err(Refusal::MissingField(field)) => Err(format!(
            "field `{field}` is new and has no `#[serde(default)]`: records stored before it cannot be read; give it a \
             default"
        )),
        Err(Refusal::UnknownField(field)) => Err(format!(
            "records have the field `{field}`, which `#[serde(deny_unknown_fields)]` refuses: keep the field, or do \
             without that attribute"
        )),
        Err(Refusal::Other) | Ok(()) => Ok(()),
    }
}
