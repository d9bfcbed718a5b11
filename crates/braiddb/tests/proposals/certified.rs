//! Transactions that are executed at the same time, certified in some order and applied, are
//! equivalent to running them one after the other in that order. And the certifier decides as the
//! engine does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braiddb::proposals::{CertificationConflict, OrderedCertifier, RowWrites};
use braiddb::{Database, Error, Options, Table, TableOptions, Transaction};
use futures_channel::oneshot;
use pollster::block_on;

use crate::common::{Watched, with_limit};
use crate::expiring::{Clock, TTL};
use crate::world::{World, act};

const LIMIT_SECONDS: u64 = 400;
const CLIENTS: u64 = 6;
const PER_CLIENT: u64 = if cfg!(debug_assertions) { 300 } else { 5000 };
const WINDOW: u64 = 40;

/// The order of the transactions, and what it decides.
struct Order {
    certifier: OrderedCertifier,
    /// The commit LSN of the last entry with writes, up to each entry.
    applied: Vec<u64>,
    committed: Vec<(u64, Vec<String>)>,
    conflicts: u64,
    too_old: u64,
}

impl Order {
    /// Returns the last entry that a snapshot saw.
    fn seen_by(&self, snapshot_lsn: u64) -> u64 {
        self.applied.iter().rposition(|lsn| *lsn < snapshot_lsn).map_or(0, |entry| entry as u64)
    }
}

#[test]
fn certified_transactions_are_serializable_in_their_order() {
    with_limit(LIMIT_SECONDS, |_| {
        let clock = Clock::new();
        let world = World::open(None, &clock);
        let order = Arc::new(Mutex::new(Order {
            certifier: OrderedCertifier::new(WINDOW),
            applied: vec![0],
            committed: Vec::new(),
            conflicts: 0,
            too_old: 0,
        }));
        let last_entry = Arc::new(AtomicU64::new(0));
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (world, order, last_entry) = (&world, &order, &last_entry);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(client);
                    for number in 0..PER_CLIENT {
                        run(world, order, last_entry, number * CLIENTS + client, &mut random);
                    }
                });
            }
        });
        let order = Arc::into_inner(order).unwrap().into_inner().unwrap();
        assert_eq!(order.committed.len() as u64, CLIENTS * PER_CLIENT);
        assert!(
            order.conflicts > 100 && order.too_old > 0,
            "{} {}",
            order.conflicts,
            order.too_old
        );
        let serial = World::open(None, &clock);
        for (position, (seed, value)) in order.committed.iter().enumerate() {
            let (kinds, seed) = (serial.kinds.clone(), *seed);
            let ran = block_on(serial.db.run(async move |tx| act(tx, &kinds, seed).await)).unwrap();
            assert_eq!(ran, *value, "transaction {seed} at position {position}");
        }
        assert!(serial.contents() == world.contents());
    });
}

/// Executes a transaction until it is certified, and applies it.
fn run(
    world: &World,
    order: &Mutex<Order>,
    last_entry: &AtomicU64,
    seed: u64,
    random: &mut fastrand::Rng,
) {
    loop {
        let before = last_entry.load(Ordering::SeqCst);
        let kinds = world.kinds.clone();
        let executed = world.db.execute(async move |tx| act(tx, &kinds, seed).await);
        let proposal = block_on(executed).unwrap();
        // Other clients come first.
        for _ in 0..random.u32(..4) {
            std::thread::yield_now();
        }
        if random.u8(..50) == 0 {
            while last_entry.load(Ordering::SeqCst) < before + WINDOW + 1 {
                // The last client would wait for ever.
                if order.lock().unwrap().committed.len() as u64 + 2 * CLIENTS
                    > CLIENTS * PER_CLIENT - 100
                {
                    break;
                }
                std::thread::yield_now();
            }
        }
        let mut order = order.lock().unwrap();
        let entry = last_entry.load(Ordering::SeqCst) + 1;
        let snapshot = match random.bool() {
            true => before,
            false => order.seen_by(proposal.snapshot_lsn),
        };
        assert!(snapshot >= before, "a snapshot sees what was applied before it");
        let keys = proposal.writes.keys();
        match order.certifier.certify(&proposal.reads, &keys, snapshot) {
            Ok(()) => {}
            Err(CertificationConflict::TooOld { .. }) => {
                order.too_old += 1;
                continue;
            }
            Err(CertificationConflict::Changed { written_at, .. }) => {
                assert!(written_at > snapshot && written_at < entry);
                order.conflicts += 1;
                continue;
            }
            Err(other) => panic!("{other}"),
        }
        order.certifier.record(entry, keys);
        let writes = RowWrites::decode(proposal.writes.as_bytes()).unwrap();
        let apply = async move |tx: &Transaction| tx.apply(&writes).await;
        let applied = world.db.transaction().max_attempts(u32::MAX).run(apply);
        let lsn = match proposal.writes.is_empty() {
            true => *order.applied.last().unwrap(),
            false => block_on(applied).unwrap().commit_lsn,
        };
        order.applied.push(lsn);
        order.committed.push((seed, proposal.value));
        last_entry.store(entry, Ordering::SeqCst);
        return;
    }
}

