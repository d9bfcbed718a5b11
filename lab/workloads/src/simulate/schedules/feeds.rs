//! Schedules of change feeds. Clients write to a table, follow its changes, and create, advance,
//! abandon and drop a slot. All answers to clients are recorded in order and compared with the
//! transactions that feeds returned. After a crash the recovered slot is compared with the answers
//! recorded before it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use braiddb::changes::{ChangeToken, ChangeTransaction, Changes, ChangesFrom};
use braiddb::simulation::{give_way, pause};
use braiddb::{ChangesError, Database, Error, Table, Transaction};
use fastrand::Rng;

use super::super::work::kind;
use super::clients::{Clients, NO_PANIC, Pause, pollster};

type Rows = Table<u64, [u8]>;

/// The names of the table and of the slot in schedules of change feeds.
pub(super) const NAME: &str = "fed";
const SLOT: &str = "slot";
const KEYS: u64 = 12;
/// The maximum number of records in a transaction, and the maximum length of a record's random
/// bytes. The log splits some records of this length into parts.
const MAX_RECORDS: u64 = 8;
const MAX_BYTES: usize = 3000;
/// A retention limit above what any schedule logs, so that the slot is never lost.
const PLENTY: u64 = 1 << 40;

/// An answer to a client, or an attempt of a client.
#[derive(Clone, Debug)]
enum Event {
    /// The transaction with this number committed at this LSN.
    Committed(u64, u64),
    /// A feed returned the transaction that committed at this LSN.
    Given(u64),
    /// A feed returned a transaction with this token.
    Token(ChangeToken),
    /// A client creates or drops the slot. Until the next event the slot may or may not exist.
    Unsure,
    /// The slot exists at this LSN.
    Made(u64),
    /// A client advances the slot to this LSN. [`Event::Advanced`] records its success and the log
    /// tail at that time.
    Advancing(u64),
    Advanced {
        to: u64,
        tail: u64,
    },
}

/// A section of the log that a feed returned.
#[derive(Clone, Debug)]
struct Stretch {
    /// The section begins after this LSN, or at the latest after `at_most` if the pending attempt
    /// succeeded. It ends with `until`.
    after: u64,
    at_most: u64,
    until: u64,
    /// LSN and number of each transaction.
    given: Vec<(u64, u64)>,
}

/// The known position of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    is_there: bool,
    at_least: u64,
    at_most: u64,
}

/// All answers to clients, and all sections of the log that feeds returned.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    events: Vec<Event>,
    stretches: Vec<Stretch>,
}

impl Log {
    /// Returns the number of recorded events.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns the number of transactions that feeds returned and the number of slot advances.
    pub(super) fn counts(&self) -> (u64, u64) {
        let given = self.stretches.iter().map(|stretch| stretch.given.len() as u64).sum();
        let advanced =
            self.events.iter().filter(|event| matches!(event, Event::Advanced { .. })).count();
        (given, advanced as u64)
    }

    fn place(&self, until: usize) -> Place {
        let mut place = Place::default();
        for event in &self.events[..until] {
            match event {
                Event::Unsure => place = Place::default(),
                Event::Made(at) => place = Place { is_there: true, at_least: *at, at_most: *at },
                Event::Advancing(to) => place.at_most = place.at_most.max(*to),
                Event::Advanced { to, tail } => {
                    // The start of a slot is unknown if its creator was dropped before it had the
                    // answer.
                    let at_most = if place.is_there { *to } else { *tail };
                    place.is_there = true;
                    place.at_least = place.at_least.max(*to);
                    place.at_most = place.at_most.max(at_most);
                }
                _ => {}
            }
        }
        place
    }

    /// Returns the transactions known to have committed by the event `until`, by LSN.
    fn committed(&self, until: usize) -> BTreeMap<u64, u64> {
        let committed = self.events[..until].iter().filter_map(|event| match event {
            Event::Committed(number, lsn) => Some((*lsn, *number)),
            _ => None,
        });
        committed.collect()
    }

