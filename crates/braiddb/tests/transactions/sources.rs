//! Sources whose user code panics: in the iterator of inputs, in transactions, in replies, or in
//! destructors. The source ends with an error, and every drawn input gets a reply.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, Options, Outcome, Result, SourceRun, Table, Transaction};
use futures_channel::oneshot::{self, Receiver};
use pollster::block_on;

type Records = Table<u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 120;
const INPUTS: u64 = 100;
const BAD: u64 = 40;

/// The counters of a source.
#[derive(Debug, Default)]
struct Counts {
    drawn: AtomicU64,
    replied: AtomicU64,
    succeeded: AtomicU64,
    dropped: AtomicU64,
}

impl Counts {
    fn get(count: &AtomicU64) -> u64 {
        count.load(Ordering::SeqCst)
    }

    fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::SeqCst);
    }

    /// Checks that every input got a reply. Returns the number of inputs.
    fn all_replied(&self) -> u64 {
        assert_eq!(Self::get(&self.drawn), Self::get(&self.replied), "{self:?}");
        Self::get(&self.drawn)
    }
}

/// The place of the panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    IntoIter,
    Next,
    DropOfIterator,
    Body,
    Reply,
    DropOfInput,
    DropOfBody,
    DropOfReply,
}

impl Place {
    fn panics(self, here: Place) {
        if self == here {
            panic!("{here:?}");
        }
    }
}

/// A value that panics in its destructor at its place.
struct Bomb(Place, Place, Arc<Counts>);

impl Drop for Bomb {
    fn drop(&mut self) {
        Counts::add(&self.2.dropped);
        self.0.panics(self.1);
    }
}

/// An input; one of them panics in its destructor.
struct Input(u64, Place);

impl Drop for Input {
    fn drop(&mut self) {
        if self.0 == BAD {
            self.1.panics(Place::DropOfInput);
        }
    }
}

struct Inputs(Place, Arc<Counts>);

struct InputsIter {
    next: u64,
    place: Place,
    counts: Arc<Counts>,
    _bomb: Bomb,
}

impl IntoIterator for Inputs {
    type Item = Input;
    type IntoIter = InputsIter;
    fn into_iter(self) -> InputsIter {
        self.0.panics(Place::IntoIter);
        let bomb = Bomb(self.0, Place::DropOfIterator, self.1.clone());
        InputsIter { next: 0, place: self.0, counts: self.1, _bomb: bomb }
    }
}

impl Iterator for InputsIter {
    type Item = Input;
    fn next(&mut self) -> Option<Input> {
        if self.next == BAD {
            self.place.panics(Place::Next);
        }
        let input = (self.next < INPUTS).then(|| Input(self.next, self.place))?;
        Counts::add(&self.counts.drawn);
        self.next += 1;
        Some(input)
    }
}

fn open(workers: usize) -> (Database, Records) {
    let db = Database::in_memory(Options::default().workers(workers)).unwrap().watched();
    let table = block_on(db.create_table("records")).unwrap();
    (db, table)
}

fn start(db: &Database, table: &Records, place: Place, counts: &Arc<Counts>) -> SourceRun {
    let (table, replies) = (table.clone(), counts.clone());
    let in_body = Bomb(place, Place::DropOfBody, counts.clone());
    let in_reply = Bomb(place, Place::DropOfReply, counts.clone());
    let body = async move |tx: &Transaction, input: &Input| {
        let _captured = &in_body;
        tx.put(&table, &input.0, &input.0).await?;
        if input.0 == BAD {
            place.panics(Place::Body);
        }
        Ok(input.0)
    };
    let reply = move |input: Input, result: Result<Outcome<u64>>| {
        let _captured = &in_reply;
        Counts::add(&replies.replied);
        if input.0 == BAD {
            place.panics(Place::Reply);
        }
        Counts::add(&replies.succeeded);
        assert_eq!(result?.value, input.0);
        Ok(())
    };
    db.transaction().run_source(0, Inputs(place, counts.clone()), body, reply).unwrap()
}

