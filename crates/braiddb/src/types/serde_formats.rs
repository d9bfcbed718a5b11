//! Values of serde types, in the format of postcard, which is small and fast, or in formats that
//! store field names.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::error::{DecodeError, EncodeError};
#[cfg(any(feature = "json", feature = "messagepack"))]
use super::fields::{describe_fields, reads_fields};
use super::schema::{
    Schema, describe, describe_in_depth, is_not_self_describing, reads, value_shape,
};
use super::value::{EncodedValue, Value};
use super::value_shape::ValueShape;

/// A serde type as a value in postcard's format: compact, specified, equal on every machine, and
/// the fastest. Each value begins with the [version](Schema::VERSION) of its type.
///
/// If the type has changed without a new version, opening the table fails with a message that
/// contains the remedy. It detects fields of structs, elements of tuples and variants of enums that
/// were added, removed, or changed in order, name or type, at any depth. It does not detect
/// changes:
///
/// - after a value that the engine cannot create, because the type rejects all samples; in a large
///   type, everything nested within its own fields or variants
/// - that keep the encoding but change its meaning
/// - nested within the type's own fields or variants, if they were made before the first opening of
///   the table by a library version that checks nested types
#[derive(Debug)]
pub struct Postcard<T>(PhantomData<fn() -> T>);

impl<T: DeserializeOwned> Postcard<T> {
    /// Decodes a value of postcard's format, for [`Schema::upgrade`]: there `T` is a type of an
    /// earlier version, which needs no schema.
    ///
    /// ```
    /// use braiddb::Postcard;
    ///
    /// fn main() -> Result<(), braiddb::DecodeError> {
    ///     // A text begins with its length, and small numbers take one byte.
    ///     let (owner, visits) = Postcard::<(String, u64)>::from_bytes(b"\x03ada\x07")?;
    ///     assert_eq!((owner.as_str(), visits), ("ada", 7));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the bytes do not encode a value of `T`.
    pub fn from_bytes(bytes: &[u8]) -> Result<T, DecodeError> {
        postcard::from_bytes(bytes)
            .map_err(|_| DecodeError::new(format!("a value of {}", std::any::type_name::<T>())))
    }
}

const POSTCARD: &str = "postcard ";
#[cfg(feature = "json")]
const JSON: &str = "json ";
#[cfg(feature = "messagepack")]
const MESSAGEPACK: &str = "messagepack ";

/// The common part of all formats: a value of `T` is written by reference, and read as an owned
/// `T`.
macro_rules! serde_value {
    () => {
        type Input = T;
        type Ref<'a> = T;
        type Owned = T;

        #[inline]
        fn decode_kept<'a>(bytes: &[u8], _: impl FnOnce() -> &'a [u8]) -> Result<T, DecodeError> {
            Self::decode(bytes)
        }

        fn into_owned(value: T) -> T {
            value
        }

        /// A value stored in an older version of the type is compared in its current encoding.
        fn is_same(encoded: &[u8], stored: &[u8]) -> Result<bool, EncodeError> {
            if encoded == stored {
                return Ok(true);
            }
            match Self::decode(stored) {
                Ok(value) => Ok(*Self::encode(&value)? == *encoded),
                Err(_) => Ok(false),
            }
        }
    };
}

impl<T: Schema> Value for Postcard<T> {
    serde_value!();

    fn type_name() -> String {
        format!("{POSTCARD}{}", describe_in_depth::<T>())
    }

    /// Untagged and internally tagged enums could be written but not read.
    fn check() -> Result<(), EncodeError> {
        match is_not_self_describing::<T>() {
            true => Ok(()),
            false => Err(EncodeError::new(format!(
                "postcard cannot determine the variant of {}: store it as Json or MessagePack, \
                 or without serde's attributes for tags",
                T::name()
            ))),
        }
    }

    fn reads(stored: &str) -> Result<(), String> {
        reads::<T>(stored.strip_prefix(POSTCARD).unwrap_or_default())
    }

    fn shape() -> Option<ValueShape> {
        value_shape::<T>()
    }

