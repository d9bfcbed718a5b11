//! Writes to the database of a node that do not go through the cluster are refused.

mod common;

use braid_cluster::{Cluster, ClusterOptions, Error, MemoryNetwork};
use braiddb::{Database, Misuse, Options, Result, Table, Transaction};
use common::{TestCluster, add};

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T>) {
    match result {
        Err(error @ braiddb::Error::Misuse(Misuse::RestrictedWrite { .. })) => {
            assert!(error.to_string().contains("cluster.run"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// Tries to write the table `counters`, of which key 1 has the value 1, and to change the catalog.
async fn try_all(db: &Database) {
    let counters: Table<u64, u64> = db.open_table("counters").await.unwrap();
    assert_refused(db.put(&counters, &1, &2).await);
    let of = counters.clone();
    assert_refused(db.run(async move |tx: &Transaction| tx.delete(&of, &1).await).await);
    assert_refused(db.drop_table("counters").await);
    assert_refused(db.rename_table("counters", "others").await);
    assert_refused(db.create_table::<u64, u64>("local").await);
    // The cluster's own tables too.
    let state: Table<str, [u8]> = db.open_table("raft.state").await.unwrap();
    assert_refused(db.delete(&state, "vote").await);
    assert_eq!(db.get(&counters, &1).await.unwrap(), Some(1));
}

fn open(directory: &std::path::Path) -> Database {
    Database::open(directory, Options::default().workers(1).socket(false)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_cluster_writes() {
    let mut cluster = TestCluster::three(20).await;
    let node = cluster.nodes[&1].clone();
    let counters: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    add(&node, &counters, 1, 1).await.unwrap();
    for node in cluster.nodes.values() {
        let _: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
        try_all(node.database()).await;
    }
    let copies = tempfile::tempdir().unwrap();
    let backup = copies.path().join("backup");
    node.database().backup(&backup).unwrap();
    drop((node, counters));
    // Without the cluster.
    cluster.stop(1).await;
    let db = open(cluster.directory(1));
    try_all(&db).await;
    db.close().unwrap();
    drop(db);
    cluster.open(1).await;
    let node = cluster.nodes[&1].clone();
    let counters: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    assert_eq!(add(&node, &counters, 2, 1).await.unwrap(), 1);
    assert_eq!(cluster.assert_equal("counters").await.len(), 2);
    // A backup, before and after it becomes a new cluster.
    let db = open(&backup);
    try_all(&db).await;
    Cluster::recover(&db, "second", 1, "1").await.unwrap();
    try_all(&db).await;
    let transport = MemoryNetwork::default().transport("1");
    let node = Cluster::start(db, ClusterOptions::new("second", 1), transport).await.unwrap();
    let counters: Table<u64, u64> = node.open_or_create_table("counters").await.unwrap();
    try_all(node.database()).await;
    assert_eq!(add(&node, &counters, 2, 1).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_other_tables_is_refused_and_stays_as_it_is() {
    let db = Database::in_memory(Options::default().workers(1)).unwrap();
    let table: Table<u64, u64> = db.create_table("a").await.unwrap();
    let transport = MemoryNetwork::default().transport("1");
    let refused = Cluster::start(db.clone(), ClusterOptions::new("test", 1), transport).await;
    assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
    db.put(&table, &1, &1).await.unwrap();
    assert_eq!(db.tables().await.unwrap().len(), 1);
}
