//! Values: bytes, text, and the traits for other types.

use super::error::{DecodeError, EncodeError};
use super::value_shape::ValueShape;

/// Maximum size of an encoded value without an allocation, in bytes.
const INLINE_BYTES: usize = 16;

/// An encoded value. It borrows the value if that consists of bytes already.
///
/// ```
/// use braiddb::EncodedValue;
///
/// let small = EncodedValue::small(&7_u64.to_le_bytes());
/// assert_eq!(&*small, [7, 0, 0, 0, 0, 0, 0, 0]);
/// assert_eq!(&*EncodedValue::from(vec![1, 2]), [1, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct EncodedValue<'a>(Encoded<'a>);

#[derive(Clone, Debug)]
enum Encoded<'a> {
    /// The value's own bytes.
    Borrowed(&'a [u8]),
    /// The bytes of a small value, and their number.
    Inline([u8; INLINE_BYTES], u8),
    /// Newly encoded bytes.
    Owned(Vec<u8>),
}

impl EncodedValue<'_> {
    /// Copies `bytes`. Up to 16 bytes need no allocation.
    #[inline]
    pub fn small(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE_BYTES {
            return Self(Encoded::Owned(bytes.to_vec()));
        }
        let mut inline = [0; INLINE_BYTES];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self(Encoded::Inline(inline, bytes.len() as u8))
    }
}

impl<'a> From<&'a [u8]> for EncodedValue<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self(Encoded::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for EncodedValue<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Encoded::Owned(bytes))
    }
}

impl std::ops::Deref for EncodedValue<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Encoded::Borrowed(bytes) => bytes,
            Encoded::Inline(bytes, length) => &bytes[..usize::from(*length)],
            Encoded::Owned(bytes) => bytes,
        }
    }
}

