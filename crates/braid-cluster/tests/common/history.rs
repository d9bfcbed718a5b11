//! Histories of list-append transactions, and a checker of strict serializability.
//!
//! Every transaction reads whole lists, and appends values that are unique in the history. So the
//! final lists give the order of all writes, and each read shows which write it saw. The checker
//! builds the graph of dependencies and of real time, which must have no cycle (Adya; Elle).

use std::collections::BTreeMap;

/// Result of a transaction, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Committed,
    /// It wrote nothing.
    Failed,
    /// It may have committed, at any time after its begin.
    Unknown,
}

/// A transaction of a client.
#[derive(Clone, Debug)]
pub struct Record {
    /// Ticks of a clock that all clients share.
    pub begin: u64,
    pub ended: u64,
    pub end: End,
    /// Lists that it read, before its own writes.
    pub reads: Vec<(u64, Vec<u64>)>,
    /// Values that it appended, at most one to each list.
    pub appends: Vec<(u64, u64)>,
}

/// An addition of one to a register that held the number before.
#[derive(Clone, Debug)]
pub struct Added {
    pub key: u64,
    pub begin: u64,
    pub ended: u64,
    /// The sum; `None` if the result is unknown.
    pub value: Option<u64>,
}

/// Checks that the additions to each register are linearizable: the sums are distinct, follow real
/// time, and the final one counts all additions that committed and no other.
pub fn check_counts(added: &[Added], finally: &BTreeMap<u64, u64>) -> Result<(), String> {
    let keys: std::collections::BTreeSet<u64> = added.iter().map(|added| added.key).collect();
    for key in keys {
        let of_key = || added.iter().filter(|added| added.key == key);
        let last = finally.get(&key).copied().unwrap_or(0);
        let mut committed: Vec<_> =
            of_key().filter_map(|added| Some((added.value?, added.begin, added.ended))).collect();
        committed.sort_unstable();
        let (known, all) = (committed.len() as u64, of_key().count() as u64);
        if !(known..=all).contains(&last) {
            return Err(format!("register {key} is {last} after {known} to {all} additions"));
        }
        let mut latest_begin = 0;
        for (at, &(value, begin, ended)) in committed.iter().enumerate() {
            if value == 0 || value > last || at > 0 && committed[at - 1].0 == value {
                return Err(format!("register {key} had the value {value} twice, or never"));
            }
            // Every smaller sum began before this one ended.
            if ended < latest_begin {
                return Err(format!("register {key}: {value} ended before a smaller sum began"));
            }
            latest_begin = latest_begin.max(begin);
        }
    }
    Ok(())
}

/// Checks a history against the final lists.
pub fn check(history: &[Record], finally: &BTreeMap<u64, Vec<u64>>) -> Result<(), String> {
    let writers = writers(history, finally)?;
    let mut graph = Graph::new(history.len());
    for (key, list) in finally {
        let by = |value: &u64| writers[&(*key, *value)];
        for pair in list.windows(2) {
            graph.add(by(&pair[0]), by(&pair[1]));
        }
    }
    for (reader, record) in (0..).zip(history) {
        if record.end != End::Committed {
            continue;
        }
        for (key, seen) in &record.reads {
            let list = finally.get(key).map_or(&[][..], Vec::as_slice);
            if !list.starts_with(seen) {
                return Err(format!("{record:?} read a list {key} that is no prefix of {list:?}"));
            }
            if let Some(last) = seen.last() {
                graph.add(writers[&(*key, *last)], reader);
            }
            if let Some(next) = list.get(seen.len()) {
                graph.add(reader, writers[&(*key, *next)]);
            }
        }
    }
    add_real_time(&mut graph, history, finally);
    let Some(cycle) = graph.cycle() else { return Ok(()) };
    // The other nodes are moments.
    let records: Vec<_> = cycle.into_iter().filter_map(|node| history.get(node)).collect();
    Err(format!("the dependencies of these transactions have a cycle: {records:#?}"))
}

type Writers = BTreeMap<(u64, u64), usize>;

/// Returns the transaction that wrote each value, if the final lists hold exactly the values that
/// they must and may hold.
fn writers(history: &[Record], finally: &BTreeMap<u64, Vec<u64>>) -> Result<Writers, String> {
    let mut writers = BTreeMap::new();
    for (writer, record) in (0..).zip(history) {
        for append in &record.appends {
            writers.insert(*append, writer);
        }
    }
    let mut counts = BTreeMap::new();
    for (key, list) in finally {
        for value in list {
            *counts.entry((*key, *value)).or_insert(0) += 1;
        }
    }
    for (append, count) in &counts {
        let writer = writers.get(append).ok_or(format!("nobody appended {append:?}"))?;
        if *count > 1 || history[*writer].end == End::Failed {
            return Err(format!("{append:?} is there {count} times: {:?}", history[*writer]));
        }
    }
    for record in history {
        let there = record.appends.iter().filter(|append| counts.contains_key(append)).count();
        let is_whole = match record.end {
            End::Committed => there == record.appends.len(),
            End::Failed => there == 0,
            End::Unknown => there == 0 || there == record.appends.len(),
        };
        if !is_whole {
            return Err(format!("{there} of the values of {record:?} are there"));
        }
    }
    Ok(writers)
}

