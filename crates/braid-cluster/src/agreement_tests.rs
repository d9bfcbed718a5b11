//! The state machine decides alike on all nodes: whichever program, clock or index a node has, and
//! whichever leader asked for a change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use braiddb::{Index, IndexKeys, IndexOptions, Table, TableOptions, Transaction, WallClock};
use bytes::Bytes;
use openraft::storage::RaftStateMachine;
use openraft::{BasicNode, CommittedLeaderId, EntryPayload, LogId, Membership};

use crate::command::{Action, CatalogChange, ClusterTable, Command, Decision, ExecutedTransaction};
use crate::machine_tests::{
    Node, Setup, change, copy, create, raise_to_2, rename_a, submission, table, version_2,
};
use crate::raft::{EncodedCommand, Entry};
use crate::storage::encode;

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

fn entry(index: u64, payload: EntryPayload<crate::raft::TypeConfig>) -> Entry {
    Entry { log_id: LogId::new(CommittedLeaderId::new(1, 1), index), payload }
}

fn command(submissions: Vec<Bytes>) -> Bytes {
    encode(&Command { submissions }).into()
}

/// Another program may understand such an entry, and apply it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stops_at_an_entry_that_it_cannot_decode() {
    let mut node = Node::new().await;
    node.apply(1, &[submission(0, table())]).await;
    let a: Table<u64, u64> = node.replica.storage.db.open_table("a").await.unwrap();
    let put = execute(&node, 1, async move |tx: &Transaction| tx.put(&a, &1, &1).await).await;
    let Action::Transaction(put) = put else { unreachable!("a transaction") };
    // The version of the set of keys.
    let mut reads = put.reads.to_vec();
    reads[1] += 1;
    let newer = Action::Transaction(ExecutedTransaction { reads: reads.into(), ..put.clone() });
    let newer = encode(&submission(2, newer)).into();
    let valid: Bytes = encode(&submission(1, Action::Transaction(put))).into();
    let unknown = Bytes::from_static(&[0xff; 20]);
    for undecodable in [
        unknown.clone(),
        command(vec![valid.clone(), unknown]),
        command(vec![valid.clone(), newer]),
    ] {
        let payload = EntryPayload::Normal(EncodedCommand(undecodable));
        let failed = node.machine.apply([entry(2, payload)]).await.unwrap_err().to_string();
        assert!(failed.contains("entry 2") && failed.contains("program"), "{failed}");
        assert_eq!(node.replica.storage.applied().await.unwrap().index(), 1);
        // As after an upgrade of the program.
        node = node.restart().await;
    }
    let payload = EntryPayload::Normal(EncodedCommand(command(vec![valid])));
    node.machine.apply([entry(2, payload)]).await.unwrap();
    assert_eq!(node.rows("a").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_is_raised_only_for_the_members_that_were_asked() {
    let mut node = Node::new().await;
    for index in 1..=2 {
        let members = BTreeSet::from_iter(1..=index);
        let nodes = members.iter().map(|node| (*node, BasicNode::new(node.to_string())));
        let nodes: BTreeMap<u64, BasicNode> = nodes.collect();
        let members = Membership::new(vec![members], nodes);
        node.machine.apply([entry(index, EntryPayload::Membership(members))]).await.unwrap();
    }
    let members = |index| Some(LogId::new(CommittedLeaderId::new(1, 1), index));
    assert_eq!(node.apply(3, &[version_2()]).await, [Decision::Conflict]);
    assert_eq!(node.apply(4, &[raise_to_2(members(1))]).await, [Decision::Conflict]);
    assert_eq!(node.replica.version(), 1);
    let mut node = node.restart().await;
    assert_eq!(node.apply(5, &[raise_to_2(members(2))]).await, [Decision::Committed]);
    assert_eq!(node.replica.version(), 2);
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
