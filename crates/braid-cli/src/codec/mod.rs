//! Keys and values of any table as text and as JSON, by the types that the catalog names.

pub mod json_error;
mod key;
mod value;

use anyhow::{Result, bail};

pub use key::KeyType;
pub use value::ValueType;

/// What bytes without a type of their own begin with, as text.
const HEX: &str = "0x";

/// Bytes as a text of hexadecimal digits.
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

/// Whether a text is meant as bytes in hexadecimal digits.
fn is_hex(text: &str) -> bool {
    text.starts_with(HEX)
}

/// The bytes that a text in hexadecimal digits means.
fn from_hex(text: &str) -> Result<Vec<u8>> {
    let Some(digits) = text.strip_prefix(HEX) else {
        bail!("bytes are written in hexadecimal digits, such as 0x00ff, and {text:?} is not");
    };
    if !digits.is_ascii() || digits.len() % 2 != 0 {
        bail!("{text:?} has half a byte, or something else than hexadecimal digits");
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
    let bytes: Result<_, _> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map_err(|_| anyhow::anyhow!("{text:?} has something else than hexadecimal digits"))
}

/// Why a text is no number of the type that is called so, or no `bool`.
fn no_number(text: &str, name: &str) -> String {
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
    format!("{text:?} is no {name}, {expected}")
}
