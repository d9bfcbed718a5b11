//! Forms of imported files: compression, arrays, keys of several columns, typed CSV.

mod common;

use std::io::Write;

use braiddb::{Database, Options, TableOptions, block_on};
use common::limit::{Watched, with_limit};
use common::{Braid, LIMIT};
use flate2::write::GzEncoder;

fn scan(braid: &Braid, table: &str) -> String {
    braid.run(&["scan", table], 0).0
}

fn import(braid: &Braid, file: &str, table: &str, more: &[&str]) -> String {
    braid.run(&[&["import", file, "--table", table], more].concat(), 0).0
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_files_are_decompressed() {
    let braid = Braid::new();
    let rows: String = (0..5000).map(|id| format!("{id},row {id}\n")).collect();
    let text = format!("id,n\n{rows}");
    // A file may have several members.
    let (first, last) = text.as_bytes().split_at(100);
    let members = [gzip(first), gzip(last)].concat();
    let zstd = zstd::encode_all(text.as_bytes(), 0).unwrap();
    let key = ["--key", "id"];
    import(&braid, &braid.file("plain.csv", &text), "plain", &key);
    import(&braid, &braid.file("a.csv.gz", &members), "gz", &key);
    import(&braid, &braid.file("a.csv.zst", &zstd), "zst", &key);
    import(&braid, &braid.file("wrong-name.csv", &members), "name", &key);
    let words = ["import", "-", "--table", "input", "--key", "id", "--format", "csv"];
    braid.command(&words).write_stdin(zstd.clone()).assert().code(0);
    for table in ["gz", "zst", "name", "input"] {
        assert_eq!(scan(&braid, table), scan(&braid, "plain"), "{table}");
    }
    for (name, bytes) in [("a.csv.gz", &members), ("a.csv.zst", &zstd)] {
        let file = braid.file(name, &bytes[..bytes.len() - 20]);
        let said = braid.run(&["import", &file, "--table", "t", "--key", "id"], 3).1;
        assert!(said.contains("cannot be read to its end"), "{said}");
    }
}

#[test]
fn arrays_of_objects_are_imported() {
    let braid = Braid::new();
    let array = "[\n  {\"id\": 2, \"n\": [1, \"],\"]},\n  {\"id\": 1,\n   \"n\": null}\n]\n";
    let expected = "1\t{\"id\":1,\"n\":null}\n2\t{\"id\":2,\"n\":[1,\"],\"]}\n";
    for name in ["a.json", "b.jsonl"] {
        import(&braid, &braid.file(name, array), name, &["--key", "id"]);
        assert_eq!(scan(&braid, name), expected, "{name}");
    }
    import(&braid, &braid.file("c.json.gz", gzip(array.as_bytes())), "c", &["--key", "id"]);
    assert_eq!(scan(&braid, "c"), expected);
    let file = braid.file("d.json", "[{\"id\":1},\n7,\n{\"n\":1}]");
    let said = braid.run(&["import", &file, "--table", "t", "--key", "id"], 4).1;
    assert!(said.contains("line 2: rejected: it is a number"), "{said}");
    assert!(said.contains("line 3: rejected: it has no field \"id\""), "{said}");
}

#[test]
fn keys_may_be_several_columns_or_the_number_of_the_row() {
    let braid = Braid::new();
    let csv = braid.file("a.csv", "region,id,n\neu,10,a\neu,9,b\nas,9,c\n");
    let jsonl =
        braid.file("a.jsonl", "{\"region\":\"eu\",\"id\":10}\n{\"region\":\"eu\",\"id\":9}\n");
    let said = import(&braid, &csv, "csv", &["--key", "region,id"]);
    assert!(said.contains("keys of (str, u64)"), "{said}");
    let keys = |table: &str| braid.run(&["scan", table, "--columns", "key"], 0).0;
    assert_eq!(keys("csv"), "[\"as\",9]\n[\"eu\",9]\n[\"eu\",10]\n");
    import(&braid, &jsonl, "jsonl", &["--key", "region,id:u8"]);
    assert_eq!(keys("jsonl"), "[\"eu\",9]\n[\"eu\",10]\n");
    // The export with the same option has the same rows.
    let out =
        braid.run(&["export", "-", "--format", "csv", "--table", "csv", "--key", "region,id"], 0);
    assert_eq!(out.0, "region,id,n\nas,9,c\neu,9,b\neu,10,a\n");
    let said = braid.run(&["import", &csv, "--table", "x", "--key", "region,n,none"], 3).1;
    assert!(said.contains("has no column \"none\"; its columns are region, id, n"), "{said}");
    for (file, table) in [(&csv, "rows"), (&jsonl, "rows2")] {
        import(&braid, file, table, &["--row-number"]);
        assert!(keys(table).starts_with("1\n2\n"), "{table}");
    }
    assert_eq!(
        braid.run(&["get", "rows", "3"], 0).0,
        "{\"region\":\"as\",\"id\":\"9\",\"n\":\"c\"}\n"
    );
    let said = braid.run(&["import", &csv, "--table", "x"], 2).1;
    assert!(said.contains("--key"), "{said}");
}

#[test]
fn typed_csv_keeps_null_and_types() {
    let braid = Braid::new();
    let rows = "{\"id\":1,\"name\":\"\",\"age\":null,\"ok\":true,\"tags\":[1,\"x, y\"],\"zip\":\"007\"}\n\
                {\"id\":2,\"name\":null,\"age\":7.50,\"ok\":false,\"tags\":\"none\",\"zip\":\"8\"}\n";
    import(&braid, &braid.file("a.jsonl", rows), "a", &["--key", "id"]);
    let out = braid.path("a.csv");
    braid.run(&["export", &out, "--table", "a", "--key", "id", "--typed"], 0);
    let csv = std::fs::read_to_string(&out).unwrap();
    assert_eq!(
        csv,
        "id:u64,name:str,age:number,ok:bool,tags:json,zip:str\n\
         1,\"\",,true,\"[1,\"\"x, y\"\"]\",007\n\
         2,,7.50,false,\"\"\"none\"\"\",8\n"
    );
    import(&braid, &out, "b", &["--key", "id", "--typed"]);
    assert_eq!(scan(&braid, "b"), scan(&braid, "a"));
    let file = braid.file("bad.csv", "id:number,n:number\n1,x\n");
    let said = braid.run(&["import", &file, "--table", "c", "--key", "id", "--typed"], 4).1;
    assert!(said.contains("line 2") && said.contains("column \"n\""), "{said}");
    let file = braid.file("untyped.csv", "id\n1\n");
    let said = braid.run(&["import", &file, "--table", "c", "--key", "id", "--typed"], 3).1;
    assert!(said.contains("column \"id\" has no type"), "{said}");
}

/// The key types that the command can name, each with keys as words of the command line.
const KEY_TYPES: [(&str, &[&str]); 22] = [
    ("str", &["10", "9", "", "true", "null", "é, \"x\""]),
    ("u8", &["7", "255"]),
    ("u16", &["7", "65535"]),
    ("u32", &["7", "10"]),
    ("u64", &["7", "18446744073709551615"]),
    ("u128", &["7", "340282366920938463463374607431768211455"]),
    ("i8", &["-7", "10"]),
    ("i16", &["-7", "10"]),
    ("i32", &["5", "7", "-2147483648"]),
    ("i64", &["5", "-9223372036854775808"]),
    ("i128", &["5", "-170141183460469231731687303715884105728"]),
    ("f32", &["0.1", "7", "-0.0", "NaN", "inf"]),
    ("f64", &["5e-324", "7", "-0.0", "NaN", "1e+300"]),
    ("bool", &["true", "false"]),
    ("bytes", &["0x", "0x00ff", "0x07"]),
    ("uuid", &["10111213-1415-1617-1819-1a1b1c1d1e1f"]),
    ("time", &["2026-01-31T12:00:00.000000001Z", "1969-12-31T23:59:59Z"]),
    ("(str, u64)", &["[\"eu\",10]", "[\"eu\",7]", "[\"\",7]"]),
    ("(i32, bytes)", &["[-7,\"0x\"]", "[7,\"0x00\"]"]),
    (
        "(time, (uuid, bool), str)",
        &["[\"2026-01-31T12:00:00Z\",[\"10111213-1415-1617-1819-1a1b1c1d1e1f\",true],\"7\"]"],
    ),
    ("(f64, u128)", &["[\"NaN\",\"340282366920938463463374607431768211455\"]", "[7,7]"]),
    ("(str, str)", &["[\"7\",\"8\"]", "[\"\",\"\"]"]),
];

fn key_type(braid: &Braid, table: &str) -> String {
    let tables = braid.run(&["tables", "--json"], 0).0;
    let of_table = |line: &str| {
        let table_of: serde_json::Value = serde_json::from_str(line).unwrap();
        (table_of["name"] == table).then(|| table_of["key_type"].as_str().unwrap().to_owned())
    };
    tables.lines().find_map(of_table).unwrap()
}

#[test]
fn every_type_of_keys_is_kept_in_typed_csv() {
    let braid = Braid::new();
    for (number, (kind, keys)) in KEY_TYPES.iter().enumerate() {
        let (table, copy) = (format!("t{number}"), format!("c{number}"));
        let quoted = |key: &&str| format!("\"{}\",x\n", key.replace('"', "\"\""));
        let rows: String = keys.iter().map(quoted).collect();
        let file = braid.file("in.csv", format!("\"key:{kind}\",value:str\n{rows}"));
        let typed = ["--key", "key", "--value", "value", "--typed"];
        import(&braid, &file, &table, &typed);
        let catalog = kind.replace("time", "time stamp in UTC");
        assert_eq!(key_type(&braid, &table), catalog);
        let scanned = scan(&braid, &table);
        assert_eq!(scanned.lines().count(), keys.len(), "{kind}: {scanned}");
        let out = braid.path("out.csv");
        braid.run(&["export", &out, "--table", &table, "--typed"], 0);
        import(&braid, &out, &copy, &typed);
        let written = std::fs::read_to_string(&out).unwrap();
        assert_eq!(key_type(&braid, &copy), catalog, "{written}");
        assert_eq!(scan(&braid, &copy), scanned, "{written}");
        // An empty table keeps the type too.
        let (empty, again) = (format!("e{number}"), format!("a{number}"));
        let none = ["export", &out, "--table", &table, "--typed", "--where", "value = y"];
        braid.run(&none, 0);
        import(&braid, &out, &empty, &typed);
        assert_eq!(
            (key_type(&braid, &empty), scan(&braid, &empty)),
            (catalog.clone(), String::new())
        );
        // JSON lines have no header: the user names the type.
        if *kind != "str" {
            let out = braid.path("out.jsonl");
            braid.run(&["export", &out, "--table", &table], 0);
            let named = format!("key:{}", kind.replace(' ', ""));
            import(&braid, &out, &again, &["--key", &named, "--value", "value"]);
            assert_eq!((key_type(&braid, &again), scan(&braid, &again)), (catalog, scanned));
        }
    }
}

#[test]
fn columns_of_keys_keep_their_types() {
    let braid = Braid::new();
    let file = braid.file("a.csv", "region,id,n\neu,10,a\neu,9,b\n");
    import(&braid, &file, "a", &["--key", "region,id:i32"]);
    let out = braid.path("out.csv");
    // The values of these rows have text in their field id, which the copy keeps.
    braid.run(&["export", &out, "--table", "a", "--key", "region,id", "--typed"], 0);
    let written = std::fs::read_to_string(&out).unwrap();
    assert_eq!(written, "region:str,id:i32 as str,n:str\neu,9,b\neu,10,a\n");
    import(&braid, &out, "b", &["--key", "region,id", "--typed"]);
    assert_eq!(
        (key_type(&braid, "b"), scan(&braid, "b")),
        (key_type(&braid, "a"), scan(&braid, "a"))
    );
    // The parts of keys, and the value in a field.
    let pair = ["--key", "region,id", "--value", "v", "--typed"];
    braid.run(&[&["export", &out, "--table", "a"], &pair[..]].concat(), 0);
    import(&braid, &out, "c", &pair);
    assert_eq!(
        (key_type(&braid, "c"), scan(&braid, "c")),
        (key_type(&braid, "a"), scan(&braid, "a"))
    );
    // The user may choose another type.
    import(&braid, &out, "d", &["--key", "region,id:str", "--value", "v", "--typed"]);
    assert_eq!(key_type(&braid, "d"), "(str, str)");
    let said = braid.run(&["import", &file, "--table", "e", "--key", "id:(str,x)"], 2).1;
    assert!(said.contains("is not a tuple of known types; they are str, u8"), "{said}");
    let said = braid.run(&["import", &out, "--table", "a", "--key", "k:(str,u64)", "--typed"], 3).1;
    assert!(said.contains("has no column \"k\""), "{said}");
    let lines = braid.file("k.jsonl", "{\"k\":[\"eu\",10]}\n{\"k\":[\"eu\",7]}\n");
    import(&braid, &lines, "k", &["--key", "k:(str,u64)"]);
    assert_eq!(braid.run(&["scan", "k", "--columns", "key"], 0).0, "[\"eu\",7]\n[\"eu\",10]\n");
    let said = braid.run(&["import", &lines, "--table", "k", "--key", "k:(str,u32)"], 3).1;
    assert!(said.contains("do not have the type (str, u32)"), "{said}");
}

/// Types that only a program can create, also those that only it knows.
#[test]
fn types_of_programs_are_kept_in_typed_csv() {
    with_limit(LIMIT.as_secs(), |_| {
        let braid = Braid::new();
        let kinds: [(&str, &[&[u8]]); 6] = [
            ("Option<str>", &[&[0], &[1], &[1, b'n', b'u', b'l', b'l'], &[1, b'7']]),
            ("Reverse<u8>", &[&[1], &[255]]),
            ("[u8; 2]", &[&[1, 2], &[0, 0]]),
            ("shop.order(u8, str)", &[&[7, b'a'], &[]]),
            ("shop::queue", &[&[1, 2], &[3]]),
            ("(shop.queue, u16)", &[&[1, 2, 3], &[3, 0, 9]]),
        ];
        let db =
            Database::open(braid.directory(), Options::default().workers(1)).unwrap().watched();
        for (number, (kind, keys)) in kinds.iter().enumerate() {
            let options = TableOptions::default();
            let table =
                block_on(db.stage_encoded_table(&format!("t{number}"), kind, "str", options));
            let table = table.unwrap();
            let mut keys = keys.to_vec();
            keys.sort();
            block_on(table.load(keys.into_iter().map(|key| (key, &b"x"[..])), |_| {})).unwrap();
            block_on(table.publish()).unwrap();
        }
        db.close().unwrap();
        for (number, (kind, keys)) in kinds.iter().enumerate() {
            let (table, copy, out) =
                (format!("t{number}"), format!("c{number}"), braid.path("out.csv"));
            braid.run(&["export", &out, "--table", &table, "--typed"], 0);
            import(&braid, &out, &copy, &["--key", "key", "--value", "value", "--typed"]);
            assert_eq!(key_type(&braid, &copy), *kind);
            let scanned = scan(&braid, &copy);
            assert_eq!(scanned.lines().count(), keys.len());
            assert_eq!(scanned, scan(&braid, &table), "{kind}");
        }
    });
}
