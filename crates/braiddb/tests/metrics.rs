//! The Prometheus metrics of a database are equal to its statistics.

mod common;

use std::collections::BTreeMap;

use braiddb::{Database, Options, Table};
use common::{Watched, with_limit};
use metrics_exporter_prometheus::PrometheusBuilder;
use pollster::block_on;

const LIMIT_SECONDS: u64 = 300;

/// Returns the name with labels, and the value, of each line.
fn figures(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn metrics_equal_the_statistics() {
    with_limit(LIMIT_SECONDS, |_| {
        let recorder = PrometheusBuilder::new().build_recorder();
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str, workers| {
            let options = Options::default().workers(workers);
            Database::open(directory.path().join(name), options).unwrap().watched()
        };
        let (one, other) = (open("one", 2), open("other", 1));
        let table: Table<u64, u64> = block_on(one.create_table("numbers")).unwrap();
        for key in 0..100 {
            block_on(one.put(&table, &key, &key)).unwrap();
            block_on(one.get(&table, &key)).unwrap();
            block_on(one.get(&table, &key)).unwrap();
        }
        let before = one.stats();
        let text = metrics::with_local_recorder(&recorder, || {
            one.record_metrics("one");
            other.record_metrics("other");
            recorder.handle().render()
        });
        let after = one.stats();
        let found = figures(&text);
        let figure = |name: &str| *found.get(name).unwrap_or_else(|| panic!("{name} in\n{text}"));
        let between = |name: &str, before: u64, after: u64| {
            let value = figure(name);
            assert!(
                before as f64 <= value && value <= after as f64,
                "{name} {value}: {before}, {after}"
            );
        };
        let read_only = r#"braid_transactions_committed_total{database="one",kind="read_only"}"#;
        between(read_only, before.committed_read_only, after.committed_read_only);
        assert!(before.committed_read_only >= 200);
        let writing = |stats: &braiddb::Stats| stats.committed - stats.committed_read_only;
        let name = r#"braid_transactions_committed_total{database="one",kind="writing"}"#;
        between(name, writing(&before), writing(&after));
        assert!(writing(&before) > 100);
        between(
            r#"braid_log_flushes_total{database="one"}"#,
            before.log.flushes,
            after.log.flushes,
        );
        let name = r#"braid_log_position_bytes{database="one",position="durable"}"#;
        between(name, before.lsn.durable, after.lsn.durable);
        let name = r#"braid_memory_bytes{database="one",kind="versions"}"#;
        assert!(figure(name) > 0.0);
        between(
            r#"braid_suspensions_total{database="one",cause="commit"}"#,
            before.suspensions.commit,
            after.suspensions.commit,
        );
        let finished = |worker| {
            figure(&format!(r#"braid_worker_finished_total{{database="one",worker="{worker}"}}"#))
        };
        // The reads need no worker.
        assert!(finished(0) + finished(1) >= 100.0);
        assert_eq!(figure(r#"braid_retries_total{database="other"}"#), 0.0);
        // Each metric has a description and a value for each database.
        for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, _) = name.split_once(' ').unwrap();
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
            for database in ["one", "other"] {
                let begin = format!(r#"{name}{{database="{database}""#);
                assert!(found.keys().any(|key| key.starts_with(&begin)), "{begin}");
            }
        }
        one.close().unwrap();
        other.close().unwrap();
        // A closed database still has metrics.
        metrics::with_local_recorder(&recorder, || one.record_metrics("one"));
    });
}
