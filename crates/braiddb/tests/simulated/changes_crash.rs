//! Crashes at every disk operation while a consumer follows a feed. Returned transactions were
//! durable, a resumed feed misses and repeats nothing, and a created slot exists with its retained
//! log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::changes::{ChangeKind, ChangeToken, ChangeTransaction, ChangesFrom};
use braiddb::simulation::{CrashCounts, SimulatedDisk, block_on};
use braiddb::{Database, Options, Table, Tuning};

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 600;
const TRANSACTIONS: u64 = 60;
/// Written last, so that the test knows the earlier transactions.
const LAST: u64 = u64::MAX;

type Rows = Table<u64, [u8]>;

/// The state of a consumer.
#[derive(Clone, Default)]
struct Known {
    given: Vec<ChangeTransaction>,
    slot: Option<ChangeToken>,
}

fn open(disk: &SimulatedDisk, seed: u64) -> Database {
    let options = Options::default()
        .tuning(Tuning::default().log_segment_bytes(16 << 10).checkpoint_bytes(32 << 10));
    Database::open_simulated(disk, options, seed).unwrap().watched()
}

fn apply(transaction: &ChangeTransaction, model: &mut BTreeMap<u64, Vec<u8>>) {
    for change in &transaction.changes {
        let key = || change.key_as::<u64>().unwrap();
        match change.kind {
            ChangeKind::Insert => assert_eq!(model.insert(key(), change.value.clone()), None),
            ChangeKind::Update => assert!(model.insert(key(), change.value.clone()).is_some()),
            ChangeKind::Put => _ = model.insert(key(), change.value.clone()),
            ChangeKind::Delete => _ = model.remove(&key()),
            _ => {}
        }
    }
}

fn contents(db: &Database, table: &Rows) -> BTreeMap<u64, Vec<u8>> {
    let table = table.clone();
    let all = db.run_blocking(async move |tx| {
        let (mut scan, mut all) = (tx.scan(&table, ..)?, BTreeMap::new());
        while let Some((key, value)) = scan.next().await? {
            all.insert(key, value.to_vec());
        }
        Ok(all)
    });
    all.unwrap()
}

/// Checks the state after a crash. Returns the number of transactions that were not returned
/// before.
fn check(disk: &SimulatedDisk, seed: u64, known: &Known) -> usize {
    let db = open(disk, seed);
    if let Some(told) = known.slot {
        let slots = block_on(db.change_slots()).unwrap();
        assert!(!slots[0].lost && slots[0].token.commit_lsn() >= told.commit_lsn());
    }
    let Some(last) = known.given.last() else { return 0 };
    let table: Rows = block_on(db.open_table("t")).unwrap();
    block_on(db.put(&table, &LAST, &[])).unwrap();
    let mut model = BTreeMap::new();
    known.given.iter().for_each(|transaction| apply(transaction, &mut model));
    let (mut changes, mut at) = (db.changes(last.token.unwrap().into()), last.commit_lsn);
    let mut rest = 0;
    while !model.contains_key(&LAST) {
        let transaction = block_on(changes.next()).unwrap().unwrap();
        assert!(transaction.commit_lsn > at, "given twice");
        at = transaction.commit_lsn;
        apply(&transaction, &mut model);
        rest += 1;
    }
    assert!(model == contents(&db, &table), "what was given makes the table");
    let slot = block_on(db.changes(ChangesFrom::Slot("s".to_owned())).next()).unwrap();
    assert!(slot.is_some_and(|first| first.commit_lsn <= at));
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
    rest - 1
}

fn write(db: &Database, table: &Rows, number: u64) {
    let (table, random) = (table.clone(), number);
    db.run_blocking(async move |tx| {
        let mut random = fastrand::Rng::with_seed(random);
        // Sometimes so many that they are logged in parts.
        let count = if number % 16 == 5 { 40 } else { 2 };
        for n in 0..count {
            let key = random.u64(..50);
            match random.u32(..4) {
                0 if n > 0 => _ = tx.delete(&table, &key).await?,
                _ => tx.put(&table, &key, &vec![number as u8; 700]).await?,
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_feed_continues_at_its_position_after_a_crash() {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| goes_on_after_crashes(paged));
    }
}

fn goes_on_after_crashes(paged: bool) {
    let disk = SimulatedDisk::new(3);
    let db = open(&disk, 3);
    let known = Arc::new(Mutex::new(Known::default()));
    let crashes = Arc::new(Mutex::new(Vec::new()));
    let (noted, mut seed, state) = (crashes.clone(), 0, known.clone());
    disk.watch(move |moment| {
        seed += 1;
        let crash = moment.crash(seed, &mut CrashCounts::default());
        noted.lock().unwrap().push((crash, state.lock().unwrap().clone()));
    });
    let mut changes = db.changes(ChangesFrom::Now);
    let token = block_on(db.create_change_slot("s", 1 << 30)).unwrap();
    known.lock().unwrap().slot = Some(token);
    let table: Rows = create_table(&db, "t", paged);
    let take = |changes: &mut braiddb::changes::Changes| {
        let given = block_on(changes.next()).unwrap().unwrap();
        known.lock().unwrap().given.push(given);
    };
    take(&mut changes);
    let mut behind = 0;
    for number in 0..TRANSACTIONS {
        write(&db, &table, number);
        behind += 1;
        if number % 5 == 4 {
            (0..behind - 2).for_each(|_| take(&mut changes));
            behind = 2;
        }
        if number % 12 == 11 {
            let token = known.lock().unwrap().given.last().unwrap().token.unwrap();
            block_on(db.advance_change_slot("s", &token)).unwrap();
            known.lock().unwrap().slot = Some(token);
            block_on(db.compact()).unwrap();
        }
    }
    disk.unwatch();
    drop(changes);
    db.close().unwrap();
    let (mut checked, mut rest) = (0, 0);
    for (number, (disk, known)) in crashes.lock().unwrap().drain(..).enumerate() {
        rest += check(&disk, number as u64, &known);
        checked += 1;
    }
    assert!(checked > 200 && rest > 100, "{checked} crashes, {rest} transactions");
}