/// Two transactions overlap: the first one pauses at its end while others commit. The engine's
/// certification in one database and the certifier in another decide the same.
#[test]
fn the_certifier_decides_as_the_engine() {
    const HISTORIES: u64 = if cfg!(debug_assertions) { 1500 } else { 150_000 };
    with_limit(LIMIT_SECONDS, |_| {
        for paged in [false, true] {
            let [engine, other] = [(); 2].map(|()| Pair::new(paged));
            let (mut refused, mut operations) = (0_u64, 0);
            let mut certifier = OrderedCertifier::new(1000);
            for history in 0..HISTORIES {
                let mut random = fastrand::Rng::with_seed(history);
                let steps = Steps::random(&mut random);
                let others: Vec<_> = (0..random.usize(..4))
                    .map(|_| Steps::random_beside(&mut random, &steps))
                    .collect();
                operations += steps.0.len() + others.iter().map(|one| one.0.len()).sum::<usize>();
                let base = certifier.newest();

                let (paused, reached, resume) = Pause::new();
                let once = engine.db.transaction().max_attempts(1);
                let run = once.run(steps.clone().body(&engine.table, Some(paused)));
                let run = std::pin::pin!(run);
                let ran = block_on(async {
                    beside(run, reached, async {
                        for one in &others {
                            engine.db.run(one.clone().body(&engine.table, None)).await.unwrap();
                        }
                        resume.send(()).unwrap();
                    })
                    .await
                });
                let by_engine = match ran {
                    Ok(_) => true,
                    Err(Error::NotSerializable { .. }) => false,
                    Err(error) => panic!("history {history}: {error}"),
                };

                let (paused, reached, resume) = Pause::new();
                let execution = other.db.execute(steps.clone().body(&other.table, Some(paused)));
                let execution = std::pin::pin!(execution);
                let proposal = block_on(async {
                    beside(execution, reached, async {
                        for (number, one) in others.iter().enumerate() {
                            let execution = other.db.execute(one.clone().body(&other.table, None));
                            let writes = execution.await.unwrap().writes;
                            certifier.record(base + 1 + number as u64, writes.keys());
                            other.db.run(async move |tx| tx.apply(&writes).await).await.unwrap();
                        }
                        resume.send(()).unwrap();
                    })
                    .await
                })
                .unwrap();
                let decided = certifier.certify(&proposal.reads, &proposal.writes.keys(), base);
                assert_eq!(decided.is_ok(), by_engine, "history {history}: {steps:?}, {others:?}");
                certifier.advance(base + 10);
                if by_engine {
                    let writes = proposal.writes;
                    certifier.record(base + 10, writes.keys());
                    block_on(other.db.run(async move |tx| tx.apply(&writes).await)).unwrap();
                } else {
                    refused += 1;
                }
            }
            assert!(refused > HISTORIES / 20 && refused < HISTORIES, "{refused} refused");
            assert!(operations as u64 > 4 * HISTORIES, "{operations} operations");
            assert_eq!(engine.contents(), other.contents());
        }
    });
}

/// Polls `first`; once its closure has reached its pause, runs `then` to its end, and continues.
async fn beside<T>(
    mut first: std::pin::Pin<&mut impl Future<Output = T>>,
    reached: oneshot::Receiver<()>,
    then: impl Future<Output = ()>,
) -> T {
    use futures_util::future::{Either, select};
    match select(first.as_mut(), std::pin::pin!(reached)).await {
        Either::Left((ended, _)) => ended,
        Either::Right(_) => {
            then.await;
            first.await
        }
    }
}

/// The closure's side of a pause.
struct Pause(Mutex<Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>>);

impl Pause {
    fn new() -> (Arc<Self>, oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((reached, is_reached), (resume, resumed)) = (oneshot::channel(), oneshot::channel());
        (Arc::new(Self(Mutex::new(Some((reached, resumed))))), is_reached, resume)
    }

    async fn wait(&self) {
        let (reached, resumed) = self.0.lock().unwrap().take().expect("one attempt");
        reached.send(()).unwrap();
        resumed.await.unwrap();
    }
}

struct Pair {
    db: Database,
    table: Table<u64, u64>,
}

impl Pair {
    fn new(paged: bool) -> Self {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let options = TableOptions::default();
        let options = if paged { options.paged() } else { options };
        let table = block_on(db.create_table_with("numbers", options)).unwrap();
        Self { db, table }
    }

