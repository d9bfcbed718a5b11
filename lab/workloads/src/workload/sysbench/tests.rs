//! Tests of small databases: runs of all scripts leave them consistent, and the check reports each
//! violated rule.

use braiddb::{Database, Error as Failure, Isolation, Options, Transaction};
use clap::ValueEnum;

use super::consistency::check;
use super::distribution::Distribution;
use super::rows::{Row, Tables, fill, open};
use super::script::{Client, Script};
use crate::engine::drive::Driven;
use crate::error::Error;
use crate::harness::rounds::{Effort, Subject};
use crate::limit::{Watched, with_limit};
use crate::workload::book::Book;
use crate::workload::encoding::Text;

/// Several times the duration of a test.
const LIMIT_SECONDS: u64 = 600;
const SEED: u64 = 1;

fn filled(tables: usize, size: u32, workers: usize) -> (Database, Tables) {
    let database = Database::in_memory(Options::default().workers(workers)).unwrap().watched();
    let tables = open(&database, tables).unwrap();
    fill(&database, &tables, size, SEED, workers).unwrap();
    (database, tables)
}

/// Returns all rows of all tables.
fn rows_of(database: &Database, tables: &Tables) -> Vec<(u32, Row)> {
    let tables = tables.clone();
    let read = async move |tx: &Transaction| {
        let mut all = Vec::new();
        for rows in tables.iter() {
            let mut rows = tx.scan(&rows.table, ..)?;
            while let Some((id, row)) = rows.next().await? {
                all.push((id, row.record()));
            }
        }
        Ok::<_, Failure>(all)
    };
    database.run_blocking(read).unwrap()
}

#[test]
fn runs_of_all_scripts_leave_it_consistent() {
    with_limit(LIMIT_SECONDS, |_| {
        let (size, workers) = (150, 2);
        let (database, tables) = filled(2, size, workers);
        let (first, book) = (check(&database, &tables, size).unwrap(), Book::default());
        for isolation in [Isolation::Serializable, Isolation::Snapshot] {
            for &script in Script::value_variants() {
                for &distribution in Distribution::value_variants() {
                    let make = |seed| Client {
                        script,
                        distribution,
                        tables: tables.clone(),
                        size,
                        random: fastrand::Rng::with_seed(seed),
                        book: book.clone(),
                    };
                    let before = rows_of(&database, &tables);
                    let mut driven =
                        Driven::new("", &database, workers, SEED, make).isolation(isolation);
                    let sample = driven.round(Effort::Transactions(200)).unwrap();
                    assert_eq!(sample.transactions, 200);
                    let writes = matches!(script, Script::WriteOnly | Script::ReadWrite);
                    let changed = rows_of(&database, &tables) != before;
                    assert_eq!(changed, writes, "{script:?}, {distribution:?}");
                    assert_eq!(check(&database, &tables, size).unwrap(), first + book.total());
                }
            }
        }
    });
}

/// The sum alone proves little: it is the same for any order of filling.
#[test]
fn tables_depend_only_on_the_seed() {
    with_limit(LIMIT_SECONDS, |_| {
        let rows = |workers| {
            let (database, tables) = filled(1, 500, workers);
            rows_of(&database, &tables)
        };
        assert!(rows(1) == rows(2));
    });
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Gone(u32),
    TooMany(u32),
    Cut(u32),
}

#[test]
fn broken_rules_are_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let size = 10;
        for (damage, told) in [
            (Damage::Gone(3), "no row 3"),
            (Damage::TooMany(11), "a row 11"),
            (Damage::Cut(7), "row 7 is not whole"),
        ] {
            let (database, tables) = filled(1, size, 1);
            check(&database, &tables, size).unwrap();
            let table = tables[0].table.clone();
            let write = async move |tx: &Transaction| {
                let row = tx.get(&table, &7).await?.expect("it is there");
                match damage {
                    Damage::Gone(id) => tx.delete(&table, &id).await.map(drop),
                    Damage::TooMany(id) => tx.insert(&table, &id, &row.change()).await,
                    Damage::Cut(id) => {
                        let cut = Text::of(&row.c()[1..]);
                        tx.update(&table, &id, &row.change().c(cut)).await
                    }
                }
            };
            database.run_blocking(write).unwrap();
            match check(&database, &tables, size) {
                Err(Error::Wrong(found)) => assert!(found.contains(told), "{damage:?}: {found}"),
                other => panic!("{damage:?}: the check said {other:?}"),
            }
        }
    });
}
