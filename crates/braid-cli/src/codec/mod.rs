//! Keys and values of any table as text and as JSON, by the types that the catalog names.

mod key;
mod value;

use anyhow::{Result, bail};

pub use key::KeyType;
pub use value::{Shown, ValueType};

/// What bytes without a type of their own begin with, as text.
const HEX: &str = "0x";

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(HEX.to_owned(), |text, byte| format!("{text}{byte:02x}"))
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
