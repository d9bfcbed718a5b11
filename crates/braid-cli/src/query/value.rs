//! Order and equality of JSON values in conditions and sort orders.

use std::cmp::Ordering;

use serde_json::value::RawValue;

/// A JSON value in the form in which it is compared. Variants are in sort order. Text that is a
/// number is compared as a number, because CSV files have only text.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum Comparable {
    /// `null`, or no field.
    Null,
    Truth(bool),
    Whole(i128),
    Fraction(f64),
    Text(String),
    /// An array or an object.
    Other(String),
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
        if let Ok(whole) = word.parse() {
            return Self::Whole(whole);
        }
        let looks_like_number = word.contains(|c: char| c.is_ascii_digit())
            && word.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        match word.parse() {
            Ok(number) if looks_like_number => Self::Fraction(number),
            _ => Self::Text(word.to_owned()),
        }
    }

    /// Compares two values of one kind. Returns `None` for values of different kinds.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(one), Self::Fraction(other)) => (*one as f64).partial_cmp(other),
            (Self::Fraction(one), Self::Whole(other)) => one.partial_cmp(&(*other as f64)),
            _ if std::mem::discriminant(self) != std::mem::discriminant(other) => None,
            (Self::Fraction(one), Self::Fraction(other)) => one.partial_cmp(other),
            _ => self.partial_cmp(other),
        }
    }

    /// A total order of all values: null, truth values, numbers, text, others.
    pub fn sort(&self, other: &Self) -> Ordering {
        self.compare(other).or_else(|| self.partial_cmp(other)).unwrap_or(Ordering::Equal)
    }

    /// The text of a value, for searches within it.
    pub fn contains(&self, part: &str) -> bool {
        match self {
            Self::Null => false,
            Self::Truth(truth) => truth.to_string().contains(part),
            Self::Whole(number) => number.to_string().contains(part),
            Self::Fraction(number) => number.to_string().contains(part),
            Self::Text(text) | Self::Other(text) => text.contains(part),
        }
    }
}

/// Returns the part of a JSON value at a path: names of fields and numbers of elements.
pub fn part<'j>(mut json: &'j str, path: &str) -> Option<&'j str> {
    for name in path.split('.') {
        let json_now = json.trim_ascii_start();
        let found: Option<&RawValue> = match json_now.as_bytes().first()? {
            b'{' => {
                let fields = crate::codec::json_text::Fields::parse(json_now).ok()?;
                json = fields.get(name)?;
                continue;
            }
            b'[' => {
                let elements: Vec<&RawValue> = serde_json::from_str(json_now).ok()?;
                elements.get(name.parse::<usize>().ok()?).copied()
            }
            _ => None,
        };
        json = found?.get();
    }
    Some(json)
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
                let order = Comparable::of(Some(one)).sort(&Comparable::of(Some(other)));
                assert_eq!(order, at.cmp(&other_at), "{one} {other}");
            }
        }
        assert_eq!(Comparable::of(None), Comparable::of(Some("null")));
        for text in ["", "1.2.3", "inf", "NaN", "e", "-"] {
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
    }
}
