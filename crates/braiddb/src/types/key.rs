//! Keys: encodings whose byte order is the order of the keys.
//!
//! A single key, or the last part of a tuple, is encoded plainly. A part of variable length in any
//! other place of a tuple must mark its end without changing the order: its zero bytes become `00
//! FF`, and `00 00` ends it.

use super::buffer::KeyBuffer;
use super::error::DecodeError;

const ESCAPED_ZERO: u8 = 0xff;
const END: u8 = 0;

/// A type that can be a table's key. Enums and structs derive it
/// ([`derive(Key)`](derive@crate::Key)).
///
/// ```
/// use braiddb::{Key, KeyBuffer};
///
/// let encode = |key: &(String, i32)| {
///     let mut buffer = KeyBuffer::new();
///     key.encode(&mut buffer);
///     buffer
/// };
/// assert!(encode(&("a".into(), 7)) < encode(&("a\0".into(), -7)));
/// assert!(encode(&("b".into(), -7)) < encode(&("b".into(), 7)));
/// ```
///
/// A hand-written implementation:
///
/// ```
/// use braiddb::{DecodeError, Key, KeyBuffer};
///
/// /// A temperature in tenths of a degree, stored as a nonnegative number.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Celsius(i16);
///
/// impl Key for Celsius {
///     type Owned = Celsius;
///
///     fn type_name() -> String {
///         "weather.celsius".to_owned()
///     }
///
///     fn encode(&self, out: &mut KeyBuffer) {
///         out.extend_from_array((self.0 as u16 ^ 0x8000).to_be_bytes());
///     }
///
///     fn decode(bytes: &[u8]) -> Result<Celsius, DecodeError> {
///         match Self::decode_part(bytes)? {
///             (key, []) => Ok(key),
///             _ => Err(DecodeError::new("a temperature")),
///         }
///     }
///
///     fn decode_part(bytes: &[u8]) -> Result<(Celsius, &[u8]), DecodeError> {
///         let split = bytes.split_first_chunk::<2>();
///         let (bytes, rest) = split.ok_or_else(|| DecodeError::new("a temperature"))?;
///         Ok((Celsius((u16::from_be_bytes(*bytes) ^ 0x8000) as i16), rest))
///     }
///
///     fn shown(key: &Celsius) -> Option<String> {
///         Some(format!("{} °C", f32::from(key.0) / 10.0))
///     }
/// }
///
/// fn main() -> Result<(), DecodeError> {
///     let encode = |key: Celsius| {
///         let mut buffer = KeyBuffer::new();
///         key.encode(&mut buffer);
///         buffer
///     };
///     assert!(encode(Celsius(-5)) < encode(Celsius(125)));
///     assert_eq!(Celsius::decode(&encode(Celsius(-5)))?, Celsius(-5));
///     assert_eq!(Celsius::shown(&Celsius(125)).as_deref(), Some("12.5 °C"));
///     assert_eq!(<(Celsius, u64)>::type_name(), format!("({}, u64)", Celsius::type_name()));
///
///     // The encoding has a fixed length, so it is the same as a part of a tuple.
///     let mut part = KeyBuffer::new();
///     Celsius(7).encode_part(&mut part);
///     assert_eq!(part, encode(Celsius(7)));
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a table's key",
    label = "not a key",
    note = "keys are numbers, bool, text, bytes, options, and tuples of up to six of them; `Reverse` of any descends; UUIDs and times are features of the crate, `uuid` and `chrono`",
    note = "a key that is borrowed is given as what it borrows: `str`, `[u8]`; in a tuple, as what owns it, and looked up by `Table::borrowed`",
    note = "for an enum or a struct of your own: `#[derive(braiddb::Key)]` with `#[key(name = \"...\")]`"
)]
pub trait Key: 'static {
    /// The decoded type of a stored key.
    type Owned: Send + 'static;

    /// Returns the name of the type in the catalog, which must never change.
    fn type_name() -> String;

    /// Appends the encoding. The encodings of two keys must compare like the keys.
    fn encode(&self, out: &mut KeyBuffer);

    /// Decodes the key from `bytes`.
    ///
    /// # Errors
    /// An error if the bytes encode no key.
    fn decode(bytes: &[u8]) -> Result<Self::Owned, DecodeError>;

    /// Formats a key for people in errors such as [`Contended`](crate::Contended): `7`, `("a", 7)`.
    /// By default, errors show the bytes of the key.
    fn shown(key: &Self::Owned) -> Option<String> {
        _ = key;
        None
    }

    /// Appends the encoding for a place before the last of a tuple, which must mark its own end.
    fn encode_part(&self, out: &mut KeyBuffer) {
        self.encode(out);
    }

    /// Decodes a part at the start of `bytes`, and returns it with the remaining bytes.
    ///
    /// # Errors
    /// An error if `bytes` do not start with a part.
    fn decode_part(bytes: &[u8]) -> Result<(Self::Owned, &[u8]), DecodeError>;
}

