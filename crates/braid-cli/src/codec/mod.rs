//! Conversion of keys and values of any table to and from text and JSON, by their types in the
//! catalog.

pub mod json_error;
pub mod json_text;
mod key;
mod malformed;
mod postcard;
mod value;

use anyhow::{Result, anyhow, bail};

pub use key::KeyType;
#[cfg(feature = "parquet")]
pub use key::dashed;
pub use malformed::Malformed;
pub use value::ValueType;

use crate::shown::quoted;

/// Prefix of bytes in hexadecimal digits.
const HEX: &str = "0x";

/// Formats bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(HEX.len() + 2 * bytes.len());
    text.push_str(HEX);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}

/// Appends a text as JSON.
pub fn append_json(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("text is written to memory");
}

/// Returns whether a text has the prefix of hexadecimal digits.
fn is_hex(text: &str) -> bool {
    text.starts_with(HEX)
}

/// Parses hexadecimal digits.
fn from_hex(text: &str) -> Result<Vec<u8>> {
    let Some(digits) = text.strip_prefix(HEX) else {
        bail!("{} is not bytes; write bytes in hexadecimal digits, such as 0x00ff", quoted(text));
    };
    if !digits.is_ascii() || digits.len() % 2 != 0 {
        bail!("{} must have an even number of hexadecimal digits after 0x", quoted(text));
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
    let bytes: Result<_, _> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map_err(|_| anyhow!("{} has characters that are not hexadecimal digits", quoted(text)))
}

/// The error for a text that is not a number of the type `name`, or not a `bool`.
fn number_error(text: &str, name: &str) -> String {
    macro_rules! whole {
        ($($number:ty),*) => {
            match name {
                $(stringify!($number) => {
                    format!("a whole number from {} to {}", <$number>::MIN, <$number>::MAX)
                })*
                "bool" => "true or false".to_owned(),
                _ => "a number such as 7, -1.5 or 2e9".to_owned(),
            }
        };
    }
    let expected = whole!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);
    format!("{} is not a valid {name}: expected {expected}", quoted(text))
}