    /// Checks the sections of the log that feeds returned.
    ///
    /// # Errors
    /// Returns a description of the first error found.
    pub(super) fn check(&self) -> Result<(), String> {
        let committed = self.committed(self.events.len());
        self.stretches.iter().try_for_each(|stretch| stretch.check(&committed))
    }
}

impl Stretch {
    fn new(place: Place) -> Self {
        let Place { at_least: after, at_most, .. } = place;
        Self { after, at_most, until: after, given: Vec::new() }
    }

    /// Records a transaction that a feed returned.
    fn note(&mut self, transaction: &ChangeTransaction) -> Result<(), String> {
        if let Some(number) = number_of(transaction)? {
            self.given.push((transaction.commit_lsn, number));
        }
        self.until = self.until.max(transaction.commit_lsn);
        Ok(())
    }

    fn check(&self, committed: &BTreeMap<u64, u64>) -> Result<(), String> {
        let mut last = self.after;
        for (lsn, number) in &self.given {
            if *lsn <= last {
                return Err(format!("the commit at {lsn} is returned after {last}: {self:?}"));
            }
            if committed.get(lsn).is_some_and(|known| known != number) {
                return Err(format!("number {number} is given, but at {lsn} is another"));
            }
            last = *lsn;
        }
        let given: BTreeSet<u64> = self.given.iter().map(|(lsn, _)| *lsn).collect();
        let expected =
            committed.range(self.at_most + 1..).take_while(|(lsn, _)| **lsn <= self.until);
        match expected.map(|(lsn, _)| lsn).find(|lsn| !given.contains(lsn)) {
            Some(missing) => Err(format!("the commit at {missing} is not returned: {self:?}")),
            None => Ok(()),
        }
    }
}

/// Returns the number that all records of a transaction contain, or `None` if the transaction wrote
/// none. Checks that the number of records matches the count inside them.
fn number_of(transaction: &ChangeTransaction) -> Result<Option<u64>, String> {
    let wrong = |what: &str| Err(format!("{what} in {transaction:?}"));
    let records = transaction.changes.iter().filter(|change| change.kind.gives_value());
    let mut numbers = None;
    let mut keys = BTreeSet::new();
    for change in records {
        let Some((own, _)) = change.value.as_chunks::<8>().0.split_first_chunk::<2>() else {
            return wrong("a value is too short");
        };
        if *numbers.get_or_insert(*own) != *own || !keys.insert(&change.key) {
            return wrong("a record is another transaction's, or given twice");
        }
    }
    let Some([number, count]) = numbers.map(|own| own.map(u64::from_le_bytes)) else {
        return Ok(None);
    };
    if count != keys.len() as u64 {
        return wrong("some of it is missing");
    }
    Ok(Some(number))
}

/// The state that clients share.
pub(super) struct Feeds {
    table: Rows,
    log: Arc<Mutex<Log>>,
    /// Held by the client that uses the slot.
    slot: Mutex<()>,
}

impl Feeds {
    /// # Errors
    /// The same errors as opening a table.
    pub(super) async fn open(
        db: &Database,
        paged: bool,
        log: Arc<Mutex<Log>>,
    ) -> Result<Self, Error> {
        let open =
            async move |tx: &Transaction| tx.open_or_create_table_with(NAME, kind(paged)).await;
        let table = db.run(open).await?;
        Ok(Self { table, log, slot: Mutex::default() })
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().expect(NO_PANIC)
    }

    fn record(&self, event: Event) {
        self.log().events.push(event);
    }

    fn place(&self) -> Place {
        let log = self.log();
        log.place(log.events.len())
    }
}

/// Waits for the next transaction of a feed for at most this number of polls.
fn poll_some(changes: &mut Changes, polls: u32) -> Option<Result<ChangeTransaction, Error>> {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        // Each poll drops its future.
        if let Poll::Ready(given) = pin!(changes.next()).as_mut().poll(&mut context) {
            return given.transpose();
        }
        give_way();
    }
    None
}

impl Clients {
    fn feeds(&self) -> &Feeds {
        self.feeds.as_ref().expect("there where they are followed")
    }

