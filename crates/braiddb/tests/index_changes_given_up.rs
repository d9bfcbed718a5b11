//! Creations and droppings of indexes that their caller gives up, after each number of polls: the next
//! call goes on from there, whatever was under way meanwhile.

#![cfg(braid_simulation)]

mod common;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use braiddb::simulation::{Faults, SimulatedDisk, block_on};
use braiddb::{
    Database, Error, Index, IndexKeys, IndexOptions, IndexStage, Options, RunOptions, Table,
};
use common::with_limit;

type Records = Table<u64, u64>;
type Digits = Index<u64, u64, u64>;

/// Far more than a test takes, on a loaded machine.
const LIMIT_SECONDS: u64 = 300;
const NAME: &str = "digits";

fn digits(mut value: u64, keys: &mut IndexKeys<'_, u64>) {
    while value > 0 {
        keys.push(&(value % 10));
        value /= 10;
    }
}

fn open(disk: &SimulatedDisk, seed: u64) -> (Database, Records) {
    let options = Options::default().log_segment_bytes(64 << 10);
    let db = Database::open_simulated(disk, options, seed).unwrap();
    let table = block_on(db.open_or_create_table("records")).unwrap();
    (db, table)
}

async fn attach(db: &Database, table: &Records) -> Result<Digits, Error> {
    db.index(table, NAME, IndexOptions::default(), digits).await
}

/// Polls a future so often at most; before each poll but the first, all that is under way ends.
fn poll_settled<T>(
    disk: &SimulatedDisk,
    mut future: Pin<&mut impl Future<Output = T>>,
    polls: usize,
) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        disk.settle();
    }
    None
}

fn put_all(db: &Database, table: &Records, records: std::ops::Range<u64>) {
    let all: Vec<u64> = records.collect();
    for some in all.chunks(500) {
        let (table, some) = (table.clone(), some.to_vec());
        db.run_blocking(async move |tx| {
            for key in &some {
                tx.put(&table, key, &(key * 7)).await?;
            }
            Ok(())
        })
        .unwrap();
    }
}

/// Writes a record, and holds the index against the table: both at once.
fn works(db: &Database, table: &Records, index: &Digits, key: u64) {
    let (records, by) = (table.clone(), index.clone());
    let run = db.run_with(RunOptions::default().max_attempts(4), async move |tx| {
        tx.put(&records, &key, &(key * 11 + 1)).await?;
        let (mut all, mut expected) = (tx.scan(&records, ..)?, BTreeSet::new());
        while let Some((key, value)) = all.next().await? {
            expected.extend(value.to_string().bytes().map(|d| (u64::from(d - b'0'), key, value)));
        }
        let (mut scan, mut found) = (tx.scan_by(&by, ..)?, Vec::new());
        while let Some(one) = scan.next().await? {
            found.push(one);
        }
        // A digit 0 is a key only of numbers that go on after it.
        assert_eq!(found, expected.into_iter().filter(|one| one.2 > 0).collect::<Vec<_>>());
        Ok(())
    });
    block_on(run).unwrap();
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
}

