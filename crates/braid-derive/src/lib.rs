//! `#[derive(Key)]`, which `braiddb` exports: its documentation says what the encoding is, and what may change.

mod implementation;
mod shape;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes an enum or a struct a key of tables.
///
/// The catalog knows the type by the name that `#[key(name = "...")]` gives it, so that the type can be renamed and
/// moved. Every field is a key itself, of an owned type.
///
/// ```
/// use braiddb::{Database, Error, Key, Options, Table};
///
/// #[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
/// #[key(name = "shop.job")]
/// enum Job {
///     Urgent,
///     Normal { deadline: u64 },
///     Of(String, u32),
/// }
///
/// # pollster::block_on(async {
/// let db = Database::in_memory(Options::default().workers(1))?;
/// let jobs: Table<Job, str> = db.create_table("jobs").await?;
/// db.put(&jobs, &Job::Of("ada".to_owned(), 2), "sweep").await?;
/// db.put(&jobs, &Job::Normal { deadline: 7 }, "mend").await?;
/// let first = db.run(async move |tx| Ok(tx.first(&jobs).await?.map(|(job, _)| job))).await?;
/// assert_eq!(first, Some(Job::Normal { deadline: 7 }));
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// # Order
///
/// Keys compare as the standard library's derived `Ord` compares them, if those of the fields compare so: structs field
/// by field, in the order in which the fields are written; enums by their variants first, then by the fields.
///
/// # What is stored, and what may change
///
/// A variant is stored as a byte, its number, and its fields after it; a struct as its fields. Numbers are those of
/// Rust: the number after `=`, else one more than that of the variant before, from 0. They must be from 0 to 255 and ascend
/// as the variants are written. (Rust wants `#[repr(u8)]` on enums with fields that have numbers.)
///
/// While there are tables with such keys,
/// - types, variants and fields may be renamed and moved, as long as `#[key(name = "...")]` stays;
/// - variants may be added, with numbers of their own: at the end, or, where numbers are written, between others.
///   A program that does not know a variant that it reads is told so by an error;
/// - a variant that no record has may go, if those after it keep their numbers;
/// - numbers, and the types, count and order of fields, must stay. For a struct the catalog knows the types of its fields,
///   so that a change of them is told when a table is opened; for an enum it does not, for variants may be added: a
///   variant whose fields change reads other keys than were written, and nobody tells.
///
/// Tables that were made with keys of another type, a tuple or an implementation by hand, stay tables of that type, though
/// the encoding may be the same: the catalog compares names. Structs have no prefixes to be scanned by, and are looked up
/// whole and owned; a tuple has both (`KeyPrefix`, `TableKey`).
#[proc_macro_derive(Key, attributes(key))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

fn derive(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    Ok(implementation::of(&shape::Shape::of(input)?))
}
