//! Running nodes, with looks inside: their end, their tokens, their calls of a leader, their limits.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::time::Duration;

use braiddb::{Database, Options, Table, Transaction, Tuning};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::catalog;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::memory::MemoryNetwork;
use crate::message::{Envelope, Refusal, Request};
use crate::options::ClusterOptions;
use crate::proposer::Outgoing;
use crate::raft::Entry;
use crate::read::Consistency;
use crate::service::Service;
use crate::status::Role;
use crate::storage::{Storage, decode, encode, row};
use crate::transport::{CallError, CallFuture, Transport};

/// Deadline of what must happen at last. Tests that pass never wait for it.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A node, and the directory that ends with it.
pub struct Node {
    cluster: Cluster,
    _directory: TempDir,
}

impl std::ops::Deref for Node {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

pub async fn start(network: &MemoryNetwork, options: ClusterOptions) -> Result<Node> {
    start_through(network.transport(options.node.to_string()), options).await
}

async fn start_through(transport: Arc<dyn Transport>, options: ClusterOptions) -> Result<Node> {
    let directory = tempfile::tempdir().unwrap();
    let options_of_database = Options::default().workers(1).socket(false);
    let db = Database::open(directory.path(), options_of_database).unwrap();
    let cluster = Cluster::start(db, options.timeout(LIMIT), transport).await?;
    Ok(Node { cluster, _directory: directory })
}

/// Starts a cluster of this many nodes, whose first one leads.
pub async fn cluster(network: &MemoryNetwork, nodes: u64, heartbeat: Duration) -> Vec<Node> {
    filtered_cluster(network, nodes, heartbeat, |_| true).await
}

/// Starts a cluster of this many nodes, which send only the requests for which `passes` is true.
async fn filtered_cluster(
    network: &MemoryNetwork,
    nodes: u64,
    heartbeat: Duration,
    passes: fn(&Request) -> bool,
) -> Vec<Node> {
    let (mut running, mut members) = (Vec::new(), BTreeMap::new());
    for node in 1..=nodes {
        let options = ClusterOptions::new("test", node).heartbeat(heartbeat);
        let transport = Arc::new(Filter { transport: network.transport(node.to_string()), passes });
        let node = start_through(transport, options).await.unwrap();
        members.insert(node.status().node, node.status().node.to_string());
        running.push(node);
    }
    running[0].init(members).await.unwrap();
    running
}

pub async fn put(cluster: &Cluster, table: &Table<u64, u64>, value: u64) -> Result<u64> {
    let table = table.clone();
    let outcome =
        cluster.run(async move |tx: &Transaction| tx.put(&table, &1, &value).await).await?;
    Ok(outcome.token.0)
}

/// Waits until a condition holds.
pub async fn until(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("it does not come to hold");
}

/// Checks that a call still waits when the database has answered it several times.
pub async fn assert_waits<T: std::fmt::Debug>(
    mut call: Pin<&mut impl Future<Output = T>>,
    db: &Database,
) {
    for _ in 0..100 {
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "{polled:?}");
        // The worker answers requests in order. This one may fail too.
        _ = db.tables().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_ends_after_the_entry_that_it_applies() {
    let network = MemoryNetwork::default();
    let nodes = cluster(&network, 2, Duration::from_millis(100)).await;
    let table: Table<u64, u64> = nodes[0].open_or_create_table("a").await.unwrap();
    let there: Table<u64, u64> = nodes[1].open_or_create_table("a").await.unwrap();
    // A closure on the second node holds the record that the entry writes.
    let holding = Arc::new(Notify::new());
    let (node, holds, held) = (nodes[1].cluster.clone(), holding.clone(), there.clone());
    let closure = tokio::spawn(async move {
        let body = async move |tx: &Transaction| {
            tx.put(&held, &1, &1).await?;
            holds.notify_one();
            pending::<()>().await;
            Ok(())
        };
        _ = node.run(body).await;
    });
    holding.notified().await;
    let index = put(&nodes[0], &table, 2).await.unwrap();
    until(|| nodes[1].inner.replica.newest() >= index).await;
    let stopping = nodes[1].cluster.clone();
    let stopping = tokio::spawn(async move { stopping.shutdown().await });
    until(|| nodes[1].status().failure.is_some()).await;
    // All that could run has run.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished(), "the node ended while it applied an entry");
    closure.abort();
    stopping.await.unwrap();
    assert_eq!(nodes[1].inner.replica.applied(), index);
    assert_eq!(nodes[1].database().get(&there, &1).await.unwrap(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_a_transaction_that_reads_covers_what_it_read() {
    let nodes = cluster(&MemoryNetwork::default(), 1, Duration::from_millis(100)).await;
    let node = &nodes[0];
    let table: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    let index = put(node, &table, 1).await.unwrap();
    // As between the commit of an entry in the database and the report that it is applied.
    node.inner.replica.begin_applying(index + 1);
    node.inner.replica.storage.db.put(&table, &1, &2).await.unwrap();
    let read = node.run(async move |tx: &Transaction| tx.get(&table, &1).await).await.unwrap();
    assert_eq!(read.value, Some(2));
    assert!(read.token.0 > index, "{read:?}");
}

/// Without a pause, a node that cannot reach the leader calls it thousands of times a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_be_reached_is_called_again_after_a_pause() {
    let network = MemoryNetwork::default();
    // So long that the follower begins no election.
    let nodes = cluster(&network, 2, Duration::from_secs(20)).await;
    let table: Table<u64, u64> = nodes[1].open_or_create_table("a").await.unwrap();
    put(&nodes[1], &table, 1).await.unwrap();
    network.cut(&["1"], &["2"]);
    let (before, _) = network.sent();
    let impatient = nodes[1].with_timeout(Duration::from_millis(500));
    let failed = put(&impatient, &table, 2).await;
    assert!(matches!(failed, Err(Error::CommitUnknown { .. })), "{failed:?}");
    let (after, _) = network.sent();
    assert!((1..20).contains(&(after - before)), "{} messages", after - before);
}

/// Runs a test that may never end on another thread.
fn with_limit(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LIMIT).expect("the test ends");
}

/// A task that never rests would keep the paused time from passing.
#[test]
fn a_node_that_has_stopped_looks_for_a_leader_after_a_pause() {
    with_limit(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let node = start(&MemoryNetwork::default(), ClusterOptions::new("test", 1)).await;
            let node = node.unwrap();
            node.shutdown().await;
            let id = node.new_id();
            let _decision = node.inner.replica.expect_decision(id);
            assert!(node.inner.proposer.submit(Outgoing { id, bytes: Bytes::new() }));
            // Without calls of the database, which take no time.
            tokio::time::sleep(Duration::from_hours(1)).await;
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_options_are_checked() {
    let network = MemoryNetwork::default();
    for wrong in [0, (1 << 20) + 1, usize::MAX] {
        let options = ClusterOptions::new("test", 1).max_requests(wrong);
        let refused = start(&network, options).await.map(|node| node.cluster);
        assert!(matches!(refused, Err(Error::Options(_))), "{wrong}: {refused:?}");
    }
    for wrong in [(1 << 40) + 1, u64::MAX] {
        let options = ClusterOptions::new("test", 1).kept_entries(wrong);
        let refused = start(&network, options).await.map(|node| node.cluster);
        assert!(matches!(refused, Err(Error::Options(_))), "{wrong}: {refused:?}");
    }
    for allowed in [0, 1 << 40] {
        let options = ClusterOptions::new("test", 1).kept_entries(allowed);
        start(&network, options).await.unwrap().shutdown().await;
    }
    for allowed in [1, 1 << 20] {
        let options = ClusterOptions::new("test", 1).max_requests(allowed);
        start(&network, options).await.unwrap().shutdown().await;
    }
}

/// Sends only some requests. The others have no answer.
struct Filter {
    transport: Arc<dyn Transport>,
    passes: fn(&Request) -> bool,
}

impl Transport for Filter {
    fn call(&self, address: &str, message: Bytes, timeout: Duration) -> CallFuture {
        let envelope: Envelope = postcard::from_bytes(&message).unwrap();
        if (self.passes)(&envelope.request) {
            return self.transport.call(address, message, timeout);
        }
        let (address, reason) = (address.to_owned(), "it is blocked".to_owned());
        Box::pin(async move {
            tokio::time::sleep(timeout).await;
            Err(CallError { address, reason })
        })
    }

    fn serve(&self, service: Arc<Service>) -> Result<()> {
        self.transport.serve(service)
    }

    fn stop(&self) {
        self.transport.stop();
    }
}

/// A leader that restarts leads again without an election. It does not know yet which entries are
/// committed, and its database may have lost the application of some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_restarts_shows_what_was_committed_before() {
    let network = MemoryNetwork::default();
    // So long that the other node begins no election.
    let heartbeat = Duration::from_secs(2);
    let nodes = cluster(&network, 2, heartbeat).await;
    let (node, db) = (&nodes[0], nodes[0].database().clone());
    let storage = node.inner.replica.storage.clone();
    let table: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    let first = put(node, &table, 1).await.unwrap();
    let applied = storage.applied().await.unwrap();
    put(node, &table, 2).await.unwrap();
    node.shutdown().await;
    // As after a loss of power: the entry is on disk, and its application is not.
    let (lost, of) = (storage.clone(), table.clone());
    let lose = async move |tx: &Transaction| {
        tx.put(&lost.state, row::APPLIED, &encode(&applied)).await?;
        tx.delete_range(&lost.window, first + 1..).await?;
        tx.put(&of, &1, &1).await
    };
    storage.db.run(lose).await.unwrap();
    // Only the empty messages by which a leader confirms its role, and no entries.
    let passes = |request: &Request| {
        matches!(request, Request::Append(append)
            if append.entries.is_empty() && append.prev_log_id.is_none())
    };
    let transport = Arc::new(Filter { transport: network.transport("1"), passes });
    let options = ClusterOptions::new("test", 1).heartbeat(heartbeat);
    let restarted = Cluster::start(db, options.timeout(heartbeat), transport).await.unwrap();
    until(|| restarted.status().leader == Some(1)).await;
    let read = async move |tx: &Transaction| tx.get(&table, &1).await;
    let read = restarted.read(Consistency::Linearizable, read).await;
    // A slow machine may not even confirm the role before the deadline.
    assert!(matches!(read, Err(Error::Timeout(_) | Error::NoQuorum(_))), "{read:?}");
}

/// The deadline of the transfer is later than that of the write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_wait_for_a_transfer_only_for_a_while() {
    let network = MemoryNetwork::default();
    let answers_no_election = |request: &Request| !matches!(request, Request::Elect { .. });
    let heartbeat = Duration::from_millis(100);
    let nodes = filtered_cluster(&network, 3, heartbeat, answers_no_election).await;
    let node = &nodes[0];
    let table: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    let patient = node.with_timeout(Duration::from_hours(1));
    for (lacks, target) in [(false, 2), (true, 3)] {
        if lacks {
            network.cut(&["3"], &["1", "2"]);
            for value in 0..100 {
                put(node, &table, value).await.unwrap();
            }
        }
        // The transfer is polled first, and begins before the write does.
        tokio::select! {
            biased;
            // Also if a slow machine elected another leader.
            _ = patient.transfer_leadership(target) => {}
            written = put(node, &table, 1) => assert!(written.is_ok(), "{written:?}"),
        }
    }
}

/// The end of its log was never committed, and is replaced by the entries of another leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_do_not_wait_for_entries_that_were_never_committed() {
    let network = MemoryNetwork::default();
    let heartbeat = Duration::from_millis(100);
    let nodes = cluster(&network, 3, heartbeat).await;
    let (node, db) = (&nodes[0], nodes[0].database().clone());
    let table: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    put(node, &table, 1).await.unwrap();
    let storage = node.inner.replica.storage.clone();
    let log = storage.log.clone();
    node.shutdown().await;
    let (last, entry) = db.last(&log).await.unwrap().unwrap();
    let mut entry: Entry = decode(&entry);
    for index in last + 1..last + 10 {
        entry.log_id.index = index;
        storage.db.put(&log, &index, &encode(&entry)).await.unwrap();
    }
    let leads = |node: &Node| node.status().role == Role::Leader;
    until(|| nodes[1..].iter().any(leads)).await;
    let options = ClusterOptions::new("test", 1).heartbeat(heartbeat).timeout(LIMIT);
    let restarted = Cluster::start(db, options, network.transport("1")).await.unwrap();
    // At first it leads again in its old term.
    until(|| restarted.status().leader.is_some_and(|leader| leader != 1)).await;
    while restarted.transfer_leadership(1).await.is_err() {
        tokio::time::sleep(heartbeat).await;
    }
    let read = async move |tx: &Transaction| tx.get(&table, &1).await;
    let read = restarted.read(Consistency::Linearizable, read).await;
    assert_eq!(read.unwrap(), Some(1));
}

/// It installed a snapshot, and ended before it purged the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lacks_the_entries_of_a_snapshot_is_recovered() {
    let network = MemoryNetwork::default();
    let nodes = cluster(&network, 2, Duration::from_millis(100)).await;
    let db = nodes[0].database().clone();
    let storage = nodes[0].inner.replica.storage.clone();
    let table: Table<u64, u64> = nodes[0].open_or_create_table("a").await.unwrap();
    put(&nodes[0], &table, 1).await.unwrap();
    for node in &nodes {
        node.shutdown().await;
    }
    let mut applied = storage.applied().await.unwrap();
    applied.log_id.as_mut().unwrap().index += 100;
    storage.set_state_row(row::APPLIED, &applied).await.unwrap();
    Cluster::recover(&db, "second", 1, "1").await.unwrap();
    let options = ClusterOptions::new("second", 1).timeout(LIMIT);
    let node = Cluster::start(db, options, network.transport("1")).await.unwrap();
    until(|| node.status().role == Role::Leader).await;
    put(&node, &table, 2).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_no_node_is_not_changed() {
    let db = Database::in_memory(Options::default().workers(1)).unwrap();
    let refused = Cluster::recover(&db, "second", 1, "1").await;
    assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
    assert!(db.tables().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_has_no_upper_bound() {
    let network = MemoryNetwork::default();
    let nodes = cluster(&network, 1, Duration::from_millis(100)).await;
    let node = nodes[0].with_timeout(Duration::MAX);
    let table: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    put(&node, &table, 1).await.unwrap();
    let client = Client::new(network.transport("client"), "test", "1", Duration::MAX);
    client.put("text", "a", "b").await.unwrap();
}

/// As while an entry is applied that renames the table, and another one that renames it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_being_renamed_is_opened_afterwards() {
    let nodes = cluster(&MemoryNetwork::default(), 1, Duration::from_millis(100)).await;
    let (node, replica) = (&nodes[0], &nodes[0].inner.replica);
    let _: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    let index = replica.applied() + 1;
    replica.begin_applying(index);
    replica.storage.db.rename_table("a", "b").await.unwrap();
    let mut opening = pin!(node.open_or_create_table::<u64, u64>("a"));
    assert_waits(opening.as_mut(), node.database()).await;
    replica.storage.db.rename_table("b", "a").await.unwrap();
    replica.set_applied(index, 0);
    opening.await.unwrap();
}

/// An entry that a node cannot apply would stop it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_table_waits_while_the_database_is_overloaded() {
    const OPEN: usize = 64;
    let options = Options::default().workers(1).tuning(Tuning::default().max_open(OPEN));
    let db = Database::in_memory(options).unwrap();
    let _: Table<u64, u64> = db.create_table("a").await.unwrap();
    let mut closures = tokio::task::JoinSet::new();
    // 64 transactions run, and 64 others wait for something outside the database.
    for _ in 0..2 * OPEN {
        let db = db.clone();
        closures
            .spawn(async move { db.run(async |_| pending::<braiddb::Result<()>>().await).await });
    }
    let mut is_overloaded = false;
    while !is_overloaded {
        is_overloaded = matches!(db.tables().await, Err(braiddb::Error::Overloaded));
    }
    let mut listing = pin!(catalog::tables(&db));
    assert_waits(listing.as_mut(), &db).await;
    closures.shutdown().await;
    assert_eq!(listing.await.unwrap().len(), 1);
}

/// As between the first check of the database and the one after its writes are restricted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_created_while_the_node_started_is_found() {
    let db = Database::in_memory(Options::default().workers(1)).unwrap();
    let storage = Storage::open(&db).await.unwrap();
    let _: Table<u64, u64> = storage.db.create_table("a").await.unwrap();
    let transport = MemoryNetwork::default().transport("1");
    let started = Cluster::start(db, ClusterOptions::new("test", 1), transport).await;
    assert!(matches!(&started, Err(Error::Options(reason)) if reason.contains("\"a\"")));
    assert_eq!(storage.state_row::<Identity>(row::IDENTITY).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_is_not_raised_after_the_deadline() {
    let nodes = cluster(&MemoryNetwork::default(), 1, Duration::from_millis(100)).await;
    let (node, leader) = (&nodes[0], &nodes[0].inner.leader);
    let adding = leader.service.changing_members.lock().await;
    let late = leader.raise_version(node.new_id(), 2, Duration::from_millis(1));
    let late = tokio::time::timeout(LIMIT, late).await.expect("the call ends");
    assert!(matches!(late, Err(Refusal::Failed(_))), "{late:?}");
    drop(adding);
    let _: Table<u64, u64> = node.open_or_create_table("a").await.unwrap();
    assert_eq!(node.status().version, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_does_not_answer_is_asked_again_to_raise_the_version() {
    let network = MemoryNetwork::default();
    // So long that no other node begins an election.
    let nodes = cluster(&network, 3, Duration::from_secs(1)).await;
    let _: Table<u64, u64> = nodes[1].open_or_create_table("a").await.unwrap();
    until(|| nodes[1].status().leader == Some(1)).await;
    network.cut_one_way(&["2"], &["1"]);
    let mut dropping = pin!(nodes[1].drop_table("a"));
    assert_waits(dropping.as_mut(), nodes[1].database()).await;
    network.heal();
    dropping.await.unwrap();
    assert_eq!(nodes[1].status().version, 2);
}
