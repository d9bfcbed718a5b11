//! Import and export of Parquet files.

mod common;

use std::fs::{self, File};
use std::sync::Arc;

use common::{Braid, airports};
use parquet::column::writer::ColumnWriter;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

const IMPORT: [&str; 4] = ["--table", "t", "--key", "id"];

fn import(braid: &Braid, file: &str, code: i32) -> String {
    braid.run(&[&["import", file], &IMPORT[..]].concat(), code).1
}

#[test]
fn exported_records_can_be_imported_again() {
    let braid = Braid::new();
    let first = "{\"id\":1,\"big\":18446744073709551615,\"part\":0.5,\"yes\":true,\"text\":\"a\\n\\\"b\\\"\",\
                 \"mixed\":1.10,\"deep\":{\"a\":[1,2.50]},\"none\":null,\"a.b\":\"x\"}";
    let second = "{\"id\":2,\"big\":0,\"part\":-2,\"yes\":false,\"text\":\"\",\
                  \"mixed\":\"1.10\",\"deep\":[],\"none\":null,\"a.b\":\"\"}";
    import(&braid, &braid.file("in.jsonl", format!("{first}\n{second}\n")), 0);
    let out = braid.path("out.parquet");
    let export = ["export", &out, "--table", "t", "--key", "id"];
    assert!(braid.run(&export, 0).0.contains("exported 2 records"));
    // Other readers see typed columns.
    let reader = SerializedFileReader::new(File::open(&out).unwrap()).unwrap();
    let rows: Vec<String> =
        reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
    assert!(
        rows[0].starts_with("{id: 1, big: 18446744073709551615, part: 0.5, yes: true"),
        "{rows:?}"
    );
    assert_eq!(rows.len(), 2);
    braid.run(&["drop", "t"], 0);
    import(&braid, &out, 0);
    let scanned = braid.run(&["scan", "t"], 0).0;
    // A column of doubles keeps the numbers, but not their text.
    assert_eq!(
        scanned,
        format!("1\t{first}\n2\t{}\n", second.replace("\"part\":-2", "\"part\":-2.0"))
    );
    // Standard output needs --format. Parquet cannot be imported from standard input.
    let output =
        braid.command(&["export", "-", "--table", "t", "--key", "id", "--format", "parquet"]);
    let output = { output }.assert().code(0).get_output().stdout.clone();
    assert!(output.starts_with(b"PAR1") && output.ends_with(b"PAR1"));
    let said = braid.command(&[&["import", "-", "--format", "parquet"], &IMPORT[..]].concat());
    let said = { said }.write_stdin(output).assert().code(3).get_output().stderr.clone();
    assert!(String::from_utf8_lossy(&said).contains("name a file"));
}

#[test]
fn files_of_many_row_groups_and_of_none_can_be_imported_again() {
    let braid = Braid::new();
    let text: String = (0..40_000)
        .map(|row| {
            format!(
                "{{\"id\":\"{row:05}\",\"x\":\"{}\",\"later{}\":{row}}}\n",
                "y".repeat(500),
                row / 39_999
            )
        })
        .collect();
    import(&braid, &braid.file("in.jsonl", &text), 0);
    let out = braid.path("out.parquet");
    let export = ["export", &out, "--table", "t", "--key", "id"];
    braid.run(&export, 0);
    let reader = SerializedFileReader::new(File::open(&out).unwrap()).unwrap();
    assert!(reader.num_row_groups() > 1);
    braid.run(&["import", &out, "--table", "u", "--key", "id"], 0);
    assert_eq!(braid.run(&["scan", "u"], 0).0.lines().count(), 40_000);
    // An empty table.
    braid.run(&["import", &braid.file("none.csv", "id,n\n"), "--table", "none", "--key", "id"], 0);
    braid.run(&["export", &out, "--table", "none", "--key", "id"], 0);
    braid.run(&["import", &out, "--table", "none too", "--key", "id"], 0);
    assert_eq!(braid.run(&["scan", "none too"], 0).0, "");
}

#[test]
fn a_missing_column_is_reported_once_with_the_existing_ones() {
    let braid = Braid::new();
    let text: String = (0..100).map(|row| format!("{{\"id\":{row},\"n\":7}}\n")).collect();
    import(&braid, &braid.file("in.jsonl", text), 0);
    let out = braid.path("out.parquet");
    braid.run(&["export", &out, "--table", "t", "--key", "id"], 0);
    for columns in [&["--key", "icao"][..], &["--key", "id", "--value", "icao"]] {
        let words = [&["import", &out, "--skip-rejected", "--table", "u"], columns].concat();
        let (_, said) = braid.run(&words, 3);
        let expected = format!("braid: {out} has no column \"icao\"; its columns are id, n\n");
        assert_eq!(said, expected);
    }
    braid.run(&["scan", "u"], 3);
}

