//! Names, versions and fields of stored serde types. The catalog compares them, so that a changed
//! type is detected when its table is opened.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::{BuildHasher, Hash};

use serde::Serialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor, value::Error as NoValue};

use super::error::DecodeError;
use super::shape::{layout_of, shape_of};
use super::value_shape::ValueShape;

/// A value type with a fixed name in the catalog, so that the type can be renamed and moved, and
/// with a version, so that it can change.
///
/// ```
/// use braiddb::Schema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Account {
///     owner: String,
///     cents: i64,
/// }
///
/// impl Schema for Account {
///     const NAME: &'static str = "account";
/// }
/// ```
///
/// The guide's page on changing types shows a second version. Versions apply to whole values. If
/// the contents of a `Vec`, an `Option`, a tuple or a map may change one day, store a separate type
/// that contains it.
///
/// When a table of the type is created or opened, the engine determines the type's structure by
/// deserializing meaningless sample values, and drops the results. The type may reject them; the
/// parts after a rejected value are not compared.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no name for the catalog",
    label = "no schema",
    note = "add `impl braiddb::Schema for {Self} {{ const NAME: &'static str = \"...\"; }}`",
    note = "`{Self}` must be `Serialize`, `DeserializeOwned` and `Send` too"
)]
pub trait Schema: Serialize + DeserializeOwned + Send + 'static {
    /// The type's name in the catalog. It never changes, even if the Rust type is renamed.
    const NAME: &'static str;

    /// The version of the type. Raise it when fields or variants are added, removed, or change
    /// their order, name or type, in this type or in a nested one. Only
    /// [`Postcard`](super::Postcard) uses it; formats that store field names compare the names.
    const VERSION: u32 = 1;

    /// The oldest version that [`Schema::upgrade`] reads.
    const OLDEST: u32 = Self::VERSION;

    /// Decodes a value of an older version from its postcard encoding.
    ///
    /// ```
    /// use braiddb::{DecodeError, Postcard, Schema};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Account {
    ///     owner: String,
    ///     cents: i64,
    ///     limit: i64,
    /// }
    ///
    /// impl Schema for Account {
    ///     const NAME: &'static str = "account";
    ///     const VERSION: u32 = 2;
    ///     const OLDEST: u32 = 1;
    ///
    ///     fn upgrade(_version: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
    ///         #[derive(Deserialize)]
    ///         struct First(String, i64);
    ///
    ///         let First(owner, cents) = Postcard::from_bytes(bytes)?;
    ///         Ok(Self { owner, cents, limit: 0 })
    ///     }
    /// }
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let old = postcard::to_allocvec(&("ada", 500_i64))?;
    ///     assert_eq!(Account::upgrade(1, &old)?.cents, 500);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the bytes encode no such value.
    fn upgrade(version: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        _ = bytes;
        let name = Self::name();
        Err(DecodeError::new(format!(
            "{name}: its `Schema::upgrade` does not read version {version}"
        )))
    }

    /// Returns the name including those of contained types: [`Schema::NAME`], except for generic
    /// types.
    ///
    /// ```
    /// use braiddb::Schema;
    ///
    /// println!("{} and {}", String::name(), <Vec<(u64, String)>>::name());
    /// assert_ne!(<Vec<u64>>::name(), <Vec<String>>::name());
    /// ```
    fn name() -> String {
        Self::NAME.to_owned()
    }
}

/// Describes the type for the catalog: its name, its version if it is not the first, and the names
/// of its fields or variants, if they can be determined: `account v2 {owner, cents, limit}`.
pub(super) fn describe<T: Schema>() -> String {
    let mut description = T::name();
    if T::VERSION != 1 {
        _ = write!(description, " v{}", T::VERSION);
    }
    if let FirstRequest::Fields(fields) | FirstRequest::Cases(fields) = first_request::<T>() {
        _ = write!(description, " {{{}}}", fields.join(", "));
    }
    description
}

/// A longer description of the structure is stored as its checksum.
const MAX_SHAPE: usize = 300;

/// Describes the type with nested types, for new tables: `account v2 {owner: str, cents: i64,
/// limit: i64}`, `meters = u64`. If that is too long, returns the result of [`describe`] and a
/// checksum: `account v2 {owner, cents, limit} #1f2e3d4c`. If it is too long and not completely
/// known, returns the result of [`describe`].
pub(super) fn describe_in_depth<T: Schema>() -> String {
    let (outline, shape) = (describe::<T>(), shape_of::<T>());
    let full = full_description::<T>(&shape);
    match full.len().saturating_sub(T::name().len()) <= MAX_SHAPE {
        true => full,
        false if is_known(&shape) => hashed(&outline, &shape),
        false => outline,
    }
}

/// Longer structures are not listed in the catalog.
const MAX_LAYOUT: usize = 64 << 10;

