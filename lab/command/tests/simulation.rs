//! Tests of the simulation command, in builds that have it.

#![cfg(braid_simulation)]

mod common;

use common::program;

#[test]
fn a_simulation_is_deterministic() {
    let run = || {
        let words = ["simulate", "--seeds", "6", "--from", "40", "--json"];
        let mut command = program();
        let output = command.args(words).assert().code(0).get_output().clone();
        let mut report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["seconds"] = 0.into();
        report
    };
    let report = run();
    assert!(report["crash_states"].as_u64() > Some(1000), "{report}");
    assert_eq!(report, run());
}
