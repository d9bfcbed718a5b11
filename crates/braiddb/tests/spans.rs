//! Transactions as tracing spans: their end, attempts, waits and parents; and subscribers that
//! panic.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use braiddb::{Database, Error, Options, Table};
use common::{Watched, with_limit};
use pollster::block_on;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const LIMIT_SECONDS: u64 = 120;

/// The recorded data of a span.
#[derive(Clone, Debug, Default)]
struct Told {
    name: &'static str,
    target: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
    /// Events within the span.
    events: usize,
    closed: bool,
}

impl Told {
    fn number(&self, field: &str) -> u64 {
        self.fields[field].parse().unwrap()
    }
}

/// Records everything that it receives.
#[derive(Default)]
struct Listener {
    spans: Mutex<Vec<Told>>,
    panics: AtomicBool,
    panicked: AtomicU64,
}

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Fields<'t>(&'t mut Told);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Listener {
    fn with<T>(&self, id: u64, act: impl FnOnce(&mut Told) -> T) -> T {
        act(&mut self.spans.lock().unwrap()[id as usize - 1])
    }

    fn may_panic(&self) {
        if self.panics.load(Ordering::SeqCst) {
            self.panicked.fetch_add(1, Ordering::SeqCst);
            panic!("the subscriber's own");
        }
    }

    /// Returns the transactions below a span of the test.
    fn transactions(&self, parent: u64) -> Vec<Told> {
        let spans = self.spans.lock().unwrap();
        let of = |told: &&Told| told.name == "transaction" && told.parent == Some(parent);
        spans.iter().filter(of).cloned().collect()
    }
}

struct Shared(Arc<Listener>);

impl Subscriber for Shared {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::DEBUG
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let metadata = attributes.metadata();
        let parent = match attributes.parent() {
            Some(parent) => Some(parent.into_u64()),
            None => ENTERED.with_borrow(|entered| entered.last().copied()),
        };
        let mut told = Told {
            name: metadata.name(),
            target: metadata.target(),
            parent: parent.filter(|_| !attributes.is_root()),
            ..Told::default()
        };
        attributes.record(&mut Fields(&mut told));
        let mut spans = self.0.spans.lock().unwrap();
        spans.push(told);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.0.may_panic();
        self.0.with(id.into_u64(), |told| values.record(&mut Fields(told)));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        if let Some(id) = ENTERED.with_borrow(|entered| entered.last().copied()) {
            self.0.with(id, |told| told.events += 1);
        }
    }

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
        self.0.may_panic();
    }

    fn exit(&self, id: &Id) {
        let left = ENTERED.with_borrow_mut(Vec::pop);
        assert_eq!(
            left,
            Some(id.into_u64()),
            "spans are left in the order in which they were entered"
        );
        self.0.may_panic();
    }

    fn try_close(&self, id: Id) -> bool {
        self.0.with(id.into_u64(), |told| {
            assert!(!told.closed, "a span is closed once");
            told.closed = true;
        });
        self.0.may_panic();
        true
    }
}

/// Returns the listener of this program.
fn listener() -> &'static Arc<Listener> {
    static LISTENER: OnceLock<Arc<Listener>> = OnceLock::new();
    LISTENER.get_or_init(|| {
        let listener = Arc::new(Listener::default());
        tracing::subscriber::set_global_default(Shared(listener.clone())).unwrap();
        listener
    })
}

/// Runs `act` in a new span and passes the span's number to it.
fn in_span<T>(act: impl FnOnce(u64) -> T) -> T {
    listener();
    let span = tracing::info_span!("test");
    let _entered = span.enter();
    act(span.id().unwrap().into_u64())
}

type Records = Table<u64, u64>;

fn database(directory: Option<&std::path::Path>) -> (Database, Records) {
    let options = Options::default().workers(1);
    let db = match directory {
        Some(directory) => Database::open(directory, options).unwrap().watched(),
        None => Database::in_memory(options).unwrap().watched(),
    };
    let table = block_on(db.open_or_create_table("records")).unwrap();
    (db, table)
}

/// A single test, because all would share the program's listener, which panics for a while.
#[test]
fn spans_record_the_results_of_transactions() {
    with_limit(LIMIT_SECONDS, |_| {
        committed_and_rolled_back();
        attempts_are_counted();
        dropped_and_closed();
        of_sources();
        a_panicking_subscriber_affects_no_transaction();
    });
}

