//! `braid demo`: its result, its checks, and its errors. Rounds are short.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::limit::with_limit;
use common::{LIMIT, ended, program};
use serde_json::Value;

fn run(words: &[&str], code: i32) -> (String, String) {
    let output = program().arg("demo").args(words).assert().code(code).get_output().clone();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn the_demo_reports_rates_as_json_and_removes_its_database() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().to_str().unwrap();
    let (report, error) = run(&["--json", "--seconds", "0.05", "--dir", directory], 0);
    assert_eq!(error, "", "no progress in a pipe");
    assert_eq!(report.lines().count(), 1, "{report}");
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["airports"], 28_298, "{report}");
    let mut flights = 0;
    for storage in ["durable", "in_memory"] {
        for round in ["one_at_a_time", "braided"] {
            let round = &report[storage][round];
            let figure = |name: &str| round[name].as_f64().unwrap();
            assert!(figure("seconds") >= 0.05, "{report}");
            let rate = figure("flights") / figure("seconds");
            assert!((figure("flights_per_second") - rate).abs() < 0.01 * rate, "{report}");
            flights += round["flights"].as_u64().unwrap();
        }
        assert!(report[storage]["speedup"].as_f64() > Some(0.0), "{report}");
    }
    assert!(flights > 0, "{report}");
    assert_eq!(report["checked_flights"], flights, "{report}");
    assert!(report["directory"].as_str().unwrap().starts_with(directory), "{report}");
    assert_eq!(parent.path().read_dir().unwrap().count(), 0, "the database is removed");
}

#[test]
fn the_demo_prints_a_table_and_the_next_commands() {
    let (table, error) = run(&["--seconds", "0.05"], 0);
    assert_eq!(error, "");
    for words in ["28 298 airports", "one at a time", "durable, on disk", "in memory", "Checked:"] {
        assert!(table.contains(words), "{table}");
    }
    assert!(table.contains(" import ") && table.contains(" scan "), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

/// Returns true if a directory has an entry at this depth.
fn has_entry(directory: &Path, depth: u32) -> bool {
    let mut entries = directory.read_dir().into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.any(|path| depth == 0 || has_entry(&path, depth - 1))
}

#[test]
fn an_interrupted_demo_removes_its_database() {
    with_limit(LIMIT.as_secs(), |_| {
        for signal in ["-INT", "-TERM"] {
            let parent = tempfile::tempdir().unwrap();
            let mut demo = Command::new(assert_cmd::cargo::cargo_bin("braid"))
                .args(["demo", "--seconds", "60", "--dir"])
                .arg(parent.path())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // The database is in a subdirectory.
            while !has_entry(parent.path(), 1) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let id = demo.id().to_string();
            assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
            assert_eq!(ended(&mut demo).code(), Some(3));
            let message = std::io::read_to_string(demo.stderr.unwrap()).unwrap();
            assert!(message.starts_with("braid: interrupted"), "{message}");
            assert_eq!(parent.path().read_dir().unwrap().count(), 0, "the database is removed");
        }
    });
}

#[test]
fn the_demo_reports_wrong_arguments() {
    let (_, error) = run(&["--dir", "/nonexistent/directory"], 3);
    assert!(error.contains("writable directory with --dir"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for seconds in ["0", "61", "-1", "NaN", "long"] {
        let (_, error) = run(&["--seconds", seconds], 2);
        assert!(error.contains("from 0.05 to 60"), "{error}");
    }
}