/// A type that can be a table's value.
///
/// | type of the values | in `Table<K, V>` |
/// |---|---|
/// | text | `str` or `String`: both write `str` and read `&str` |
/// | bytes | `[u8]` or `Vec<u8>`: both write `[u8]` and read `&[u8]` |
/// | integers `u8` to `u128` and `i8` to `i128`, `bool`, `()` | the type itself |
/// | `f32`, `f64`, `char`, tuples of up to six parts, `Option`, `Box`, `Vec`, maps and sets | [`Postcard<f64>`](crate::Postcard), `Postcard<(u8, String)>`, `Postcard<Vec<u64>>` |
/// | your own serde types | `Postcard<T>`, with an implementation of [`Schema`](crate::Schema) |
///
/// With the features `json` and `messagepack`, `Json<T>` and `MessagePack<T>` can replace
/// `Postcard<T>`.
///
/// ```
/// use braiddb::{Postcard, Value};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let pair = (7, "seven".to_owned());
///     let encoded = <Postcard<(u8, String)>>::encode(&pair)?;
///     assert_eq!(<Postcard<(u8, String)>>::decode(&encoded)?, pair);
///     Ok(())
/// }
/// ```
///
/// A hand-written implementation, which also reads the encoding of an older version:
///
/// ```
/// use braiddb::{DecodeError, EncodeError, EncodedValue, Value};
///
/// /// A color in three bytes; an older version had an unused fourth byte.
/// struct Color;
///
/// impl Value for Color {
///     type Input = (u8, u8, u8);
///     type Ref<'a> = (u8, u8, u8);
///     type Owned = (u8, u8, u8);
///
///     fn type_name() -> String {
///         "paint.color.2".to_owned()
///     }
///
///     fn reads(stored: &str) -> Result<(), String> {
///         match stored {
///             "paint.color.1" | "paint.color.2" => Ok(()),
///             _ => Err("it holds no colors".to_owned()),
///         }
///     }
///
///     fn encode(&(red, green, blue): &(u8, u8, u8)) -> Result<EncodedValue<'_>, EncodeError> {
///         Ok(EncodedValue::small(&[red, green, blue]))
///     }
///
///     fn decode(bytes: &[u8]) -> Result<(u8, u8, u8), DecodeError> {
///         match bytes {
///             [red, green, blue] | [red, green, blue, _] => Ok((*red, *green, *blue)),
///             _ => Err(DecodeError::new("a color")),
///         }
///     }
///
///     fn is_same(encoded: &[u8], stored: &[u8]) -> Result<bool, EncodeError> {
///         Ok(stored.starts_with(encoded))
///     }
///
///     fn into_owned(color: (u8, u8, u8)) -> (u8, u8, u8) {
///         color
///     }
/// }
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     Color::check()?;
///     assert!(Color::reads("paint.color.1").is_ok() && Color::reads("str").is_err());
///     assert_eq!(Color::decode(&[255, 0, 0, 1])?, (255, 0, 0));
///     assert!(Color::is_same(&Color::encode(&(255, 0, 0))?, &[255, 0, 0, 1])?);
///     assert_eq!(
///         (Color::type_name(), Color::into_owned((1, 2, 3))),
///         ("paint.color.2".to_owned(), (1, 2, 3))
///     );
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a table's value",
    label = "not a value",
    note = "any type that serde serializes and deserializes can be stored as `Postcard<{Self}>`: tuples, options and collections as they are, a struct or an enum of your own with `impl braiddb::Schema`",
    note = "text, bytes and integers are stored as they are: `str`, `[u8]`, `u64`; what is read is lent, and kept with `.to_owned()`",
    note = "`&str` is written to a table of `str`; `Json` and `MessagePack` are features of the crate"
)]
pub trait Value: 'static {
    /// The type that writes take, by reference.
    type Input: ?Sized;
    /// The type that reads return: for bytes and text a reference into the database, for others the
    /// value.
    type Ref<'a>;
    /// A read value that outlives its transaction.
    type Owned: Send + 'static;

    /// Returns the name of the type in the catalog, which must never change.
    fn type_name() -> String;

    /// Checks that written values of this type can be read again. Called when a table is created or
    /// opened. The default always succeeds.
    ///
    /// # Errors
    /// An error with the reason and the remedy.
    fn check() -> Result<(), EncodeError> {
        Ok(())
    }

    /// Checks whether this type reads the values of a table whose value type in the catalog is
    /// `stored`, from its creation or its last opening. If so, the catalog uses this type's name
    /// from then on. By default, a type reads only values with its own name.
    ///
    /// # Errors
    /// A message with the remedy for the user.
    fn reads(stored: &str) -> Result<(), String> {
        match stored == Self::type_name() {
            true => Ok(()),
            false => Err("open it with the types it was created with".to_owned()),
        }
    }

    /// Returns the structure of encoded values, for the catalog, if other programs need it to
    /// decode values.
    #[doc(hidden)]
    fn shape() -> Option<ValueShape> {
        None
    }

    /// Encodes a value for storage.
    ///
    /// # Errors
    /// An error if the value has no encoding.
    fn encode(input: &Self::Input) -> Result<EncodedValue<'_>, EncodeError>;

    /// Decodes the value from `bytes`.
    ///
    /// # Errors
    /// An error if the bytes encode no value.
    fn decode(bytes: &[u8]) -> Result<Self::Ref<'_>, DecodeError>;

    /// Returns whether the `stored` bytes encode the same value as `encoded`, which was just
    /// encoded. Used by compare-and-set. By default, it compares the bytes. Override it if equal
    /// values can have several encodings, for example if the type still reads an older one.
    ///
    /// # Errors
    /// An error if the stored bytes cannot be compared.
    fn is_same(encoded: &[u8], stored: &[u8]) -> Result<bool, EncodeError> {
        Ok(encoded == stored)
    }

    /// Decodes the value from `bytes`, which may be invalid after the return. `keep` copies them to
    /// memory that stays valid as long as the value may be used. The engine reads values through
    /// this function. By default, it decodes the copy. Types whose `Ref` borrows nothing should
    /// decode `bytes` directly and avoid the copy:
    ///
    /// ```
    /// use braiddb::{DecodeError, EncodeError, EncodedValue, Value};
    ///
    /// struct Celsius;
    ///
    /// impl Value for Celsius {
    ///     type Input = f64;
    ///     type Ref<'a> = f64;
    ///     type Owned = f64;
    ///
    ///     fn type_name() -> String {
    ///         "celsius".to_owned()
    ///     }
    ///
    ///     fn encode(input: &f64) -> Result<EncodedValue<'_>, EncodeError> {
    ///         Ok(EncodedValue::small(&input.to_be_bytes()))
    ///     }
    ///
    ///     fn into_owned(value: f64) -> f64 {
    ///         value
    ///     }
    ///
    ///     fn decode(bytes: &[u8]) -> Result<f64, DecodeError> {
    ///         let bytes = bytes.try_into().map_err(|_| DecodeError::new("eight bytes"))?;
    ///         Ok(f64::from_be_bytes(bytes))
    ///     }
    ///
    ///     fn decode_kept<'a>(
    ///         bytes: &[u8],
    ///         _keep: impl FnOnce() -> &'a [u8],
    ///     ) -> Result<f64, DecodeError> {
    ///         Self::decode(bytes)
    ///     }
    /// }
    ///
    /// fn main() -> Result<(), DecodeError> {
    ///     assert_eq!(Celsius::decode_kept(&20f64.to_be_bytes(), || unreachable!())?, 20.0);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Value::decode`].
    fn decode_kept<'a>(
        bytes: &[u8],
        keep: impl FnOnce() -> &'a [u8],
    ) -> Result<Self::Ref<'a>, DecodeError> {
        _ = bytes;
        Self::decode(keep())
    }

    /// Converts a read value to one that outlives its transaction.
    fn into_owned(value: Self::Ref<'_>) -> Self::Owned;
}

