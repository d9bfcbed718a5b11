//! Checks that the stores agree: the same calls must return the same answers everywhere, as
//! predicted by a model. After a measurement every committed transaction must be present exactly
//! once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use braid_workloads::error::Error;
use braid_workloads::random::key_of;

use crate::answer::{Answer, Failure, increment};
use crate::call::{Call, Calls, Work, fill, sum_after};
use crate::drive::Loaded;
use crate::store::{Kind, Setup};
use crate::tpcc::{self, Access, Trade, run_at_once};

/// The model of a store: values by key.
struct Model(BTreeMap<u64, Vec<u8>>);

impl Model {
    fn loaded(records: u64, value_bytes: usize) -> Self {
        let value = |record| {
            let mut value = Vec::new();
            fill(record, value_bytes, &mut value);
            (key_of(record), value)
        };
        Self((0..records).map(value).collect())
    }

    fn run(&mut self, call: &Call) -> Answer {
        let mut answer = Answer::default();
        match call {
            Call::Read(keys) => keys.iter().for_each(|key| answer.add(*key, &self.0[key])),
            Call::Modify(keys) => {
                for key in &**keys {
                    let value = self.0.get_mut(key).expect("only existing keys are drawn");
                    answer.add(*key, value);
                    increment(value);
                }
            }
            Call::Trade(trade) => return self.trade(trade),
            Call::Scan { from, limit } => {
                let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
                self.0.range(from..).take(limit).for_each(|(key, value)| answer.add(*key, value));
            }
        }
        answer
    }

    fn trade(&mut self, trade: &Trade) -> Answer {
        let ran = run_at_once(trade, |access| {
            match access {
                Access::Get(key) => return Ok(self.0.get(&key).cloned()),
                Access::Put(key, value) => _ = self.0.insert(key, value.to_vec()),
                Access::Delete(key) => _ = self.0.remove(&key),
            }
            Ok(None)
        });
        ran.expect("a model has all that was put into it")
    }
}

/// Runs the same `calls` calls on each store and on a model. Closes and reopens each store, and
/// checks that all records are present.
///
/// # Errors
/// Returns [`Error::Wrong`] for the first answer that differs.
pub fn agree(kinds: &[Kind], directory: &Path, synced: bool, calls: u64) -> Result<(), Error> {
    const RECORDS: u64 = 500;
    for kind in kinds {
        let setup = small(*kind, directory, synced, RECORDS);
        let mut model = Model::loaded(RECORDS, setup.value_bytes);
        let failed = |source| Error::Subject { name: kind.name().to_owned(), source };
        let loaded = Loaded::new(kind.name(), kind.open(&setup).map_err(failed)?, RECORDS);
        loaded.store.load(RECORDS).map_err(failed)?;
        let mut draws = Calls::new(Work::Everything, RECORDS, 7);
        same_answers(&loaded, &mut model, (0..calls).map(|_| draws.draw()))?;
        loaded.store.close().map_err(failed)?;
        drop(loaded);
        let loaded = Loaded::new(kind.name(), kind.open(&setup).map_err(failed)?, RECORDS);
        same_answers(&loaded, &mut model, [Call::EVERYTHING])?;
        loaded.store.close().map_err(failed)?;
    }
    Ok(())
}

/// Runs the same `calls` of TPC-C's transactions on each store and on a model, and compares all
/// rows at the end.
///
/// # Errors
/// Returns [`Error::Wrong`] for the first answer that differs, or if the rows are inconsistent.
pub fn agree_on_trades(kinds: &[Kind], directory: &Path, calls: u64) -> Result<(), Error> {
    const RECORDS: u64 = 1_000;
    for kind in kinds {
        let mut model = Model(BTreeMap::new());
        let failed = |source| Error::Subject { name: kind.name().to_owned(), source };
        let store = kind.open(&small(*kind, directory, false, RECORDS)).map_err(failed)?;
        let loaded = Loaded::new(kind.name(), store, RECORDS);
        fill_with_trades(&loaded).map_err(failed)?;
        tpcc::Scale::of(RECORDS).fill().iter().for_each(|fill| _ = model.trade(fill));
        let mut draws = Calls::new(Work::Trades, RECORDS, 7);
        let drawn = (0..calls).map(|_| draws.draw()).chain([Call::EVERYTHING]);
        let wrote = same_answers(&loaded, &mut model, drawn)?;
        // Relaxed: only one thread runs.
        loaded.modifications.store(wrote, Ordering::Relaxed);
        trades_are_complete(&loaded)?;
        loaded.store.close().map_err(failed)?;
    }
    Ok(())
}