fn attached_again(db: &Database, table: &Records) -> Digits {
    loop {
        match block_on(attach(db, table)) {
            Ok(index) => return index,
            // What was dropped is being deleted.
            Err(Error::IndexBusy { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_creation_that_is_given_up_is_gone_on_with_by_the_next_call() {
    with_limit(LIMIT_SECONDS, |_| {
        let mut given_up = 0;
        for polls in 0.. {
            let disk = SimulatedDisk::new(polls as u64);
            let (db, table) = open(&disk, 1);
            put_all(&db, &table, 0..400);
            let over = {
                let creation = Box::pin(attach(&db, &table));
                let mut creation = creation;
                poll_settled(&disk, creation.as_mut(), polls)
            };
            given_up += u32::from(over.is_none());
            let index = over
                .as_ref()
                .map_or_else(|| attached_again(&db, &table), |i| i.as_ref().unwrap().clone());
            works(&db, &table, &index, 3);
            let rows = block_on(db.indexes()).unwrap();
            assert_eq!(rows.iter().map(|row| row.stage).collect::<Vec<_>>(), [IndexStage::Ready]);
            db.close().unwrap();
            drop((db, table, index));
            let (db, table) = open(&disk, 2);
            let index = attached_again(&db, &table);
            works(&db, &table, &index, 4);
            db.close().unwrap();
            if over.is_some() {
                break;
            }
        }
        assert!(given_up > 6, "{given_up}");
    });
}

/// Given up, dropped (and that given up too), created again.
#[test]
fn a_dropping_that_is_given_up_is_gone_on_with_by_the_next_call() {
    with_limit(LIMIT_SECONDS, |_| {
        let (mut given_up, mut polls) = (0, 0);
        loop {
            let disk = SimulatedDisk::new(polls as u64);
            let (db, table) = open(&disk, 1);
            put_all(&db, &table, 0..400);
            let index = attached_again(&db, &table);
            works(&db, &table, &index, 3);
            let over = {
                let mut dropping = Box::pin(db.drop_index(&table, NAME));
                poll_settled(&disk, dropping.as_mut(), polls)
            };
            given_up += u32::from(over.is_none());
            let over = over.is_some();
            match block_on(db.drop_index(&table, NAME)) {
                Ok(()) => {}
                Err(Error::IndexNotFound { .. }) => assert!(given_up > 0 || over),
                Err(error) => panic!("{error}"),
            }
            put_all(&db, &table, 0..40);
            let index = attached_again(&db, &table);
            works(&db, &table, &index, 5);
            disk.settle();
            let rows = block_on(db.indexes()).unwrap();
            assert_eq!(rows.iter().map(|row| row.stage).collect::<Vec<_>>(), [IndexStage::Ready]);
            db.close().unwrap();
            drop((db, table, index));
            let (db, table) = open(&disk, 2);
            assert_eq!(block_on(db.indexes()).unwrap().len(), 1);
            let index = attached_again(&db, &table);
            works(&db, &table, &index, 4);
            db.close().unwrap();
            if over {
                break;
            }
            polls += 1;
        }
        assert!(given_up > 3, "{given_up}");
    });
}

/// The deletion of entries that a crash or a caller left to others goes on by itself, and beside the next
/// call; neither takes away the row of an index that is created again under the same name meanwhile.
#[test]
fn an_index_that_is_created_again_outlives_the_deletion_of_the_old_one() {
    with_limit(LIMIT_SECONDS, |_| {
        const RECORDS: u64 = 3_000;
        let mut beside = 0;
        for seed in 0..20 {
            let disk = SimulatedDisk::new(seed);
            let (db, table) = open(&disk, seed);
            put_all(&db, &table, 0..RECORDS);
            let index = attached_again(&db, &table);
            // So that deletions take their time.
            disk.set_faults(Faults { most_delay: 20, ..Faults::default() });
            // Several deletions of the same.
            for polls in [1, 2, 3] {
                let mut dropping = Box::pin(db.drop_index(&table, NAME));
                let mut context = Context::from_waker(Waker::noop());
                for _ in 0..polls {
                    if dropping.as_mut().poll(&mut context).is_ready() {
                        break;
                    }
                    // Less than all that is under way.
                    block_on(db.indexes()).unwrap();
                }
            }
            // By whichever of them: it is gone before it is created again.
            beside += usize::from(block_on(db.indexes()).unwrap().len() == 1);
            let index_again = attached_again(&db, &table);
            drop(index);
            disk.settle();
            works(&db, &table, &index_again, 5);
            assert_eq!(block_on(db.indexes()).unwrap().len(), 1, "seed {seed}");
            disk.set_faults(Faults::default());
            db.close().unwrap();
        }
        assert!(beside > 5, "{beside}");
    });
}
