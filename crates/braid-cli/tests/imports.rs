//! Forms of imported files: compression, arrays, keys of several columns, typed CSV.

mod common;

use std::io::Write;

use common::Braid;
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
        "id:number,name:str,age:number,ok:bool,tags:json,zip:str\n\
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
