//! Names, versions and fields of the types that programs store by serde: what the catalog compares, so that a type
//! that changed is noticed when its table is opened.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::{BuildHasher, Hash};

use serde::Serialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor, value::Error as NoValue};
use serde::forward_to_deserialize_any;

use super::error::DecodeError;

/// A type of values with a name of its own in the catalog, so that the type can be renamed and moved, and with a
/// version, so that it can change.
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
/// The guide's section "Types that change" shows what a second version looks like.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no name for the catalog",
    label = "no schema",
    note = "add `impl braiddb::Schema for {Self} {{ const NAME: &'static str = \"...\"; }}`",
    note = "`{Self}` must be `Serialize`, `DeserializeOwned` and `Send` too"
)]
pub trait Schema: Serialize + DeserializeOwned + Send + 'static {
    /// What the catalog calls the type. It never changes, whatever the type is called in Rust.
    const NAME: &'static str;

    /// Which form of the type this is: to be raised when fields come, go, or change their order or type. Only
    /// [`Postcard`](super::Postcard) looks at it: formats that name their fields go by the names.
    const VERSION: u32 = 1;

    /// The oldest version that [`Schema::upgrade`] reads.
    const OLDEST: u32 = Self::VERSION;

    /// The value of an older version, from its encoding by postcard.
    ///
    /// # Errors
    /// When the bytes encode none.
    fn upgrade(version: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
        _ = bytes;
        let name = Self::name();
        Err(DecodeError::new(format!(
            "{name}: its `Schema::upgrade` does not read version {version}"
        )))
    }

    /// The name with those of the types that it is made of: [`Schema::NAME`], but for generic types.
    fn name() -> String {
        Self::NAME.to_owned()
    }
}

/// The type as a table's description has it: its name, its version if it is not the first, and the names of its
/// fields or cases, as far as they can be told from outside: `account v2 {owner, cents, limit}`.
pub(super) fn describe<T: Schema>() -> String {
    let mut description = T::name();
    if T::VERSION != 1 {
        _ = write!(description, " v{}", T::VERSION);
    }
    let mut fields = Fields(None);
    // It fails: what is asked for is noted, and there is nothing to give.
    _ = T::deserialize(&mut fields);
    if let Some(fields) = fields.0 {
        _ = write!(description, " {{{}}}", fields.join(", "));
    }
    description
}

/// Whether records can be read as `T` whose table was created, or last opened, with what [`describe`] called `stored`.
///
/// # Errors
/// What to do.
pub(super) fn reads<T: Schema>(stored: &str) -> Result<(), String> {
    let (name, current) = (T::name(), describe::<T>());
    if stored == current {
        return Ok(());
    }
    let version = match stored.strip_prefix(&name) {
        Some("") => 1,
        Some(rest) if rest.starts_with(" {") => 1,
        Some(rest) => {
            match rest.strip_prefix(" v").map(|rest| rest.split(' ').next().unwrap_or(rest)) {
                Some(digits) if digits.parse::<u32>().is_ok() => digits.parse().unwrap_or_default(),
                _ => return Err("open it with the types it was created with".to_owned()),
            }
        }
        None => return Err("open it with the types it was created with".to_owned()),
    };
    if version > T::VERSION {
        return Err(format!("a newer program wrote version {version} of {name}: use that one"));
    }
    if version == T::VERSION {
        return Err(format!(
            "{name} has changed: raise its `Schema::VERSION`, and read the old form in `Schema::upgrade`"
        ));
    }
    if version < T::OLDEST {
        return Err(format!(
            "read version {version} of {name} in `Schema::upgrade`, and say so by `Schema::OLDEST`"
        ));
    }
    Ok(())
}

/// Notes which fields or cases a type asks for, and gives nothing.
struct Fields(Option<&'static [&'static str]>);

impl<'de> Deserializer<'de> for &mut Fields {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("there is no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        self.0 = Some(fields);
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        cases: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        self.0 = Some(cases);
        self.deserialize_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
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
    [T] Box<T>, "", ", ", "";
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
