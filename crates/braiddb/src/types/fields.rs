//! The fields of structs in formats that store field names: the fields of each record, and whether
//! a type can read records with these fields.

use std::fmt::Write as _;

use super::schema::{FirstRequest, Schema, first_request, not_this_type};
use super::shape::{ShapeRefusal, Structure, read_fields, structures_within};

/// For structs with more fields, or with longer names, the catalog contains only the name.
const MAX_FIELDS: usize = 256;
const MAX_LENGTH: usize = 8_192;

/// Maximum number of sample values to determine the required fields of nested structs. If more are
/// needed, nested structs are not examined.
const MAX_VALUES: usize = 1_000_000;

/// Describes the type for the catalog: its name, for a struct the names of its fields (optional
/// ones with `?`), and then the same for nested structs: `article {name, pieces?, maker?} maker
/// {name, town?}`.
pub(super) fn describe_fields<T: Schema>(is_human_readable: bool) -> String {
    let mut description = T::name();
    match first_request::<T>() {
        FirstRequest::Fields(fields) => match marked::<T>(&[], fields, is_human_readable) {
            Some(fields) => _ = write!(description, " {fields}"),
            // Without the fields of the type itself, nested structs are not described.
            None => return description,
        },
        FirstRequest::Cases(_) => {}
        FirstRequest::Anything | FirstRequest::Other => return description,
    }
    let mut within = String::new();
    for structure in described_within::<T>(is_human_readable) {
        if let Some(fields) = marked::<T>(&structure.path, structure.fields, is_human_readable) {
            _ = write!(within, " {} {fields}", structure.place);
        }
    }
    if within.len() <= MAX_LENGTH {
        description += &within;
    }
    description
}

/// Returns the nested structs that descriptions contain.
fn described_within<T: Schema>(is_human_readable: bool) -> Vec<Structure> {
    let (mut structures, values) = structures_within::<T>(is_human_readable);
    let readings = structures.iter().map(|structure| structure.fields.len() + 1).sum::<usize>();
    if readings.saturating_mul(values) > MAX_VALUES {
        return Vec::new();
    }
    let is_odd = |place: &str| place.is_empty() || place.contains([' ', ',', '?', '{', '}']);
    structures.retain(|structure| !is_odd(&structure.place));
    structures
}

/// Returns the fields of a struct in braces, with `?` after optional ones. Returns nothing if their
/// names cannot be written this way.
fn marked<T: Schema>(
    path: &[usize],
    fields: &'static [&'static str],
    is_human_readable: bool,
) -> Option<String> {
    let is_long = fields.iter().map(|field| field.len() + 3).sum::<usize>() > MAX_LENGTH;
    // Names that would be ambiguous in a list.
    let is_odd = fields.iter().any(|field| field.is_empty() || field.contains([',', '?', '}']));
    if is_long || is_odd || fields.len() > MAX_FIELDS {
        return None;
    }
    let mut needed = Vec::new();
    // If a value is rejected, it is unknown whether the other fields are optional.
    let are_all = loop {
        match read_fields::<T>(path, &needed, is_human_readable) {
            Err(ShapeRefusal::MissingField(field)) if !needed.contains(&field) => {
                needed.push(field)
            }
            read => break read.is_ok(),
        }
    };
    let marked = |field: &&str| match are_all && !needed.contains(field) {
        true => format!("{field}?"),
        false => (*field).to_owned(),
    };
    let fields: Vec<String> = fields.iter().map(marked).collect();
    Some(format!("{{{}}}", fields.join(", ")))
}

/// Checks whether `T` can read records of a table with the description `stored`, written by
/// [`describe_fields`] when the table was created or last opened. Descriptions of older tables
/// contain only the name, or no nested structs.
///
/// # Errors
/// A message with the remedy.
pub(super) fn reads_fields<T: Schema>(stored: &str, is_human_readable: bool) -> Result<(), String> {
    let listed = stored.strip_prefix(&*T::name()).and_then(lists);
    let listed = listed.ok_or_else(|| not_this_type::<T>(stored))?;
    let within = match listed.iter().any(|(place, _)| !place.is_empty()) {
        true => described_within::<T>(is_human_readable),
        false => Vec::new(),
    };
    for (place, list) in listed {
        let path_and_fields = match place {
            "" => match first_request::<T>() {
                FirstRequest::Fields(fields) => Some((&[][..], fields)),
                _ => None,
            },
            // A removed struct is no longer read.
            _ => within.iter().find(|structure| structure.place == place).map(at),
        };
        if let Some((path, fields)) = path_and_fields {
            let stored: Vec<&str> = list.split(", ").filter(|field| !field.is_empty()).collect();
            reads_one(place, &stored, fields, |given| {
                read_fields::<T>(path, given, is_human_readable)
            })?;
        }
    }
    Ok(())
}

fn at(structure: &Structure) -> (&[usize], &'static [&'static str]) {
    (&structure.path, structure.fields)
}

/// Returns the paths in a description, and the fields of each: for ` {a, b?} c {d}`, the text in
/// the braces. The type itself has the empty path.
fn lists(mut description: &str) -> Option<Vec<(&str, &str)>> {
    let mut lists = Vec::new();
    while !description.is_empty() {
        let (place, rest) = description.strip_prefix(' ')?.split_once('{')?;
        let (list, rest) = rest.split_once('}')?;
        lists.push((place.strip_suffix(' ').unwrap_or(place), list));
        description = rest;
    }
    Some(lists)
}

/// Checks whether a struct reads records with the `stored` fields.
///
/// # Errors
/// A message with the remedy.
fn reads_one(
    place: &str,
    stored: &[&str],
    fields: &[&str],
    read: impl Fn(&[&str]) -> Result<(), ShapeRefusal>,
) -> Result<(), String> {
    // The sample record omits all optional fields and contains all unknown ones.
    let given = stored.iter().filter_map(|field| match field.strip_suffix('?') {
        Some(field) => Some(field).filter(|field| !fields.contains(field)),
        None => Some(*field),
    });
    let given: Vec<&str> = given.collect();
    let is_lacking = |field: &str| fields.contains(&field) && !given.contains(&field);
    let whole = |field: &str| match place {
        "" => field.to_owned(),
        _ => format!("{place}.{field}"),
    };
    match read(&given) {
        // A hand-written implementation may use any field names.
        Err(ShapeRefusal::MissingField(field)) if !is_lacking(field) => Ok(()),
        Err(ShapeRefusal::MissingField(field)) if stored.contains(&&*format!("{field}?")) => {
            Err(format!(
                "records may lack the field `{}`, which was optional: keep its `#[serde(default)]` \
                 or its `Option`",
                whole(field)
            ))
        }
        Err(ShapeRefusal::MissingField(field)) => Err(format!(
            "field `{}` is new and has no `#[serde(default)]`: records stored before it cannot be \
             read; give it a default",
            whole(field)
        )),
        Err(ShapeRefusal::UnknownField(field)) => Err(format!(
            "records have the field `{}`, which `#[serde(deny_unknown_fields)]` refuses: keep the field, or do \
             without that attribute",
            whole(&field)
        )),
        Err(ShapeRefusal::Other) | Ok(()) => Ok(()),
    }
}
