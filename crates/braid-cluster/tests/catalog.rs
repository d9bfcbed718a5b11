//! Changes of the catalog: tables with options, drops and renames, on all nodes.

mod common;

use std::time::Duration;

use braid_cluster::{ClusterOptions, Consistency, Error};
use braiddb::{Table, TableOptions, Transaction};
use common::{TestCluster, add};

/// Names and options of a node's tables, except the cluster's own.
async fn tables(cluster: &TestCluster, node: u64) -> Vec<(String, TableOptions)> {
    let read = async move |tx: &Transaction| tx.tables().await;
    let tables = cluster.nodes[&node].read(Consistency::Linearizable, read).await.unwrap();
    let tables = tables.into_iter().map(|table| (table.name, table.options));
    tables.filter(|(name, _)| !name.starts_with("raft.")).collect()
}

/// Returns when each record of a table expires.
async fn expiries(cluster: &TestCluster, node: u64, table: &str) -> Vec<(u64, Option<u64>)> {
    let name = table.to_owned();
    let read = async move |tx: &Transaction| {
        let table: Table<u64, u64> = tx.open_table(&name).await?;
        let mut keys = Vec::new();
        let mut scan = tx.scan(&table, ..)?;
        while let Some((key, _)) = scan.next().await? {
            keys.push(key);
        }
        drop(scan);
        let mut expiries = Vec::new();
        for key in keys {
            expiries.push((key, tx.expires_at_ms(&table, &key).await?));
        }
        Ok(expiries)
    };
    cluster.nodes[&node].read(Consistency::Linearizable, read).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_have_the_same_options_on_all_nodes() {
    let mut cluster = TestCluster::start(1, 30, |options| options.kept_entries(10)).await;
    cluster.init(&[1]).await;
    let node = cluster.nodes[&1].clone();
    let hour = TableOptions::default().ttl(Duration::from_secs(3600)).cache_cold(false);
    let paged = TableOptions::default().paged();
    let sessions: Table<u64, u64> = node.open_or_create_table_with("s", hour).await.unwrap();
    let pages: Table<u64, u64> = node.open_or_create_table_with("p", paged).await.unwrap();
    let short = TableOptions::default().ttl(Duration::ZERO);
    let refused = node.open_or_create_table_with::<u64, u64>("x", short).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let of = sessions.clone();
    let shorter = async move |tx: &Transaction| {
        tx.put_with_ttl(&of, &100, &1, Duration::from_secs(600)).await
    };
    node.run(shorter).await.unwrap();
    for key in 0..20 {
        add(&node, &sessions, key, 1).await.unwrap();
        add(&node, &pages, key, 1).await.unwrap();
    }
    // Both nodes receive snapshots.
    for id in [2, 3] {
        cluster.add_directory(id).await;
        node.add_node(id, common::address(id)).await.unwrap();
    }
    add(&cluster.nodes[&3], &cluster.nodes[&3].open_or_create_table("s").await.unwrap(), 3, 1)
        .await
        .unwrap();
    for id in [2, 3] {
        assert_eq!(tables(&cluster, id).await, tables(&cluster, 1).await);
        assert_eq!(expiries(&cluster, id, "s").await, expiries(&cluster, 1, "s").await);
    }
    assert_eq!(tables(&cluster, 3).await, [("p".to_owned(), paged), ("s".to_owned(), hour)]);
    assert_eq!(expiries(&cluster, 1, "s").await.len(), 21);
    assert_eq!(cluster.assert_equal("p").await.len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_dropped_and_renamed() {
    for (seed, options, by_snapshot) in [
        (31, (|options| options) as fn(ClusterOptions) -> ClusterOptions, false),
        (32, |options| options.kept_entries(10), true),
    ] {
        let mut cluster = TestCluster::start(3, seed, options).await;
        cluster.init(&[1, 2, 3]).await;
        let (one, two) = (cluster.nodes[&1].clone(), cluster.nodes[&2].clone());
        let a: Table<u64, u64> = one.open_or_create_table("a").await.unwrap();
        let b: Table<u64, u64> = two.open_or_create_table("b").await.unwrap();
        add(&one, &a, 1, 1).await.unwrap();
        add(&two, &b, 1, 10).await.unwrap();
        assert_eq!(tables(&cluster, 3).await.len(), 2);
        // All members must answer when the version of the cluster is raised.
        one.rename_table("a", "first").await.unwrap();
        one.rename_table("first", "a").await.unwrap();
        let last = cluster.nodes[&3].status().last_log_index;
        cluster.stop(3).await;
        // A long read does not delay the drop.
        let long = two.database().snapshot().await.unwrap();
        two.drop_table("a").await.unwrap();
        assert!(matches!(two.drop_table("a").await, Err(Error::Refused(_))));
        assert!(matches!(one.rename_table("a", "c").await, Err(Error::Refused(_))));
        assert!(matches!(one.rename_table("b", "raft.b").await, Err(Error::Refused(_))));
        let gone = add(&one, &a, 1, 1).await;
        let is_gone = matches!(gone, Err(Error::Database(braiddb::Error::TableNotFound(_))));
        assert!(is_gone, "{gone:?}");
        one.rename_table("b", "c").await.unwrap();
        cluster.contents(2, "c").await;
        let old = async |tx: &Transaction| tx.open_table::<u64, u64>("b").await.map(drop);
        long.run(old).await.unwrap();
        // The handle stays valid, and another table may have the old names.
        assert_eq!(add(&two, &b, 1, 1).await.unwrap(), 11);
        let other: Table<str, str> = two.open_or_create_table("a").await.unwrap();
        let put = async move |tx: &Transaction| tx.put(&other, "x", "y").await;
        two.run(put).await.unwrap();
        if by_snapshot {
            for key in 0..60 {
                add(&one, &cluster.nodes[&1].open_or_create_table("c").await.unwrap(), key, 1)
                    .await
                    .unwrap();
            }
            let leader = cluster.leader().await;
            assert!(cluster.nodes[&leader].status().purged_index > last);
        }
        drop(long);
        cluster.open(3).await;
        for id in [1, 2, 3] {
            let names: Vec<String> =
                tables(&cluster, id).await.into_iter().map(|it| it.0).collect();
            assert_eq!(names, ["a", "c"]);
        }
        assert_eq!(cluster.assert_equal("a").await.len(), 1);
        cluster.assert_equal("c").await;
        cluster.assert_equal("raft.catalog").await;
        drop((one, two));
        for id in [1, 2, 3] {
            cluster.stop(id).await;
        }
        for id in [1, 2, 3] {
            cluster.open(id).await;
        }
        cluster.leader().await;
        let c: Table<u64, u64> = cluster.nodes[&3].open_or_create_table("c").await.unwrap();
        add(&cluster.nodes[&3], &c, 1, 1).await.unwrap();
        cluster.assert_equal("c").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_write_while_tables_come_and_go() {
    let cluster = TestCluster::three(33).await;
    let steady: Table<u64, u64> = cluster.nodes[&1].open_or_create_table("steady").await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for (id, node) in cluster.nodes.clone() {
        let writer = node.clone();
        tasks.spawn(async move {
            let of: Table<u64, u64> = writer.open_or_create_table("steady").await.unwrap();
            for key in 0..30 {
                add(&writer, &of, key, 1).await.unwrap();
            }
        });
        tasks.spawn(async move {
            for round in 0..8 {
                let (name, other) = (format!("{id}-{round}"), format!("{id}-{round}-renamed"));
                let table: Table<u64, u64> = node.open_or_create_table(&name).await.unwrap();
                add(&node, &table, 1, 1).await.unwrap();
                node.rename_table(&name, &other).await.unwrap();
                assert_eq!(add(&node, &table, 1, 1).await.unwrap(), 2);
                node.drop_table(&other).await.unwrap();
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(add(&cluster.nodes[&1], &steady, 0, 0).await.unwrap(), 3);
    assert_eq!(cluster.assert_equal("steady").await.len(), 30);
    for id in [1, 2, 3] {
        assert_eq!(tables(&cluster, id).await.len(), 1);
    }
}