    fn contents(&self) -> Vec<(u64, u64)> {
        let table = self.table.clone();
        let read = self.db.run(async move |tx| {
            let (mut scan, mut records) = (tx.scan(&table, ..)?, Vec::new());
            while let Some(record) = scan.next().await? {
                records.push(record);
            }
            Ok(records)
        });
        block_on(read).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Get(u64),
    Scan(u64, u64, u64),
    Put(u64, u64),
    Insert(u64),
    Update(u64),
    Delete(u64),
}

#[derive(Clone, Debug)]
struct Steps(Vec<Step>);

/// Number of keys; the others write no key that the first one writes, because the engine would not
/// wait for the end to refuse that.
const KEYS: u64 = 16;

impl Steps {
    /// At least one write, so that it is certified.
    fn random(random: &mut fastrand::Rng) -> Self {
        let mut steps: Vec<_> = (0..random.usize(1..5)).map(|_| Step::random(random)).collect();
        steps.push(Step::Put(random.u64(..KEYS), random.u64(..)));
        Self(steps)
    }

    /// Writes only keys that `first` does not write.
    fn random_beside(random: &mut fastrand::Rng, first: &Self) -> Self {
        let mut steps = Self::random(random).0;
        let is_free = |key: u64| first.0.iter().all(|step| step.written() != Some(key));
        // No record is inserted and deleted again while the first one is paused: the engine may
        // forget it.
        steps.retain(|step| !matches!(step, Step::Delete(_)) && step.written().is_none_or(is_free));
        Self(steps)
    }

    fn body(
        self,
        table: &Table<u64, u64>,
        pause: Option<Arc<Pause>>,
    ) -> impl AsyncFn(&Transaction) -> Result<(), Error> + Send + use<> {
        let table = table.clone();
        async move |tx: &Transaction| {
            for step in &self.0 {
                step.run(tx, &table).await?;
            }
            if let Some(pause) = &pause {
                pause.wait().await;
            }
            Ok(())
        }
    }
}

impl Step {
    fn random(random: &mut fastrand::Rng) -> Self {
        let (key, value) = (random.u64(..KEYS), random.u64(..));
        match random.u8(..8) {
            0 | 1 => Step::Get(key),
            2 | 3 => Step::Scan(key, key + random.u64(..6), random.u64(1..4)),
            4 => Step::Put(key, value),
            5 => Step::Insert(key),
            6 => Step::Update(key),
            _ => Step::Delete(key),
        }
    }

    fn written(self) -> Option<u64> {
        match self {
            Step::Get(_) | Step::Scan(..) => None,
            Step::Put(key, _) | Step::Insert(key) | Step::Update(key) | Step::Delete(key) => {
                Some(key)
            }
        }
    }

    async fn run(self, tx: &Transaction, table: &Table<u64, u64>) -> Result<(), Error> {
        let written = match self {
            Step::Get(key) => tx.get(table, &key).await.map(drop),
            Step::Scan(from, to, limit) => {
                let mut scan = tx.scan(table, from..to)?.limit(limit);
                while scan.next().await?.is_some() {}
                Ok(())
            }
            Step::Put(key, value) => tx.put(table, &key, &value).await,
            Step::Insert(key) => tx.insert(table, &key, &key).await,
            Step::Update(key) => tx.update(table, &key, &(key + 1)).await,
            Step::Delete(key) => tx.delete(table, &key).await.map(drop),
        };
        match written {
            Err(Error::KeyExists { .. } | Error::KeyNotFound { .. }) => Ok(()),
            other => other,
        }
    }
}

/// A time in which records expire passes between transactions, and only then.
#[test]
fn expiry_follows_the_time_of_the_execution() {
    with_limit(LIMIT_SECONDS, |_| {
        let (here, later) = (Clock::new(), Clock::new());
        let [world, other] = [&here, &later].map(|clock| World::open(None, clock));
        later.pass(TTL / 2);
        for seed in 0..400 {
            let kinds = world.kinds.clone();
            let executed = world.db.execute(async move |tx| act(tx, &kinds, seed).await);
            let writes = block_on(executed).unwrap().writes;
            for world in [&world, &other] {
                let writes = writes.clone();
                block_on(world.db.run(async move |tx| tx.apply(&writes).await)).unwrap();
            }
            here.pass(TTL / 50);
            later.pass(TTL / 50);
            if seed % 30 == 0 {
                // With the later clock, more is deleted.
                block_on(other.db.sweep_expired()).unwrap();
            }
        }
        here.pass(TTL / 2);
        block_on(world.db.sweep_expired()).unwrap();
        block_on(other.db.sweep_expired()).unwrap();
        assert!(world.contents() == other.contents());
    });
}
