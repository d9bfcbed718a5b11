//! Checks that every figure runs at a small scale, reports published figures with its own, and is
//! documented.

use clap::FromArgMatches;

use super::*;
use crate::harness::keep::Keep;
use crate::limit::with_limit;

/// Several times the duration of a small figure.
const LIMIT_SECONDS: u64 = 600;

fn run(names: &[&str], stage: &mut Stage) -> Vec<Report> {
    let command = PaperArguments::augment_args(clap::Command::new("paper")).no_binary_name(true);
    let more = ["--quick", "--rounds", "1", "--workers", "2", "--no-pin"];
    let matches = command.try_get_matches_from(names.iter().chain(&more)).unwrap();
    PaperArguments::from_arg_matches(&matches).unwrap().run(stage).unwrap()
}

/// Runs one figure and checks its report.
fn runs(name: &str) {
    let reports = run(&[name], &mut Stage::default());
    assert!(reports[0].notes.iter().any(|note| note.starts_with("the paper: ")));
    assert!(reports[0].notes.iter().any(|note| note.starts_with("differences: ")));
    let published = reports.iter().flat_map(|report| &report.published);
    for figure in published.clone() {
        assert!(figure.theirs > 0.0, "{name}: {}", figure.what);
        assert!(figure.ours.is_some(), "{name}: {} was not measured", figure.what);
    }
    // For these, the papers print curves but no figures in the text.
    let curves_alone = ["mosaicdb-9", "corobase-5.8", "corobase-5.12"];
    assert!(published.count() > 0 || curves_alone.contains(&name), "{name}: nothing published");
    for report in &reports {
        assert!(report.workload.starts_with(name), "{name}: {}", report.workload);
        assert!(!report.measured.is_empty(), "{name}: nothing measured");
        for subject in &report.measured {
            assert!(subject.transactions > 0, "{name}: {} did nothing", subject.name);
        }
    }
}

macro_rules! figures_run {
    ($($test:ident: $name:literal;)*) => {
        const TESTED: &[&str] = &[$($name),*];
        $(
            #[test]
            fn $test() {
                with_limit(LIMIT_SECONDS, |_| runs($name));
            }
        )*
    };
}

figures_run! {
    mosaicdb_6: "mosaicdb-6";
    mosaicdb_7: "mosaicdb-7";
    mosaicdb_8: "mosaicdb-8";
    mosaicdb_9: "mosaicdb-9";
    mosaicdb_10: "mosaicdb-10";
    mosaicdb_11: "mosaicdb-11";
    mosaicdb_12: "mosaicdb-12";
    corobase_5_1: "corobase-5.1";
    corobase_5_2: "corobase-5.2";
    corobase_5_3: "corobase-5.3";
    corobase_5_4: "corobase-5.4";
    corobase_5_5: "corobase-5.5";
    corobase_5_6: "corobase-5.6";
    corobase_5_7: "corobase-5.7";
    corobase_5_8: "corobase-5.8";
    corobase_table_5_1: "corobase-table-5.1";
    corobase_5_9: "corobase-5.9";
    corobase_5_10: "corobase-5.10";
    corobase_5_11: "corobase-5.11";
    corobase_5_12: "corobase-5.12";
    eleda_8: "eleda-8";
    eleda_9: "eleda-9";
    eleda_10: "eleda-10";
    eleda_11: "eleda-11";
    eleda_14: "eleda-14";
    eleda_16: "eleda-16";
    eleda_18: "eleda-18";
    eleda_19: "eleda-19";
    umbra_tatp: "umbra-tatp";
    umbra_tpcc: "umbra-tpcc";
    umbra_layers: "umbra-layers";
    umbra_memory: "umbra-memory";
    umbra_bulk_load: "umbra-bulk-load";
    umbra_bulk_queries: "umbra-bulk-queries";
}

#[test]
fn figures_of_builds_for_experiments() {
    with_limit(LIMIT_SECONDS, |_| {
        run(&["eleda-20", "eleda-21"], &mut Stage::default());
    });
}

#[test]
fn all_figures_are_tested_and_documented() {
    with_limit(LIMIT_SECONDS, |_| {
        let page = include_str!("../../../../../docs/papers.md");
        for figure in figures().filter(|figure| !["eleda-20", "eleda-21"].contains(&figure.name)) {
            assert!(TESTED.contains(&figure.name), "{} is not tested", figure.name);
        }
        for name in TESTED.iter().chain(&["eleda-20", "eleda-21"]) {
            assert!(page.contains(&format!("`{name}`")), "docs/papers.md has no `{name}`");
        }
        assert_eq!(run(&["--list"], &mut Stage::default())[0].notes.len(), figures().count());
    });
}

#[test]
fn an_interrupted_run_resumes_with_the_missing_figures() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let keep = Keep::new(directory.path());
        let stage = || Stage { keep: Some(keep.clone()), ..Stage::default() };
        let first = run(&["corobase-5.1"], &mut stage());
        let kept = std::fs::read(keep.path("corobase-5.1")).unwrap();
        let both = run(&["corobase-5.1", "corobase-5.5"], &mut stage());
        // Exact except for the last one or two digits, which text rounds.
        let [before, after] = [&first, &both].map(|reports| reports[0].measured[0].rates[0]);
        assert!(
            (before / after - 1.0).abs() < 1e-12,
            "{before} and {after}: it was measured again"
        );
        assert!(both[0].notes.last().unwrap().starts_with("kept by an earlier run"));
        assert_eq!(std::fs::read(keep.path("corobase-5.1")).unwrap(), kept);
        assert!(keep.path("corobase-5.5").exists(), "the other was measured");
        let again = run(&["corobase-5.1"], &mut Stage { again: true, ..stage() });
        assert!(!again[0].notes.last().unwrap().starts_with("kept by an earlier run"));
        assert_ne!(std::fs::read(keep.path("corobase-5.1")).unwrap(), kept);
    });
}