    /// Writes some records in one transaction and returns its commit LSN, or `None` if it did not
    /// commit.
    pub(super) fn write_fed(&self, random: &mut Rng) -> Option<u64> {
        let number = self.number();
        let (count, bytes) = (random.u64(1..=MAX_RECORDS), random.usize(0..MAX_BYTES));
        let (first, table, pauses) =
            (random.u64(0..KEYS), self.feeds().table.clone(), random.bool());
        let deletes = random.bool();
        let tables = [table.clone()];
        let write = async move |tx: &Transaction| {
            let mut value = [number.to_le_bytes(), count.to_le_bytes()].concat();
            value.resize(16 + bytes, number as u8);
            for record in first..first + count {
                tx.put(&table, &(record % KEYS), &value).await?;
            }
            if deletes {
                tx.delete(&table, &((first + count) % KEYS)).await?;
            }
            if pauses {
                Pause(false).await;
            }
            Ok::<_, Error>(())
        };
        let written = match self.is_bulk(number) {
            true => pollster(self.db.transaction().try_run_bulk(tables, write)),
            false => pollster(self.db.transaction().run(write)),
        };
        match written {
            Ok(outcome) => {
                self.feeds().record(Event::Committed(number, outcome.commit_lsn));
                Some(outcome.commit_lsn)
            }
            Err(error) => {
                self.excuse("a write to a table that is followed", &error);
                None
            }
        }
    }

    /// Records a transaction that a feed returned. Returns true if the transaction is valid in
    /// isolation.
    fn note_given(&self, stretch: &mut Stretch, transaction: &ChangeTransaction) -> bool {
        let lsn = transaction.commit_lsn;
        let durable = self.db.stats().lsn.durable;
        if durable <= lsn {
            self.report(format!(
                "the commit at {lsn} is returned, but the durable LSN is {durable}"
            ));
        }
        let noted = stretch.note(transaction);
        let is_right = noted.is_ok();
        match noted {
            Err(problem) => self.report(problem),
            Ok(()) => {
                let mut log = self.feeds().log();
                if stretch.given.last().is_some_and(|(given, _)| *given == lsn) {
                    log.events.push(Event::Given(lsn));
                }
                log.events.extend(transaction.token.map(Event::Token));
            }
        }
        is_right
    }

    fn end_stretch(&self, stretch: Stretch) {
        self.feeds().log().stretches.push(stretch);
    }

    /// Follows the changes from now until the feed returns this client's own commit, then continues
    /// from a token.
    pub(super) fn follow_own(&self, random: &mut Rng) {
        let mut changes = self.db.changes(ChangesFrom::Now).tables([NAME]);
        let after = self.db.stats().lsn.durable;
        let (mut until, mut stretch) = (None, Stretch::new(Place::default()));
        for _ in 0..random.u32(1..4) {
            until = self.write_fed(random).or(until);
        }
        // The feed may or may not return transactions that commit while `changes` starts.
        stretch.at_most = until.unwrap_or(after) - 1;
        while until.is_some_and(|until| stretch.until < until) {
            // The transaction must come. If the feed did not wake this client, no other event
            // would.
            match pollster(changes.next()) {
                Ok(Some(transaction)) => {
                    if !self.note_given(&mut stretch, &transaction) {
                        return;
                    }
                }
                Ok(None) => return self.report("a feed ended without an error".to_owned()),
                Err(error) => {
                    self.excuse("a feed", &error);
                    break;
                }
            }
        }
        self.end_stretch(stretch);
        if let Some(token) = changes.token().filter(|_| random.bool()) {
            drop(changes);
            self.write_fed(random);
            self.follow_from(&token.into(), place_of(&token), random);
        }
    }

    /// Continues from a token that some client received, if the log is still available.
    pub(super) fn follow_token(&self, random: &mut Rng) {
        let tokens: Vec<ChangeToken> = {
            let log = self.feeds().log();
            let tokens = log.events.iter().filter_map(|event| match event {
                Event::Token(token) => Some(*token),
                _ => None,
            });
            tokens.collect()
        };
        if let Some(token) = random.choice(&tokens) {
            self.follow_from(&(*token).into(), place_of(token), random);
        }
    }