    fn encode(input: &T) -> Result<EncodedValue<'_>, EncodeError> {
        let bytes = postcard::to_stdvec(&(T::VERSION, input));
        bytes.map(EncodedValue::from).map_err(|error| EncodeError::new(error.to_string()))
    }

    fn decode(bytes: &[u8]) -> Result<T, DecodeError> {
        let malformed = || DecodeError::new(format!("{POSTCARD}{}", describe::<T>()));
        let (version, rest) = postcard::take_from_bytes::<u32>(bytes).map_err(|_| malformed())?;
        if version != T::VERSION {
            return older::<T>(version, rest);
        }
        match postcard::take_from_bytes(rest) {
            Ok((value, [])) => Ok(value),
            _ => Err(malformed()),
        }
    }
}

#[cold]
fn older<T: Schema>(version: u32, bytes: &[u8]) -> Result<T, DecodeError> {
    if (T::OLDEST..T::VERSION).contains(&version) {
        return T::upgrade(version, bytes);
    }
    let (name, oldest, newest) = (T::name(), T::OLDEST, T::VERSION);
    Err(DecodeError::new(format!(
        "{name} of a version from {oldest} to {newest}, but of {version}"
    )))
}

/// A serde type as a value in JSON. It is larger and slower than [`Postcard`], readable by other
/// programs, and fields may be added (with `#[serde(default)]`) and removed. Opening a table fails
/// with a message that contains the remedy if some records lack a required field of the stored
/// struct or of a nested one.
///
/// JSON cannot represent all values: non-finite numbers become `null`, and keys of maps become
/// strings.
#[cfg(feature = "json")]
#[derive(Debug)]
pub struct Json<T>(PhantomData<fn() -> T>);

#[cfg(feature = "json")]
impl<T: Schema> Value for Json<T> {
    serde_value!();

    fn type_name() -> String {
        format!("{JSON}{}", describe_fields::<T>(true))
    }

    fn reads(stored: &str) -> Result<(), String> {
        reads_fields::<T>(stored.strip_prefix(JSON).unwrap_or_default(), true)
    }

    fn encode(input: &T) -> Result<EncodedValue<'_>, EncodeError> {
        let bytes = serde_json::to_vec(input);
        bytes.map(EncodedValue::from).map_err(|error| EncodeError::new(error.to_string()))
    }

    fn decode(bytes: &[u8]) -> Result<T, DecodeError> {
        let value = serde_json::from_slice(bytes);
        value.map_err(|error| DecodeError::new(format!("{JSON}{} ({error})", T::name())))
    }
}

/// A serde type as a value in MessagePack, with the names of its fields. Its size and speed are
/// between those of [`Postcard`] and `Json`. Fields may be added (with `#[serde(default)]`) and
/// removed, and are checked at opening like those of `Json`.
#[cfg(feature = "messagepack")]
#[derive(Debug)]
pub struct MessagePack<T>(PhantomData<fn() -> T>);

#[cfg(feature = "messagepack")]
impl<T: Schema> Value for MessagePack<T> {
    serde_value!();

    fn type_name() -> String {
        format!("{MESSAGEPACK}{}", describe_fields::<T>(false))
    }

    fn reads(stored: &str) -> Result<(), String> {
        reads_fields::<T>(stored.strip_prefix(MESSAGEPACK).unwrap_or_default(), false)
    }

    fn encode(input: &T) -> Result<EncodedValue<'_>, EncodeError> {
        let bytes = rmp_serde::to_vec_named(input);
        bytes.map(EncodedValue::from).map_err(|error| EncodeError::new(error.to_string()))
    }

    fn decode(bytes: &[u8]) -> Result<T, DecodeError> {
        let malformed = |why: &str| DecodeError::new(format!("{MESSAGEPACK}{} ({why})", T::name()));
        let mut rest = bytes;
        match rmp_serde::from_read(&mut rest) {
            Ok(_) if !rest.is_empty() => Err(malformed("more follows it")),
            Ok(value) => Ok(value),
            Err(error) => Err(malformed(&error.to_string())),
        }
    }
}
