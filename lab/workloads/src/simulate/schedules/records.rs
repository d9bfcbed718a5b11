//! Records with one writing client each and many readers. The state of a client's records after
//! each of its transactions is known. Therefore a snapshot must show one of these states, and none
//! older than the last acknowledged one.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Mutex;

use braiddb::{Error, Table, Transaction};
use fastrand::Rng;

use super::super::work::Failure;
use super::clients::{Clients, NO_PANIC, pollster};

/// The table initially holds fewer records than this, with the keys from 0 on.
pub(super) const MAX_FILLED: u64 = 40;

/// Number of keys that one client writes: few, so that nearby keys are deleted and created again.
const KEYS: u64 = 24;

/// Keys and values of one client's records.
pub(super) type State = BTreeMap<u64, u64>;

/// The states that one client's transactions leave, in order. The last transaction may still be in
/// progress.
#[derive(Debug)]
struct History {
    states: Vec<State>,
    /// The index of the last acknowledged state.
    acknowledged: usize,
    /// True if the end of a transaction is unknown; then nothing more is checked.
    unknown: bool,
}

/// The records of all clients.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) table: Table<u64, u64>,
    histories: Vec<Mutex<History>>,
}

/// The end of a transaction that changed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Committed,
    Aborted,
    Unknown,
}

impl Records {
    /// Returns the records of `clients` clients. The table holds the keys in `filled`, each with
    /// the key as its value.
    pub(super) fn new(table: Table<u64, u64>, clients: u64, filled: &[u64]) -> Self {
        let history = |client| {
            let mine = filled.iter().filter(|key| *key % clients == client);
            let states = vec![mine.map(|key| (*key, *key)).collect()];
            Mutex::new(History { states, acknowledged: 0, unknown: false })
        };
        Self { table, histories: (0..clients).map(history).collect() }
    }

    fn clients(&self) -> u64 {
        self.histories.len() as u64
    }

    fn history(&self, client: u64) -> std::sync::MutexGuard<'_, History> {
        self.histories[client as usize].lock().expect(NO_PANIC)
    }

    /// Returns a client's records unless they are unknown. The client calls it between its
    /// transactions.
    fn newest(&self, client: u64) -> Option<State> {
        let history = self.history(client);
        (!history.unknown).then(|| history.states[history.acknowledged].clone())
    }

    /// Records that a client tries to leave its records as `state`.
    fn attempt(&self, client: u64, state: State) {
        self.history(client).states.push(state);
    }

    /// Records the end of that transaction.
    fn settle(&self, client: u64, ended: Ended) {
        let mut history = self.history(client);
        match ended {
            Ended::Committed => history.acknowledged = history.states.len() - 1,
            Ended::Aborted => _ = history.states.pop(),
            Ended::Unknown => history.unknown = true,
        }
    }

    /// Returns for each client the index of the last acknowledged state.
    pub(super) fn floors(&self) -> Vec<usize> {
        (0..self.clients()).map(|client| self.history(client).acknowledged).collect()
    }

    /// Checks a snapshot that is later than `floors` and returns the first problem.
    pub(super) fn problem(&self, found: &State, floors: &[usize]) -> Option<String> {
        (0..self.clients()).find_map(|client| {
            let history = self.history(client);
            let clients = self.clients();
            let mine = found.iter().filter(|(key, _)| *key % clients == client);
            let mine: State = mine.map(|(key, value)| (*key, *value)).collect();
            let states = &history.states[floors[client as usize]..];
            let right = history.unknown || states.contains(&mine);
            (!right).then(|| {
                format!("the records of client {client} are {mine:?}, but may be one of {states:?}")
            })
        })
    }
}

/// Reads all records of the table.
pub(super) async fn scan(tx: &Transaction, table: &Table<u64, u64>) -> Result<State, Failure> {
    let mut found = State::new();
    let mut scan = tx.scan(table, ..)?;
    while let Some((key, value)) = scan.next().await? {
        if found.insert(key, value).is_some() {
            return Err(Failure::Wrong(format!("a scan meets key {key} twice")));
        }
    }
    Ok(found)
}

/// Changes a record to its new state with the operation that expects the old state.
async fn change(
    tx: &Transaction,
    table: &Table<u64, u64>,
    key: u64,
    from: Option<u64>,
    to: Option<u64>,
) -> Result<(), Failure> {
    match (from, to) {
        (None, Some(value)) => Ok(tx.insert(table, &key, &value).await?),
        (Some(_), Some(value)) => Ok(tx.update(table, &key, &value).await?),
        (_, None) => {
            let deleted = tx.delete(table, &key).await?;
            if deleted != from.is_some() {
                let message = format!("key {key} was {from:?}; deleting it says {deleted}");
                return Err(Failure::Wrong(message));
            }
            Ok(())
        }
    }
}