/// Implementations for bytes and text, borrowed and owned, which differ only in the written type.
macro_rules! slices {
    ($($kind:ty, $input:ty, $owned:ty, $name:literal, $bytes:expr, $decode:expr;)*) => {$(
        impl Value for $kind {
            type Input = $input;
            type Ref<'a> = &'a $input;
            type Owned = $owned;

            fn type_name() -> String {
                $name.to_owned()
            }

            #[inline]
            fn encode(input: &$input) -> Result<EncodedValue<'_>, EncodeError> {
                let bytes: fn(&$input) -> &[u8] = $bytes;
                Ok(EncodedValue::from(bytes(input)))
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<&$input, DecodeError> {
                let decode: fn(&[u8]) -> Result<&$input, DecodeError> = $decode;
                decode(bytes)
            }

            fn into_owned(value: &$input) -> $owned {
                value.to_owned()
            }
        }
    )*};
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::new("text in UTF-8"))
}

slices! {
    [u8], [u8], Vec<u8>, "bytes", |bytes| bytes, |bytes| Ok(bytes);
    Vec<u8>, [u8], Vec<u8>, "bytes", |bytes| bytes, |bytes| Ok(bytes);
    str, str, String, "str", str::as_bytes, text;
    String, str, String, "str", str::as_bytes, text;
}

impl Value for bool {
    type Input = bool;
    type Ref<'a> = bool;
    type Owned = bool;

    fn type_name() -> String {
        "bool".to_owned()
    }

    fn encode(input: &bool) -> Result<EncodedValue<'_>, EncodeError> {
        Ok(EncodedValue::small(&[u8::from(*input)]))
    }

    fn decode(bytes: &[u8]) -> Result<bool, DecodeError> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(DecodeError::new("bool")),
        }
    }

    #[inline]
    fn decode_kept<'a>(
        bytes: &[u8],
        _keep: impl FnOnce() -> &'a [u8],
    ) -> Result<bool, DecodeError> {
        Self::decode(bytes)
    }

    fn into_owned(value: bool) -> bool {
        value
    }
}

impl Value for () {
    type Input = ();
    type Ref<'a> = ();
    type Owned = ();

    fn type_name() -> String {
        "()".to_owned()
    }

    fn encode((): &()) -> Result<EncodedValue<'_>, EncodeError> {
        Ok(EncodedValue::small(&[]))
    }

    fn decode(bytes: &[u8]) -> Result<(), DecodeError> {
        if bytes.is_empty() { Ok(()) } else { Err(DecodeError::new("()")) }
    }

    #[inline]
    fn decode_kept<'a>(bytes: &[u8], _keep: impl FnOnce() -> &'a [u8]) -> Result<(), DecodeError> {
        Self::decode(bytes)
    }

    fn into_owned((): ()) {}
}
