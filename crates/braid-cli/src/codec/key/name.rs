//! Names of key types: in the catalog, and as words of the command line.

use std::fmt;

use super::{KeyType, NUMBERS};

/// Time stamps in the catalog, and on the command line.
const TIME: &str = "time stamp in UTC";
const TIME_WORD: &str = "time";

impl KeyType {
    /// Parses the name of a type in the catalog.
    pub fn named(name: &str) -> Self {
        match Self::parse(name, false) {
            Some((key, "")) if key.has_ends(true) => key,
            _ => Self::Own(name.to_owned()),
        }
    }

    /// Parses a type from the words of the command line. Spaces after commas may be missing.
    /// Returns `None` for a type that only the program knows, or with a part of such a type.
    pub fn of_word(word: &str) -> Option<Self> {
        match Self::parse(word, true) {
            Some((key, "")) if key.is_known() => Some(key),
            _ => None,
        }
    }

    /// The name of the type in the catalog.
    pub fn catalog_name(&self) -> String {
        let mut name = String::new();
        self.append_name(TIME, &mut name);
        name
    }

    fn append_name(&self, time: &str, out: &mut String) {
        match self {
            Self::Text => out.push_str("str"),
            Self::Bytes => out.push_str("bytes"),
            Self::Array(bytes) => *out += &format!("[u8; {bytes}]"),
            Self::Uuid => out.push_str("uuid"),
            Self::Time => out.push_str(time),
            Self::Number(number) => out.push_str(number.name),
            Self::Own(name) => out.push_str(name),
            Self::Option(inner) | Self::Reverse(inner) => {
                out.push_str(if matches!(self, Self::Option(_)) { "Option<" } else { "Reverse<" });
                inner.append_name(time, out);
                out.push('>');
            }
            Self::Tuple(parts) | Self::Struct(_, parts) => {
                if let Self::Struct(name, _) = self {
                    out.push_str(name);
                }
                for (at, part) in parts.iter().enumerate() {
                    out.push_str(if at == 0 { "(" } else { ", " });
                    part.append_name(time, out);
                }
                out.push(')');
            }
        }
    }

    /// Returns whether no part has a type that only the program knows.
    fn is_known(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Option(inner) | Self::Reverse(inner) => inner.is_known(),
            Self::Tuple(parts) | Self::Struct(_, parts) => parts.iter().all(Self::is_known),
            _ => true,
        }
    }

    /// Parses a type at the start of `name`. Returns it and the rest of `name`. `is_word`: the user
    /// may have written it.
    fn parse(name: &str, is_word: bool) -> Option<(Self, &str)> {
        let inner = |rest, wrap: fn(Box<Self>) -> Self| {
            let (key, rest) = Self::parse(rest, is_word)?;
            Some((wrap(Box::new(key)), rest.strip_prefix('>')?))
        };
        if let Some(rest) = name.strip_prefix("Option<") {
            return inner(rest, Self::Option);
        }
        if let Some(rest) = name.strip_prefix("Reverse<") {
            return inner(rest, Self::Reverse);
        }
        if let Some(rest) = name.strip_prefix("[u8; ") {
            let (count, rest) = rest.split_once(']')?;
            return Some((Self::Array(count.parse().ok()?), rest));
        }
        let end = name.find(['(', ',', ')', '>']).unwrap_or(name.len());
        // The name of a struct type includes the types of its fields, and its encoding is their
        // tuple.
        if let Some(mut rest) = name[end..].strip_prefix('(') {
            let mut parts = Vec::new();
            loop {
                let (part, after) = Self::parse(rest, is_word)?;
                parts.push(part);
                match after.strip_prefix(if is_word { "," } else { ", " }) {
                    Some(next) if is_word => rest = next.trim_start(),
                    Some(next) => rest = next,
                    None => {
                        let key = match &name[..end] {
                            "" => Self::Tuple(parts),
                            name => Self::Struct(name.to_owned(), parts),
                        };
                        return Some((key, after.strip_prefix(')')?));
                    }
                }
            }
        }
        let (word, rest) = name.split_at(end);
        let key = match word {
            "str" => Self::Text,
            "bytes" => Self::Bytes,
            "uuid" => Self::Uuid,
            TIME => Self::Time,
            TIME_WORD if is_word => Self::Time,
            "" => return None,
            _ => match NUMBERS.iter().find(|number| number.name == word) {
                Some(number) => Self::Number(number),
                None => Self::Own(word.to_owned()),
            },
        };
        Some((key, rest))
    }
}

/// The name in the catalog. If all parts are known, time stamps have the word of the command line.
impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = String::new();
        self.append_name(if self.is_known() { TIME_WORD } else { TIME }, &mut name);
        f.write_str(&name)
    }
}