/// A file with the types of other programs.
fn foreign(braid: &Braid) -> String {
    let schema = "message rows {
        required int64 id;
        optional int32 day (DATE);
        optional int64 local (TIMESTAMP(MICROS,false));
        optional int64 moment (TIMESTAMP(NANOS,true));
        optional int32 price (DECIMAL(9,2));
        optional int32 whole (DECIMAL(9,0));
        optional fixed_len_byte_array(16) uuid (UUID);
        optional binary bytes;
        optional float near;
        optional group list (LIST) { repeated group list { optional int32 element; } }
        optional group map (MAP) { repeated group key_value { required binary key (UTF8); optional int64 value (TIMESTAMP(MILLIS,true)); } }
    }";
    let path = braid.path("foreign.parquet");
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file =
        SerializedFileWriter::new(File::create(&path).unwrap(), schema, properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    let some = Some(&[1, 1, 0][..]);
    let mut number = 0;
    while let Some(mut column) = group.next_column().unwrap() {
        match (number, column.untyped()) {
            (0, ColumnWriter::Int64ColumnWriter(column)) => {
                column.write_batch(&[1, 2, 3], None, None)
            }
            (1, ColumnWriter::Int32ColumnWriter(column)) => {
                column.write_batch(&[0, -1], some, None)
            }
            (2, ColumnWriter::Int64ColumnWriter(column)) => {
                column.write_batch(&[1_500_000, 0], some, None)
            }
            (3, ColumnWriter::Int64ColumnWriter(column)) => {
                column.write_batch(&[1_234_567_891, 0], some, None)
            }
            (4, ColumnWriter::Int32ColumnWriter(column)) => {
                column.write_batch(&[110, -5], some, None)
            }
            (5, ColumnWriter::Int32ColumnWriter(column)) => {
                column.write_batch(&[110, -5], some, None)
            }
            (6, ColumnWriter::FixedLenByteArrayColumnWriter(column)) => {
                column.write_batch(&[vec![0xab_u8; 16].into(), vec![0; 16].into()], some, None)
            }
            (7, ColumnWriter::ByteArrayColumnWriter(column)) => {
                column.write_batch(&[vec![0_u8, 255].into(), vec![].into()], some, None)
            }
            (8, ColumnWriter::FloatColumnWriter(column)) => {
                column.write_batch(&[0.1, f32::NAN], some, None)
            }
            (9, ColumnWriter::Int32ColumnWriter(column)) => {
                column.write_batch(&[7, 8], Some(&[3, 2, 3, 1, 0]), Some(&[0, 1, 1, 0, 0]))
            }
            (10, ColumnWriter::ByteArrayColumnWriter(column)) => column.write_batch(
                &[b"a".to_vec().into(), b"b".to_vec().into()],
                Some(&[2, 2, 1, 0]),
                Some(&[0, 1, 0, 0]),
            ),
            (11, ColumnWriter::Int64ColumnWriter(column)) => {
                column.write_batch(&[1], Some(&[3, 2, 1, 0]), Some(&[0, 1, 0, 0]))
            }
            (number, _) => panic!("no values for column {number}"),
        }
        .unwrap();
        column.close().unwrap();
        number += 1;
    }
    group.close().unwrap();
    file.close().unwrap();
    path
}

#[test]
fn values_beyond_json_become_strings() {
    let braid = Braid::new();
    let file = foreign(&braid);
    import(&braid, &file, 0);
    let scanned = braid.run(&["scan", "t"], 0).0;
    let (second, scanned): (Vec<&str>, Vec<&str>) =
        scanned.split_inclusive('\n').partition(|line| line.starts_with("2\t"));
    assert!(second[0].contains("\"near\":\"NaN\""), "{second:?}");
    // A column with such numbers is a column of doubles again.
    let out = braid.path("again.parquet");
    braid.run(&["export", &out, "--table", "t", "--key", "id", "--columns", "id,near"], 0);
    braid.run(&["import", &out, "--table", "again", "--key", "id"], 0);
    let again = braid.run(&["scan", "again"], 0).0;
    assert!(again.contains("2\t{\"id\":2,\"near\":\"NaN\"}\n"), "{again}");
    assert!(again.contains("1\t{\"id\":1,\"near\":0.1"), "{again}");
    let scanned = scanned.concat();
    let expected = "1\t{\"id\":1,\"day\":\"1970-01-01\",\"local\":\"1970-01-01T00:00:01.500000\",\
        \"moment\":\"1970-01-01T00:00:01.234567891Z\",\"price\":1.10,\"whole\":110,\
        \"uuid\":\"abababab-abab-abab-abab-abababababab\",\"bytes\":\"0x00ff\",\"near\":0.1,\
        \"list\":[7,null,8],\"map\":[[\"a\",\"1970-01-01T00:00:00.001Z\"],[\"b\",null]]}\n\
        3\t{\"id\":3,\"day\":null,\"local\":null,\"moment\":null,\"price\":null,\"whole\":null,\
        \"uuid\":null,\"bytes\":null,\"near\":null,\"list\":null,\"map\":null}\n";
    assert_eq!(scanned, expected);
}

#[test]
fn damaged_files_are_rejected_with_a_message() {
    let braid = Braid::new();
    let whole = fs::read(foreign(&braid)).unwrap();
    let damaged = braid.path("damaged.parquet");
    for end in [0, 3, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(&damaged, &whole[..end]).unwrap();
        let said = import(&braid, &damaged, 3);
        assert!(said.contains("cannot be read"), "{end}: {said}");
    }
    for number in 0..60 {
        let mut bytes = whole.clone();
        let place = number * 7_919 % bytes.len();
        bytes[place] ^= 1 << (number % 8);
        fs::write(&damaged, &bytes).unwrap();
        let words = [&["import", &damaged, "--skip-rejected"], &IMPORT[..]].concat();
        let output = { braid.command(&words) }.output().unwrap();
        // Some bits are unused, and values have no checksums.
        let code = output.status.code();
        assert!(matches!(code, Some(0 | 3 | 4)), "{place}: {code:?} {output:?}");
        _ = { braid.command(&["drop", "t"]) }.output().unwrap();
    }
}

#[test]
fn the_worlds_airports_can_be_imported_again() {
    let braid = Braid::new();
    let (file, out) = (airports(), braid.path("out.parquet"));
    for (file, table) in [(file.to_str().unwrap(), "a"), (&out, "b")] {
        braid.run(&["import", file, "--table", table, "--key", "icao"], 0);
        braid.run(&["export", &out, "--table", table, "--key", "icao"], 0);
    }
    assert_eq!(braid.run(&["scan", "b"], 0).0, braid.run(&["scan", "a"], 0).0);
}
