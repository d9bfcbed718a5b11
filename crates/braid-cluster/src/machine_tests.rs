//! The state machine without a network. The same log gives the same decisions and contents on a
//! node that never stops, on one that restarts after every entry, and on one that received a
//! snapshot.

use std::ops::RangeInclusive;
use std::sync::Arc;

use braiddb::{Database, Options, Table, TableOptions, Transaction, Tuning, Value, WallClock};
use openraft::storage::RaftStateMachine;
use openraft::{CommittedLeaderId, EntryPayload, LogId};
use tempfile::TempDir;

use crate::applier::WINDOW_BYTES;
use crate::command::{
    Action, CatalogChange, ClusterTable, Command, Decision, ExecutedTransaction, Submission,
    SubmissionId,
};
use crate::error::Error;
use crate::identity::{Identity, LocalNode, NEWEST_VERSION, OLDEST_VERSION};
use crate::raft::{EncodedCommand, Entry};
use crate::received;
use crate::replica::Replica;
use crate::snapshot::SnapshotData;
use crate::state_machine::StateMachine;
use crate::storage::{Storage, encode, row};

/// How the nodes of a test differ from others.
#[derive(Clone)]
pub struct Setup {
    pub understood: RangeInclusive<u32>,
    pub window_bytes: u64,
    pub clock: WallClock,
}

impl Default for Setup {
    fn default() -> Self {
        let (understood, clock) = (OLDEST_VERSION..=NEWEST_VERSION, WallClock::default());
        Self { understood, window_bytes: WINDOW_BYTES, clock }
    }
}

pub struct Node {
    directory: TempDir,
    setup: Setup,
    pub replica: Arc<Replica>,
    pub machine: StateMachine,
}