impl Clients {
    /// Changes some of a client's records in one transaction and reads them in the next.
    pub(super) fn change_own(&self, random: &mut Rng, client: u64) {
        let Some(state) = self.records.newest(client) else { return };
        let clients = self.records.clients();
        let mut changed = BTreeMap::new();
        for key in state.keys().filter(|_| random.u32(0..3) == 0) {
            changed.insert(*key, None);
        }
        for _ in 0..random.u32(1..9) {
            let key = random.u64(0..KEYS) * clients + client;
            changed.insert(key, (random.u32(0..4) > 0).then(|| random.u64(..)));
        }
        let mut after = state.clone();
        for (key, value) in &changed {
            match value {
                Some(value) => _ = after.insert(*key, *value),
                None => _ = after.remove(key),
            }
        }
        self.records.attempt(client, after);
        let (table, writes) = (self.records.table.clone(), changed.clone());
        let written = pollster(self.db.try_run(async move |tx: &Transaction| {
            for (key, value) in &writes {
                change(tx, &table, *key, state.get(key).copied(), *value).await?;
            }
            Ok(())
        }));
        self.records.settle(client, ended(written.as_ref().err()));
        if let Err(failure) = written {
            return self.excuse_failure("a write to records of one client", &failure);
        }
        // Not drawn, so that the other choices of a seed stay the same.
        if changed.len().is_multiple_of(2) {
            return self.read_as_guest(&changed);
        }
        let table = self.records.table.clone();
        let looked = pollster(self.db.try_run(async move |tx: &Transaction| {
            for (key, value) in &changed {
                let found = tx.get(&table, key).await?;
                if found != *value {
                    let message = format!("key {key} was left as {value:?}, is {found:?}");
                    return Err(Failure::Wrong(message));
                }
            }
            Ok(())
        }));
        if let Err(failure) = looked {
            self.excuse_failure("a read of records of one client", &failure);
        }
    }

    /// Reads a client's records one by one, and then all records, on this thread if that needs no
    /// wait.
    fn read_as_guest(&self, written: &BTreeMap<u64, Option<u64>>) {
        let (table, floors) = (&self.records.table, self.records.floors());
        for (key, value) in written {
            match pollster(self.db.get(table, key)) {
                Ok(found) if found == *value => {}
                Ok(found) => {
                    self.report(format!(
                        "key {key} was left as {value:?}, a guest reads {found:?}"
                    ));
                }
                Err(error) => return self.excuse("a guest's read", &error),
            }
        }
        match pollster(self.db.scan(table, ..).into_future()) {
            Ok(found) => {
                let problem = self.records.problem(&found.into_iter().collect(), &floors);
                problem.into_iter().for_each(|problem| self.report(problem));
            }
            Err(error) => self.excuse("a guest's scan", &error),
        }
    }

    /// Creates or deletes a record with two transactions of different workers at about the same
    /// time. Only one of them may succeed.
    pub(super) fn race(&self, random: &mut Rng, client: u64) {
        let Some(mut state) = self.records.newest(client) else { return };
        let known: Vec<u64> = state.keys().copied().collect();
        let key = match random.choice(&known) {
            Some(known) if random.bool() => *known,
            _ => random.u64(0..KEYS) * self.records.clients() + client,
        };
        let there = state.remove(&key).is_some();
        if !there {
            state.insert(key, key);
        }
        self.records.attempt(client, state);
        let toggle = || {
            let table = self.records.table.clone();
            self.db.run(async move |tx: &Transaction| {
                if there {
                    return tx.delete(&table, &key).await;
                }
                match tx.insert(&table, &key, &key).await {
                    Ok(()) => Ok(true),
                    Err(Error::KeyExists(_)) => Ok(false),
                    Err(error) => Err(error),
                }
            })
        };
        let (one, other) = pollster(futures_util::future::join(toggle(), toggle()));
        let ended = match (&one, &other) {
            (Ok(true), Ok(true)) => {
                let did = if there { "deleted" } else { "inserted" };
                self.report(format!("key {key} was {did} by two transactions"));
                Ended::Committed
            }
            (Ok(true), _) | (_, Ok(true)) => Ended::Committed,
            (
                Ok(false) | Err(Error::Conflict { .. } | Error::NotSerializable { .. }),
                Ok(false),
            )
            | (Ok(false), Err(Error::Conflict { .. } | Error::NotSerializable { .. })) => {
                self.report(format!("key {key} is reported as changed, but no client changed it"));
                Ended::Unknown
            }
            (
                Err(Error::Conflict { .. } | Error::NotSerializable { .. }),
                Err(Error::Conflict { .. } | Error::NotSerializable { .. }),
            ) => Ended::Aborted,
            _ => Ended::Unknown,
        };
        self.records.settle(client, ended);
        for error in [one.err(), other.err()].into_iter().flatten() {
            self.excuse("one of two writes of a record", &error);
        }
    }
}

fn ended(failure: Option<&Failure>) -> Ended {
    match failure {
        None => Ended::Committed,
        Some(Failure::Engine(Error::Conflict { .. } | Error::NotSerializable { .. })) => {
            Ended::Aborted
        }
        Some(_) => Ended::Unknown,
    }
}
