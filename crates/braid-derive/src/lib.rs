//! `#[derive(Key)]`, which `braiddb` re-exports. Its documentation specifies the encoding and the
//! allowed changes of a type.

mod implementation;
mod shape;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `Key`, so that an enum or a struct can be the key of tables.
///
/// `#[key(name = "...")]` gives the name of the type in the catalog, so that the Rust type can be
/// renamed and moved. Every field must be a key too, of an owned type.
///
/// # Order
///
/// Keys have the order of the derived `Ord` of the standard library, if the fields do: structs
/// compare field by field, in the order of declaration. Enums compare by variant first, then by
/// field.
///
/// # What is stored, and what may change
///
/// A variant is stored as one byte, its number, followed by its fields. A struct is stored as its
/// fields. Variant numbers are those of Rust: the number after `=`, or else one more than the
/// number of the variant before, from 0. They must be from 0 to 255 and ascend in the order of
/// declaration. (Rust requires `#[repr(u8)]` for enums that have both fields and explicit numbers.)
///
/// While tables with such keys exist:
/// - Types, variants and fields may be renamed and moved, as long as `#[key(name = "...")]` stays.
/// - Variants may be added with new numbers: at the end, or between others if the numbers are
///   explicit. A program that reads a variant it does not know gets an error.
/// - A variant that no record uses may be removed, if the later variants keep their numbers.
/// - Numbers, and the types, count and order of fields, must stay. The catalog stores the field
///   types of a struct, so opening the table reports a change. It does not store those of an enum,
///   because variants may be added. If the fields of a variant change, Braid reads wrong keys and
///   cannot detect it.
///
/// A table created with keys of another type (a tuple, or a manual implementation) keeps that type.
/// This holds even if the encoding is the same, because the catalog compares names. Structs have no
/// prefixes for scans, and look-ups need a whole, owned key. A tuple supports both (`KeyPrefix`,
/// `TableKey`).
#[proc_macro_derive(Key, attributes(key))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

fn derive(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    Ok(implementation::of(&shape::Shape::of(input)?))
}
