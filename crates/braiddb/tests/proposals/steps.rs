//! Random operations on a small set of keys: run in a database, and on a map.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

use braiddb::{Error, Table, Transaction};

/// All keys, in their order. Some are prefixes of others.
const KEYS: [&str; 15] =
    ["", "a", "aa", "aaa", "aab", "ab", "aba", "abb", "b", "ba", "baa", "bab", "bb", "bba", "bbb"];
const TABLES: usize = 2;

pub type Tables = [Table<str, u64>; TABLES];
/// A table and a key, by their numbers.
pub type Place = (usize, usize);
pub type State = BTreeMap<Place, u64>;

/// Records of which an operation read that they exist, do not exist, or their value; and those
/// that it changed.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    pub reads: BTreeSet<Place>,
    pub writes: BTreeSet<Place>,
}

/// A set of keys that one read covers.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// Also empty and reversed ranges.
    Between(Bound<usize>, Bound<usize>),
    StartingWith(usize),
}

#[derive(Clone, Debug)]
pub enum Step {
    Get(Place),
    Scan { table: usize, keys: Keys, is_reversed: bool, limit: usize },
    Count { table: usize, bounds: (Bound<usize>, Bound<usize>) },
    First(usize),
    Last(usize),
    Put(Place, u64),
    Insert(Place, u64),
    Update(Place, u64),
    Increment(Place),
    Delete(Place),
    DeleteRange { table: usize, bounds: (Bound<usize>, Bound<usize>) },
}

fn bound(random: &mut fastrand::Rng) -> Bound<usize> {
    match random.u8(..5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(random.usize(..KEYS.len())),
        _ => Bound::Excluded(random.usize(..KEYS.len())),
    }
}

/// Returns the numbers of the keys between two bounds.
fn between(low: Bound<usize>, high: Bound<usize>) -> impl DoubleEndedIterator<Item = usize> {
    (0..KEYS.len()).filter(move |key| (low, high).contains(key))
}

fn number_of(key: &str) -> u64 {
    KEYS.binary_search(&key).expect("one of the keys") as u64
}

fn strings(bounds: (Bound<usize>, Bound<usize>)) -> (Bound<&'static str>, Bound<&'static str>) {
    (bounds.0.map(|key| KEYS[key]), bounds.1.map(|key| KEYS[key]))
}

impl Keys {
    fn numbers(self) -> Vec<usize> {
        match self {
            Keys::Between(low, high) => between(low, high).collect(),
            Keys::StartingWith(prefix) => {
                (0..KEYS.len()).filter(|key| KEYS[*key].starts_with(KEYS[prefix])).collect()
            }
        }
    }
}

impl Step {
    pub fn random(random: &mut fastrand::Rng) -> Self {
        let (table, key, value) =
            (random.usize(..TABLES), random.usize(..KEYS.len()), random.u64(..));
        let (place, bounds) = ((table, key), (bound(random), bound(random)));
        match random.u8(..20) {
            0..4 => Step::Get(place),
            4..8 => {
                let keys = match random.bool() {
                    true => Keys::Between(bounds.0, bounds.1),
                    false => Keys::StartingWith(key),
                };
                let limit = if random.bool() { random.usize(1..4) } else { usize::MAX };
                Step::Scan { table, keys, is_reversed: random.bool(), limit }
            }
            8 => Step::Count { table, bounds },
            9 => Step::First(table),
            10 => Step::Last(table),
            11 | 12 => Step::Put(place, value),
            13 | 14 => Step::Insert(place, value),
            15 => Step::Update(place, value),
            16 => Step::Increment(place),
            17 | 18 => Step::Delete(place),
            _ => Step::DeleteRange { table, bounds },
        }
    }

