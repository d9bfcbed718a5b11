//! Keys as words, text and JSON, compared with the encoding of programs.

use std::cmp::Reverse;

use serde_json::json;

use super::*;

fn same<K: Key>(key: &K, word: &str, shown: &Value) {
    let kind = KeyType::named(&K::type_name());
    assert!(!matches!(kind, KeyType::Own(_)), "{}", K::type_name());
    let mut bytes = KeyBuffer::new();
    key.encode(&mut bytes);
    assert_eq!(kind.encode(word).unwrap(), bytes, "{word}");
    assert_eq!(kind.decode(&bytes).unwrap(), *shown, "{word}");
    let mut text = Vec::new();
    kind.append_text(&bytes, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(kind.encode(&text).unwrap(), bytes, "{word} as {text}");
}

#[test]
fn text_that_is_json_is_kept_in_optional_keys() {
    for text in ["null", "7", "1e400", "true", "[1]", "{}", "\"a\"", "\"", "", " ", "0xzz"] {
        let quoted = json!(text).to_string();
        same(&Some(text.to_owned()), &quoted, &json!(text));
        same(&Reverse(text.to_owned()), &quoted, &json!(text));
        same(&Some((text.to_owned(), 7_u8)), &format!("[{quoted},7]"), &json!([text, 7]));
    }
    same(&Some("7".to_owned()), "7", &json!("7"));
    same(&Some("null".to_owned()), "\"null\"", &json!("null"));
    same(&Some(u128::MAX), &u128::MAX.to_string(), &json!(u128::MAX.to_string()));
    same(&Some(f64::NAN), "NaN", &json!("NaN"));
    same(&Reverse(Some(-0.0_f64)), "-0.0", &json!(-0.0));
}

#[test]
fn encoding_equals_that_of_programs() {
    same(&"Ljubljana".to_owned(), "Ljubljana", &json!("Ljubljana"));
    same(&"7".to_owned(), "7", &json!("7"));
    same(&7_u8, "7", &json!(7));
    same(&-7_i64, "-7", &json!(-7));
    same(&1.5_f64, "1.5", &json!(1.5));
    same(&true, "true", &json!(true));
    same(&(u64::from(u32::MAX) + 1), "4294967296", &json!(4_294_967_296_u64));
    same(&vec![0_u8, 255], "0x00ff", &json!("0x00ff"));
    same(&[1_u8, 2], "0x0102", &json!("0x0102"));
    same(&(7_u64, "a\0b".to_owned()), r#"[7, "a\u0000b"]"#, &json!([7, "a\0b"]));
    same(&("a\0b".to_owned(), 7_i32), r#"["a\u0000b", 7]"#, &json!(["a\0b", 7]));
    same(&(vec![0_u8], vec![0_u8]), r#"["0x00", "0x00"]"#, &json!(["0x00", "0x00"]));
    same(&Some("a".to_owned()), r#""a""#, &json!("a"));
    same(&None::<u64>, "null", &Value::Null);
    same(&Reverse("a".to_owned()), r#""a""#, &json!("a"));
    same(&(Reverse(7_u64), Some(3_u8)), "[7, 3]", &json!([7, 3]));
    same(&((1_u8, "x".to_owned()), None::<bool>), r#"[[1, "x"], null]"#, &json!([[1, "x"], null]));
}

#[test]
fn uuids_have_dashes_and_time_stamps_are_rfc_3339() {
    let both = |kind: &str, word: &str, bytes: &[u8]| {
        let kind = KeyType::named(kind);
        assert_eq!(&kind.encode(word).unwrap()[..], bytes, "{word}");
        let mut shown = Vec::new();
        kind.append_text(bytes, &mut shown).unwrap();
        assert_eq!(String::from_utf8(shown).unwrap(), word);
    };
    let uuid: Vec<u8> = (0x10..0x20).collect();
    let dashed = "10111213-1415-1617-1819-1a1b1c1d1e1f";
    both("uuid", dashed, &uuid);
    let hexadecimal = to_hex(&uuid);
    assert_eq!(&KeyType::named("uuid").encode(&hexadecimal).unwrap()[..], uuid);
    both("(uuid, u8)", &format!("[\"{dashed}\",7]"), &[&uuid[..], &[7]].concat());
    for (word, seconds, nanoseconds) in [
        ("1970-01-01T00:00:00Z", 0_i64, 0_u32),
        ("1969-12-31T23:59:59.500Z", -1, 500_000_000),
        ("2026-01-31T12:00:00.000000001Z", 1_769_860_800, 1),
        ("+12026-01-31T12:00:00Z", 317_339_380_800, 0),
        ("-0001-01-01T00:00:00Z", -62_198_755_200, 0),
    ] {
        let mut bytes = KeyBuffer::new();
        (seconds, nanoseconds).encode(&mut bytes);
        both("time stamp in UTC", word, &bytes);
        both(
            "(time stamp in UTC, str)",
            &format!("[\"{word}\",\"x\"]"),
            &[&bytes[..], b"x"].concat(),
        );
    }
    let refused = KeyType::named("time stamp in UTC").encode("yesterday").unwrap_err();
    assert!(format!("{refused:#}").contains("2026-01-31T12:00:00Z"), "{refused:#}");
    assert!(KeyType::named("uuid").decode(&[0; 15]).is_err());
    assert!(KeyType::named("time stamp in UTC").decode(&[0; 12]).is_err(), "no such year");
}

fn same_bytes(kind: &KeyType, bytes: &[u8]) {
    assert_eq!(kind.decode(bytes).unwrap(), json!(to_hex(bytes)), "{kind:?}");
    assert_eq!(&kind.encode(&to_hex(bytes)).unwrap()[..], bytes, "{kind:?}");
}

#[test]
fn known_parts_are_shown_beside_opaque_ones() {
    let same = |name: &str, word: &str, bytes: &[u8]| {
        let kind = KeyType::named(name);
        assert_eq!(kind.decode(bytes).unwrap().to_string(), word, "{name}");
        assert_eq!(&kind.encode(word).unwrap()[..], bytes, "{name}");
    };
    same("(shop.queue, u16)", r#"["0x0201",7]"#, &[2, 1, 0, 7]);
    same("(u8, shop.queue)", r#"[7,"0x0201"]"#, &[7, 2, 1]);
    same("(u8, shop.queue, u8, bool)", r#"[7,"0x02",1,true]"#, &[7, 2, 1, 1]);
    same("shop.order(u8, str)", r#"[7,"a"]"#, &[7, b'a']);
    same("shop.line(shop.order(u8, u8), shop.queue)", r#"[[7,8],"0x02"]"#, &[7, 8, 2]);
    same("(u8, Option<shop.queue>)", r#"[7,"0x02"]"#, &[7, 1, 2]);
    assert!(KeyType::named("(shop.queue, u16)").decode(&[1]).is_err());
    // A type with the name of a struct but another encoding.
    for kind in ["shop.id(u64)", "(u8, shop.id(u64))"] {
        same_bytes(&KeyType::named(kind), &[1, 2]);
        same_bytes(&KeyType::named(kind), &[0; 12]);
    }
}

#[test]
fn prefixes_are_first_parts_or_bytes() {
    let prefix = |name: &str, word: &str| KeyType::named(name).encode_prefix(word);
    let begins = |name: &str, word: &str, key: &str| {
        let key = KeyType::named(name).encode(key).unwrap();
        key.starts_with(&prefix(name, word).unwrap())
    };
    assert!(begins("str", "Lj", "Ljubljana"));
    assert!(begins("bytes", "0x00", "0x00ff"));
    assert!(begins("(str, u64)", r#"["eu"]"#, r#"["eu", 7]"#));
    assert!(!begins("(str, u64)", r#"["e"]"#, r#"["eu", 7]"#));
    assert!(begins("(u64, str)", r#"[7, "a"]"#, r#"[7, "ab"]"#));
    assert!(!begins("(u64, str)", "[8]", r#"[7, "ab"]"#));
    assert!(begins("(u64, str)", "[]", r#"[7, "ab"]"#));
    assert!(format!("{:#}", prefix("(str, u64)", "eu").unwrap_err()).contains(r#"["text"]"#));
    assert!(prefix("(str, u64)", r#"["eu", 7, 8]"#).is_err());
    assert!(prefix("(u64, str)", r#"["eu"]"#).is_err());
    assert!(format!("{:#}", prefix("u64", "7").unwrap_err()).contains("--from and --to"));
}

#[test]
fn numbers_beyond_json_become_strings() {
    let kind = KeyType::named("u128");
    let most = u128::MAX.to_string();
    assert_eq!(kind.decode(&kind.encode(&most).unwrap()).unwrap(), json!(most));
    assert_eq!(KeyType::named("(u128, u8)").encode(&format!("[\"{most}\", 1]")).unwrap().len(), 17);
    // A JSON number keeps every digit, in any part of the key.
    let least = i128::MIN.to_string();
    for (kind, number) in [("u128", &most), ("i128", &least), ("u64", &u64::MAX.to_string())] {
        let bytes = KeyType::named(kind).encode(number).unwrap();
        let pair = KeyType::named(&format!("({kind}, u8)")).encode(&format!("[{number}, 1]"));
        assert_eq!(pair.unwrap()[..], [&bytes[..], &[1]].concat());
        let some = KeyType::named(&format!("Option<{kind}>")).encode(number).unwrap();
        assert_eq!(some[..], [&[1], &bytes[..]].concat());
        let said = KeyType::named("(u32, u8)").encode(&format!("[{number}, 1]")).unwrap_err();
        assert!(
            format!("{said:#}").contains(&format!("\"{number}\" is not a valid u32")),
            "{said:#}"
        );
    }
    for (kind, word) in [("f64", "1e400"), ("f32", "1e39"), ("f32", "-1e39")] {
        assert!(KeyType::named(kind).encode(word).is_err(), "{word}");
        assert!(KeyType::named(&format!("({kind}, u8)")).encode(&format!("[{word}, 1]")).is_err());
    }
    let kind = KeyType::named("f64");
    assert_eq!(kind.decode(&kind.encode("inf").unwrap()).unwrap(), json!("inf"));
}

#[test]
fn fractions_and_large_numbers_stay_numbers() {
    let both = |kind: &str, word: &str, shown: &str| {
        let kind = KeyType::named(kind);
        let key = kind.encode(word).unwrap();
        let mut json = Vec::new();
        kind.append_json(&key, &mut json).unwrap();
        assert_eq!(String::from_utf8(json).unwrap(), shown, "{word}");
        assert_eq!(kind.encode(shown).unwrap(), key, "{word}");
    };
    for kind in ["f64", "f32"] {
        both(kind, "1e+23", "1e+23");
        both(kind, "100000000000000000000000", "1e+23");
        both(kind, "0.00000095", "9.5e-7");
        both(kind, "-0.0", "-0.0");
        both(kind, "1.0", "1");
        both(kind, "16777216", "16777216");
    }
    both("f32", "0.1", "0.1");
    both("f64", "5e-324", "5e-324");
    both("f64", "1.7976931348623157e308", "1.7976931348623157e+308");
    both("(f64, u8)", "[1e+23, 7]", "[1e+23,7]");
    // Any number, in any notation.
    let (mut bits, pair) = (1_u64, KeyType::named("(f64, u8)"));
    for _ in 0..10_000 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = f64::from_bits(bits);
        if number.is_finite() {
            let mut key = KeyBuffer::new();
            (number, 7_u8).encode(&mut key);
            for word in [format!("[{number:e}, 7]"), pair.decode(&key).unwrap().to_string()] {
                assert_eq!(pair.encode(&word).unwrap(), key, "{word}");
            }
        }
    }
}

#[test]
fn wrong_keys_are_rejected_with_an_example() {
    let refused =
        |kind: &str, word: &str| format!("{:#}", KeyType::named(kind).encode(word).unwrap_err());
    assert!(
        refused("u8", "256")
            .ends_with("\"256\" is not a valid u8: expected a whole number from 0 to 255")
    );
    assert!(refused("u64", "").contains(
        "\"\" is not a valid u64: expected a whole number from 0 to 18446744073709551615"
    ));
    assert!(
        refused("i8", "1e+23")
            .contains("\"1e+23\" is not a valid i8: expected a whole number from -128 to 127")
    );
    assert!(
        refused("f64", "x")
            .contains("\"x\" is not a valid f64: expected a number such as 7, -1.5 or 2e9")
    );
    assert!(refused("bool", "yes").contains("\"yes\" is not a valid bool: expected true or false"));
    assert!(refused("bytes", "ff").contains("0x00ff"));
    assert!(refused("bytes", "0xf").contains("even number of hexadecimal digits"));
    assert!(refused("bytes", "0xgg").contains("hexadecimal"));
    assert!(refused("[u8; 2]", "0x010203").contains("3 bytes instead of 2"));
    assert!(refused("(u64, str)", "7").contains(r#"[7,"text"]"#));
    assert!(refused("(u64, str)", "7, x").contains(r#"[7,"text"]"#));
    assert!(refused("(u64, str)", r#"["a", "b"]"#).contains("\"a\" is not a valid u64"));
    assert!(refused("shop.queue", "urgent").contains("shop.queue"));
}

#[test]
fn opaque_keys_are_shown_as_bytes() {
    let unknown =
        ["shop.queue", "(shop.queue, str)", "Reverse<shop.queue>", "(u64, ", "(, u64)", "a, b"];
    for name in unknown.into_iter().chain(["Option<", "(u64", "[u8; x]", ""]) {
        let kind = KeyType::named(name);
        assert_eq!(kind, KeyType::Own(name.to_owned()));
        assert_eq!(kind.decode(&[1, 2]).unwrap(), json!("0x0102"));
        assert_eq!(&kind.encode("0x0102").unwrap()[..], [1, 2]);
    }
}