impl Node {
    pub async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        Self::open(tempfile::tempdir().unwrap(), setup).await.unwrap()
    }

    /// Opens a node that understands these versions.
    async fn with_versions(
        directory: TempDir,
        understood: RangeInclusive<u32>,
    ) -> Result<Self, Error> {
        Self::open(directory, Setup { understood, ..Setup::default() }).await
    }

    async fn open(directory: TempDir, setup: Setup) -> Result<Self, Error> {
        let tuning = Tuning::default().wall_clock(setup.clock.clone());
        let options = Options::default().workers(1).socket(false).tuning(tuning);
        let db = Database::open(directory.path(), options).unwrap();
        let storage = Arc::new(Storage::open(&db).await.unwrap());
        let identity = Identity { cluster: "test".to_owned(), node: 1, id: None };
        let local = Arc::new(LocalNode::new(identity, setup.understood.clone()));
        let replica = Replica::with_window(storage, local, setup.window_bytes);
        let machine = StateMachine::open(replica.clone()).await?;
        Ok(Self { directory, setup, replica, machine })
    }

    /// Returns the reason for which the node does not start again.
    async fn refusal(self) -> String {
        let Self { replica, machine, .. } = self;
        drop(machine);
        match StateMachine::open(replica).await {
            Err(Error::Stopped(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    pub async fn restart(self) -> Self {
        let setup = self.setup.clone();
        Self::open(self.close(), setup).await.unwrap()
    }

    fn close(self) -> TempDir {
        let Self { directory, replica, machine, .. } = self;
        replica.storage.db.close().unwrap();
        drop((replica, machine));
        directory
    }

    /// Applies an entry, and returns its decisions.
    pub async fn apply(&mut self, index: u64, submissions: &[Submission]) -> Vec<Decision> {
        let waits: Vec<_> =
            submissions.iter().map(|one| self.replica.expect_decision(one.id)).collect();
        let submissions = submissions.iter().map(|one| encode(one).into()).collect();
        let command = EncodedCommand(encode(&Command { submissions }).into());
        let log_id = LogId::new(CommittedLeaderId::new(1, 1), index);
        let entry = Entry { log_id, payload: EntryPayload::Normal(command) };
        self.machine.apply([entry]).await.unwrap();
        let mut decisions = Vec::new();
        for wait in waits {
            let (decision, at) = wait.await.unwrap();
            assert_eq!(at, index);
            decisions.push(decision);
        }
        decisions
    }

    pub async fn rows(&self, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let name = table.to_owned();
        let read = async move |tx: &Transaction| {
            let (table, _) = tx.open_encoded_table(&name).await?;
            let (mut scan, mut rows) = (tx.scan(&table, ..)?, Vec::new());
            while let Some((key, value)) = scan.next().await? {
                rows.push((key, value.to_vec()));
            }
            Ok(rows)
        };
        self.replica.storage.db.run(read).await.unwrap()
    }

    /// Returns the names of the cluster's tables in the database.
    pub async fn tables(&self) -> Vec<String> {
        let tables = self.replica.storage.db.tables().await.unwrap();
        let names = tables.into_iter().map(|table| table.name);
        names.filter(|name| !name.starts_with("raft.")).collect()
    }

    pub async fn assert_equals(&self, other: &Node) {
        for table in ["a", "raft.window", "raft.catalog"] {
            assert_eq!(self.rows(table).await, other.rows(table).await, "{table}");
        }
        let applied = self.replica.storage.applied().await.unwrap();
        assert_eq!(applied, other.replica.storage.applied().await.unwrap());
    }

    /// Executes a random transaction on this node.
    async fn execute(&self, random: &mut fastrand::Rng, base: u64) -> Action {
        let table: Table<u64, u64> = self.replica.storage.db.open_table("a").await.unwrap();
        let (read, write, low) = (random.u64(..8), random.u64(..8), random.u64(..8));
        let (scans, deletes) = (random.u8(..4) == 0, random.u8(..4) == 0);
        let body = async move |tx: &Transaction| {
            let seen = tx.get(&table, &read).await?.unwrap_or(0);
            if scans {
                _ = tx.count(&table, low..low + 3).await?;
            }
            match deletes {
                true => tx.delete(&table, &write).await.map(drop),
                false => tx.put(&table, &write, &(seen + 1)).await,
            }
        };
        let proposal = self.replica.storage.db.execute(body).await.unwrap();
        let (reads, writes) = (proposal.reads.as_bytes(), proposal.writes.as_bytes());
        let (reads, writes) = (reads.to_vec().into(), writes.to_vec().into());
        Action::Transaction(ExecutedTransaction { base, reads, writes })
    }
}

pub fn submission(number: u64, action: Action) -> Submission {
    Submission { id: SubmissionId { node: 1, run: 1, number }, action }
}

pub fn description() -> ClusterTable {
    let (key_type, value_type) = ("u64".to_owned(), "u64".to_owned());
    ClusterTable::new("a", key_type, value_type, TableOptions::default())
}

pub fn create(name: &str, key_type: &str) -> Action {
    let (name, key_type) = (name.to_owned(), key_type.to_owned());
    let table = ClusterTable { name, key_type, ..description() };
    // In these tests, nothing changes the catalog at the same time.
    Action::Catalog { base: u64::MAX, change: CatalogChange::Create(table) }
}

pub fn table() -> Action {
    create("a", "u64")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_and_snapshots_change_no_decision() {
    let conflicts = |node: &Node| node.replica.counters.applied().conflicts;
    let node = assert_same_decisions(Setup::default()).await;
    // Room for one transaction.
    let window_bytes = 400;
    let limited = assert_same_decisions(Setup { window_bytes, ..Setup::default() }).await;
    let window = limited.rows("raft.window").await;
    let bytes: usize = window.iter().map(|(_, sets)| sets.len()).sum();
    assert!((1..=window_bytes).contains(&(bytes as u64)), "{bytes} bytes of {window_bytes}");
    let counts = [&node, &limited].map(conflicts);
    assert!(counts[1] > counts[0], "{counts:?}");
}

/// Lets nodes apply random transactions. Returns one that has never stopped.
async fn assert_same_decisions(setup: Setup) -> Node {
    let mut random = fastrand::Rng::with_seed(1);
    let mut steady = Node::with(setup.clone()).await;
    let mut restarted = Node::with(setup.clone()).await;
    let mut copied = None;
    let (mut number, mut waiting, mut counts) = (1, Vec::new(), [0, 0]);
    let create = [submission(0, table())];
    steady.apply(1, &create).await;
    restarted.apply(1, &create).await;
    for index in 2..80 {
        // Some are executed now, and proposed with a later entry.
        for _ in 0..random.usize(..4) {
            let action = steady.execute(&mut random, index - 1).await;
            waiting.push(submission(number, action));
            number += 1;
        }
        random.shuffle(&mut waiting);
        let entry = waiting.split_off(waiting.len() / 2);
        let decisions = steady.apply(index, &entry).await;
        assert_eq!(restarted.apply(index, &entry).await, decisions, "{index}");
        restarted = restarted.restart().await;
        if let Some(copied) = &mut copied {
            assert_eq!(Node::apply(copied, index, &entry).await, decisions, "{index}");
        }
        if index == 40 {
            let mut node = Node::with(setup.clone()).await;
            copy(&steady, &mut node).await;
            copied = Some(node);
        }
        for decision in decisions {
            counts[usize::from(decision == Decision::Committed)] += 1;
        }
    }
    assert!(counts[0] > 10 && counts[1] > 10, "{counts:?}");
    steady.assert_equals(&restarted).await;
    steady.assert_equals(&copied.unwrap()).await;
    steady
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_takes_effect_once() {
    let mut node = Node::new().await;
    node.apply(1, &[submission(0, table())]).await;
    // It reads nothing, so only its own write can conflict.
    let db = node.replica.storage.db.clone();
    let a: Table<u64, u64> = db.open_table("a").await.unwrap();
    let proposal =
        db.execute(async move |tx: &Transaction| tx.put(&a, &1, &1).await).await.unwrap();
    let (reads, writes) = (proposal.reads.as_bytes(), proposal.writes.as_bytes());
    let (reads, writes) = (reads.to_vec().into(), writes.to_vec().into());
    let action = Action::Transaction(ExecutedTransaction { base: 1, reads, writes });
    let put = submission(1, action);
    assert_eq!(node.apply(2, std::slice::from_ref(&put)).await, [Decision::Committed]);
    assert_eq!(node.apply(3, std::slice::from_ref(&put)).await, [Decision::Conflict]);
}

/// An entry that a node cannot apply would stop all nodes for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_the_database_refuses_are_refused() {
    let mut node = Node::new().await;
    let long = "x".repeat(1 << 16);
    let names = [("", "u64"), ("raft.x", "u64"), ("braid.x", "u64"), (&long[..513], "u64")];
    for (index, (name, key_type)) in (1..).zip(names.into_iter().chain([("x", &long[..])])) {
        let told = node.apply(index, &[submission(index, create(name, key_type))]).await;
        assert!(matches!(told[0], Decision::Refused(_)), "{name:?}");
    }
    assert_eq!(node.apply(9, &[submission(9, table())]).await, [Decision::Committed]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_missed_a_new_table_conflicts() {
    let mut node = Node::new().await;
    node.apply(1, &[submission(0, table())]).await;
    let db = node.replica.storage.db.clone();
    let a: Table<u64, u64> = db.open_table("a").await.unwrap();
    let body = async move |tx: &Transaction| {
        assert!(tx.open_table::<u64, u64>("b").await.is_err());
        tx.put(&a, &1, &1).await
    };
    let proposal = db.execute(body).await.unwrap();
    let (reads, writes) = (proposal.reads.as_bytes(), proposal.writes.as_bytes());
    let (reads, writes) = (reads.to_vec().into(), writes.to_vec().into());
    let put = Action::Transaction(ExecutedTransaction { base: 1, reads, writes });
    node.apply(2, &[submission(1, create("b", "u64"))]).await;
    let mut node = node.restart().await;
    assert_eq!(node.apply(3, &[submission(2, put)]).await, [Decision::Conflict]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_parts_are_reported_before_anything_is_replaced() {
    let (mut from, mut to) = (Node::new().await, Node::new().await);
    from.apply(1, &[submission(0, table())]).await;
    from.apply(2, &[]).await;
    to.apply(1, &[submission(0, table())]).await;
    let before = to.rows("raft.catalog").await;
    let slot = to.replica.receiving.clone();
    let storage = to.replica.storage.clone();
    let incoming = slot.begin(storage.clone()).await.unwrap().unwrap();
    let complete = incoming.copy(&from.replica.storage).await.unwrap();
    received::mark(&storage, &complete).await.unwrap();
    drop(complete);
    // The chunks of a marked snapshot are not replaced by those of another.
    assert!(slot.begin(storage.clone()).await.unwrap().is_none());
    storage.db.delete(&storage.received, &1).await.unwrap();
    assert_eq!(to.rows("raft.catalog").await, before);
    assert!(to.refusal().await.contains("parts of them are missing"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_without_entries_that_were_not_applied_is_reported() {
    let mut node = Node::new().await;
    node.apply(1, &[submission(0, table())]).await;
    let purged = LogId::new(CommittedLeaderId::new(1, 1), 2_u64);
    node.replica.storage.set_state_row(row::PURGED, &purged).await.unwrap();
    assert!(node.refusal().await.contains("missing from its log"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_installation_is_resumed() {
    let (mut from, mut to) = (Node::new().await, Node::new().await);
    let mut random = fastrand::Rng::with_seed(2);
    from.apply(1, &[submission(0, table())]).await;
    to.apply(1, &[submission(0, table())]).await;
    for index in 2..20 {
        let action = from.execute(&mut random, index - 1).await;
        from.apply(index, &[submission(index, action)]).await;
    }
    // The node has another record, and stops after the first step of the installation.
    let a: Table<u64, u64> = to.replica.storage.db.open_table("a").await.unwrap();
    to.replica.storage.db.put(&a, &100, &1).await.unwrap();
    let slot = &to.replica.receiving;
    let incoming = slot.begin(to.replica.storage.clone()).await.unwrap().unwrap();
    assert!(slot.begin(to.replica.storage.clone()).await.unwrap().is_none());
    let complete = incoming.copy(&from.replica.storage).await.unwrap();
    to.replica.storage.set_state_row(row::INSTALLING, &complete.applied).await.unwrap();
    let vote = openraft::Vote::<u64>::new(7, 2);
    to.replica.storage.set_state_row(row::VOTE, &vote).await.unwrap();
    drop(complete);
    let to = to.restart().await;
    from.assert_equals(&to).await;
    let kept = to.replica.storage.state_row::<openraft::Vote<u64>>(row::VOTE).await.unwrap();
    assert_eq!(kept, Some(vote), "a snapshot brings no vote");
}

pub fn change(base: u64, change: CatalogChange) -> Action {
    Action::Catalog { base, change }
}

/// Lets the cluster use version 2, if these are its members.
pub fn raise_to_2(members: Option<LogId<u64>>) -> Submission {
    submission(u64::MAX, Action::SetVersion { version: 2, members })
}

/// Lets a cluster without a configuration use version 2.
pub fn version_2() -> Submission {
    raise_to_2(None)
}

pub(crate) fn drop_a(base: u64) -> Action {
    change(base, CatalogChange::Drop("a".to_owned()))
}

pub fn rename_a(base: u64) -> Action {
    let (from, to) = ("a".to_owned(), "b".to_owned());
    change(base, CatalogChange::Rename { from, to })
}

/// A node sends a submission again after a lost answer, so the log may contain it twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_catalog_takes_effect_once() {
    let mut node = Node::new().await;
    let creation = change(0, CatalogChange::Create(description()));
    let create = submission(1, creation);
    node.apply(1, &[version_2(), create.clone()]).await;
    let dropping = submission(2, drop_a(1));
    assert_eq!(node.apply(2, std::slice::from_ref(&dropping)).await, [Decision::Committed]);
    let mut node = node.restart().await;
    assert_eq!(node.apply(3, &[create]).await, [Decision::Conflict]);
    assert_eq!(node.apply(4, &[submission(3, table())]).await, [Decision::Committed]);
    assert_eq!(node.apply(5, &[dropping]).await, [Decision::Conflict]);
    assert!(node.rows("a").await.is_empty(), "the table exists");
}

/// The entry's transaction is lost, and its changes outside of that are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_made_before_the_node_stopped_is_made_once() {
    for rename in [false, true] {
        let (mut steady, mut stopped) = (Node::new().await, Node::new().await);
        for node in [&mut steady, &mut stopped] {
            node.apply(1, &[version_2(), submission(1, table())]).await;
            let random = &mut fastrand::Rng::with_seed(3);
            let put = node.execute(random, 1).await;
            node.apply(2, &[submission(2, put)]).await;
        }
        let db = &stopped.replica.storage.db;
        match rename {
            false => db.drop_table("a").await.unwrap(),
            true => db.rename_table("a", "b").await.unwrap(),
        }
        let mut stopped = stopped.restart().await;
        let action = if rename { rename_a(2) } else { drop_a(2) };
        for node in [&mut steady, &mut stopped] {
            let applied = node.apply(3, &[submission(3, action.clone())]).await;
            assert_eq!(applied, [Decision::Committed]);
            let names: Vec<String> = node.tables().await;
            assert_eq!(names, if rename { vec!["b"] } else { vec![] });
        }
        for table in if rename { &["b", "raft.catalog"][..] } else { &["raft.catalog"] } {
            assert_eq!(steady.rows(table).await, stopped.rows(table).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_used_a_dropped_table_conflict() {
    let mut node = Node::new().await;
    let early = node.apply(1, &[submission(1, drop_a(0))]).await;
    assert!(matches!(&early[..], [Decision::Refused(reason)] if reason.contains("version 2")));
    node.apply(1, &[version_2(), submission(1, table())]).await;
    let put = node.execute(&mut fastrand::Rng::with_seed(3), 1).await;
    // The change needs its own entry.
    let together = [submission(2, drop_a(1)), submission(3, put.clone())];
    assert!(matches!(node.apply(2, &together).await[..], [Decision::Refused(_), _]));
    let put = match put {
        Action::Transaction(executed) => executed,
        _ => unreachable!("a transaction"),
    };
    let again = |base| Action::Transaction(ExecutedTransaction { base, ..put.clone() });
    node.apply(3, &[submission(4, drop_a(2))]).await;
    let both = [submission(5, again(2)), submission(10, again(3))];
    let told = node.apply(4, &both).await;
    assert!(matches!(told[..], [Decision::Conflict, Decision::Refused(_)]), "{told:?}");
    // Another table of this name, whose records expire.
    let options = TableOptions::default().ttl(std::time::Duration::from_secs(60));
    let expiring = ClusterTable::new("a", "u64".to_owned(), "u64".to_owned(), options);
    let creation = change(4, CatalogChange::Create(expiring));
    assert_eq!(node.apply(5, &[submission(6, creation)]).await, [Decision::Committed]);
    let both = [submission(7, again(2)), submission(11, again(5))];
    let told = node.apply(6, &both).await;
    assert!(matches!(told[..], [Decision::Conflict, Decision::Refused(_)]), "{told:?}");
    node.apply(7, &[submission(8, drop_a(6))]).await;
    node.apply(8, &[submission(9, table())]).await;
    assert_eq!(node.apply(9, &[submission(12, again(2))]).await, [Decision::Conflict]);
    // A rename.
    node.apply(10, &[submission(13, rename_a(9))]).await;
    assert_eq!(node.apply(11, &[submission(14, again(9))]).await, [Decision::Conflict]);
}

/// Otherwise it would skip what it does not understand, and differ from the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_program_stops_at_a_version_that_it_does_not_understand() {
    let mut node = Node::with_versions(tempfile::tempdir().unwrap(), 1..=1).await.unwrap();
    node.apply(1, &[submission(1, table())]).await;
    let command = Command { submissions: vec![encode(&version_2()).into()] };
    let log_id = LogId::new(CommittedLeaderId::new(1, 1), 2);
    let payload = EntryPayload::Normal(EncodedCommand(encode(&command).into()));
    let failed = node.machine.apply([Entry { log_id, payload }]).await.unwrap_err();
    assert!(failed.to_string().contains("newer program"), "{failed}");
    assert_eq!(node.replica.storage.applied().await.unwrap().index(), 1);
}

/// The tables of a version that it does not understand may have a format that it cannot decode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_checks_the_version_before_it_reads_the_contents() {
    let empty = Node::with_versions(tempfile::tempdir().unwrap(), 2..=2).await;
    assert!(empty.is_ok(), "an empty node has no version yet");
    for (used, understood, remedy) in [(2, 1..=1, "newer program"), (1, 2..=2, "older program")] {
        let mut node = Node::new().await;
        node.apply(1, &[submission(1, table())]).await;
        if used == 2 {
            node.apply(2, &[version_2()]).await;
        }
        let storage = node.replica.storage.clone();
        let write = async move |tx: &Transaction| {
            tx.put(&storage.catalog, "unknown", &[0xff; 3]).await?;
            tx.put(&storage.window, &1, &[0xff; 3]).await
        };
        node.replica.storage.run(write).await.unwrap();
        match Node::with_versions(node.close(), understood).await {
            Err(Error::Version(reason)) => assert!(reason.contains(remedy), "{reason}"),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
}

/// Lets `to` install a snapshot of `from`.
pub async fn copy(from: &Node, to: &mut Node) {
    let snapshot = SnapshotData::Live(from.replica.storage.clone());
    to.machine.install_snapshot(&Default::default(), Box::new(snapshot)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_replaces_a_table_that_was_created_again() {
    let (mut from, mut to) = (Node::new().await, Node::new().await);
    for node in [&mut from, &mut to] {
        node.apply(1, &[version_2(), submission(1, table())]).await;
    }
    from.apply(2, &[submission(2, drop_a(1))]).await;
    let again = ClusterTable { value_type: <str as Value>::type_name(), ..description() };
    from.apply(3, &[submission(3, change(2, CatalogChange::Create(again)))]).await;
    copy(&from, &mut to).await;
    let db = to.replica.storage.db.clone();
    let a: Table<u64, str> = db.open_table("a").await.unwrap();
    db.put(&a, &1, "x").await.unwrap();
    db.delete(&a, &1).await.unwrap();
    from.assert_equals(&to).await;
}

/// A handle of a renamed table must not reach the table that took its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_replaces_tables_that_were_swapped_by_renames() {
    let rename = |base, from: &str, to: &str| {
        change(base, CatalogChange::Rename { from: from.to_owned(), to: to.to_owned() })
    };
    let (mut from, mut to) = (Node::new().await, Node::new().await);
    for node in [&mut from, &mut to] {
        let b = submission(2, create("b", "u64"));
        node.apply(1, &[version_2(), submission(1, table()), b]).await;
        node.apply(2, &[submission(3, create("kept", "u64"))]).await;
    }
    let db = to.replica.storage.db.clone();
    let a: Table<u64, u64> = db.open_table("a").await.unwrap();
    let kept: Table<u64, u64> = db.open_table("kept").await.unwrap();
    db.put(&a, &1, &1).await.unwrap();
    from.apply(3, &[submission(4, rename(2, "a", "c"))]).await;
    from.apply(4, &[submission(5, rename(3, "b", "a"))]).await;
    let swapped = from.apply(5, &[submission(6, rename(4, "c", "b"))]).await;
    assert_eq!(swapped, [Decision::Committed]);
    copy(&from, &mut to).await;
    let stale = db.get(&a, &1).await;
    assert!(matches!(stale, Err(braiddb::Error::TableNotFound(_))), "{stale:?}");
    assert_eq!(db.get(&kept, &1).await.unwrap(), None);
    from.assert_equals(&to).await;
    assert_eq!(to.tables().await, ["a", "b", "kept"]);
}
