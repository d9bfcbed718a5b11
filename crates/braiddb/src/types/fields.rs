//! The fields of structs in formats that name them: which of them each record has, and whether a type can do with those.

use std::fmt::Write as _;

use super::schema::{FirstRequest, Schema, first_request, not_this_type};
use super::shape::{ShapeRefusal, Structure, read_fields, structures_within};

/// Of structs with more fields, or with longer names, the catalog has the name alone.
const MAX_FIELDS: usize = 256;
const MAX_LENGTH: usize = 8_192;

/// Where more values than these would be made up to see what the structs within a type need, those are not looked at.
const MAX_VALUES: usize = 1_000_000;

/// The type as a table's description has it: its name, of a struct the names of its fields, those with `?` that
/// it can do without, and then the same of the structs within: `article {name, pieces?, maker?} maker {name, town?}`.
pub(super) fn describe_fields<T: Schema>(is_human_readable: bool) -> String {
    let mut description = T::name();
    match first_request::<T>() {
        FirstRequest::Fields(fields) => match marked::<T>(&[], fields, is_human_readable) {
            Some(fields) => _ = write!(description, " {fields}"),
            // Without those of the type itself there are none.
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

/// The structs within the type that descriptions have.
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

/// The fields of a struct in braces, those with `?` that it can do without; nothing if their names cannot be written so.
fn marked<T: Schema>(
    path: &[usize],
    fields: &'static [&'static str],
    is_human_readable: bool,
) -> Option<String> {
    let is_long = fields.iter().map(|field| field.len() + 3).sum::<usize>() > MAX_LENGTH;
    // Names that could not be told apart in a list.
    let is_odd = fields.iter().any(|field| field.is_empty() || field.contains([',', '?', '}']));
    if is_long || is_odd || fields.len() > MAX_FIELDS {
        return None;
    }
    let mut needed = Vec::new();
    // Whether the others are not needed either cannot be told if a value is refused.
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

/// Whether records can be read as `T` whose table was created, or last opened, with what [`describe_fields`] called
/// `stored`. Tables that are older than the fields in descriptions have the name alone, or not those of the structs within.
///
/// # Errors
/// What to do.
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
            // What is there no more is not read.
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

/// The places in a description, and the fields of each: of ` {a, b?} c {d}`, what is in the braces. The type itself has
/// the empty place.
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

/// Whether a struct with these fields reads what has those that are `stored`.
///
/// # Errors
/// What to do.
fn reads_one(
    place: &str,
    stored: &[&str],
    fields: &[&str],
    read: impl Fn(&[&str]) -> Result<(), ShapeRefusal>,
) -> Result<(), String> {
    // What a record may lack it lacks, and what it may have that is not known it has.
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
        // A type by hand may call its fields as it likes.
        Err(ShapeRefusal::MissingField(field)) if !is_lacking(field) => Ok(()),
        Err(ShapeRefusal::MissingField(field)) if stored.contains(&&*format!("{field}?")) => {
            Err(format!(
                "records may lack the field `{}`, which was optional: leave it its `#[serde(default)]`, or its `Option`",
                whole(field)
            ))
        }
        Err(ShapeRefusal::MissingField(field)) => Err(format!(
            "field `{}` is new and has no `#[serde(default)]`: records stored before it cannot be read; give it a \
             default",
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
