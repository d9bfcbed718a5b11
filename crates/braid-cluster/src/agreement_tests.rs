//! The state machine decides alike on all nodes, whichever clock or index a node has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use braiddb::{Index, IndexKeys, IndexOptions, Table, TableOptions, Transaction, WallClock};

use crate::command::{Action, CatalogChange, ClusterTable, Decision, ExecutedTransaction};
use crate::machine_tests::{
    Node, Setup, change, copy, create, rename_a, submission, table, version_2,
};

/// Executes a transaction on a node that has applied the entries up to `base`.
async fn execute<F>(node: &Node, base: u64, body: F) -> Action
where
    F: AsyncFn(&Transaction) -> braiddb::Result<()> + Send + 'static,
{
    let proposal = node.replica.storage.db.execute(body).await.unwrap();
    let (reads, writes) = (proposal.reads.as_bytes(), proposal.writes.as_bytes());
    let (reads, writes) = (reads.to_vec().into(), writes.to_vec().into());
    Action::Transaction(ExecutedTransaction { base, reads, writes })
}

/// It found no entry of the index, so it read nothing of the table itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_found_no_index_entry_conflicts_with_changes_of_the_table() {
    let dropping = || change(1, CatalogChange::Drop("a".to_owned()));
    for changing in [rename_a(1), dropping()] {
        let mut node = Node::new().await;
        let others = submission(2, create("others", "u64"));
        node.apply(1, &[version_2(), submission(1, table()), others]).await;
        let db = &node.replica.storage.db;
        let a: Table<u64, u64> = db.open_table("a").await.unwrap();
        let others: Table<u64, u64> = db.open_table("others").await.unwrap();
        let extract = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        let index: Index<u64, u64, u64> =
            db.index(&a, "by_value", IndexOptions::default(), extract).await.unwrap();
        let body = async move |tx: &Transaction| {
            assert!(tx.entries_by(&index, 5..10)?.next().await?.is_none());
            tx.put(&others, &1, &1).await
        };
        let put = execute(&node, 1, body).await;
        assert_eq!(node.apply(2, &[submission(3, changing)]).await, [Decision::Committed]);
        assert_eq!(node.apply(3, &[submission(4, put)]).await, [Decision::Conflict]);
    }
}

/// The time to live of records. Sweeps are an eighth of this apart in real time, so that none
/// happens during a test.
const TTL: Duration = Duration::from_hours(8);

fn clock(milliseconds: &Arc<AtomicU64>) -> WallClock {
    let shown = milliseconds.clone();
    WallClock::new(move || UNIX_EPOCH + Duration::from_millis(shown.load(Ordering::SeqCst)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_contains_records_that_only_the_clock_of_its_sender_hides() {
    let [fast, slow] = [(); 2].map(|()| Arc::new(AtomicU64::new(1_000_000)));
    let with = async |milliseconds: &Arc<AtomicU64>| {
        Node::with(Setup { clock: clock(milliseconds), ..Setup::default() }).await
    };
    let (mut from, mut steady, mut to) = (with(&fast).await, with(&slow).await, with(&slow).await);
    let options = TableOptions::default().ttl(TTL);
    let expiring = ClusterTable::new("a", "u64".to_owned(), "u64".to_owned(), options);
    let creation = change(0, CatalogChange::Create(expiring));
    for node in [&mut from, &mut steady] {
        node.apply(1, &[submission(1, creation.clone())]).await;
    }
    let a: Table<u64, u64> = from.replica.storage.db.open_table("a").await.unwrap();
    let put = execute(&from, 1, async move |tx: &Transaction| tx.put(&a, &1, &1).await).await;
    for node in [&mut from, &mut steady] {
        assert_eq!(node.apply(2, &[submission(2, put.clone())]).await, [Decision::Committed]);
    }
    let later = TTL.as_millis() as u64 + 1;
    fast.fetch_add(later, Ordering::SeqCst);
    assert!(from.rows("a").await.is_empty());
    copy(&from, &mut to).await;
    assert_eq!(to.rows("a").await.len(), 1);
    steady.assert_equals(&to).await;
    slow.fetch_add(later, Ordering::SeqCst);
    assert!(to.rows("a").await.is_empty(), "the copy has another expiry");
}