/// Adds that each transaction precedes those that began after its end. A chain of moments represents
/// the time, so the number of edges is linear.
fn add_real_time(graph: &mut Graph, history: &[Record], finally: &BTreeMap<u64, Vec<u64>>) {
    let is_there = |record: &Record| match record.end {
        End::Committed => true,
        End::Failed => false,
        End::Unknown => record
            .appends
            .first()
            .is_some_and(|(key, value)| finally.get(key).is_some_and(|list| list.contains(value))),
    };
    let mut events = Vec::new();
    for (transaction, record) in (0..).zip(history).filter(|(_, record)| is_there(record)) {
        events.push((record.begin, false, transaction));
        if record.end == End::Committed {
            events.push((record.ended, true, transaction));
        }
    }
    events.sort_unstable();
    let mut moment = graph.node();
    for (_, is_end, transaction) in events {
        if is_end {
            let next = graph.node();
            graph.add(moment, next);
            graph.add(transaction, next);
            moment = next;
        } else {
            graph.add(moment, transaction);
        }
    }
}

/// A directed graph.
struct Graph(Vec<Vec<usize>>);

impl Graph {
    fn new(nodes: usize) -> Self {
        Self(vec![Vec::new(); nodes])
    }

    fn node(&mut self) -> usize {
        self.0.push(Vec::new());
        self.0.len() - 1
    }

    fn add(&mut self, from: usize, to: usize) {
        if from != to {
            self.0[from].push(to);
        }
    }

    /// Returns the nodes of a cycle, in its order.
    fn cycle(&self) -> Option<Vec<usize>> {
        let mut outgoing: Vec<usize> = self.0.iter().map(Vec::len).collect();
        let mut incoming = vec![Vec::new(); self.0.len()];
        for (from, all) in self.0.iter().enumerate() {
            all.iter().for_each(|&to| incoming[to].push(from));
        }
        let mut free: Vec<usize> = (0..self.0.len()).filter(|&node| outgoing[node] == 0).collect();
        while let Some(node) = free.pop() {
            for &from in &incoming[node] {
                outgoing[from] -= 1;
                if outgoing[from] == 0 {
                    free.push(from);
                }
            }
        }
        // Each node that is left precedes another one, so a path repeats a node.
        let is_left = |node: &usize| outgoing[*node] > 0;
        let mut path = vec![(0..self.0.len()).find(is_left)?];
        loop {
            let last = path[path.len() - 1];
            let next = self.0[last].iter().copied().find(is_left)?;
            if let Some(start) = path.iter().position(|node| *node == next) {
                return Some(path.split_off(start));
            }
            path.push(next);
        }
    }
}

fn record(begin: u64, ended: u64, reads: &[(u64, &[u64])], appends: &[(u64, u64)]) -> Record {
    let reads = reads.iter().map(|(key, list)| (*key, list.to_vec())).collect();
    Record { begin, ended, end: End::Committed, reads, appends: appends.to_vec() }
}

#[test]
fn the_checker_accepts_serial_histories() {
    let history = [
        record(0, 3, &[(1, &[])], &[(1, 10)]),
        record(1, 2, &[(1, &[])], &[]),
        record(4, 5, &[(1, &[10])], &[(1, 11)]),
    ];
    check(&history, &BTreeMap::from([(1, vec![10, 11])])).unwrap();
}

#[test]
fn the_checker_finds_anomalies() {
    let finally = BTreeMap::from([(1, vec![10]), (2, vec![20])]);
    let write_skew = [
        record(0, 3, &[(1, &[]), (2, &[])], &[(1, 10)]),
        record(1, 2, &[(1, &[]), (2, &[])], &[(2, 20)]),
    ];
    assert!(check(&write_skew, &finally).is_err());
    let finally = BTreeMap::from([(1, vec![10])]);
    let write = record(0, 1, &[(1, &[])], &[(1, 10)]);
    let stale = [write.clone(), record(2, 3, &[(1, &[])], &[])];
    assert!(check(&stale, &finally).is_err());
    let lost = check(std::slice::from_ref(&write), &BTreeMap::new());
    assert!(lost.is_err());
    let twice = check(std::slice::from_ref(&write), &BTreeMap::from([(1, vec![10, 10])]));
    assert!(twice.is_err());
    let failed = Record { end: End::Failed, ..write.clone() };
    assert!(check(&[failed], &finally).is_err());
    let early = [Record { begin: 2, end: End::Unknown, ..write }, record(0, 1, &[(1, &[10])], &[])];
    assert!(check(&early, &finally).is_err());
}

#[test]
fn the_checker_finds_wrong_counts() {
    let added = |begin, ended, value| Added { key: 1, begin, ended, value };
    let both = [added(0, 1, Some(1)), added(2, 3, Some(2))];
    let finally = |value| BTreeMap::from([(1, value)]);
    check_counts(&both, &finally(2)).unwrap();
    assert!(check_counts(&both, &finally(3)).is_err(), "an addition took effect twice");
    assert!(check_counts(&both, &finally(1)).is_err(), "an addition is lost");
    let unknown = [added(0, 1, Some(1)), added(2, 3, None)];
    check_counts(&unknown, &finally(1)).unwrap();
    check_counts(&unknown, &finally(2)).unwrap();
    let twice = [added(0, 1, Some(1)), added(2, 3, Some(1))];
    assert!(check_counts(&twice, &finally(2)).is_err());
    let late = [added(2, 3, Some(1)), added(0, 1, Some(2))];
    assert!(check_counts(&late, &finally(2)).is_err());
}
