//! Staged tables: loads of any size, which become visible at the same time.

mod common;
#[path = "../../braiddb/tests/common/polls.rs"]
mod polls;

use std::time::Duration;

use braid_cluster::{Cluster, Consistency, Error, StagedTable};
use braiddb::{Table, TableOptions, Transaction};
use common::{LIMIT, TestCluster, add, address};
use polls::poll_at_most;

async fn stage(node: &Cluster, name: &str) -> StagedTable<u64, [u8]> {
    node.stage_table(name).await.unwrap()
}

/// Rows with values of 100 bytes.
fn rows(count: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    (0..count).map(|key| (key, vec![key as u8; 100]))
}

/// Waits until no node has a staged table, or records of one.
async fn until_discarded(cluster: &TestCluster) {
    let wait = async {
        for node in cluster.nodes.values() {
            let db = node.database();
            loop {
                let is_staged = |name: &str| name.starts_with("raft.staged.");
                let tables = db.tables().await.unwrap();
                if !tables.iter().any(|table| is_staged(&table.name))
                    && db.stats().removals_under_way == 0
                {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("staged tables stay");
    assert!(cluster.assert_equal("raft.staged").await.is_empty());
    cluster.assert_equal("raft.catalog").await;
}

/// Returns the number of rows of a table; `None` without the table.
async fn count(node: &Cluster, name: &str) -> Option<u64> {
    let name = name.to_owned();
    let read = async move |tx: &Transaction| {
        let table: Table<u64, [u8]> = tx.open_table(&name).await?;
        tx.count(&table, ..).await
    };
    match node.read(Consistency::Linearizable, read).await {
        Err(Error::Database(braiddb::Error::TableNotFound(_))) => None,
        counted => Some(counted.unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_becomes_visible_on_all_nodes_at_the_same_time() {
    let mut cluster = TestCluster::three(60).await;
    let counters: Table<u64, u64> =
        cluster.nodes[&1].open_or_create_table("counters").await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for node in cluster.nodes.clone().into_values() {
        tasks.spawn(async move {
            let counters: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
            let mut number = 0;
            while count(&node, "large").await.is_none_or(|rows| {
                assert_eq!(rows, 20_000, "a part of the rows is visible");
                false
            }) {
                number += 1;
                add(&node, &counters, number % 7, 1).await.unwrap();
            }
            number
        });
    }
    let two = cluster.nodes[&2].clone();
    let mut staged = stage(&two, "large").await;
    let mut reported = Vec::new();
    assert_eq!(staged.load(rows(10_000), |loaded| reported.push(loaded)).await.unwrap(), 10_000);
    assert!(reported.len() > 3 && reported.is_sorted() && reported.ends_with(&[10_000]));
    let rest = rows(20_000).skip(10_000);
    assert_eq!(staged.load(rest, |_| {}).await.unwrap(), 10_000);
    let large = staged.publish().await.unwrap();
    assert_eq!(large.name(), "large");
    let written: u64 = tasks.join_all().await.into_iter().sum();
    let sum: u64 = {
        let counters = cluster.assert_equal("counters").await.into_iter();
        counters.map(|(_, value)| u64::from_le_bytes(value[..].try_into().unwrap())).sum()
    };
    assert!(written > 3 && sum == written, "{sum} of {written}");
    assert_eq!(cluster.assert_equal("large").await.len(), 20_000);
    until_discarded(&cluster).await;
    // It is a table like others.
    let put = async move |tx: &Transaction| tx.put(&large, &20_000, b"later").await;
    two.run(put).await.unwrap();
    drop((two, counters));
    for id in [1, 2, 3] {
        cluster.stop(id).await;
    }
    for id in [1, 2, 3] {
        cluster.open(id).await;
    }
    cluster.leader().await;
    assert_eq!(cluster.assert_equal("large").await.len(), 20_001);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_of_tables_with_options() {
    let cluster = TestCluster::three(61).await;
    let node = &cluster.nodes[&3];
    let hour = Duration::from_secs(3600);
    for (name, options) in [
        ("paged", TableOptions::default().paged()),
        ("expiring", TableOptions::default().ttl(hour)),
    ] {
        let mut staged = node.stage_table_with::<u64, [u8]>(name, options).await.unwrap();
        // One row larger than a part.
        staged.load([(u64::MAX, vec![1; 1 << 20])], |_| {}).await.unwrap();
        staged.load(rows(5_000), |_| {}).await.unwrap();
        let table = staged.publish().await.unwrap();
        assert_eq!(cluster.assert_equal(name).await.len(), 5_001);
        if options.ttl.is_some() {
            let read = async move |tx: &Transaction| tx.expires_at_ms(&table, &7).await;
            let expiry = node.read(Consistency::Linearizable, read).await.unwrap();
            assert!(expiry.is_some());
        }
        let tables = node.database().tables().await.unwrap();
        assert!(tables.iter().any(|table| table.name == name && table.options == options));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_names_that_exist_are_refused() {
    let cluster = TestCluster::three(62).await;
    let (one, two) = (&cluster.nodes[&1], &cluster.nodes[&2]);
    let mut first = stage(one, "a").await;
    first.load([(1_u64, *b"a")], |_| {}).await.unwrap();
    for again in [[(2_u64, *b"a"), (2_u64, *b"b")], [(3_u64, *b"a"), (1_u64, *b"b")]] {
        match first.load(again, |_| {}).await {
            Err(Error::Database(braiddb::Error::KeyExists(record))) => {
                assert_eq!(record.table, "a");
            }
            other => panic!("{other:?}"),
        }
    }
    let large = first.load([(5_u64, vec![0; 9 << 20])], |_| {}).await;
    assert!(matches!(large, Err(Error::TooLarge { .. })), "{large:?}");
    first.load([(4_u64, *b"a")], |_| {}).await.unwrap();
    let mut second = stage(two, "a").await;
    second.load([(1_u64, *b"b")], |_| {}).await.unwrap();
    first.publish().await.unwrap();
    let refused = second.publish().await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    for name in ["a", "raft.a", ""] {
        let refused = two.stage_table::<u64, [u8]>(name).await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
    assert_eq!(count(two, "a").await, Some(2));
    let given_up = stage(two, "b").await;
    given_up.discard().await.unwrap();
    until_discarded(&cluster).await;
}

/// Other transactions would not be certified against the load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_staged_table_cannot_be_used_by_its_hidden_name() {
    let cluster = TestCluster::three(63).await;
    let one = &cluster.nodes[&1];
    let mut staged = stage(one, "a").await;
    staged.load(rows(10), |_| {}).await.unwrap();
    let tables = one.database().tables().await.unwrap();
    let hidden = tables.into_iter().find(|table| table.name.starts_with("raft.staged."));
    let hidden = hidden.unwrap().name;
    let name = hidden.clone();
    let put = async move |tx: &Transaction| {
        let table: Table<u64, [u8]> = tx.open_table(&name).await?;
        tx.put(&table, &100, b"x").await
    };
    assert!(matches!(one.run(put).await, Err(Error::Refused(_))));
    assert!(matches!(one.drop_table(&hidden).await, Err(Error::Refused(_))));
    assert!(matches!(one.rename_table(&hidden, "b").await, Err(Error::Refused(_))));
    staged.publish().await.unwrap();
    assert_eq!(cluster.assert_equal("a").await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_load_leaves_nothing() {
    let mut cluster = TestCluster::three(64).await;
    let mut staged = stage(&cluster.nodes[&1], "a").await;
    staged.load(rows(5_000), |_| {}).await.unwrap();
    // Its call ends.
    drop(staged);
    until_discarded(&cluster).await;
    // Its node stops, and runs again.
    let three = cluster.nodes[&3].clone();
    let mut staged = stage(&three, "a").await;
    staged.load(rows(5_000), |_| {}).await.unwrap();
    cluster.stop(3).await;
    drop((staged, three));
    let rows_of_catalog = cluster.assert_equal("raft.staged").await;
    assert_eq!(rows_of_catalog.len(), 1);
    cluster.open(3).await;
    until_discarded(&cluster).await;
    // Its node is removed.
    let three = cluster.nodes[&3].clone();
    let mut staged = stage(&three, "a").await;
    staged.load(rows(5_000), |_| {}).await.unwrap();
    cluster.stop(3).await;
    cluster.leader().await;
    let one = cluster.nodes[&1].clone();
    let removed = async {
        while one.remove_node(3).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, removed).await.unwrap();
    drop((staged, three));
    until_discarded(&cluster).await;
    let mut staged = stage(&one, "a").await;
    staged.load(rows(10), |_| {}).await.unwrap();
    staged.publish().await.unwrap();
    assert_eq!(cluster.assert_equal("a").await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_contains_staged_tables() {
    let mut cluster = TestCluster::start(3, 65, |options| options.kept_entries(10)).await;
    cluster.init(&[1, 2, 3]).await;
    let one = cluster.nodes[&1].clone();
    let mut given_up = stage(&one, "given up").await;
    given_up.load(rows(100), |_| {}).await.unwrap();
    let mut staged = stage(&one, "a").await;
    staged.load(rows(3_000), |_| {}).await.unwrap();
    let last = cluster.nodes[&3].status().last_log_index;
    cluster.stop(3).await;
    drop(given_up);
    until_discarded_except(&cluster, 1).await;
    let counters: Table<u64, u64> = one.open_or_create_table("counters").await.unwrap();
    for key in 0..40 {
        add(&one, &counters, key, 1).await.unwrap();
    }
    staged.load(rows(5_000).skip(3_000), |_| {}).await.unwrap();
    let leader = cluster.leader().await;
    assert!(cluster.nodes[&leader].status().purged_index > last);
    cluster.open(3).await;
    cluster.add_directory(4).await;
    one.add_node(4, address(4)).await.unwrap();
    until_discarded_except(&cluster, 1).await;
    staged.load(rows(6_000).skip(5_000), |_| {}).await.unwrap();
    staged.publish().await.unwrap();
    assert_eq!(cluster.assert_equal("a").await.len(), 6_000);
    until_discarded(&cluster).await;
}

/// Waits until all nodes have this many staged tables.
async fn until_discarded_except(cluster: &TestCluster, left: usize) {
    let wait = async {
        while cluster.assert_equal("raft.staged").await.len() != left {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("staged tables stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_publish_all_or_nothing() {
    let cluster = TestCluster::three(66).await;
    let (mut ended, mut published) = (0, 0);
    for polls in (1..80).step_by(3) {
        let node = &cluster.nodes[&(1 + polls as u64 % 3)];
        let name = format!("table {polls}");
        let load = async {
            let mut staged = stage(node, &name).await;
            staged.load(rows(3_000), |_| {}).await.unwrap();
            staged.load(rows(6_000).skip(3_000), |_| {}).await.unwrap();
            staged.publish().await.unwrap();
        };
        let has_ended = poll_at_most(load, polls).await.is_some();
        ended += usize::from(has_ended);
        // It may still be published, by an entry that is under way.
        let visible = count(node, &name).await;
        assert!(visible.is_none_or(|rows| rows == 6_000), "{visible:?}");
        assert!(visible.is_some() || !has_ended);
        published += usize::from(visible.is_some());
        if polls % 5 == 0 {
            until_discarded(&cluster).await;
        }
    }
    assert!(ended >= 1 && published < 26, "{ended} ended");
    until_discarded(&cluster).await;
    let (mut refused, mut continued) = (0, 0);
    for polls in 1..32 {
        let mut staged = stage(&cluster.nodes[&1], "partly").await;
        let mut all = rows(6_000);
        let has_ended = poll_at_most(staged.load(all.by_ref(), |_| {}), polls / 2).await.is_some();
        if polls % 2 == 0 && !has_ended {
            assert!(matches!(staged.publish().await, Err(Error::Refused(_))));
            refused += 1;
            continue;
        }
        continued += usize::from(!has_ended);
        staged.load(all.chain([(u64::MAX, vec![1])]), |_| {}).await.unwrap();
        staged.publish().await.unwrap();
        assert_eq!(count(&cluster.nodes[&1], "partly").await, Some(6_001));
        cluster.nodes[&1].drop_table("partly").await.unwrap();
    }
    assert!(refused >= 3 && continued >= 3, "{refused} refused, {continued} continued");
    until_discarded(&cluster).await;
}

/// Without an answer, the node does not know whether the log contains the last part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_continues_after_errors_that_the_rows_did_not_cause() {
    let cluster = TestCluster::three(67).await;
    let leader = cluster.leader().await;
    let node = cluster.nodes[&leader].with_timeout(Duration::from_millis(300));
    let mut staged = stage(&node, "a").await;
    let mut all = rows(20_000);
    staged.load(all.by_ref().take(5_000), |_| {}).await.unwrap();
    let others: Vec<_> = (1..=3).filter(|id| *id != leader).map(address).collect();
    let others: Vec<_> = others.iter().map(String::as_str).collect();
    cluster.network.cut(&[&address(leader)], &others);
    let failed = staged.load(all.by_ref(), |_| {}).await;
    assert!(matches!(failed, Err(Error::CommitUnknown { .. } | Error::NoQuorum(_))), "{failed:?}");
    cluster.network.heal();
    let continued = async { while staged.load(all.by_ref(), |_| {}).await.is_err() {} };
    tokio::time::timeout(LIMIT, continued).await.expect("the load does not continue");
    staged.publish().await.unwrap();
    assert_eq!(cluster.assert_equal("a").await.len(), 20_000);
}

/// The limit of an entry is 8 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_row_is_a_part_of_the_load() {
    let cluster = TestCluster::three(68).await;
    let mut staged = stage(&cluster.nodes[&2], "a").await;
    let large = (8 << 20) - 1024;
    let all = [(1, vec![1; 200 << 10]), (2, vec![2; large]), (3, vec![3])];
    let mut reported = Vec::new();
    assert_eq!(staged.load(all, |loaded| reported.push(loaded)).await.unwrap(), 3);
    assert_eq!(reported, [1, 2, 3]);
    staged.publish().await.unwrap();
    assert_eq!(count(&cluster.nodes[&1], "a").await, Some(3));
}
