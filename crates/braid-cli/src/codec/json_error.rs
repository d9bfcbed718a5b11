//! Errors of malformed JSON, in words for its author.

use serde_json::Error;
use serde_json::error::Category;

/// Messages of the parser without their position, and the messages that replace them.
const MESSAGES: &[(&str, &str)] = &[
    ("EOF while parsing a list", "it ends within an array; ] is missing"),
    ("EOF while parsing an object", "it ends within an object; } is missing"),
    ("EOF while parsing a string", "it ends within a string; the closing \" is missing"),
    ("EOF while parsing a value", "it ends where a value is expected"),
    ("expected `:`", "a colon is missing after the name of a field"),
    ("expected `,` or `]`", "a comma or ] is missing"),
    ("expected `,` or `}`", "a comma or } is missing"),
    ("expected ident", "expected true, false or null"),
    (
        "expected value",
        "expected a value: a number, a string in double quotes, true, false, null, an array or an \
         object",
    ),
    ("key must be a string", "the name of a field must be in double quotes"),
    ("trailing comma", "a comma is followed by nothing"),
    ("trailing characters", "text follows the end of the value"),
    (
        "invalid escape",
        "a \\ must be followed by one of \" \\ / b f n r t, or by u and four hexadecimal digits",
    ),
    ("invalid number", "a number has the wrong form; expected a number such as 7, -1.5 or 2e9"),
    ("number out of range", "a number is too large"),
    (
        "control character",
        "a string has a control character; write it as an escape, such as \\n, \\t or \\u0001",
    ),
    ("lone leading surrogate", HALF_PAIR),
    ("unexpected end of hex escape", HALF_PAIR),
    ("invalid unicode code point", HALF_PAIR),
    ("recursion limit exceeded", "it is nested too deeply"),
];
const HALF_PAIR: &str = "an escape from \\ud800 to \\udfff is half a character; write both \
    halves, or the character itself";

/// The message of an error, with its column, and its line if that is not the first.
pub fn with_place(error: &Error) -> String {
    match (error.line(), error.column()) {
        (0, _) => without_place(error),
        (1, column) => format!("{}, at column {column}", without_place(error)),
        (line, column) => {
            format!("{}, at column {column} of line {line}", without_place(error))
        }
    }
}

/// The message of an error without its position, for text whose position the user does not know.
pub fn without_place(error: &Error) -> String {
    let said = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let said = said.strip_suffix(&place).unwrap_or(&said);
    // An error of our own about well-formed JSON.
    if error.classify() == Category::Data {
        return said.to_owned();
    }
    let meaning = MESSAGES.iter().find(|(begin, _)| said.starts_with(begin));
    format!("it is not valid JSON: {}", meaning.map_or(said, |(_, meaning)| meaning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_json_is_reported_with_its_column() {
        let said =
            |text: &str| with_place(&serde_json::from_str::<serde_json::Value>(text).unwrap_err());
        for (text, meaning, column) in [
            ("[1", "it ends within an array", 2),
            (r#"{"a":1"#, "it ends within an object", 6),
            (r#"{"a"#, "it ends within a string", 3),
            ("nul", "it ends where a value", 3),
            (r#"{"a" 1}"#, "a colon is missing", 6),
            ("[1 2]", "a comma or ]", 4),
            (r#"{"a":1 "b":2}"#, "a comma or }", 8),
            (r#"{"a":tru}"#, "expected true, false or null", 9),
            (r#"{"a":NaN}"#, "expected a value", 6),
            (r#"{"a":1,}"#, "a comma is followed by nothing", 8),
            ("{a:1}", "the name of a field", 2),
            ("{} x", "text follows", 4),
            (r#"{"a":"\q"}"#, "a \\ must be followed", 8),
            (r#"{"a":01}"#, "a number has the wrong form", 7),
            ("{\"a\":\"\u{1}\"}", "a string has a control character", 7),
        ] {
            let said = said(text);
            assert!(
                said.starts_with("it is not valid JSON: ") && said.contains(meaning),
                "{text}: {said}"
            );
            assert!(said.ends_with(&format!(", at column {column}")), "{text}: {said}");
        }
        assert!(said("{\n\"a\" 1}").ends_with("a field, at column 5 of line 2"));
        for text in [r#""\ud800""#, r#""\ud800\u0041""#, r#""\udc00""#] {
            let said = without_place(&serde_json::from_str::<String>(text).unwrap_err());
            assert!(said.contains("half a character"), "{text}: {said}");
        }
    }

    #[test]
    fn every_parser_message_is_replaced() {
        // Deletions from and insertions into a text with all kinds of values.
        let whole = r#"{"a":[1,-2.5e3,true,false,null,"\n\u00e9\ud83d\ude00"],"b":{},"c":""}"#;
        let mut looked_at = 0;
        let mut look = |text: &str| {
            if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
                looked_at += 1;
                let said = without_place(&error);
                let replaced = MESSAGES.iter().any(|(_, meaning)| said.ends_with(meaning));
                assert!(replaced, "{text}: {said}");
            }
        };
        for place in 0..whole.len() {
            look(&whole[..place]);
            look(&format!("{}{}", &whole[..place], &whole[place + 1..]));
            for other in ["x", "\"", "\\", ",", "]", "}", "0", "e", "-", "\u{1}", "[", "{", "\\u"] {
                look(&format!("{}{other}{}", &whole[..place], &whole[place..]));
            }
        }
        look(&"[".repeat(1000));
        look("1e999");
        assert!(looked_at > 500, "{looked_at}");
    }
}