fn committed_and_rolled_back() {
    let directory = tempfile::tempdir().unwrap();
    let (db, table) = database(Some(directory.path()));
    let (lsn, told) = in_span(|test| {
        let of = table.clone();
        let write = db.transaction().run(async move |tx| {
            tracing::info!("told within the closure");
            tx.put(&of, &1, &1).await
        });
        let lsn = block_on(write).unwrap().commit_lsn;
        let of = table.clone();
        let refused = block_on(db.run(async move |tx| tx.insert(&of, &1, &2).await));
        assert!(matches!(refused, Err(Error::KeyExists { .. })));
        let read_only = db.transaction().read_only(true);
        let of = table.clone();
        block_on(read_only.run(async move |tx| tx.get(&of, &1).await)).unwrap();
        block_on(db.execute(async move |tx| tx.put(&table, &1, &2).await)).unwrap();
        let panicking =
            block_on(db.run(async |_| -> Result<(), Error> { panic!("the closure's") }));
        assert!(matches!(panicking, Err(Error::Panicked(_))));
        (lsn, listener().transactions(test))
    });
    let outcomes: Vec<&str> = told.iter().map(|told| &*told.fields["outcome"]).collect();
    assert_eq!(outcomes, ["committed", "rolled back", "committed", "executed", "panicked"]);
    assert!(told.iter().all(|told| told.closed && told.target == "braiddb::transaction"));
    assert!(told.iter().all(|told| told.number("attempts") == 1));
    assert_eq!(told[0].number("commit_lsn"), lsn);
    assert_eq!(told[0].events, 1, "it was told of its transaction");
    assert!(told[0].number("waited_for_commit_ns") > 0, "{:?}", told[0]);
    assert!([1, 3].iter().all(|number| !told[*number].fields.contains_key("commit_lsn")));
    assert_eq!((&*told[0].fields["read_only"], &*told[2].fields["read_only"]), ("false", "true"));
    db.close().unwrap();
}

/// A transaction with two conflicts, because another transaction writes the record each time.
fn attempts_are_counted() {
    let (db, table) = database(None);
    let told = in_span(|test| {
        let (of, other) = (table.clone(), db.clone());
        let run = db.run(async move |tx| {
            tx.get(&of, &1).await?;
            if tx.attempt() <= 2 {
                // A separate transaction of another caller, between this one's read and its write.
                let (of, attempt) = (of.clone(), u64::from(tx.attempt()));
                other.run(async move |tx| tx.put(&of, &1, &attempt).await).await?;
            }
            tx.put(&of, &1, &7).await
        });
        block_on(run).unwrap();
        listener().transactions(test)
    });
    assert_eq!(told.len(), 1, "those of the closure are the closure's transaction's");
    assert_eq!(told[0].number("attempts"), 3, "{:?}", told[0]);
    assert_eq!(told[0].fields["outcome"], "committed");
    assert!(told[0].number("waited_outside_ns") > 0, "it awaited other transactions");
    db.close().unwrap();
}

fn dropped_and_closed() {
    let (db, table) = database(None);
    let told = in_span(|test| {
        let run = db.run(async |_| -> Result<(), Error> { std::future::pending().await });
        let mut run = Box::pin(run);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(run.as_mut().poll(&mut context).is_pending());
        // The run has begun when a later one has ended.
        block_on(db.put(&table, &1, &1)).unwrap();
        drop(run);
        let waits = db.run(async |_| -> Result<(), Error> { std::future::pending().await });
        let mut waits = Box::pin(waits);
        assert!(waits.as_mut().poll(&mut context).is_pending());
        block_on(db.put(&table, &1, &1)).unwrap();
        db.close().unwrap();
        assert!(matches!(block_on(waits), Err(Error::Closed)));
        listener().transactions(test)
    });
    let outcomes: Vec<&str> = told.iter().map(|told| &*told.fields["outcome"]).collect();
    assert_eq!(outcomes, ["dropped", "committed", "dropped", "committed"]);
    assert!(told.iter().all(|told| told.closed));
}

fn of_sources() {
    let (db, table) = database(None);
    let count = || {
        let spans = listener().spans.lock().unwrap();
        let roots = spans.iter().filter(|told| told.name == "transaction" && told.parent.is_none());
        roots.clone().for_each(|told| assert_eq!(told.fields["outcome"], "committed"));
        roots.filter(|told| told.closed).count()
    };
    let before = count();
    let source =
        db.run_source(0, 0..20, async move |tx, number| tx.put(&table, number, number).await);
    source.unwrap().wait().unwrap();
    db.close().unwrap();
    assert_eq!(count() - before, 20);
}

fn a_panicking_subscriber_affects_no_transaction() {
    let (db, table) = database(None);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let of = table.clone();
    // Created while the listener does not panic: calls on the caller's own thread are the caller's
    // responsibility.
    let mut run = Box::pin(db.run(async move |tx| tx.put(&of, &3, &4).await));
    listener().panics.store(true, Ordering::SeqCst);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match run.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => result.unwrap(),
        std::task::Poll::Pending => block_on(run).unwrap(),
    }
    // The worker closes the span after the reply, at the latest before it runs the next transaction.
    block_on(db.get(&table, &3)).unwrap();
    listener().panics.store(false, Ordering::SeqCst);
    std::panic::set_hook(hook);
    assert!(listener().panicked.load(Ordering::SeqCst) >= 3, "it was entered, left and told");
    assert_eq!(block_on(db.get(&table, &3)).unwrap(), Some(4), "the engine goes on");
    db.close().unwrap();
}
