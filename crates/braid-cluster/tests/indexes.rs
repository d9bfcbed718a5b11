//! Secondary indexes on all nodes.

mod common;
#[path = "../../braiddb/tests/common/polls.rs"]
mod polls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_cluster::{Cluster, Consistency, Error, Result};
use braiddb::indexes::IndexDescription;
use braiddb::{Index, IndexError, IndexOptions, Table, Transaction};
use common::{LIMIT, TestCluster};
use polls::poll_at_most;

type Names = Table<u64, str>;
type ByName = Index<str, u64, str>;

async fn names(node: &Cluster) -> Names {
    node.open_or_create_table("names").await.unwrap()
}

async fn attach(node: &Cluster, options: IndexOptions) -> Result<ByName> {
    let names = names(node).await;
    node.index(&names, "by_name", options, |name: &str, keys| keys.push(name)).await
}

fn unique() -> IndexOptions {
    IndexOptions::default().unique(true)
}

async fn put(node: &Cluster, table: &Names, key: u64, name: &str) -> Result<()> {
    let (table, name) = (table.clone(), name.to_owned());
    let put = async move |tx: &Transaction| tx.put(&table, &key, &name).await;
    node.run(put).await.map(drop)
}

async fn entries(node: &Cluster, index: &ByName) -> Vec<(String, u64)> {
    let index = index.clone();
    let read = async move |tx: &Transaction| {
        let (mut scan, mut found) = (tx.entries_by(&index, ..)?, Vec::new());
        while let Some(entry) = scan.next().await? {
            found.push(entry);
        }
        Ok(found)
    };
    node.read(Consistency::Linearizable, read).await.unwrap()
}

/// Attaches the index on all nodes, and checks that its entries are those of the records.
async fn assert_indexed(cluster: &TestCluster, options: IndexOptions) -> Vec<(String, u64)> {
    let rows = cluster.assert_equal("names").await.into_iter();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let key = |bytes: Vec<u8>| u64::from_be_bytes(bytes[..].try_into().unwrap());
    let mut wanted: Vec<_> = rows.map(|(number, name)| (text(name), key(number))).collect();
    wanted.sort_unstable();
    for node in cluster.nodes.values() {
        let index = attach(node, options).await.unwrap();
        assert_eq!(entries(node, &index).await, wanted);
        check(node).await;
    }
    wanted
}

/// Compares the indexes of a node with its tables.
async fn check(node: &Cluster) {
    let report = common::check(node).await;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[track_caller]
fn assert_violates<T: std::fmt::Debug>(result: Result<T>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Database(braiddb::Error::UniqueViolation(_))), "{error}");
}

