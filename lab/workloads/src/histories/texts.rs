//! Values of up to some kilobytes. Readers hold references to them while other clients overwrite,
//! delete, evict and compact them. A referenced value must not change, and a second read of the
//! same key must return the same value.

use std::pin::pin;
use std::sync::atomic::Ordering;

use braiddb::{Database, Error, Isolation, RunOptions, Table, Transaction};
use fastrand::Rng;

use super::client::{Patience, Shared, wait};
use super::tables::kind;
use crate::history::let_others_run;

const KEYS: u64 = 24;
/// The length of the longest value, in numbers of eight bytes: longer than a page stores in one
/// piece.
const MAX_NUMBERS: usize = 1000;

/// The table: each value repeats one number.
#[derive(Clone, Debug)]
pub(super) struct Texts(Table<u64, [u8]>);

/// Returns true if a value repeats one number.
fn is_whole(text: &[u8]) -> bool {
    let (numbers, rest) = text.as_chunks::<8>();
    rest.is_empty() && !numbers.is_empty() && numbers.iter().all(|number| *number == numbers[0])
}

impl Texts {
    pub(super) async fn open(db: &Database, random: &mut Rng) -> Result<Self, Error> {
        Ok(Self(db.open_or_create_table_with("texts", kind(random)).await?))
    }

    async fn write(&self, tx: &Transaction, mut random: Rng) -> Result<(), Error> {
        for _ in 0..random.u8(1..4) {
            let (key, number) = (random.u64(..KEYS), random.u64(..).to_le_bytes());
            if random.u8(..4) == 0 {
                tx.delete(&self.0, &key).await?;
            } else {
                let text = number.repeat(random.usize(1..=MAX_NUMBERS));
                tx.put(&self.0, &key, &text).await?;
            }
        }
        Ok(())
    }

    /// Holds references while other transactions run, and reads again. Returns the number of
    /// references, or the problem found.
    async fn hold(&self, tx: &Transaction, mut random: Rng) -> Result<Result<u64, String>, Error> {
        let mut held = Vec::new();
        for key in 0..KEYS {
            if random.bool() {
                held.push((key, tx.get(&self.0, &key).await?));
                let_others_run().await;
            }
        }
        for (key, text) in &held {
            let again = tx.get(&self.0, key).await?;
            if again != *text || text.is_some_and(|text| !is_whole(text)) {
                return Ok(Err(format!("a reference to text {key} has another value now")));
            }
        }
        let mut scan = tx.scan(&self.0, ..)?.rev();
        while let Some((key, text)) = scan.next().await? {
            let same = held.iter().find(|(other, _)| *other == key);
            if !is_whole(text) || same.is_some_and(|(_, held)| *held != Some(text)) {
                return Ok(Err(format!("a scan meets another text {key} than a look-up")));
            }
        }
        Ok(Ok(held.iter().filter(|(_, text)| text.is_some()).count() as u64))
    }
}

impl Shared {
    pub(super) fn on_texts(&self, random: &mut Rng) {
        let (texts, writes, choices) = (self.texts.clone(), random.bool(), random.fork());
        let isolation = if random.bool() { Isolation::Serializable } else { Isolation::Snapshot };
        let body = async move |tx: &Transaction| {
            if writes {
                texts.write(tx, choices.clone()).await?;
                return Ok(Ok(0));
            }
            texts.hold(tx, choices.clone()).await
        };
        let options = RunOptions::default().isolation(isolation).read_only(!writes);
        let done = wait(pin!(self.db.run_with(options, body)), Patience::Whole);
        match done.expect("waited for").map(|outcome| outcome.value) {
            Ok(Ok(held)) => {
                // Relaxed: sums.
                self.counts.references_held.fetch_add(held, Ordering::Relaxed);
                self.counts.records_read.fetch_add(3 * held, Ordering::Relaxed);
                self.counts.operations.fetch_add(3, Ordering::Relaxed);
            }
            Ok(Err(problem)) => self.report_problem(problem),
            Err(Error::Conflict { .. } | Error::NotSerializable { .. } | Error::Closed) => {}
            Err(error) => self.report_problem(format!("a transaction on texts failed: {error}")),
        }
    }
}