/// Splits `N` bytes from the front.
pub(super) fn split<const N: usize>(
    bytes: &[u8],
    expected: fn() -> String,
) -> Result<([u8; N], &[u8]), DecodeError> {
    match bytes.split_first_chunk::<N>() {
        Some((part, rest)) => Ok((*part, rest)),
        None => Err(DecodeError::new(expected())),
    }
}

/// Decodes a key of fixed length that must take all of `bytes`.
pub(super) fn decode_whole<K: Key + ?Sized>(bytes: &[u8]) -> Result<K::Owned, DecodeError> {
    match K::decode_part(bytes)? {
        (key, []) => Ok(key),
        (_, _) => Err(DecodeError::new(K::type_name())),
    }
}

fn escape(bytes: &[u8], out: &mut KeyBuffer) {
    escape_start(bytes, out);
    out.extend_from_slice(&[0, END]);
}

/// Appends the common prefix of the encoded parts of all byte strings that start with `bytes`.
pub(crate) fn escape_start(bytes: &[u8], out: &mut KeyBuffer) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(ESCAPED_ZERO);
        }
    }
}

fn unescape(bytes: &[u8], expected: fn() -> String) -> Result<(Vec<u8>, &[u8]), DecodeError> {
    let (mut part, mut rest) = (Vec::new(), bytes);
    loop {
        match rest {
            [0, ESCAPED_ZERO, tail @ ..] => {
                part.push(0);
                rest = tail;
            }
            [0, END, tail @ ..] => return Ok((part, tail)),
            [byte, tail @ ..] if *byte != 0 => {
                part.push(*byte);
                rest = tail;
            }
            _ => return Err(DecodeError::new(expected())),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |shown, byte| format!("{shown}{byte:02x}"))
}

fn text(bytes: Vec<u8>) -> Result<String, DecodeError> {
    String::from_utf8(bytes).map_err(|_| DecodeError::new("text in UTF-8"))
}

impl Key for [u8] {
    type Owned = Vec<u8>;

    fn type_name() -> String {
        "bytes".to_owned()
    }

    fn encode(&self, out: &mut KeyBuffer) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(bytes.to_vec())
    }

    fn shown(key: &Vec<u8>) -> Option<String> {
        Some(hexadecimal(key))
    }

    fn encode_part(&self, out: &mut KeyBuffer) {
        escape(self, out);
    }

    fn decode_part(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), DecodeError> {
        unescape(bytes, Self::type_name)
    }
}

impl Key for str {
    type Owned = String;

    fn type_name() -> String {
        "str".to_owned()
    }