/// Describes the structure of the type's current version for programs that do not know the type.
/// Returns `None` if it is unknown or too long.
pub(super) fn value_shape<T: Schema>() -> Option<ValueShape> {
    let layout = layout_of::<T>();
    let is_useful = layout != "?" && layout.len() <= MAX_LAYOUT;
    is_useful.then(|| ValueShape::new(T::VERSION, layout))
}

fn full_description<T: Schema>(shape: &str) -> String {
    let (name, version) = (T::name(), T::VERSION);
    let version = if version == 1 { String::new() } else { format!(" v{version}") };
    // The name is a complete description.
    if shape == "?" || shape == name.replace("Set<", "Vec<") {
        return name + &version;
    }
    let equals = if shape.starts_with('{') { "" } else { "= " };
    format!("{name}{version} {equals}{shape}")
}

fn is_known(shape: &str) -> bool {
    !shape.contains('?')
}

fn hashed(outline: &str, shape: &str) -> String {
    format!("{outline} #{:08x}", crc32c::crc32c(shape.as_bytes()))
}

/// Checks whether `T` can read records of a table with the description `stored`, written by
/// [`describe`] or [`describe_in_depth`] when the table was created or last opened.
///
/// # Errors
/// A message with the remedy.
pub(super) fn reads<T: Schema>(stored: &str) -> Result<(), String> {
    let name = T::name();
    let Some(version) = version_of(stored, &name) else {
        return Err(not_this_type::<T>(stored));
    };
    if version > T::VERSION {
        return Err(format!("a newer program wrote version {version} of {name}: use that program"));
    }
    if version == T::VERSION {
        return match is_same::<T>(stored) {
            true => Ok(()),
            false if is_made_of_others::<T>() => {
                Err(format!("its contents have changed: {OWN_TYPE}"))
            }
            false => Err(format!(
                "{name} has changed: raise its `Schema::VERSION`, and read the old form in `Schema::upgrade`"
            )),
        };
    }
    if version < T::OLDEST {
        return Err(format!(
            "read version {version} of {name} in `Schema::upgrade`, and set `Schema::OLDEST` to it"
        ));
    }
    Ok(())
}

const OWN_TYPE: &str = "open it with the types it was created with: a type in a list, a tuple or a \
                        map cannot change alone; store a type of your own around it, with a \
                        `Schema` whose version can be raised";

/// Returns the remedy for a table of another type.
pub(super) fn not_this_type<T: Schema>(stored: &str) -> String {
    // Names of container types start alike.
    let advice = match is_made_of_others::<T>() && stored.starts_with(T::NAME) {
        true => OWN_TYPE,
        false => "open it with the types it was created with",
    };
    advice.to_owned()
}

/// Returns whether it is one of the container types defined here.
fn is_made_of_others<T: Schema>() -> bool {
    T::name() != T::NAME && T::NAME.ends_with(['<', '('])
}

/// Returns whether `stored` describes the current `T`, as far as both are known.
fn is_same<T: Schema>(stored: &str) -> bool {
    let outline = describe::<T>();
    if stored == outline {
        return true;
    }
    let shape = shape_of::<T>();
    match stored.strip_prefix(&*outline).and_then(|rest| rest.strip_prefix(" #")) {
        Some(_) => !is_known(&shape) || stored == hashed(&outline, &shape),
        None => agree(stored, &full_description::<T>(&shape)),
    }
}

/// Returns whether two descriptions are equal where both are known.
fn agree(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one, other);
    loop {
        let (first, second) = (one.chars().next(), other.chars().next());
        match (first, second) {
            (None, None) => return true,
            (Some('?'), _) | (_, Some('?')) => (one, other) = (after_part(one), after_part(other)),
            (Some(first), Some(second)) if first == second => {
                (one, other) = (&one[first.len_utf8()..], &other[second.len_utf8()..]);
            }
            _ => return false,
        }
    }
}

/// Returns the text after the first part of a description.
fn after_part(description: &str) -> &str {
    let mut depth = 0_usize;
    for (at, character) in description.char_indices() {
        match character {
            '{' | '(' | '[' | '<' => depth += 1,
            '}' | ')' | ']' | '>' | ',' if depth == 0 => return &description[at..],
            '}' | ')' | ']' | '>' => depth -= 1,
            _ => {}
        }
    }
    ""
}

/// Returns the version in the description `stored`, written by [`describe`] or
/// [`describe_in_depth`], if it has the name of this type.
fn version_of(stored: &str, name: &str) -> Option<u32> {
    let rest = stored.strip_prefix(name)?;
    if rest.is_empty() || [" {", " = ", " #"].iter().any(|start| rest.starts_with(start)) {
        return Some(1);
    }
    rest.strip_prefix(" v")?.split(' ').next()?.parse().ok()
}

/// Returns whether `T` can be read from a format that is not self-describing.
pub(super) fn is_not_self_describing<T: Schema>() -> bool {
    !matches!(first_request::<T>(), FirstRequest::Anything)
}