    /// Begins with a snapshot and continues with the changes after it.
    pub(super) fn follow_snapshot(&self, random: &mut Rng) {
        let mut changes = self.db.changes(ChangesFrom::Snapshot).tables([NAME]);
        let mut seen = BTreeMap::new();
        let lsn = loop {
            match poll_some(&mut changes, 4000) {
                None => return,
                Some(Err(error)) => return self.excuse("a feed from a snapshot", &error),
                Some(Ok(piece)) if piece.snapshot => {
                    for change in piece.changes.iter().filter(|change| change.kind.gives_value()) {
                        if seen.insert(change.key.clone(), change.value.clone()).is_some() {
                            return self.report("a snapshot gives a record twice".to_owned());
                        }
                    }
                    if piece.token.is_some() {
                        break piece.commit_lsn;
                    }
                }
                Some(Ok(other)) => return self.report(format!("amid a snapshot comes {other:?}")),
            }
        };
        let place = Place { is_there: true, at_least: lsn - 1, at_most: lsn - 1 };
        self.read_on(&mut changes, &ChangesFrom::Snapshot, Stretch::new(place), random);
    }

    fn follow_from(
        &self,
        from: &ChangesFrom,
        place: Place,
        random: &mut Rng,
    ) -> Option<ChangeToken> {
        let mut changes = self.db.changes(from.clone()).tables([NAME]);
        self.read_on(&mut changes, from, Stretch::new(place), random)
    }

    /// Reads some transactions of a feed. Returns the last token, unless too few came.
    fn read_on(
        &self,
        changes: &mut Changes,
        from: &ChangesFrom,
        mut stretch: Stretch,
        random: &mut Rng,
    ) -> Option<ChangeToken> {
        let (mut token, polls) = (None, random.u32(10..400));
        for _ in 0..random.u32(1..12) {
            match poll_some(changes, polls) {
                None => break,
                Some(Ok(transaction)) => {
                    if !self.note_given(&mut stretch, &transaction) {
                        return None;
                    }
                }
                Some(Err(error)) => {
                    self.excuse_feed(from, &error);
                    break;
                }
            }
            token = changes.token();
        }
        // A feed that waits still reports its position.
        if let Some(now) = changes.token() {
            stretch.until = stretch.until.max(now.commit_lsn());
            token = Some(now);
        }
        self.end_stretch(stretch);
        token
    }

    /// Uses the slot in some way, unless another client uses it.
    pub(super) fn use_slot(&self, random: &mut Rng) {
        let Ok(_alone) = self.feeds().slot.try_lock() else { return };
        match random.u32(0..8) {
            0 => self.drop_slot(),
            1 => self.make_slot(random, true),
            _ if !self.feeds().place().is_there => self.make_slot(random, false),
            _ => self.follow_slot(random),
        }
    }

    fn make_slot(&self, random: &mut Rng, gives_up: bool) {
        if self.feeds().place().is_there {
            return;
        }
        self.feeds().record(Event::Unsure);
        let mut make = pin!(self.db.create_change_slot(SLOT, PLENTY));
        if gives_up {
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..random.u32(1..20) {
                if make.as_mut().poll(&mut context).is_ready() {
                    return;
                }
                give_way();
            }
            // The slot may exist. If its row exists, the client that advances it finds it there
            // from then on.
            let mut changes = self.db.changes(ChangesFrom::Now);
            if self.write_fed(random).is_none() {
                return;
            }
            if let Ok(Some(given)) = pollster(changes.next()) {
                self.advance_to(random, given.token.expect("every commit has one"));
            }
            return;
        }
        match pollster(make) {
            Ok(token) => self.feeds().record(Event::Made(token.commit_lsn())),
            Err(Error::Changes(ChangesError::SlotExists(_))) => self.drop_slot(),
            Err(error) => self.excuse("the making of a slot", &error),
        }
    }

    fn drop_slot(&self) {
        self.feeds().record(Event::Unsure);
        match pollster(self.db.drop_change_slot(SLOT)) {
            Ok(()) | Err(Error::Changes(ChangesError::SlotNotFound(_))) => {}
            Err(error) => self.excuse("the dropping of a slot", &error),
        }
    }

