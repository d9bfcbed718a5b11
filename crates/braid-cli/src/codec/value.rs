//! Values: a text stands for itself, a number for itself, and bytes are hexadecimal digits; so are the values
//! of types that only their program knows.

use anyhow::{Context, Result, bail};
use braiddb::{DecodeError, Value as _};

use super::{from_hex, to_hex};

/// The type of a table's values, as the catalog names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Text in UTF-8.
    Text,
    Bytes,
    Number(&'static Number),
    /// `()`.
    Nothing,
    /// A program's own, such as a type of serde's.
    Own(String),
}

/// A type of numbers, or `bool`.
#[derive(Debug)]
pub struct Number {
    name: &'static str,
    parse: fn(&str) -> Option<Vec<u8>>,
    show: fn(&[u8]) -> Result<String, DecodeError>,
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Number {}

macro_rules! numbers {
    ($($number:ty),*) => {
        const NUMBERS: &[Number] = &[$(Number {
            name: stringify!($number),
            parse: |text| {
                let number = text.parse::<$number>().ok()?;
                Some(<$number as braiddb::Value>::encode(&number).ok()?.to_vec())
            },
            show: |bytes| Ok(<$number as braiddb::Value>::decode(bytes)?.to_string()),
        }),*];
    };
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, bool);

/// A value as it is shown: as text, and whether that is JSON too.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    pub text: String,
    pub is_number: bool,
}

impl ValueType {
    /// The type that the catalog calls so.
    pub fn named(name: &str) -> Self {
        match name {
            "str" => Self::Text,
            "bytes" => Self::Bytes,
            "()" => Self::Nothing,
            _ => match NUMBERS.iter().find(|number| number.name == name) {
                Some(number) => Self::Number(number),
                None => Self::Own(name.to_owned()),
            },
        }
    }

    /// The value that a word of the command line means.
    ///
    /// # Errors
    /// What values look like, if it means none.
    pub fn encode(&self, word: &str) -> Result<Vec<u8>> {
        match self {
            Self::Text => Ok(word.as_bytes().to_vec()),
            Self::Bytes => from_hex(word),
            Self::Number(number) => (number.parse)(word)
                .with_context(|| format!("values of this table are of the type {}", number.name)),
            Self::Nothing if word.is_empty() => Ok(Vec::new()),
            Self::Nothing => bail!("values of this table are empty; give an empty text"),
            Self::Own(name) => bail!(
                "values of this table are of the type {name}, which only the program knows that writes them"
            ),
        }
    }

    /// A value as text.
    ///
    /// # Errors
    /// If the bytes encode none.
    pub fn show(&self, bytes: &[u8]) -> Result<Shown, DecodeError> {
        let text = match self {
            Self::Text => str::decode(bytes)?.to_owned(),
            Self::Number(number) => (number.show)(bytes)?,
            Self::Nothing => String::new(),
            Self::Bytes | Self::Own(_) => to_hex(bytes),
        };
        Ok(Shown { text, is_number: matches!(self, Self::Number(_)) })
    }
}

#[cfg(test)]
mod tests {
    use braiddb::Value;

    use super::*;

    fn same<V: Value + ?Sized>(value: &V::Input, word: &str) {
        let kind = ValueType::named(&V::type_name());
        let bytes = V::encode(value).unwrap();
        assert_eq!(kind.encode(word).unwrap(), *bytes, "{word}");
        assert_eq!(kind.show(&bytes).unwrap().text, word);
    }

    #[test]
    fn values_are_encoded_as_programs_encode_them() {
        same::<str>("a text", "a text");
        same::<[u8]>(&[0, 255], "0x00ff");
        same::<u64>(&7, "7");
        same::<i32>(&-7, "-7");
        same::<bool>(&true, "true");
        same::<()>(&(), "");
    }

    #[test]
    fn values_of_a_programs_own_types_are_shown_and_not_written() {
        let kind = ValueType::named("postcard shop::Order");
        assert_eq!(kind.show(&[1, 2]).unwrap().text, "0x0102");
        assert!(kind.encode("0x0102").unwrap_err().to_string().contains("shop::Order"));
    }
}
