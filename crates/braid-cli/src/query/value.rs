//! Order and equality of JSON values in conditions and sort orders.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use serde_json::value::RawValue;

/// A JSON value in the form in which it is compared. Variants are in sort order. Text that is a
/// number is compared as a number, because CSV files have only text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comparable {
    /// `null`, or no field.
    Null,
    Truth(bool),
    Number(Number),
    Text(String),
    /// An array or an object.
    Other(String),
}

/// A number with all its digits. Variants are in sort order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    Negative(Reverse<Magnitude>),
    Zero,
    Positive(Magnitude),
}

/// The number of digits before the decimal point, and the digits without zeros around them.
type Magnitude = (i128, String);

impl Number {
    /// Parses digits with an optional sign, decimal point and exponent.
    fn parse(word: &str) -> Option<Self> {
        let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        let places = i128::from(exponent.parse::<i64>().ok()?) + whole.len() as i128
            - (digits.len() - significant.len()) as i128;
        let magnitude = (places, significant.trim_end_matches('0').to_owned());
        Some(match word.starts_with('-') {
            _ if significant.is_empty() => Self::Zero,
            true => Self::Negative(Reverse(magnitude)),
            false => Self::Positive(magnitude),
        })
    }
}

impl Comparable {
    /// The value of JSON text, or of a missing field.
    pub fn of(json: Option<&str>) -> Self {
        match json.map(str::trim_ascii) {
            None | Some("null") => Self::Null,
            Some("true") => Self::Truth(true),
            Some("false") => Self::Truth(false),
            Some(json) if json.starts_with('"') => {
                Self::of_word(&serde_json::from_str::<String>(json).unwrap_or_default())
            }
            Some(json) if json.starts_with(['{', '[']) => Self::Other(json.to_owned()),
            Some(json) => Self::of_word(json),
        }
    }

    /// A number, or text.
    pub fn of_word(word: &str) -> Self {
        Number::parse(word).map_or_else(|| Self::Text(word.to_owned()), Self::Number)
    }

    /// Compares two values of one kind. Returns `None` for values of different kinds.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        let is_same_kind = std::mem::discriminant(self) == std::mem::discriminant(other);
        is_same_kind.then(|| self.cmp(other))
    }

    /// The memory that the value takes apart from its own size.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Null | Self::Truth(_) | Self::Number(Number::Zero) => 0,
            Self::Number(Number::Negative(Reverse((_, text))) | Number::Positive((_, text)))
            | Self::Text(text)
            | Self::Other(text) => text.capacity(),
        }
    }
}

/// Returns the part of a JSON value at a path: names of fields and numbers of elements.
pub fn part<'j>(mut json: &'j str, path: &str) -> Option<&'j str> {
    for name in path.split('.') {
        json = match json.trim_ascii_start().as_bytes().first()? {
            b'{' => field(json, name)?,
            b'[' => {
                let elements: Vec<&RawValue> = serde_json::from_str(json).ok()?;
                elements.get(name.parse::<usize>().ok()?)?.get()
            }
            _ => return None,
        };
    }
    Some(json)
}

/// Returns the field of a JSON object with this name, the last if it is repeated.
pub fn field<'j>(json: &'j str, name: &str) -> Option<&'j str> {
    let fields: HashMap<String, &RawValue> = serde_json::from_str(json).ok()?;
    fields.get(name).map(|value| value.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_total_order() {
        let sorted = [
            "null", "false", "true", "-7", "1", "\"2\"", "2.5", "10", "1e3", "\"a\"", "\"b\"",
            "[1]",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                let order = Comparable::of(Some(one)).cmp(&Comparable::of(Some(other)));
                assert_eq!(order, at.cmp(&other_at), "{one} {other}");
            }
        }
        assert_eq!(Comparable::of(None), Comparable::of(Some("null")));
        // Doubles cannot hold all of these numbers.
        let exact = [
            "-1e400",
            "-9007199254740993",
            "-9007199254740992.5",
            "-1e-400",
            "0",
            "1e-400",
            "0.1",
            "0.10000000000000001",
            "9007199254740992",
            "9007199254740992.5",
            "9007199254740993",
            "340282366920938463463374607431768211454",
            "340282366920938463463374607431768211455",
            "1e400",
            "1e401",
        ];
        for (at, one) in exact.iter().enumerate() {
            for (other_at, other) in exact.iter().enumerate() {
                let order = Comparable::of(Some(one)).compare(&Comparable::of(Some(other)));
                assert_eq!(order, Some(at.cmp(&other_at)), "{one} {other}");
            }
        }
        for same in ["-0.0", "0e9", "00", "+0", ".0", "0."] {
            assert_eq!(Comparable::of_word(same), Comparable::of_word("0"), "{same}");
        }
        for same in ["1e2", "1.00e+02", "0100", "1000e-1"] {
            assert_eq!(Comparable::of_word(same), Comparable::of_word("100"), "{same}");
        }
        for text in ["", "1.2.3", "inf", "NaN", "e", "-", ".", "1e", "e1", "--1", "1e1.5", "٣"] {
            assert_eq!(Comparable::of_word(text), Comparable::Text(text.to_owned()));
        }
    }

    #[test]
    fn parts_are_found_by_their_path() {
        let json = r#"{"a": {"b": [1, {"c": "x"}]}, "d": 2}"#;
        for (path, found) in [
            ("d", Some("2")),
            ("a.b.0", Some("1")),
            ("a.b.1.c", Some("\"x\"")),
            ("a.x", None),
            ("d.x", None),
            ("a.b.x", None),
        ] {
            assert_eq!(part(json, path), found, "{path}");
        }
        // Repeated fields and deep values do not hide other fields.
        let repeated = r#"{"a": 1, "b": 2, "a": 3}"#;
        assert_eq!([part(repeated, "b"), part(repeated, "a")], [Some("2"), Some("3")]);
        let deep = format!(r#"{{"x": {}{}, "b": 2}}"#, "[".repeat(500), "]".repeat(500));
        assert_eq!(part(&deep, "b"), Some("2"));
    }
}