    fn advance_to(&self, random: &mut Rng, token: ChangeToken) {
        let to = token.commit_lsn();
        self.feeds().record(Event::Advancing(to));
        let mut advance = pin!(self.db.advance_change_slot(SLOT, &token));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..if random.u32(0..4) == 0 { random.u32(1..20) } else { 0 } {
            match advance.as_mut().poll(&mut context) {
                Poll::Ready(advanced) => return self.advanced(to, advanced),
                Poll::Pending => pause(random.u64(1..100)),
            }
        }
        // Otherwise the advance is dropped.
        if random.u32(0..8) > 0 {
            self.advanced(to, pollster(advance));
        }
    }

    fn advanced(&self, to: u64, advanced: Result<(), Error>) {
        match advanced {
            Ok(()) => {
                let tail = self.db.stats().lsn.tail;
                self.feeds().record(Event::Advanced { to, tail });
            }
            Err(Error::Changes(ChangesError::SlotNotFound(_)))
                if !self.feeds().place().is_there => {}
            Err(error) => self.excuse("the advance of a slot", &error),
        }
    }

    /// Reads transactions from the slot's feed and advances the slot.
    fn follow_slot(&self, random: &mut Rng) {
        let place = self.feeds().place();
        let token = self.follow_from(&ChangesFrom::Slot(SLOT.to_owned()), place, random);
        if let Some(token) = token {
            self.advance_to(random, token);
        }
    }

    /// Only a feed from a token may find that the log was freed. A feed from the slot, or one
    /// opened before, may not.
    fn excuse_feed(&self, from: &ChangesFrom, error: &Error) {
        match (from, error) {
            (ChangesFrom::Token(_), Error::Changes(ChangesError::LogGone { .. })) => {}
            _ => self.excuse("a feed", error),
        }
    }
}

fn place_of(token: &ChangeToken) -> Place {
    Place { is_there: true, at_least: token.commit_lsn(), at_most: token.commit_lsn() }
}

/// Compares the recovered slot with the events before the crash. The slot must be at its known
/// position. All transactions after it must be available, among them those that feeds returned
/// before the crash. Returns the first difference.
///
/// # Errors
/// Returns errors of reading the recovered database.
pub(super) fn recovered(db: &Database, log: &Log, events: usize) -> Result<Option<String>, Error> {
    let place = log.place(events);
    let slots = pollster(db.change_slots())?;
    let slot = slots.iter().find(|slot| slot.name == SLOT);
    let Some(slot) = slot else {
        let problem = "the slot is gone, which was made".to_owned();
        return Ok(place.is_there.then_some(problem));
    };
    if slot.lost {
        return Ok(Some(format!("{slot:?} is lost")));
    }
    let mut stretch = Stretch::new(place);
    // The advance may have been tried before the crash and recorded after it.
    let at = slot.token.commit_lsn();
    if place.is_there && at < place.at_least {
        return Ok(Some(format!("{slot:?} was advanced up to {}", place.at_least)));
    }
    (stretch.after, stretch.at_most) = (at, at);
    let mut changes = db.changes(ChangesFrom::Slot(SLOT.to_owned())).tables([NAME]);
    let end = db.stats().lsn.durable;
    while changes.token().is_none_or(|token| token.resume_lsn() < end) {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(changes.next()).as_mut().poll(&mut context) {
            Poll::Ready(given) => {
                let given = given?.expect("a feed ends with an error");
                if let Err(problem) = stretch.note(&given) {
                    return Ok(Some(problem));
                }
            }
            Poll::Pending => give_way(),
        }
    }
    stretch.until = u64::MAX;
    if let Err(problem) = stretch.check(&log.committed(events)) {
        return Ok(Some(problem));
    }
    let there: BTreeSet<u64> = stretch.given.iter().map(|(lsn, _)| *lsn).collect();
    let lost = log.events[..events].iter().find_map(|event| match event {
        Event::Given(lsn) if *lsn > at && !there.contains(lsn) => Some(*lsn),
        _ => None,
    });
    Ok(lost.map(|lsn| format!("the commit at {lsn} was returned before the crash, and is lost")))
}