/// Returns the setup of a small store for one client.
fn small(kind: Kind, directory: &Path, synced: bool, records: u64) -> Setup {
    let value_bytes = 100;
    Setup {
        directory: directory.join(kind.name()),
        value_bytes,
        data_bytes: records * (8 + value_bytes as u64),
        synced,
        budget: None,
        clients: 1,
        workers: 1,
        pin: false,
        paged: false,
    }
}

/// Runs the same calls on a store and on a model. Returns the number of calls that wrote.
///
/// # Errors
/// Returns [`Error::Wrong`] for the first answer that differs, or the store's error.
fn same_answers(
    loaded: &Loaded,
    model: &mut Model,
    calls: impl IntoIterator<Item = Call>,
) -> Result<u64, Error> {
    let failed = |failure| loaded.failed(failure);
    let mut client = loaded.store.client().map_err(failed)?;
    let mut wrote = 0;
    for (number, call) in calls.into_iter().enumerate() {
        let answer = client.run(&call).map_err(failed)?.answer;
        let (name, expected) = (loaded.name, model.run(&call));
        if answer != expected {
            let what = format!("call {number}, {call:?}");
            return Err(Error::Wrong(format!("{name}, {what}: {answer:?} is not {expected:?}")));
        }
        wrote += u64::from(!call.only_reads());
    }
    Ok(wrote)
}

/// Fills an empty store with the initial rows of TPC-C.
///
/// # Errors
/// Returns the store's error.
pub fn fill_with_trades(loaded: &Loaded) -> Result<(), Failure> {
    let mut client = loaded.store.client()?;
    for trade in tpcc::Scale::of(loaded.records).fill() {
        client.run(&Call::Trade(trade))?;
    }
    Ok(())
}

/// Checks that a store's rows are consistent with each other and with the number of TPC-C
/// transactions that wrote.
///
/// # Errors
/// Returns [`Error::Wrong`] if not.
pub fn trades_are_complete(loaded: &Loaded) -> Result<(), Error> {
    // Relaxed: the threads that added to it were waited for.
    let wrote = loaded.modifications.load(Ordering::Relaxed);
    let check = Call::Trade(Trade::Check(tpcc::Scale::of(loaded.records)));
    let reply = loaded.store.client().and_then(|mut client| client.run(&check));
    let Answer { records, sum, digest } = reply.map_err(|failure| loaded.failed(failure))?.answer;
    match (records, sum) == (wrote, 0) {
        true => Ok(()),
        false => Err(Error::Wrong(format!(
            "{}: {wrote} transactions wrote, but the rows contain the writes of {records}; {sum} rows are inconsistent, such as {digest:x}",
            loaded.name
        ))),
    }
}

/// Checks that all records of a store are present, and that every committed modification was
/// applied exactly once.
///
/// # Errors
/// Returns [`Error::Wrong`] if not.
pub fn complete(loaded: &Loaded) -> Result<(), Error> {
    let client = loaded.store.client();
    let reply = client.and_then(|mut client| client.run(&Call::EVERYTHING));
    let answer = reply.map_err(|failure| loaded.failed(failure))?.answer;
    // Relaxed: the threads that added to it were waited for.
    let modifications = loaded.modifications.load(Ordering::Relaxed);
    let sum = sum_after(loaded.records, modifications);
    match (answer.records, answer.sum) == (loaded.records, sum) {
        true => Ok(()),
        false => Err(Error::Wrong(format!(
            "{}: {} records with a sum of {} are there, but must be {} with {sum}",
            loaded.name, answer.records, answer.sum, loaded.records
        ))),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn stores_agree_on_trades() {
        let directory = tempfile::tempdir().unwrap();
        agree_on_trades(Kind::value_variants(), directory.path(), 600).unwrap();
    }

    #[test]
    fn stores_answer_as_the_model() {
        for synced in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let calls = if synced { 60 } else { 600 };
            agree(Kind::value_variants(), directory.path(), synced, calls).unwrap();
        }
    }
}
