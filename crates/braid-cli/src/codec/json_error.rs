//! What is wrong with a text that is to be JSON, in words for whoever wrote it.

use serde_json::Error;
use serde_json::error::Category;

/// What the parser says of malformed text, and what that means. It ends the first part with the place.
const MEANINGS: &[(&str, &str)] = &[
    ("EOF while parsing a list", "it ends within an array, whose ] is missing"),
    ("EOF while parsing an object", "it ends within an object, whose } is missing"),
    ("EOF while parsing a string", "it ends within a text, whose closing \" is missing"),
    ("EOF while parsing a value", "it ends where a value must stand"),
    ("expected `:`", "a colon is missing after the name of a field"),
    ("expected `,` or `]`", "a comma or ] is missing"),
    ("expected `,` or `}`", "a comma or } is missing"),
    ("expected ident", "a word stands here that is none of true, false and null"),
    (
        "expected value",
        "a value must stand here: a number, a text between \" and \", true, false, null, an array or an object",
    ),
    ("key must be a string", "the name of a field must stand between \" and \""),
    ("trailing comma", "something must follow a comma"),
    ("trailing characters", "something follows where it should end"),
    (
        "invalid escape",
        "what follows a \\ must be one of \" \\ / b f n r t, or u and four hexadecimal digits",
    ),
    ("invalid number", "a number is not written as JSON has it, such as 7, -1.5 or 2e9"),
    ("number out of range", "a number is too large"),
    (
        "control character",
        "a control character stands in a text; it is written with a \\, such as \\n, \\t or \\u0001",
    ),
    ("lone leading surrogate", HALF_PAIR),
    ("unexpected end of hex escape", HALF_PAIR),
    ("invalid unicode code point", HALF_PAIR),
    ("recursion limit exceeded", "it is nested too deeply"),
];
const HALF_PAIR: &str = "a \\u with a number from d800 to dfff is half a character; write both halves, \
                         or the character itself";

/// What an error says, and the place in the text that was parsed, of which a line is not said if there is only one.
pub fn with_place(error: &Error) -> String {
    match (error.line(), error.column()) {
        (0, _) => without_place(error),
        (1, column) => format!("{}, at column {column}", without_place(error)),
        (line, column) => {
            format!("{}, at column {column} of its line {line}", without_place(error))
        }
    }
}

/// What an error says, without the place in the text that was parsed, which may be a part of what the reader knows.
pub fn without_place(error: &Error) -> String {
    let said = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let said = said.strip_suffix(&place).unwrap_or(&said);
    // What we say ourselves of well-formed text.
    if error.classify() == Category::Data {
        return said.to_owned();
    }
    let meaning = MEANINGS.iter().find(|(begin, _)| said.starts_with(begin));
    format!("it is not valid JSON: {}", meaning.map_or(said, |(_, meaning)| meaning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_json_is_reported_in_words_and_with_its_place() {
        let said =
            |text: &str| with_place(&serde_json::from_str::<serde_json::Value>(text).unwrap_err());
        for (text, meaning, column) in [
            ("[1", "it ends within an array", 2),
            (r#"{"a":1"#, "it ends within an object", 6),
            (r#"{"a"#, "it ends within a text", 3),
            ("nul", "it ends where a value", 3),
            (r#"{"a" 1}"#, "a colon is missing", 6),
            ("[1 2]", "a comma or ]", 4),
            (r#"{"a":1 "b":2}"#, "a comma or }", 8),
            (r#"{"a":tru}"#, "none of true, false and null", 9),
            (r#"{"a":NaN}"#, "a value must stand here", 6),
            (r#"{"a":1,}"#, "something must follow a comma", 8),
            ("{a:1}", "the name of a field", 2),
            ("{} x", "something follows", 4),
            (r#"{"a":"\q"}"#, "what follows a \\", 8),
            (r#"{"a":01}"#, "a number is not written", 7),
            ("{\"a\":\"\u{1}\"}", "a control character", 7),
        ] {
            let said = said(text);
            assert!(
                said.starts_with("it is not valid JSON: ") && said.contains(meaning),
                "{text}: {said}"
            );
            assert!(said.ends_with(&format!(", at column {column}")), "{text}: {said}");
        }
        assert!(said("{\n\"a\" 1}").ends_with("a field, at column 5 of its line 2"));
        for text in [r#""\ud800""#, r#""\ud800\u0041""#, r#""\udc00""#] {
            let said = without_place(&serde_json::from_str::<String>(text).unwrap_err());
            assert!(said.contains("half a character"), "{text}: {said}");
        }
    }

    #[test]
    fn every_word_of_the_parser_has_a_meaning() {
        // Whatever is cut out of a text that has all kinds of values, or put in.
        let whole = r#"{"a":[1,-2.5e3,true,false,null,"\n\u00e9\ud83d\ude00"],"b":{},"c":""}"#;
        let mut looked_at = 0;
        let mut look = |text: &str| {
            if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
                looked_at += 1;
                let said = without_place(&error);
                let meant = MEANINGS.iter().any(|(_, meaning)| said.ends_with(meaning));
                assert!(meant, "{text}: {said}");
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
