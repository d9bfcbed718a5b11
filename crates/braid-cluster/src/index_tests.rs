//! The state machine with indexes, without a network.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use braiddb::indexes::IndexStage;
use braiddb::proposals::{KeySet, KeySpace, RowWrites};
use braiddb::{Index, IndexOptions, Table, Transaction};
use tokio::sync::Notify;

use crate::command::{Action, CatalogChange, ClusterIndex, Decision, ExecutedTransaction};
use crate::local_indexes::{IndexCheck, LocalIndexes};
use crate::machine_tests::{
    Node, change, copy, create, drop_a, rename_a, submission, table, version_2,
};
use crate::node_tests::LIMIT;

/// A transaction that is executed on a node.
async fn executed<F>(node: &Node, base: u64, body: F) -> Action
where
    F: AsyncFn(&Transaction) -> braiddb::Result<()> + Send + 'static,
{
    let proposal = node.replica.storage.db.execute(body).await.unwrap();
    let (reads, writes) = (proposal.reads.as_bytes(), proposal.writes.as_bytes());
    let (reads, writes) = (reads.to_vec().into(), writes.to_vec().into());
    Action::Transaction(ExecutedTransaction { base, reads, writes })
}

/// Adds an index of the table `a` to the entries of a node, by value.
async fn attach(node: &Node) -> Index<u64, u64, u64> {
    let db = &node.replica.storage.db;
    let a: Table<u64, u64> = db.open_table("a").await.unwrap();
    db.index(&a, "by_value", IndexOptions::default(), |value, keys| keys.push(&value))
        .await
        .unwrap()
}

/// Attaches the index as a call of the program does.
async fn attach_listed(node: &Node) {
    let build = node.replica.storage.indexes.begin_building("a", "by_value").await;
    attach(node).await;
    assert!(build.end(&by_value()));
}

fn by_value() -> ClusterIndex {
    ClusterIndex::new("by_value", "u64".to_owned(), IndexOptions::default())
}

fn create_index(base: u64) -> Action {
    create_index_of(base, 1)
}

/// Creates an index of the table `a` with this number.
fn create_index_of(base: u64, created: u64) -> Action {
    let (table, index) = ("a".to_owned(), by_value());
    change(base, CatalogChange::CreateIndex { table, created, index })
}

/// Waits until the database has this many indexes, and deletes no entries.
async fn until_left(node: &Node, left: usize) {
    let db = &node.replica.storage.db;
    let wait = async {
        while db.indexes().await.unwrap().len() != left || db.stats().removals_under_way > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("indexes stay");
}

fn drop_index(base: u64, created: u64) -> Action {
    let (table, index) = ("a".to_owned(), "by_value".to_owned());
    change(base, CatalogChange::DropIndex { table, index, created })
}

/// They do not name the keys of index entries, or read entries whose keys later transactions do not
/// name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_conflict_with_changes_of_indexes() {
    let mut node = Node::new().await;
    node.apply(1, &[version_2(), submission(1, table()), submission(2, create("b", "u64"))]).await;
    let a: Table<u64, u64> = node.replica.storage.db.open_table("a").await.unwrap();
    let b: Table<u64, u64> = node.replica.storage.db.open_table("b").await.unwrap();
    let of = a.clone();
    let put = executed(&node, 1, async move |tx| tx.put(&of, &1, &1).await).await;
    let index = attach(&node).await;
    assert_eq!(node.apply(2, &[submission(3, create_index(1))]).await, [Decision::Committed]);
    assert_eq!(node.apply(3, &[submission(4, put)]).await, [Decision::Conflict]);
    // Again, and with another definition.
    assert_eq!(node.apply(4, &[submission(5, create_index(3))]).await, [Decision::Committed]);
    let other = ClusterIndex::new("by_value", "u64".to_owned(), IndexOptions::default().version(1));
    let other = CatalogChange::CreateIndex { table: "a".to_owned(), created: 1, index: other };
    let told = node.apply(5, &[submission(6, change(4, other))]).await;
    assert!(matches!(&told[..], [Decision::Refused(why)] if why.contains("version 0")), "{told:?}");
    // It reads entries only.
    let mut read = Vec::new();
    for _ in 0..2 {
        let (index, b) = (index.clone(), b.clone());
        let body = async move |tx: &Transaction| {
            assert_eq!(tx.entries_by(&index, ..)?.next().await?, None);
            tx.put(&b, &1, &1).await
        };
        read.push(executed(&node, 5, body).await);
    }
    let mut node = node.restart().await;
    let second = submission(8, read.pop().unwrap());
    let told = node.apply(6, &[submission(7, drop_index(5, 9))]).await;
    assert!(matches!(told[..], [Decision::Refused(_)]), "the number of another index: {told:?}");
    assert_eq!(node.apply(7, &[submission(9, drop_index(6, 3))]).await, [Decision::Committed]);
    assert_eq!(node.apply(8, &[second]).await, [Decision::Conflict]);
    // The drop of the table drops its indexes.
    assert_eq!(node.apply(9, &[submission(10, create_index(8))]).await, [Decision::Committed]);
    let read = match read.pop().unwrap() {
        Action::Transaction(executed) => {
            Action::Transaction(ExecutedTransaction { base: 9, ..executed })
        }
        _ => unreachable!("a transaction"),
    };
    assert_eq!(node.apply(10, &[submission(11, drop_a(9))]).await, [Decision::Committed]);
    assert!(node.rows("raft.indexes").await.is_empty());
    assert_eq!(node.apply(11, &[submission(12, read)]).await, [Decision::Conflict]);
}

