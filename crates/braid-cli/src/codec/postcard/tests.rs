//! The encoding equals that of programs, and malformed bytes are errors.

use std::collections::BTreeMap;

use braiddb::{DecodeError, Postcard, Schema, Value};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

fn kind<V: Value + ?Sized>() -> PostcardType {
    let shapes: Vec<ValueShape> = V::shape().into_iter().collect();
    assert_eq!(shapes.len(), 1);
    PostcardType::new(V::type_name().strip_prefix("postcard ").unwrap(), &shapes)
}

fn json(kind: &PostcardType, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    kind.append_json(bytes, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The encoding equals that of programs in both directions.
fn same<T: Schema>(value: &T, expected: &str) {
    let (kind, bytes) = (kind::<Postcard<T>>(), <Postcard<T>>::encode(value).unwrap());
    assert_eq!(json(&kind, &bytes), expected);
    assert_eq!(kind.encode_json(expected).unwrap(), *bytes, "{expected}");
    let mut text = Vec::new();
    kind.append_text(&bytes, &mut text).unwrap();
    assert_eq!(kind.encode(str::from_utf8(&text).unwrap()).unwrap(), *bytes, "{expected}");
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Payment {
    Cash,
    Card(String),
    Transfer { iban: String, days: u8 },
    Split(Box<Payment>, Box<Payment>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    total: i128,
    weight: f64,
    paid: Option<bool>,
    note: Option<Option<String>>,
    lines: Vec<(char, u32)>,
    stock: BTreeMap<u16, Vec<u8>>,
    pairs: BTreeMap<(u8, u8), ()>,
    payment: Payment,
    parts: Vec<Order>,
}

impl Schema for Order {
    const NAME: &'static str = "order";
    const VERSION: u32 = 3;
    const OLDEST: u32 = 1;

    fn upgrade(_: u32, _: &[u8]) -> Result<Self, DecodeError> {
        unreachable!("only the command decodes older versions")
    }
}

fn order() -> Order {
    Order {
        id: u64::MAX,
        total: i128::MIN,
        weight: -0.1,
        paid: Some(true),
        note: Some(None),
        lines: vec![('é', 7), ('"', 0)],
        stock: [(1, vec![0, 255]), (300, vec![])].into(),
        pairs: [((1, 2), ())].into(),
        payment: Payment::Split(
            Box::new(Payment::Card("a\nb".to_owned())),
            Box::new(Payment::Transfer { iban: String::new(), days: 3 }),
        ),
        parts: vec![],
    }
}

const JSON: &str = "{\"id\":18446744073709551615,\
    \"total\":-170141183460469231731687303715884105728,\"weight\":-0.1,\"paid\":true,\
    \"note\":{\"Some\":null},\"lines\":[[\"é\",7],[\"\\\"\",0]],\
    \"stock\":{\"1\":[0,255],\"300\":[]},\"pairs\":[[[1,2],null]],\
    \"payment\":{\"Split\":[{\"Card\":\"a\\nb\"},{\"Transfer\":{\"iban\":\"\",\"days\":3}}]},\
    \"parts\":[]}";

#[test]
fn values_equal_those_of_programs() {
    same(&order(), JSON);
    let nested = Order { parts: vec![order(), order()], payment: Payment::Cash, ..order() };
    let text = JSON.replace("\"parts\":[]", &format!("\"parts\":[{JSON},{JSON}]"));
    let split = "{\"Split\":[{\"Card\":\"a\\nb\"},{\"Transfer\":{\"iban\":\"\",\"days\":3}}]}";
    let last = text.rfind(split).unwrap();
    assert!(last > text.find(split).unwrap());
    same(&nested, &text.replacen(split, "\"Cash\"", 1));
    same(&"a text".to_owned(), "\"a text\"");
    same(&"{\"a\":1}".to_owned(), "\"{\\\"a\\\":1}\"");
    same(&'x', "\"x\"");
    same(&(1_u8, -2_i64, "x".to_owned()), "[1,-2,\"x\"]");
    same(&vec![Some(1_u16), None], "[1,null]");
    same(&i8::MIN, "-128");
    same(&u128::MAX, &u128::MAX.to_string());
    same(&f64::INFINITY, "\"inf\"");
    same(&0.1_f32, "0.1");
    same(&Some("null".to_owned()), "\"null\"");
    same(&(), "null");
}

#[test]
fn older_versions_have_their_own_shapes() {
    let mut kind = kind::<Postcard<Order>>();
    kind.shapes.push((1, Shape::parse("{id: u64, name: str}").unwrap()));
    assert_eq!(json(&kind, &[1, 7, 1, b'x']), "{\"id\":7,\"name\":\"x\"}");
    // No shape of version 2 is known.
    assert_eq!(json(&kind, &[2, 7]), "\"0x0207\"");
    assert_eq!(kind.encode("0x0207").unwrap(), [2, 7]);
    // New values have the current version.
    assert_eq!(kind.encode(JSON).unwrap()[0], 3);
}

#[test]
fn descriptions_of_older_databases_suffice() {
    for (name, bytes, expected) in [
        ("user {name: str, age: u32}", &b"\x01\x02ab\x07"[..], "{\"name\":\"ab\",\"age\":7}"),
        ("user v12 {name: str}", b"\x0c\x02ab", "{\"name\":\"ab\"}"),
        ("meters = u64", b"\x01\x07", "7"),
        ("Vec<(u64, str)>", b"\x01\x01\x07\x01x", "[[7,\"x\"]]"),
        ("Set<u8>", b"\x01\x01\x07", "[7]"),
        ("kind {A, B(u8)}", b"\x01\x01\x07", "{\"B\":7}"),
        ("kind {A, B}", b"\x01\x01", "\"0x0101\""),
        ("user {name, age} #1f2e3d4c", b"\x01\x07", "\"0x0107\""),
        ("list {next: Option<^1>}", b"\x01\x00", "\"0x0100\""),
    ] {
        assert_eq!(json(&PostcardType::new(name, &[]), bytes), expected, "{name}");
    }
}

#[test]
fn wrong_values_are_rejected_with_their_place() {
    let kind = kind::<Postcard<Order>>();
    for (from, to, why) in [
        ("\"paid\":true", "\"paid\":7", "paid: \"7\" is not a valid bool"),
        ("[\"\\\"\",0]", "[\"\\\"\",-1]", "lines[1][1]: \"-1\" is not a valid u32"),
        ("\"days\":3", "\"days\":300", "payment.Split[1].Transfer.days: \"300\" is not a valid u8"),
        ("\"Card\"", "\"Cart\"", "there is no variant \"Cart\"; the variants are Cash, Card"),
        ("\"id\"", "\"ID\"", "there is no field \"ID\"; the fields are id, total"),
        ("\"weight\":-0.1,", "", "the field \"weight\" is missing"),
        ("\"weight\":-0.1", "\"weight\":1e999", "weight: \"1e999\" is not a valid f64"),
        ("\"parts\":[]", "\"parts\":[1]", "parts[0]: it is a number, not an object"),
        ("}", "", "it ends within an object"),
    ] {
        let error = format!("{:#}", kind.encode(&JSON.replacen(from, to, 1)).unwrap_err());
        assert!(error.contains(why), "{error}");
    }
    let error = kind.encode("0x0307").unwrap_err().to_string();
    assert!(error.contains("at byte 2: the value ends within an integer"), "{error}");
    assert!(kind.encode("0x030").unwrap_err().to_string().contains("even number"));
}

#[test]
fn text_of_csv_files_is_accepted_for_any_part() {
    let kind = kind::<Postcard<Order>>();
    let text = r#"{"id":"7","total":"-7","weight":"1","paid":"","lines":"[[\"a\",1]]","stock":"{}",
        "pairs":"[]","payment":"Cash","parts":"[]"}"#;
    let bytes = kind.encode(text).unwrap();
    assert_eq!(
        json(&kind, &bytes),
        "{\"id\":7,\"total\":-7,\"weight\":1.0,\"paid\":null,\"note\":null,\"lines\":[[\"a\",1]],\
         \"stock\":{},\"pairs\":[],\"payment\":\"Cash\",\"parts\":[]}"
    );
}

#[test]
fn truncated_values_are_malformed_at_their_end() {
    let (kind, order) = (kind::<Postcard<Order>>(), order());
    let bytes = <Postcard<Order>>::encode(&order).unwrap();
    for length in 0..bytes.len() {
        let malformed = kind.append_json(&bytes[..length], &mut Vec::new()).unwrap_err();
        assert!(malformed.position <= length, "{length}: {malformed}");
    }
    let longer = [&bytes[..], &[0]].concat();
    let malformed = kind.append_json(&longer, &mut Vec::new()).unwrap_err();
    assert_eq!(malformed.to_string(), format!("at byte {}: 1 bytes follow the value", bytes.len()));
    // A list that claims more parts without bytes than memory holds.
    let empty = PostcardType::new("Vec<()>", &[]);
    let huge = [&[1][..], &[0xff; 9], &[1]].concat();
    let malformed = empty.append_json(&huge, &mut Vec::new()).unwrap_err();
    assert!(malformed.reason.contains("too many parts"), "{malformed}");
}

#[test]
fn deep_values_are_printed_as_bytes() {
    let kind = PostcardType::new("list", &[]);
    let shapes = vec![(1, Shape::parse("{next: Option<^2>}").unwrap())];
    let kind = PostcardType { shapes, ..kind };
    assert_eq!(json(&kind, &[1, 1, 0]), "{\"next\":{\"next\":null}}");
    let deep = [&[1; 100_000][..], &[0]].concat();
    assert!(json(&kind, &deep).starts_with("\"0x01"));
    let text = "{\"next\":".repeat(500) + "null" + &"}".repeat(500);
    assert!(kind.encode(&text).is_err());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let kind = kind::<Postcard<Order>>();
        let bytes = [&[3][..], &bytes].concat();
        let mut out = Vec::new();
        match kind.append_json(&bytes, &mut out) {
            Ok(()) => {
                let text = String::from_utf8(out).unwrap();
                serde_json::from_str::<serde_json::Value>(&text).unwrap();
            }
            Err(malformed) => prop_assert!(malformed.position <= bytes.len()),
        }
        let text = String::from_utf8_lossy(&bytes);
        _ = kind.encode(&text);
        _ = Shape::parse(&text);
    }

    #[test]
    fn damaged_values_never_panic(at in 0_usize..200, byte in any::<u8>()) {
        let kind = kind::<Postcard<Order>>();
        let mut bytes = <Postcard<Order>>::encode(&order()).unwrap().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Err(malformed) = kind.append_json(&bytes, &mut Vec::new()) {
            prop_assert!(malformed.position <= bytes.len());
        }
    }

    #[test]
    fn random_numbers_are_kept(a in any::<(u16, u32, i16, i32)>(), b in any::<(f64, f32, char)>(), c in any::<String>()) {
        let (a, b) = ((a.0, a.1, a.2, a.3), (b.0, b.1, b.2, c));
        let (kind, value) = (kind::<Postcard<((u16, u32, i16, i32), (f64, f32, char, String))>>(), (a, b));
        let bytes = Postcard::encode(&value).unwrap();
        prop_assert_eq!(&*kind.encode(&json(&kind, &bytes)).unwrap(), &*bytes);
    }
}