#[track_caller]
fn assert_not_attached<T: std::fmt::Debug>(result: Result<T>) {
    match result {
        Err(error @ Error::IndexNotAttached { .. }) => {
            assert!(error.to_string().contains("Cluster::index"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("it does not come to hold");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_have_the_index_after_writes_restarts_and_renames() {
    let mut cluster = TestCluster::three(50).await;
    let one = cluster.nodes[&1].clone();
    let table = names(&one).await;
    for key in 0..300 {
        put(&one, &table, key, &format!("old {}", key % 10)).await.unwrap();
    }
    for node in cluster.nodes.values() {
        attach(node, IndexOptions::default()).await.unwrap();
    }
    for (&id, node) in &cluster.nodes {
        let table = names(node).await;
        for key in 0..20 {
            put(node, &table, 100 * id + key, &format!("new {id}")).await.unwrap();
            let table = table.clone();
            let delete = async move |tx: &Transaction| tx.delete(&table, &(50 * id + key)).await;
            node.run(delete).await.unwrap();
        }
    }
    assert!(assert_indexed(&cluster, IndexOptions::default()).await.len() > 200);
    // Through the index, in transactions that write.
    let (two, index) =
        (cluster.nodes[&2].clone(), attach(&cluster.nodes[&2], IndexOptions::default()));
    let (index, renamed) = (index.await.unwrap(), names(&two).await);
    let rename = async move |tx: &Transaction| {
        let mut scan = tx.scan_by(&index, "new 1".to_owned()..="new 2".to_owned())?;
        let mut found = Vec::new();
        while let Some((_, key, _)) = scan.next().await? {
            found.push(key);
        }
        drop(scan);
        for key in &found {
            tx.put(&renamed, key, "renamed").await?;
        }
        Ok(found.len())
    };
    assert_eq!(two.run(rename).await.unwrap().value, 20);
    drop((one, two));
    for id in [1, 2, 3] {
        cluster.stop(id).await;
        cluster.open(id).await;
        let leader = cluster.leader().await;
        let node = &cluster.nodes[&leader];
        attach(node, IndexOptions::default()).await.unwrap();
        put(node, &names(node).await, 1000 + id, "restarted").await.unwrap();
    }
    assert_indexed(&cluster, IndexOptions::default()).await;
    let one = &cluster.nodes[&1];
    let table = names(one).await;
    one.rename_table("names", "people").await.unwrap();
    put(one, &table, 1, "Ada").await.unwrap();
    one.rename_table("people", "names").await.unwrap();
    assert_indexed(&cluster, IndexOptions::default()).await;
    cluster.assert_equal("raft.indexes").await;
    one.drop_table("names").await.unwrap();
    assert!(cluster.assert_equal("raft.indexes").await.is_empty());
    for node in cluster.nodes.values() {
        assert!(entries(node, &attach(node, unique()).await.unwrap()).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unique_keys_are_unique_on_all_nodes() {
    let cluster = TestCluster::three(51).await;
    for node in cluster.nodes.values() {
        attach(node, unique()).await.unwrap();
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (id, node) in cluster.nodes.clone() {
        for round in 0..40 {
            let node = node.clone();
            tasks.spawn(async move {
                let table = names(&node).await;
                match put(&node, &table, 100 * id + round, &format!("name {round}")).await {
                    Err(Error::Database(braiddb::Error::UniqueViolation(_))) => 0,
                    put => put.map(|()| 1).unwrap(),
                }
            });
        }
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<u64>(), 40);
    assert_eq!(assert_indexed(&cluster, unique()).await.len(), 40);
    // A key is free when its record has another one.
    let (two, three) = (&cluster.nodes[&2], &cluster.nodes[&3]);
    put(two, &names(two).await, 1000, "Ada").await.unwrap();
    assert_violates(put(three, &names(three).await, 2000, "Ada").await);
    put(two, &names(two).await, 1000, "Grace").await.unwrap();
    put(three, &names(three).await, 2000, "Ada").await.unwrap();
    assert_eq!(assert_indexed(&cluster, unique()).await.len(), 42);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_with_one_key_prevent_a_unique_index() {
    let cluster = TestCluster::three(52).await;
    let (one, two) = (&cluster.nodes[&1], &cluster.nodes[&2]);
    let table = names(one).await;
    put(one, &table, 1, "Ada").await.unwrap();
    put(one, &table, 2, "Ada").await.unwrap();
    for node in [one, two] {
        let refused = attach(node, unique()).await;
        let Err(Error::Database(braiddb::Error::Index(error))) = refused else {
            panic!("{refused:?}");
        };
        assert!(matches!(*error, IndexError::DuplicateKey { .. }), "{error}");
    }
    assert!(cluster.assert_equal("raft.indexes").await.is_empty());
    put(one, &table, 2, "Grace").await.unwrap();
    assert_eq!(assert_indexed(&cluster, unique()).await.len(), 2);
}

/// Records with the key of another one may be written until the cluster has the index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unique_indexes_are_created_while_clients_write() {
    for are_unique in [true, false] {
        let cluster = TestCluster::three(53).await;
        let table = names(&cluster.nodes[&1]).await;
        for key in 0..500 {
            put(&cluster.nodes[&1], &table, key, &format!("name {key}")).await.unwrap();
        }
        let ends = Arc::new(AtomicBool::new(false));
        let mut writers = tokio::task::JoinSet::new();
        for (id, node) in cluster.nodes.clone() {
            writers.spawn(write_until(node, id, are_unique, ends.clone()));
        }
        let (mut created, mut refused) = (0, 0);
        let start = std::time::Instant::now();
        while created < 3 && refused < 20 {
            assert!(start.elapsed() < LIMIT, "{created} created, {refused} refused");
            match attach(&cluster.nodes[&(1 + created % 3)], unique()).await {
                Ok(_) => created += 1,
                Err(Error::Database(braiddb::Error::Index(error))) => {
                    assert!(matches!(*error, IndexError::DuplicateKey { .. }), "{error}");
                    assert!(!are_unique, "{error}");
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        ends.store(true, Ordering::SeqCst);
        writers.join_all().await;
        if created == 0 {
            assert!(cluster.assert_equal("raft.indexes").await.is_empty());
            let one = &cluster.nodes[&1];
            let clear = async move |tx: &Transaction| tx.delete_range(&table, 10_000..).await;
            one.run(clear).await.unwrap();
        }
        assert!(assert_indexed(&cluster, unique()).await.len() >= 500);
    }
}

/// Changes records until `ends`. If `are_unique` is false, all nodes write the same names.
async fn write_until(node: Cluster, id: u64, are_unique: bool, ends: Arc<AtomicBool>) {
    let (table, mut round) = (names(&node).await, 0);
    while !ends.load(Ordering::SeqCst) {
        round += 1;
        let (key, group) = (id * 10_000 + round % 30, if are_unique { id } else { 0 });
        match put(&node, &table, key, &format!("round {round} of {group}")).await {
            Ok(()) | Err(Error::IndexNotAttached { .. }) => {}
            Err(Error::Database(braiddb::Error::UniqueViolation(_))) if !are_unique => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Otherwise its transactions would fail by an index that the cluster does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_drops_entries_of_an_index_that_it_could_not_create() {
    let cluster = TestCluster::three(59).await;
    let leader = cluster.leader().await;
    // The creation does not reach the log of a leader.
    let id = (1..=3).find(|id| *id != leader).unwrap();
    let node = &cluster.nodes[&id];
    let table = names(node).await;
    put(node, &table, 1, "Ada").await.unwrap();
    // Otherwise the call would need another version of the cluster first.
    attach(node, IndexOptions::default()).await.unwrap();
    node.drop_index("names", "by_name").await.unwrap();
    until(async || node.database().indexes().await.unwrap().is_empty()).await;
    let others: Vec<_> = (1..=3).filter(|other| *other != id).map(common::address).collect();
    let others: Vec<_> = others.iter().map(String::as_str).collect();
    cluster.network.cut(&[&common::address(id)], &others);
    let short = node.with_timeout(Duration::from_secs(1));
    let by = |name: &str, keys: &mut braiddb::IndexKeys<'_, str>| keys.push(name);
    let failed = short.index(&table, "by_name", unique(), by).await;
    assert!(failed.is_err(), "{failed:?}");
    until(async || node.database().indexes().await.unwrap().is_empty()).await;
    cluster.network.heal();
    put(node, &table, 2, "Ada").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_definitions_are_refused() {
    let cluster = TestCluster::three(54).await;
    attach(&cluster.nodes[&1], IndexOptions::default()).await.unwrap();
    // Another node may not have applied the creation yet.
    cluster.assert_equal("raft.indexes").await;
    for node in cluster.nodes.values() {
        for other in [IndexOptions::default().version(1), unique()] {
            let refused = attach(node, other).await.unwrap_err();
            let Error::Database(braiddb::Error::Index(error)) = &refused else {
                panic!("{refused}");
            };
            assert!(matches!(**error, IndexError::Mismatch { .. }), "{error}");
            assert!(refused.to_string().contains("drop the index"), "{refused}");
        }
        let table = names(node).await;
        let extract = |name: &str, keys: &mut braiddb::IndexKeys<'_, u64>| {
            keys.push(&(name.len() as u64));
        };
        let refused = node.index(&table, "by_name", IndexOptions::default(), extract).await;
        assert!(matches!(refused, Err(Error::Database(braiddb::Error::Index(_)))), "{refused:?}");
        attach(node, IndexOptions::default()).await.unwrap();
    }
    // With the next version of the function.
    let one = &cluster.nodes[&1];
    put(one, &names(one).await, 1, "Ada").await.unwrap();
    one.drop_index("names", "by_name").await.unwrap();
    for missing in [one.drop_index("names", "by_name"), one.drop_index("x", "by_name")] {
        assert!(matches!(missing.await, Err(Error::Refused(_))));
    }
    for node in cluster.nodes.values() {
        let table = names(node).await;
        let next = IndexOptions::default().version(1);
        let lower = |name: &str, keys: &mut braiddb::IndexKeys<'_, str>| {
            keys.push(&name.to_lowercase());
        };
        let index = node.index(&table, "by_name", next, lower).await.unwrap();
        assert_eq!(entries(node, &index).await, [("ada".to_owned(), 1)]);
        check(node).await;
    }
}

/// It learns that the cluster dropped the other one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lags_attaches_another_definition() {
    let cluster = TestCluster::three(60).await;
    for node in cluster.nodes.values() {
        attach(node, IndexOptions::default()).await.unwrap();
    }
    let table = names(&cluster.nodes[&3]).await;
    cluster.network.cut(&["node-3"], &["node-1", "node-2"]);
    cluster.nodes[&1].drop_index("names", "by_name").await.unwrap();
    let by = |name: &str, keys: &mut braiddb::IndexKeys<'_, str>| keys.push(name);
    let attached = cluster.nodes[&3].index(&table, "by_name", unique(), by);
    let heal = async {
        tokio::task::yield_now().await;
        cluster.network.heal();
    };
    tokio::join!(attached, heal).0.unwrap();
    assert!(assert_indexed(&cluster, unique()).await.is_empty());
}

/// It applies the transactions of the others, and indexes their records when the program attaches
/// the index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_the_function_executes_no_writes_of_the_table() {
    let mut cluster = TestCluster::three(55).await;
    for node in [&cluster.nodes[&1], &cluster.nodes[&2]] {
        attach(node, IndexOptions::default()).await.unwrap();
    }
    let table = names(&cluster.nodes[&1]).await;
    put(&cluster.nodes[&1], &table, 1, "Ada").await.unwrap();
    cluster.assert_equal("names").await;
    let other: Table<u64, str> =
        cluster.nodes[&3].open_or_create_table("without an index").await.unwrap();
    put(&cluster.nodes[&3], &other, 1, "Bob").await.unwrap();
    let there = names(&cluster.nodes[&3]).await;
    assert_not_attached(put(&cluster.nodes[&3], &there, 2, "Eve").await);
    drop((there, other));
    // Its database has entries now, which the program does not attach after the restart.
    attach(&cluster.nodes[&3], IndexOptions::default()).await.unwrap();
    cluster.stop(3).await;
    cluster.open(3).await;
    let there = names(&cluster.nodes[&3]).await;
    assert_not_attached(put(&cluster.nodes[&3], &there, 2, "Eve").await);
    until(async || {
        // It fails if another election was faster.
        _ = cluster.nodes[&1].transfer_leadership(3).await;
        cluster.leader().await == 3
    })
    .await;
    put(&cluster.nodes[&1], &table, 1, "Grace").await.unwrap();
    put(&cluster.nodes[&1], &table, 3, "Eve").await.unwrap();
    assert_eq!(cluster.assert_equal("names").await.len(), 2);
    assert_not_attached(put(&cluster.nodes[&3], &there, 2, "Eve").await);
    assert_eq!(assert_indexed(&cluster, IndexOptions::default()).await.len(), 2);
    put(&cluster.nodes[&3], &there, 2, "Eve").await.unwrap();
    assert_eq!(assert_indexed(&cluster, IndexOptions::default()).await.len(), 3);
}

/// Begins to build another index, which takes as long as a snapshot exists.
async fn build_second(node: &Cluster) -> tokio::task::JoinHandle<Result<()>> {
    // Longer than the other calls wait.
    let (building, table) = (node.with_timeout(3 * LIMIT), names(node).await);
    let build = tokio::spawn(async move {
        let by = |name: &str, keys: &mut braiddb::IndexKeys<'_, str>| keys.push(name);
        building.index(&table, "second", IndexOptions::default(), by).await.map(drop)
    });
    let is_listed = |index: &IndexDescription| index.name == "second";
    until(async || node.database().indexes().await.unwrap().iter().any(is_listed)).await;
    build
}

/// A snapshot that a program holds delays the deletion of entries, and the build of other indexes.
/// The log does not wait for either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_and_builds_of_programs_do_not_delay_the_log() {
    let mut cluster = TestCluster::three(58).await;
    let one = cluster.nodes[&1].clone();
    for node in [&one, &cluster.nodes[&3]] {
        attach(node, IndexOptions::default()).await.unwrap();
    }
    let table = names(&one).await;
    put(&one, &table, 1, "Ada").await.unwrap();
    cluster.assert_equal("names").await;
    // The program does not attach the index.
    cluster.stop(3).await;
    cluster.open(3).await;
    let three = cluster.nodes[&3].clone();
    let snapshot = three.database().snapshot().await.unwrap();
    let build = build_second(&three).await;
    put(&one, &table, 2, "Grace").await.unwrap();
    assert_eq!(cluster.contents(3, "names").await.len(), 2);
    build.abort();
    assert!(build.await.is_err());
    drop(snapshot);
    // The key function of one node fails while another index is built there.
    let there = names(&three).await;
    let fails = |name: &str, keys: &mut braiddb::IndexKeys<'_, str>| {
        assert_ne!(name, "bad", "a name without keys");
        keys.push(name);
    };
    three.index(&there, "by_name", IndexOptions::default(), fails).await.unwrap();
    let snapshot = three.database().snapshot().await.unwrap();
    let build = build_second(&three).await;
    put(&one, &table, 3, "bad").await.unwrap();
    assert_eq!(cluster.contents(3, "names").await.len(), 3);
    one.rename_table("names", "people").await.unwrap();
    put(&one, &table, 4, "Alan").await.unwrap();
    assert_eq!(cluster.contents(3, "people").await.len(), 4);
    one.drop_index("people", "by_name").await.unwrap();
    one.drop_table("people").await.unwrap();
    assert!(cluster.assert_equal("raft.catalog").await.is_empty());
    assert!(build.await.unwrap().is_err(), "its table is dropped");
    drop(snapshot);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_brings_indexes() {
    let mut cluster = TestCluster::start(3, 56, |options| options.kept_entries(10)).await;
    cluster.init(&[1, 2, 3]).await;
    let one = cluster.nodes[&1].clone();
    let table = names(&one).await;
    put(&one, &table, 1, "Ada").await.unwrap();
    attach(&one, unique()).await.unwrap();
    assert_indexed(&cluster, unique()).await;
    let last = cluster.nodes[&3].status().last_log_index;
    cluster.stop(3).await;
    // Another index of this name.
    one.drop_index("names", "by_name").await.unwrap();
    attach(&one, IndexOptions::default()).await.unwrap();
    for key in 0..60 {
        put(&one, &table, key, &format!("name {}", key / 2)).await.unwrap();
    }
    let leader = cluster.leader().await;
    assert!(cluster.nodes[&leader].status().purged_index > last);
    cluster.open(3).await;
    cluster.add_directory(4).await;
    one.add_node(4, common::address(4)).await.unwrap();
    assert_eq!(assert_indexed(&cluster, IndexOptions::default()).await.len(), 60);
    for id in [3, 4] {
        let node = &cluster.nodes[&id];
        put(node, &names(node).await, 100 + id, "Ada").await.unwrap();
    }
    // A snapshot that a node receives while it has attached the index.
    let last = cluster.nodes[&4].status().last_log_index;
    cluster.network.cut(&["node-4"], &["node-1", "node-2", "node-3"]);
    for key in 0..60 {
        put(&one, &table, key, &format!("name {}", key / 3)).await.unwrap();
    }
    let leader = cluster.leader().await;
    assert!(cluster.nodes[&leader].status().purged_index > last);
    cluster.network.heal();
    assert_eq!(assert_indexed(&cluster, IndexOptions::default()).await.len(), 62);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_leave_nothing_that_prevents_the_next() {
    let cluster = TestCluster::three(57).await;
    let one = &cluster.nodes[&1];
    let table = names(one).await;
    for key in 0..50 {
        put(one, &table, key, &format!("name {key}")).await.unwrap();
    }
    let mut dropped = [0; 2];
    for polls in 1..60 {
        let node = &cluster.nodes[&(1 + polls as u64 % 3)];
        let options = IndexOptions::default().version(polls as u32);
        dropped[0] += usize::from(poll_at_most(attach(node, options), polls).await.is_none());
        put(one, &table, 60, &format!("round {polls}")).await.or_else(expected).unwrap();
        attach(node, options).await.unwrap();
        put(node, &names(node).await, 61, &format!("round {polls}")).await.unwrap();
        if polls % 10 == 0 {
            assert_indexed(&cluster, options).await;
        }
        let ended = poll_at_most(node.drop_index("names", "by_name"), polls).await;
        dropped[1] += usize::from(ended.is_none());
        until(async || match node.drop_index("names", "by_name").await {
            Ok(()) | Err(Error::Refused(_)) => true,
            // The dropped call took effect between two attempts.
            Err(error) => panic!("{error}"),
        })
        .await;
    }
    assert!(dropped[0] >= 3 && dropped[1] >= 1, "{dropped:?}");
    assert_eq!(assert_indexed(&cluster, unique()).await.len(), 52);
}

/// The node has not attached the index, or not any more.
fn expected(error: Error) -> Result<()> {
    match error {
        Error::IndexNotAttached { .. } => Ok(()),
        error => Err(error),
    }
}
