//! A short run of all figures.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_braid-cluster-bench"))
        .arg("--dir")
        .arg(directory.path())
        .args(arguments)
        .output()
        .unwrap()
}

/// Returns the output of a run of the shortest loads.
fn short(arguments: &[&str]) -> String {
    let scale = "--seconds 0.1 --rounds 1 --clients 3 -n 1000 --nodes 3 --kills 1 --megabytes 1";
    let output = run(&[&scale.split(' ').collect::<Vec<_>>(), arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn all_figures_are_measured() {
    let output = short(&["--json"]);
    let documents: Vec<serde_json::Value> =
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (documents, goals): (Vec<_>, Vec<_>) =
        documents.into_iter().partition(|document| document["goal"].is_null());
    assert_eq!(goals.len(), 4);
    let subjects: Vec<_> = documents.iter().map(|row| row["subject"].as_str().unwrap()).collect();
    let expected = [
        "one database, 3 clients",
        "1 node, 3 clients",
        "3 nodes, 3 clients",
        "3 nodes, clients on the leader, 3 clients",
        "linearizable, 3 clients",
        "session, 3 clients",
        "stale, 3 clients",
        "theta 0, 3 clients",
        "theta 0.5, 3 clients",
        "theta 0.9, 3 clients",
        "theta 0.99, 3 clients",
        "1 kill",
        "1 MiB from the log",
        "1 MiB by a snapshot",
    ];
    assert_eq!(subjects, expected);
    for row in &documents {
        let figures = row["figures"].as_object().unwrap();
        assert!(figures.values().all(|figure| figure["median"].as_f64().unwrap() >= 0.0), "{row}");
        assert!(figures.get("failed").is_none_or(|failed| failed["median"] == 0.0), "{row}");
    }
}

#[test]
fn figures_can_be_selected_and_other_programs_measured() {
    let program = env!("CARGO_BIN_EXE_braid-cluster-bench");
    let output = short(&["--only", "conflicts", "--against", program]);
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].starts_with("conflicts, 3 nodes"), "{output}");
    assert!(lines[5].starts_with("program 2: theta 0, 3 clients"), "{output}");
    let output = run(&["--only", "writes", "--against", "/no/such/program", "--seconds", "0.1"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("/no/such/program"), "{errors}");
}