    /// Returns the records that the operation may change.
    pub fn may_write(&self) -> Vec<Place> {
        match *self {
            Step::Put(place, _) | Step::Insert(place, _) | Step::Update(place, _) => vec![place],
            Step::Increment(place) | Step::Delete(place) => vec![place],
            Step::DeleteRange { table, bounds: (low, high) } => {
                between(low, high).map(|key| (table, key)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Runs the operation on a map, and returns what it saw.
    pub fn run_on_map(&self, state: &mut State, uses: &mut Uses) -> Vec<u64> {
        let first = |table, keys: Vec<usize>, limit, uses: &mut Uses| {
            let mut seen = Vec::new();
            for key in keys {
                uses.reads.insert((table, key));
                if let Some(value) = state.get(&(table, key)) {
                    seen.extend([key as u64, *value]);
                    if seen.len() / 2 == limit {
                        break;
                    }
                }
            }
            seen
        };
        match *self {
            Step::Get(place) => {
                uses.reads.insert(place);
                state.get(&place).copied().into_iter().collect()
            }
            Step::Scan { table, keys, is_reversed, limit } => {
                let mut numbers = keys.numbers();
                if is_reversed {
                    numbers.reverse();
                }
                first(table, numbers, limit, uses)
            }
            Step::Count { table, bounds: (low, high) } => {
                let seen = first(table, between(low, high).collect(), usize::MAX, uses);
                vec![seen.len() as u64 / 2]
            }
            Step::First(table) => first(table, (0..KEYS.len()).collect(), 1, uses),
            Step::Last(table) => first(table, (0..KEYS.len()).rev().collect(), 1, uses),
            Step::Put(place, value) => {
                uses.writes.insert(place);
                state.insert(place, value);
                Vec::new()
            }
            Step::Insert(place, value) => {
                uses.reads.insert(place);
                if state.contains_key(&place) {
                    return vec![0];
                }
                uses.writes.insert(place);
                state.insert(place, value);
                vec![1]
            }
            Step::Update(place, value) => {
                uses.reads.insert(place);
                let Some(old) = state.get_mut(&place) else { return vec![0] };
                uses.writes.insert(place);
                *old = value;
                vec![1]
            }
            Step::Increment(place) => {
                uses.writes.insert(place);
                let value = state.entry(place).or_default();
                *value = value.wrapping_add(1);
                vec![*value]
            }
            Step::Delete(place) => {
                uses.reads.insert(place);
                let existed = state.remove(&place).is_some();
                if existed {
                    uses.writes.insert(place);
                }
                vec![u64::from(existed)]
            }
            Step::DeleteRange { table, bounds: (low, high) } => {
                let mut deleted = 0;
                for key in between(low, high) {
                    uses.reads.insert((table, key));
                    if state.remove(&(table, key)).is_some() {
                        uses.writes.insert((table, key));
                        deleted += 1;
                    }
                }
                vec![deleted]
            }
        }
    }

    /// Runs the operation in a transaction, and returns what it saw.
    pub async fn run(&self, tx: &Transaction, tables: &Tables) -> Result<Vec<u64>, Error> {
        let table_of = |place: Place| (&tables[place.0], KEYS[place.1]);
        let written = match *self {
            Step::Get(place) => {
                let (table, key) = table_of(place);
                return Ok(tx.get(table, key).await?.into_iter().collect());
            }
            Step::Scan { table, keys, is_reversed, limit } => {
                let mut scan = match keys {
                    Keys::Between(low, high) => tx.scan(&tables[table], strings((low, high)))?,
                    Keys::StartingWith(prefix) => tx.scan_prefix(&tables[table], KEYS[prefix])?,
                };
                if is_reversed {
                    scan = scan.rev();
                }
                if limit < usize::MAX {
                    scan = scan.limit(limit as u64);
                }
                let mut seen = Vec::new();
                while let Some((key, value)) = scan.next().await? {
                    seen.extend([number_of(&key), value]);
                }
                return Ok(seen);
            }
            Step::Count { table, bounds } => {
                return Ok(vec![tx.count(&tables[table], strings(bounds)).await?]);
            }
            Step::First(table) => {
                let found = tx.first(&tables[table]).await?;
                return Ok(found.map_or(Vec::new(), |(key, value)| vec![number_of(&key), value]));
            }
            Step::Last(table) => {
                let found = tx.last(&tables[table]).await?;
                return Ok(found.map_or(Vec::new(), |(key, value)| vec![number_of(&key), value]));
            }
            Step::Put(place, value) => {
                let (table, key) = table_of(place);
                return tx.put(table, key, &value).await.map(|()| Vec::new());
            }
            Step::Increment(place) => {
                let (table, key) = table_of(place);
                let value = tx.get(table, key).await?.unwrap_or(0).wrapping_add(1);
                return tx.put(table, key, &value).await.map(|()| vec![value]);
            }
            Step::Delete(place) => {
                let (table, key) = table_of(place);
                return Ok(vec![u64::from(tx.delete(table, key).await?)]);
            }
            Step::DeleteRange { table, bounds } => {
                return Ok(vec![tx.delete_range(&tables[table], strings(bounds)).await?]);
            }
            Step::Insert(place, value) => {
                let (table, key) = table_of(place);
                tx.insert(table, key, &value).await
            }
            Step::Update(place, value) => {
                let (table, key) = table_of(place);
                tx.update(table, key, &value).await
            }
        };
        match written {
            Ok(()) => Ok(vec![1]),
            Err(Error::KeyExists { .. } | Error::KeyNotFound { .. }) => Ok(vec![0]),
            Err(error) => Err(error),
        }
    }
}

/// Runs operations in a transaction.
pub async fn run_all(
    tx: &Transaction,
    tables: &Tables,
    steps: &[Step],
) -> Result<Vec<Vec<u64>>, Error> {
    let mut seen = Vec::new();
    for step in steps {
        seen.push(step.run(tx, tables).await?);
    }
    Ok(seen)
}

/// Runs operations on a map.
pub fn run_all_on_map(state: &mut State, steps: &[Step]) -> (Vec<Vec<u64>>, Uses) {
    let mut uses = Uses::default();
    let seen = steps.iter().map(|step| step.run_on_map(state, &mut uses)).collect();
    (seen, uses)
}

/// Reads all records.
pub async fn contents(tx: &Transaction, tables: &Tables) -> Result<State, Error> {
    let mut state = State::new();
    for (number, table) in (0..).zip(tables) {
        let mut scan = tx.scan(table, ..)?;
        while let Some((key, value)) = scan.next().await? {
            state.insert((number, number_of(&key) as usize), value);
        }
    }
    Ok(state)
}