/// The first request of a type when it is deserialized.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstRequest {
    /// These fields.
    Fields(&'static [&'static str]),
    /// One of these variants.
    Cases(&'static [&'static str]),
    /// Any value.
    Anything,
    /// Any other request.
    Other,
}

pub(super) fn first_request<T: Schema>() -> FirstRequest {
    let mut asked = FirstRequest::Other;
    // It always fails: the request is recorded, and no value is available.
    _ = T::deserialize(RequestProbe(&mut asked));
    asked
}

/// Records the request of a type, and provides no value.
struct RequestProbe<'a>(&'a mut FirstRequest);

fn nothing<T>() -> Result<T, NoValue> {
    Err(NoValue::custom("there is no value"))
}

macro_rules! give_nothing {
    ($($method:ident($($argument:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $(_: $argument,)* _: V) -> Result<V::Value, NoValue> {
            nothing()
        }
    )*};
}

impl<'de> Deserializer<'de> for RequestProbe<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        *self.0 = FirstRequest::Anything;
        nothing()
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = FirstRequest::Fields(fields);
        nothing()
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        cases: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = FirstRequest::Cases(cases);
        nothing()
    }

    /// The inner value has the same encoding.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        visitor.visit_newtype_struct(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    give_nothing! {
        deserialize_bool(); deserialize_char(); deserialize_str(); deserialize_string();
        deserialize_i8(); deserialize_i16(); deserialize_i32(); deserialize_i64(); deserialize_i128();
        deserialize_u8(); deserialize_u16(); deserialize_u32(); deserialize_u64(); deserialize_u128();
        deserialize_f32(); deserialize_f64(); deserialize_bytes(); deserialize_byte_buf();
        deserialize_option(); deserialize_unit(); deserialize_seq(); deserialize_map();
        deserialize_identifier(); deserialize_ignored_any(); deserialize_unit_struct(&'static str);
        deserialize_tuple(usize); deserialize_tuple_struct(&'static str, usize);
    }
}

macro_rules! plain {
    ($($kind:ty => $name:literal),* $(,)?) => {$(
        impl Schema for $kind {
            const NAME: &'static str = $name;
        }
    )*};
}

plain! {
    bool => "bool", char => "char", String => "str", () => "()", f32 => "f32", f64 => "f64",
    u8 => "u8", u16 => "u16", u32 => "u32", u64 => "u64", u128 => "u128",
    i8 => "i8", i16 => "i16", i32 => "i32", i64 => "i64", i128 => "i128",
}

/// A box is described like its contents.
impl<T: Schema> Schema for Box<T> {
    const NAME: &'static str = T::NAME;
    const VERSION: u32 = T::VERSION;
    const OLDEST: u32 = T::OLDEST;

    fn upgrade(version: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self::new(T::upgrade(version, bytes)?))
    }

    fn name() -> String {
        T::name()
    }
}

macro_rules! composed {
    ($([$($part:ident),*] $kind:ty, $name:literal, $separator:literal, $end:literal $(, where [$($bound:tt)*])?;)*) => {$(
        impl<$($part: Schema),*> Schema for $kind $(where $($bound)*)? {
            const NAME: &'static str = $name;

            fn name() -> String {
                let parts = [$(describe::<$part>()),*];
                format!("{}{}{}", $name, parts.join($separator), $end)
            }
        }
    )*};
}

composed! {
    [T] Vec<T>, "Vec<", ", ", ">";
    [T] Option<T>, "Option<", ", ", ">";
    [K, V] BTreeMap<K, V>, "Map<", ", ", ">", where [K: Ord];
    [T] BTreeSet<T>, "Set<", ", ", ">", where [T: Ord];
    [A] (A,), "(", ", ", ",)";
    [A, B] (A, B), "(", ", ", ")";
    [A, B, C] (A, B, C), "(", ", ", ")";
    [A, B, C, D] (A, B, C, D), "(", ", ", ")";
    [A, B, C, D, E] (A, B, C, D, E), "(", ", ", ")";
    [A, B, C, D, E, F] (A, B, C, D, E, F), "(", ", ", ")";
}

impl<K, V, S> Schema for HashMap<K, V, S>
where
    K: Schema + Eq + Hash,
    V: Schema,
    S: BuildHasher + Default + Send + 'static,
{
    const NAME: &'static str = <BTreeMap<u8, u8> as Schema>::NAME;

    fn name() -> String {
        format!("{}{}, {}>", Self::NAME, describe::<K>(), describe::<V>())
    }
}

impl<T, S> Schema for HashSet<T, S>
where
    T: Schema + Eq + Hash,
    S: BuildHasher + Default + Send + 'static,
{
    const NAME: &'static str = <BTreeSet<u8> as Schema>::NAME;

    fn name() -> String {
        format!("{}{}>", Self::NAME, describe::<T>())
    }
}
