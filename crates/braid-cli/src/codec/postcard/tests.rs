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
}

/// The type with this shape in version 1.
fn shaped(shape: &str) -> PostcardType {
    let listed = PostcardType::new("shaped", &[]);
    PostcardType { shapes: vec![(1, Shape::parse(shape).unwrap())], ..listed }
}

/// A text that is bytes for serde, and a map that repeats keys.
#[derive(Clone, Debug, PartialEq)]
struct Blob(Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Blob;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[derive(Serialize, Deserialize)]
struct Unit;

#[derive(Serialize, Deserialize)]
struct Meters(f64);

#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Kind {
    #[serde(rename = "null")]
    Null,
    #[serde(rename = "0x01")]
    Hex,
    New(Option<u8>),
    Empty {},
    Of(()),
}

macro_rules! schemas {
    ($($kind:ty: $name:literal),*) => {
        $(impl Schema for $kind {
            const NAME: &'static str = $name;
        })*
    };
}

schemas!(Unit: "unit", Meters: "meters", Kind: "kind", Blob: "blob");

#[test]
fn every_kind_of_part_is_kept() {
    same(&Unit, "null");
    same(&Meters(-0.0), "-0.0");
    same(&Kind::Null, "\"null\"");
    same(&Kind::Hex, "\"0x01\"");
    same(&Kind::New(None), "{\"New\":null}");
    same(&Kind::New(Some(7)), "{\"New\":7}");
    same(&Kind::Empty {}, "{\"Empty\":{}}");
    same(&Kind::Of(()), "\"Of\"");
    same(&Blob(vec![0, 255]), "\"0x00ff\"");
    same(&Some(Blob(vec![0, 255])), "\"0x00ff\"");
    same(&Some("0x0102".to_owned()), "\"0x0102\"");
    same(&"0x0102".to_owned(), "\"0x0102\"");
    same(&Some(Some(())), "{\"Some\":{\"Some\":null}}");
    same(&Some(String::new()), "\"\"");
    same(&f32::NAN, "\"NaN\"");
    same(&(f64::NEG_INFINITY, f64::MIN_POSITIVE), "[\"-inf\",2.2250738585072014e-308]");
    same(&BTreeMap::from([(i128::MIN, 'x')]), &format!("{{\"{}\":\"x\"}}", i128::MIN));
    same(&BTreeMap::from([(true, '"'), (false, '\\')]), "{\"false\":\"\\\\\",\"true\":\"\\\"\"}");
    same(&BTreeMap::from([('\t', u128::MAX)]), &format!("{{\"\\t\":{}}}", u128::MAX));
    same(&BTreeMap::from([(Some(1_u8), Unit)]), "[[1,null]]");
    same(&BTreeMap::from([(Kind::Hex, 1_u8)]), "[[\"0x01\",1]]");
}

#[test]
fn values_that_json_cannot_represent_are_bytes() {
    // A list with more parts without bytes than memory holds, and one that is only long.
    for (shape, bytes) in [
        ("Vec<()>", [&[1][..], &[0xff; 9], &[1]].concat()),
        ("Vec<()>", vec![1, 0x80, 0x80, 0x08]),
        ("Map<(), ()>", [&[1][..], &[0xff; 9], &[1]].concat()),
        // A map that repeats a key.
        ("Map<str, u8>", b"\x01\x02\x01a\x01\x01a\x02".to_vec()),
        ("{m: Map<u8, u8>}", vec![1, 2, 7, 1, 7, 2]),
    ] {
        let kind = shaped(shape);
        let shown = json(&kind, &bytes);
        assert!(shown.starts_with("\"0x01"), "{shape}: {shown}");
        assert_eq!(kind.encode_json(&shown).unwrap(), bytes, "{shape}");
        let mut text = Vec::new();
        kind.append_text(&bytes, &mut text).unwrap();
        assert_eq!(kind.encode(str::from_utf8(&text).unwrap()).unwrap(), bytes, "{shape}");
    }
    assert_eq!(json(&shaped("Map<str, u8>"), b"\x01\x02\x01a\x01\x01b\x01"), "{\"a\":1,\"b\":1}");
    // Keys that are not names are pairs, which may repeat.
    assert_eq!(
        json(&shaped("Map<f64, ()>"), &[[1, 2].as_slice(), &[0; 16]].concat()),
        "[[0.0,null],[0.0,null]]"
    );
}

#[test]
fn a_field_that_refers_to_an_optional_value_may_be_missing() {
    let kind = shaped("Option<{left: ^2, right: Option<^2>}>");
    assert_eq!(kind.encode("{}").unwrap(), [1, 1, 0, 0]);
}

#[test]
fn messages_are_short() {
    let variants: Vec<String> = (0..5000).map(|number| format!("Variant{number}")).collect();
    let kind = shaped(&format!("{{{}}}", variants.join(", ")));
    assert_eq!(json(&kind, &[1, 0x87, 0x27]), "\"Variant4999\"");
    let malformed = kind.append_json(&[1, 0x88, 0x27], &mut Vec::new()).unwrap_err();
    assert!(malformed.to_string().contains("variant 5000 of an enum with 5000"), "{malformed}");
    let long = "9".repeat(1 << 20);
    for (shape, value) in [
        (&*format!("{{{}}}", variants.join(", ")), "\"Other\"".to_owned()),
        (&*format!("{{{}: u8}}", variants.join(": u8, ")), "{\"Other\":1}".to_owned()),
        ("u64", long.clone()),
        ("bool", format!("\"{long}\"")),
        ("{a: u8}", format!("{{\"{long}\":1}}")),
        ("Map<str, u8>", format!("{{\"{long}\":-1}}")),
        ("bytes", format!("\"{long}\"")),
        ("bytes", format!("\"0x{long}x\"")),
    ] {
        let error = format!("{:#}", shaped(shape).encode_json(&value).unwrap_err());
        assert!(error.len() < 1500, "{shape:.40}: {} bytes: {error:.300}", error.len());
    }
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
