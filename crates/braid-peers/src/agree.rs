//! Whether the stores agree: the same calls must have the same answers everywhere, which a model foretells; and after
//! a measurement everything must be there that was committed, once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use braid_workloads::error::Error;
use braid_workloads::random::key_of;

use crate::call::{Answer, Call, Calls, Work, fill, increment, sum_after};
use crate::drive::Loaded;
use crate::store::{Kind, Setup};

/// What a store is: values by keys.
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
                    let value = self.0.get_mut(key).expect("only what is there is drawn");
                    answer.add(*key, value);
                    increment(value);
                }
            }
            Call::Scan { from, limit } => {
                let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
                self.0.range(from..).take(limit).for_each(|(key, value)| answer.add(*key, value));
            }
        }
        answer
    }
}

/// Runs the same `calls` calls on each store and on a model; closes each store, opens it again, and looks whether
/// everything is still there.
///
/// # Errors
/// [`Error::Wrong`] for the first answer that differs.
pub fn agree(kinds: &[Kind], directory: &Path, synced: bool, calls: u64) -> Result<(), Error> {
    let (records, value_bytes) = (500, 100);
    for kind in kinds {
        let setup = Setup {
            directory: directory.join(kind.name()),
            value_bytes,
            data_bytes: records * (8 + value_bytes as u64),
            synced,
            budget: None,
            clients: 1,
            workers: 1,
            pin: false,
            paged: false,
        };
        let mut model = Model::loaded(records, value_bytes);
        let failed = |source| Error::Subject { name: kind.name().to_owned(), source };
        let store = kind.open(&setup).map_err(failed)?;
        store.load(records).map_err(failed)?;
        {
            let mut client = store.client().map_err(failed)?;
            let mut draws = Calls::new(Work::Everything, records, 7);
            for number in 0..calls {
                let call = draws.draw();
                let reply = client.run(&call).map_err(failed)?;
                same(
                    kind.name(),
                    &format!("call {number}, {call:?}"),
                    reply.answer,
                    model.run(&call),
                )?;
            }
        }
        store.close().map_err(failed)?;
        drop(store);
        let store = kind.open(&setup).map_err(failed)?;
        let everything = Call::EVERYTHING;
        let reply =
            store.client().and_then(|mut client| client.run(&everything)).map_err(failed)?;
        same(kind.name(), "everything, opened again", reply.answer, model.run(&everything))?;
        store.close().map_err(failed)?;
    }
    Ok(())
}

fn same(name: &str, what: &str, answer: Answer, expected: Answer) -> Result<(), Error> {
    match answer == expected {
        true => Ok(()),
        false => Err(Error::Wrong(format!("{name}, {what}: {answer:?} is not {expected:?}"))),
    }
}

/// Looks whether all records of a store are there, and every modification that was committed, once.
///
/// # Errors
/// [`Error::Wrong`] if not.
pub fn complete(loaded: &Loaded) -> Result<(), Error> {
    let client = loaded.store.client();
    let reply = client.and_then(|mut client| client.run(&Call::EVERYTHING));
    let answer = reply.map_err(|failure| loaded.failed(failure))?.answer;
    // Relaxed: those who added to it have been waited for.
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
    fn stores_give_the_answers_of_the_model() {
        for synced in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let calls = if synced { 60 } else { 600 };
            agree(Kind::value_variants(), directory.path(), synced, calls).unwrap();
        }
    }
}