fn panics_at(place: Place) -> (Result<()>, Arc<Counts>) {
    let (db, table) = open(1);
    let counts = Arc::<Counts>::default();
    let ended = start(&db, &table, place, &counts).wait();
    counts.all_replied();
    // The worker continues with another source and with closures.
    let after = Arc::<Counts>::default();
    start(&db, &table, Place::IntoIter, &after).wait().unwrap_err();
    let sums = table.clone();
    db.run_source(0, 0..10_u64, async move |tx, key| tx.put(&sums, key, &7).await)
        .unwrap()
        .wait()
        .unwrap();
    let seven = db.run_blocking(async move |tx| tx.get(&table, &9).await);
    assert_eq!(seven.unwrap_or_else(|error: Error| panic!("{error}")), Some(7));
    let panics = db.stats().destructor_panics;
    let in_destructor =
        matches!(place, Place::DropOfIterator | Place::DropOfBody | Place::DropOfReply);
    assert_eq!(panics, u64::from(in_destructor), "{place:?}");
    db.close().unwrap();
    (ended, counts)
}

fn is_told(ended: Result<()>, place: Place) {
    match ended {
        Err(Error::Panicked(message)) => assert_eq!(message, format!("{place:?}")),
        other => panic!("{place:?}: {other:?}"),
    }
}

#[test]
fn a_panic_of_into_iter_ends_the_source() {
    with_limit(LIMIT_SECONDS, |_| {
        let (ended, counts) = panics_at(Place::IntoIter);
        is_told(ended, Place::IntoIter);
        assert_eq!(counts.all_replied(), 0);
    });
}

#[test]
fn a_panic_of_the_iterator_loses_no_drawn_input() {
    with_limit(LIMIT_SECONDS, |_| {
        let (ended, counts) = panics_at(Place::Next);
        is_told(ended, Place::Next);
        assert_eq!(counts.all_replied(), BAD);
        assert_eq!(Counts::get(&counts.succeeded), BAD);
    });
}

#[test]
fn a_panic_of_a_transaction_ends_the_source_if_the_reply_fails() {
    with_limit(LIMIT_SECONDS, |_| {
        let (ended, counts) = panics_at(Place::Body);
        is_told(ended, Place::Body);
        assert!((BAD..INPUTS).contains(&counts.all_replied()), "{counts:?}");
    });
}

#[test]
fn a_panic_of_the_reply_ends_the_source() {
    with_limit(LIMIT_SECONDS, |_| {
        for place in [Place::Reply, Place::DropOfInput] {
            let (ended, counts) = panics_at(place);
            is_told(ended, place);
            assert!((BAD..INPUTS).contains(&counts.all_replied()), "{counts:?}");
        }
    });
}

#[test]
fn panics_of_destructors_after_the_last_transaction_are_contained() {
    with_limit(LIMIT_SECONDS, |_| {
        for place in [Place::DropOfIterator, Place::DropOfBody, Place::DropOfReply] {
            let (ended, counts) = panics_at(place);
            ended.unwrap();
            assert_eq!(counts.all_replied(), INPUTS);
            assert_eq!(Counts::get(&counts.dropped), 3);
        }
    });
}

/// A source whose first transaction waits for a channel while the iterator panics.
#[test]
fn a_panic_of_the_iterator_lets_waiting_transactions_finish() {
    with_limit(LIMIT_SECONDS, |_| {
        let (db, table) = open(1);
        let counts = Arc::<Counts>::default();
        let (go, gone) = oneshot::channel::<()>();
        let (drawn, replied) = (counts.clone(), counts.clone());
        let first = std::iter::once(Mutex::new(Some(gone)));
        let inputs = first.inspect(move |_| Counts::add(&drawn.drawn));
        let inputs = inputs.chain(std::iter::from_fn(|| panic!("no more")));
        let body = async move |tx: &Transaction, input: &Mutex<Option<Receiver<()>>>| {
            let gone = input.lock().unwrap().take().unwrap();
            gone.await.unwrap();
            tx.put(&table, &1, &1).await
        };
        let reply = move |_input, result: Result<Outcome<()>>| {
            Counts::add(&replied.replied);
            result.map(drop)
        };
        let source = db.transaction().run_source(0, inputs, body, reply).unwrap();
        go.send(()).unwrap();
        match source.wait() {
            Err(Error::Panicked(message)) => assert_eq!(message, "no more"),
            other => panic!("{other:?}"),
        }
        assert_eq!(counts.all_replied(), 1);
        db.close().unwrap();
    });
}
