//! Conditions of `--where`: a column, an operator and a value.

use std::cmp::Ordering;

use super::value::Comparable;

/// A condition that a record satisfies or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub column: String,
    operator: Operator,
    value: Comparable,
    /// The text of the value.
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Contains,
}

/// The operators. An operator comes after those that begin with it.
const OPERATORS: [(&str, Operator); 8] = [
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("==", Operator::Equal),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("~", Operator::Contains),
];

const EXAMPLES: &str = "write a column, one of = != < <= > >= ~, and a value, such as 'age >= 18', \
                        'name = \"Ada\"' or 'city ~ burg'";

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// If it has another form, with examples.
    pub fn parse(word: &str) -> Result<Self, String> {
        let quoted = word.trim_start().strip_prefix('"');
        let (column, rest) = match quoted.and_then(|rest| rest.split_once('"')) {
            Some((column, rest)) => (column, rest.trim_start()),
            None => {
                let at = word.find(['!', '<', '>', '=', '~']).ok_or(EXAMPLES)?;
                (word[..at].trim(), &word[at..])
            }
        };
        let found = OPERATORS
            .iter()
            .find_map(|(text, operator)| Some((*operator, rest.strip_prefix(text)?.trim())));
        let (operator, value) = found.filter(|_| !column.is_empty()).ok_or(EXAMPLES)?;
        let (text, value) = match value.chars().next() {
            Some(mark @ ('"' | '\'')) => {
                let text = value[1..].strip_suffix(mark).ok_or_else(|| {
                    format!(
                        "the quotation mark {mark} is not closed; if it belongs to the text, put \
                         the text in quotation marks of the other kind"
                    )
                })?;
                (text, Comparable::Text(text.to_owned()))
            }
            _ if value == "null" && !matches!(operator, Operator::Equal | Operator::NotEqual) => {
                return Err("null can only be compared by = and !=".to_owned());
            }
            _ if matches!(value, "null" | "true" | "false") => (value, Comparable::of(Some(value))),
            _ => (value, Comparable::of_word(value)),
        };
        let (column, text) = (column.to_owned(), text.to_owned());
        Ok(Self { column, operator, value, text })
    }

    /// Returns whether the JSON value of the column satisfies the condition. Text and numbers are
    /// compared as numbers if both are. A missing value equals only null, and is not ordered.
    pub fn is_met(&self, json: Option<&str>) -> bool {
        let text = json.map(str::trim_ascii).filter(|json| *json != "null").map(unquoted);
        let ordering = match &self.value {
            // The condition quotes its value, so a number is compared as text too.
            Comparable::Text(other) => text.as_ref().map(|text| text.cmp(other)),
            other => Comparable::of(json).compare(other),
        };
        match self.operator {
            Operator::Contains => text.is_some_and(|text| text.contains(&self.text)),
            Operator::Equal => ordering == Some(Ordering::Equal),
            Operator::NotEqual => ordering != Some(Ordering::Equal),
            Operator::Less => ordering == Some(Ordering::Less),
            Operator::Greater => ordering == Some(Ordering::Greater),
            Operator::LessOrEqual => ordering.is_some_and(Ordering::is_le),
            Operator::GreaterOrEqual => ordering.is_some_and(Ordering::is_ge),
        }
    }
}

/// The text of a JSON value.
fn unquoted(json: &str) -> String {
    serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_parsed() {
        let column = |word: &str| Condition::parse(word).unwrap().column;
        assert_eq!(column("age>=18"), "age");
        assert_eq!(column(" \"a = b\" = 7"), "a = b");
        assert_eq!(column("address.city ~ burg"), "address.city");
        for word in ["", "age", "= 7", "age ! 7", "\"age\" 7"] {
            assert!(Condition::parse(word).unwrap_err().contains("such as 'age >= 18'"), "{word}");
        }
        assert!(Condition::parse("age < null").unwrap_err().contains("null"));
        for word in ["name = \"Ada", "name = 'Ada", "name = \"Ada'", "name = \""] {
            let said = Condition::parse(word).unwrap_err();
            assert!(said.contains("quotation mark"), "{word}: {said}");
        }
        // A mark within the text, and one in marks of the other kind.
        for word in ["size = 5\"", "size = '5\"'"] {
            assert!(Condition::parse(word).unwrap().is_met(Some("\"5\\\"\"")), "{word}");
        }
    }

    #[test]
    fn values_are_compared_by_their_kind() {
        let is_met = |condition: &str, json: &str| {
            let json = Some(json).filter(|json| !json.is_empty());
            Condition::parse(condition).unwrap().is_met(json)
        };
        for (condition, met, unmet) in [
            ("a = 7", vec!["7", "\"7\"", "7.0"], vec!["70", "\"x\"", "null", "", "true"]),
            ("a != 7", vec!["8", "\"x\"", "null", ""], vec!["7", "\"7\""]),
            ("a < 10", vec!["9", "-1", "\"9\"", "9.5"], vec!["10", "\"x\"", "null", ""]),
            (
                "a >= 18446744073709551615",
                vec!["18446744073709551615"],
                vec!["18446744073709551614"],
            ),
            ("a = \"7\"", vec!["7", "\"7\""], vec!["\"07\"", "7.0"]),
            ("a > b", vec!["\"c\""], vec!["\"a\"", "null"]),
            ("a ~ burg", vec!["\"Hamburg\"", "[\"burg\"]"], vec!["\"Bonn\"", "null", ""]),
            ("a ~ 1", vec!["210"], vec!["20"]),
            ("a ~ 007", vec!["\"007\"", "\"1007\""], vec!["7", "\"07\""]),
            ("a ~ 50", vec!["7.50", "\"7.50\""], vec!["7.5"]),
            ("a = 9007199254740993", vec!["9007199254740993"], vec!["9007199254740992.0"]),
            ("a = null", vec!["null", ""], vec!["0", "\"\"", "\"null\""]),
            ("a != null", vec!["0", "\"\""], vec!["null", ""]),
            ("a = true", vec!["true"], vec!["false", "\"true\"", "1"]),
            ("a = ", vec!["\"\""], vec!["null", "0"]),
        ] {
            for json in met {
                assert!(is_met(condition, json), "{condition}: {json}");
            }
            for json in unmet {
                assert!(!is_met(condition, json), "{condition}: {json}");
            }
        }
    }
}
