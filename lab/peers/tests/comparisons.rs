//! Runs each comparison at a tiny scale and checks the subjects in its report.

use std::process::Command;

use serde_json::Value;

/// The maximum duration of a tiny comparison on any loaded machine.
const LIMIT_SECONDS: &str = "600";

fn run(arguments: &[&str]) -> Value {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new("timeout");
    command.arg(LIMIT_SECONDS).arg(env!("CARGO_BIN_EXE_braid-peers")).args(arguments);
    command.args(["--quick", "--json", "--dir"]).arg(directory.path());
    command.arg("--out").arg(directory.path().join("charts"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}\n{said}", output.status);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    for report in document["reports"].as_array().unwrap() {
        for figure in report["figures"].as_array().unwrap() {
            let written = std::fs::metadata(figure.as_str().unwrap()).unwrap().len();
            assert!(written > 0, "{figure} is empty");
        }
    }
    document
}

/// Returns the names of a report's subjects, each of which ran transactions.
fn subjects(report: &Value) -> Vec<String> {
    let measured = report["measured"].as_array().unwrap();
    let name = |subject: &Value| {
        assert!(subject["transactions"].as_u64().unwrap() > 0, "{subject} did nothing");
        subject["name"].as_str().unwrap().to_owned()
    };
    measured.iter().map(name).collect()
}

#[cfg(not(feature = "rocksdb"))]
const STORES: [&str; 5] = ["Braid", "LMDB", "redb", "fjall", "SQLite"];
#[cfg(feature = "rocksdb")]
const STORES: [&str; 6] = ["Braid", "LMDB", "redb", "RocksDB", "fjall", "SQLite"];

#[test]
fn memory() {
    let document = run(&["memory", "--clients", "1,3", "--workers", "2"]);
    let reports = document["reports"].as_array().unwrap();
    assert_eq!(reports.len(), 9);
    for report in reports {
        let mut expected = vec!["Braid, 1 worker".to_owned(), "Braid, 64 clients".to_owned()];
        for store in &STORES[1..] {
            expected.extend([format!("{store}, 1 client"), format!("{store}, 3 clients")]);
        }
        assert_eq!(subjects(report), expected);
        assert!(!report["ratios"].as_array().unwrap().is_empty());
    }
}

#[test]
fn tpcc() {
    let document = run(&["tpcc", "--clients", "1,3", "--workers", "2"]);
    let mut expected = vec!["Braid, 1 worker".to_owned(), "Braid, 64 clients".to_owned()];
    for store in &STORES[1..] {
        expected.extend([format!("{store}, 1 client"), format!("{store}, 3 clients")]);
    }
    assert_eq!(subjects(&document["reports"][0]), expected);
}

#[test]
fn commit() {
    let document = run(&["commit", "--clients", "1,4", "--modifies", "2", "--workers", "1"]);
    let report = &document["reports"][0];
    let mut expected = Vec::new();
    for store in STORES {
        expected.extend([format!("{store}, 1 client"), format!("{store}, 4 clients")]);
        if store == "Braid" {
            expected.push("Braid, 1 worker".to_owned());
        }
    }
    assert_eq!(subjects(report), expected);
    let lines = report["lines"][0]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), STORES.len());
}

#[test]
fn larger() {
    let document = run(&["larger", "--clients", "4", "--workers", "1"]);
    for report in document["reports"].as_array().unwrap() {
        assert_eq!(subjects(report), STORES);
    }
}

#[test]
fn open() {
    let document = run(&["open", "--workers", "1"]);
    assert_eq!(subjects(&document["reports"][0]), STORES);
}

#[test]
fn space() {
    let document = run(&["space", "--workers", "1"]);
    let facts = document["reports"][0]["facts"].as_array().unwrap();
    assert_eq!(facts.len(), 3 * STORES.len());
    for fact in facts {
        let name = fact["name"].as_str().unwrap();
        if name.ends_with("on disk") {
            // 1000 records of 108 bytes.
            assert!(fact["value"].as_f64().unwrap() > 100.0, "{fact}");
        }
    }
}

#[test]
fn stores_can_be_chosen() {
    let document =
        run(&["memory", "--stores", "redb,braid", "--workloads", "reads", "--clients", "1"]);
    let reports = document["reports"].as_array().unwrap();
    assert_eq!(subjects(&reports[0]), ["Braid, 1 worker", "Braid, 64 clients", "redb, 1 client"]);
}
