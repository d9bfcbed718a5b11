//! Checks that queries return the same results as plain sums over the orders, and that missing
//! orders are detected.

use super::*;
use crate::limit::{Watched, with_limit};

/// Several times the duration of a test.
const LIMIT_SECONDS: u64 = 600;

/// Loads tables with this number of orders in a database in memory.
fn loaded(orders: u64) -> Refreshes {
    let generator = Generator::new(7, orders);
    let mut answer = Answer::default();
    (0..orders).for_each(|number| answer.add(&generator.order(number), 1));
    let database = Database::in_memory(braiddb::Options::default().workers(1)).unwrap().watched();
    let options = TableOptions::default().paged();
    Loaded::load(CACHED, database, options, generator, &answer).unwrap().refreshes
}

#[test]
fn queries_are_correct_after_refreshes() {
    with_limit(LIMIT_SECONDS, |_| {
        let mut refreshes = loaded(3_000);
        for pairs in 1..=5 {
            refreshes.in_bulk = pairs % 2 == 0;
            let rows = refreshes.run(&AtomicBool::new(true)).unwrap();
            assert!(rows >= 2 * 3 * 2, "{rows} rows");
            assert_eq!(refreshes.expected.committed(), 2 * pairs);
            for query in Query::ALL {
                Queries::run_one(&refreshes, query).unwrap();
            }
        }
        let answer = |query| {
            let tables = refreshes.tables.clone();
            let run = async move |tx: &braiddb::Transaction| Query::run(query, tx, &tables).await;
            refreshes.database.run_blocking(run).unwrap()
        };
        for query in Query::ALL {
            assert_ne!(answer(query), Answer::default(), "{query:?} has something to find");
            let old = refreshes.expected.has(&answer(query), query, 0);
            assert!(old, "{query:?} may find what was there since it began");
        }
    });
}

#[test]
fn a_query_that_misses_a_line_is_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let refreshes = loaded(300);
        let tables = refreshes.tables.clone();
        let delete = async move |tx: &braiddb::Transaction| {
            let (key, _) = tx.first(&tables.lines).await?.expect("there are lines");
            tx.delete(&tables.lines, &key).await
        };
        assert!(refreshes.database.run_blocking(delete).unwrap());
        let wrong = Queries::run_one(&refreshes, Query::Pricing);
        assert!(matches!(wrong, Err(Error::Wrong(_))), "{wrong:?}");
    });
}
