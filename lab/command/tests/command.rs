//! Tests of the `braid-lab` command.

#![cfg(not(braid_simulation))]

mod common;

use common::program;

#[test]
fn torture_finds_nothing_lost() {
    let mut command = program();
    let words = ["torture", "--rounds", "4", "--life-ms", "150", "--fresh-every", "3", "--json"];
    let output = command.args(words).assert().code(0).get_output().clone();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rounds"], 4);
    assert!(report["acknowledged"].as_u64() > Some(0));
}

/// After kills during TPC-C, its consistency conditions hold and all acknowledged transactions are
/// present.
#[test]
fn torture_of_tpcc_leaves_it_consistent() {
    let mut command = program();
    let words = ["torture", "--tpcc", "--rounds", "4", "--life-ms", "300", "--fresh-every", "3"];
    let output = command.args(words).arg("--json").assert().code(0).get_output().clone();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rounds"], 4);
    assert!(report["acknowledged"].as_u64() > Some(0));
}

#[test]
fn a_soak_reports_every_quantity_over_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = program();
    let words = ["torture", "--soak", "8", "--writers", "8", "--json", "--out"];
    let command = command.args(words).arg(directory.path());
    let output = command.assert().code(0).get_output().clone();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for count in ["overwrites", "tables", "snapshots"] {
        assert!(report[count].as_u64() > Some(0), "{count}: {report}");
    }
    let quantities = report["quantities"].as_array().unwrap();
    let points = |name: &str| {
        let quantity = quantities.iter().find(|quantity| quantity["name"] == name);
        quantity.unwrap_or_else(|| panic!("{name}"))["points"].as_array().unwrap().len()
    };
    for name in ["disk", "reserve", "versions", "resident memory", "descriptors", "opening"] {
        assert!(points(name) > 4, "{name}");
    }
    assert!(directory.path().join("soak-disk.svg").exists());
}

#[test]
fn flipped_bits_are_reported_or_harmless() {
    let mut command = program();
    let words = ["torture", "--flips", "60", "--json"];
    let output = command.args(words).assert().code(0).get_output().clone();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(count("refused") > 5 && count("harmless") > 5, "{report}");
    assert_eq!(count("refused") + count("reported") + count("harmless"), 60);
    for kind in ["ckpt", "meta", "seg"] {
        assert!(report["flips"][kind].as_u64() > Some(5), "{report}");
    }
}

#[test]
fn flips_can_be_limited_to_one_kind_of_file() {
    let flips = |kind: &str| {
        let words = ["torture", "--flips", "10", "--json", "--kind", kind];
        program().args(words).assert()
    };
    let output = flips("zone").code(0).get_output().clone();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["flips"], serde_json::json!({ "zone": 10 }));
    let output = flips("log").failure().get_output().clone();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("no file ends in .log; the endings are ckpt, ") && told.contains("zone"));
}

#[test]
fn out_of_range_numbers_of_a_measurement_are_rejected_with_the_range() {
    for (words, range) in [
        (&["reads", "--workers", "257"][..], "from 1 to 256"),
        (&["reads", "--rounds", "0"], "from 1 to 1000"),
        (&["reads", "--rounds", "-1"], "from 1 to 1000"),
        (&["reads", "--width", "1025"], "from 1 to 1024"),
        (&["reads", "--seconds", "0"], "from 0.001 to 86400"),
        (&["reads", "--records", "0"], "'0' is no whole number above 0"),
        (&["tpcc", "--warehouses", "65536"], "from 1 to 65535"),
        (&["ycsb", "--operations", "0"], "from 1 to 1000"),
        (&["ycsb", "--theta", "1"], "from 0 to below 1"),
        (&["sysbench", "--tables", "1001"], "from 1 to 1000"),
    ] {
        let output = program().arg("bench").args(words).assert().code(2).get_output().clone();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(words[1]) && said.contains(range), "{said}");
    }
    let missing = ["bench", "airports", "-q", "--file", "nowhere.csv"];
    let output = program().args(missing).assert().code(3).get_output().clone();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "braid-lab: cannot use nowhere.csv: No such file or directory (os error 2)\n");
}