    fn encode(&self, out: &mut KeyBuffer) {
        out.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<String, DecodeError> {
        text(bytes.to_vec())
    }

    fn shown(key: &String) -> Option<String> {
        Some(format!("{key:?}"))
    }

    fn encode_part(&self, out: &mut KeyBuffer) {
        escape(self.as_bytes(), out);
    }

    fn decode_part(bytes: &[u8]) -> Result<(String, &[u8]), DecodeError> {
        let (part, rest) = unescape(bytes, Self::type_name)?;
        Ok((text(part)?, rest))
    }
}

/// Encodes owned keys like their borrowed type.
macro_rules! as_borrowed {
    ($($owned:ty => $borrowed:ty),*) => {$(
        impl Key for $owned {
            type Owned = $owned;

            fn type_name() -> String {
                <$borrowed>::type_name()
            }

            fn encode(&self, out: &mut KeyBuffer) {
                <$borrowed as Key>::encode(self, out);
            }

            fn decode(bytes: &[u8]) -> Result<$owned, DecodeError> {
                <$borrowed>::decode(bytes)
            }

            fn shown(key: &$owned) -> Option<String> {
                <$borrowed as Key>::shown(key)
            }

            fn encode_part(&self, out: &mut KeyBuffer) {
                <$borrowed as Key>::encode_part(self, out);
            }

            fn decode_part(bytes: &[u8]) -> Result<($owned, &[u8]), DecodeError> {
                <$borrowed>::decode_part(bytes)
            }
        }
    )*};
}

as_borrowed!(String => str, Vec<u8> => [u8]);

impl<const N: usize> Key for [u8; N] {
    type Owned = [u8; N];

    fn type_name() -> String {
        format!("[u8; {N}]")
    }

    fn encode(&self, out: &mut KeyBuffer) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<[u8; N], DecodeError> {
        decode_whole::<Self>(bytes)
    }

    fn shown(key: &[u8; N]) -> Option<String> {
        Some(hexadecimal(key))
    }

    fn decode_part(bytes: &[u8]) -> Result<([u8; N], &[u8]), DecodeError> {
        split(bytes, Self::type_name)
    }
}

impl Key for bool {
    type Owned = bool;

    fn type_name() -> String {
        "bool".to_owned()
    }

    fn encode(&self, out: &mut KeyBuffer) {
        out.push(u8::from(*self));
    }

    fn decode(bytes: &[u8]) -> Result<bool, DecodeError> {
        decode_whole::<Self>(bytes)
    }

    fn shown(key: &bool) -> Option<String> {
        Some(key.to_string())
    }

    fn decode_part(bytes: &[u8]) -> Result<(bool, &[u8]), DecodeError> {
        match bytes {
            [flag @ 0..=1, rest @ ..] => Ok((*flag == 1, rest)),
            _ => Err(DecodeError::new(Self::type_name())),
        }
    }
}

/// `None` comes before every `Some`.
impl<K: Key> Key for Option<K> {
    type Owned = Option<K::Owned>;

    fn type_name() -> String {
        format!("Option<{}>", K::type_name())
    }

    fn encode(&self, out: &mut KeyBuffer) {
        out.push(u8::from(self.is_some()));
        if let Some(key) = self {
            key.encode(out);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self::Owned, DecodeError> {
        match bytes {
            [0] => Ok(None),
            [1, rest @ ..] => Ok(Some(K::decode(rest)?)),
            _ => Err(DecodeError::new(Self::type_name())),
        }
    }

    fn shown(key: &Self::Owned) -> Option<String> {
        match key {
            None => Some("None".to_owned()),
            Some(key) => Some(format!("Some({})", K::shown(key)?)),
        }
    }

    fn encode_part(&self, out: &mut KeyBuffer) {
        out.push(u8::from(self.is_some()));
        if let Some(key) = self {
            key.encode_part(out);
        }
    }

    fn decode_part(bytes: &[u8]) -> Result<(Self::Owned, &[u8]), DecodeError> {
        match bytes {
            [0, rest @ ..] => Ok((None, rest)),
            [1, rest @ ..] => {
                let (key, rest) = K::decode_part(rest)?;
                Ok((Some(key), rest))
            }
            _ => Err(DecodeError::new(Self::type_name())),
        }
    }
}