/// The database has entries of an index that it did not finish to drop, or to create.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_drops_entries_of_indexes_that_the_cluster_does_not_have() {
    let mut node = Node::new().await;
    node.apply(1, &[version_2(), submission(1, table())]).await;
    attach(&node).await;
    let node = node.restart().await;
    until_left(&node, 0).await;
}

/// The deletion of entries takes as long as a snapshot of the program exists. By then, another table
/// has the name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_of_entries_does_not_concern_another_table_of_the_name() {
    let mut node = Node::new().await;
    node.apply(1, &[version_2(), submission(1, table())]).await;
    attach_listed(&node).await;
    node.apply(2, &[submission(2, create_index(1))]).await;
    let indexes = node.replica.storage.indexes.clone();
    assert!(indexes.is_ready("a", &by_value()));
    let snapshot = node.replica.storage.db.snapshot().await.unwrap();
    let rename = CatalogChange::Rename { from: "a".to_owned(), to: "b".to_owned() };
    let changes = [drop_index(2, 2), change(3, rename), table()];
    for (index, change) in (3..).zip(changes) {
        let told = node.apply(index, &[submission(index, change)]).await;
        assert_eq!(told, [Decision::Committed]);
    }
    // The database would wait for the snapshot.
    assert!(indexes.begin_building("a", "by_value").await.end(&by_value()));
    node.apply(6, &[submission(6, create_index_of(5, 3))]).await;
    assert!(indexes.is_ready("a", &by_value()));
    drop(snapshot);
    until_left(&node, 0).await;
    assert!(indexes.is_ready("a", &by_value()));
}

/// Otherwise calls that wait, or change other tables, would make it run again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_misses_no_change_of_an_index_that_it_uses() {
    let indexes = LocalIndexes::new(Vec::new());
    for table in ["a", "b"] {
        assert!(indexes.begin_building(table, "by_value").await.end(&by_value()));
        indexes.declare(table, by_value());
    }
    let reads = KeySet::whole([KeySpace { table: "a", index: Some("by_value") }]);
    let (writes, changes) = (RowWrites::default(), indexes.changes());
    drop(indexes.begin_building("a", "by_value").await);
    {
        let _block = indexes.block("a");
        let mut waiting = pin!(indexes.begin_building("a", "by_value"));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    indexes.undeclare("b", "by_value");
    assert_eq!(indexes.check(&reads, &writes, changes), IndexCheck::Passed);
    indexes.undeclare("a", "by_value");
    assert_eq!(indexes.check(&reads, &writes, changes), IndexCheck::Changed);
}

/// The change outside of the entry's transaction is made, and the transaction is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_within_a_rename_keeps_the_index() {
    let mut node = Node::new().await;
    node.apply(1, &[version_2(), submission(1, table())]).await;
    attach_listed(&node).await;
    node.apply(2, &[submission(2, create_index(1))]).await;
    node.replica.storage.db.rename_table("a", "b").await.unwrap();
    let mut node = node.restart().await;
    assert_eq!(node.apply(3, &[submission(3, rename_a(2))]).await, [Decision::Committed]);
    let found = node.replica.storage.db.indexes().await.unwrap();
    assert!(matches!(&found[..], [index] if index.stage == IndexStage::Ready), "{found:?}");
    let indexes = &node.replica.storage.indexes;
    assert!(!indexes.is_ready("b", &by_value()), "the program has not attached it");
    assert!(indexes.begin_building("b", "by_value").await.end(&by_value()));
    assert!(indexes.is_ready("b", &by_value()));
}

/// Its key function may be another one, although the definition is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_drops_entries_of_an_index_that_was_created_again() {
    let (mut from, mut to) = (Node::new().await, Node::new().await);
    for node in [&mut from, &mut to] {
        node.apply(1, &[version_2(), submission(1, table())]).await;
        attach_listed(node).await;
        node.apply(2, &[submission(2, create_index(1))]).await;
    }
    copy(&from, &mut to).await;
    from.apply(3, &[]).await;
    copy(&from, &mut to).await;
    assert!(to.replica.storage.indexes.is_ready("a", &by_value()), "it is the same index");
    from.apply(4, &[submission(3, drop_index(3, 2))]).await;
    from.apply(5, &[submission(4, create_index(4))]).await;
    copy(&from, &mut to).await;
    assert!(!to.replica.storage.indexes.is_ready("a", &by_value()));
    until_left(&to, 0).await;
}

/// A closure that is executed on the node may hold records for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_waits_for_the_database() {
    let (mut from, mut to) = (Node::new().await, Node::new().await);
    for node in [&mut from, &mut to] {
        node.apply(1, &[submission(1, table())]).await;
    }
    from.apply(2, &[]).await;
    let db = to.replica.storage.db.clone();
    let a: Table<u64, u64> = db.open_table("a").await.unwrap();
    db.put(&a, &1, &1).await.unwrap();
    let (is_held, ends) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (held, end) = (is_held.clone(), ends.clone());
    let hold = async move |tx: &Transaction| {
        tx.put(&a, &1, &2).await?;
        held.notify_one();
        end.notified().await;
        Ok(())
    };
    let holding = db.clone();
    let holding = tokio::spawn(async move { holding.execute(hold).await.map(drop) });
    is_held.notified().await;
    let before = db.stats().aborted.conflict;
    let wait = async {
        // A transaction gives up after 64 attempts.
        while db.stats().aborted.conflict < before + 70 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        ends.notify_one();
    };
    let both = async { tokio::join!(copy(&from, &mut to), wait) };
    tokio::time::timeout(LIMIT, both).await.expect("the installation does not end");
    holding.await.unwrap().unwrap();
    from.assert_equals(&to).await;
}
