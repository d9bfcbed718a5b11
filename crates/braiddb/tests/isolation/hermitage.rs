//! The anomalies of the Hermitage collection (Kleppmann), each tested at both isolation levels with
//! interactive transactions on one table with the records 1 -> 10 and 2 -> 20. `docs/isolation.md`
//! has a table of the results.

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{
    Certifier, Database, Error, InteractiveTransaction, Isolation, Options, Table, Tuning,
};
use pollster::block_on;

struct Bench {
    db: Database,
    table: Table<u64, u64>,
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Committed,
    /// A write conflicted with another transaction.
    Conflict,
    /// A record that was read had changed.
    NotSerializable,
}

const BOTH: [Isolation; 2] = [Isolation::Serializable, Isolation::Snapshot];

/// Runs `test` at the given levels, with each certifier for serializable.
fn at(levels: &[Isolation], test: impl Fn(&Bench, Isolation) + Copy + Send + 'static) {
    let certified = |level, certifier| {
        level == Isolation::Serializable || certifier == Certifier::ReadValidation
    };
    let both = [Certifier::ReadValidation, Certifier::SerialSafetyNet];
    let all = levels.iter().flat_map(|&level| both.map(|certifier| (level, certifier)));
    let hot =
        all.filter(|(level, certifier)| certified(*level, *certifier)).map(|which| (which, false));
    let paged = levels.iter().map(|&level| ((level, Certifier::ReadValidation), true));
    for ((level, certifier), paged) in hot.chain(paged) {
        with_limit(60, move |_| {
            let options = Options::default()
                .workers(2)
                .isolation(level)
                .tuning(Tuning::default().certifier(certifier));
            let db = Database::in_memory(options).unwrap().watched();
            let table: Table<u64, u64> = create_table(&db, "test", paged);
            let bench = Bench { db, table };
            let setup = bench.begin();
            bench.put(&setup, 1, 10).unwrap();
            bench.put(&setup, 2, 20).unwrap();
            assert_eq!(end(setup), End::Committed);
            test(&bench, level);
        });
    }
}

fn end(transaction: InteractiveTransaction) -> End {
    match block_on(transaction.commit()) {
        Ok(_) => End::Committed,
        Err(Error::Conflict { .. }) => End::Conflict,
        Err(Error::NotSerializable { .. }) => End::NotSerializable,
        Err(other) => panic!("{other}"),
    }
}

impl Bench {
    fn begin(&self) -> InteractiveTransaction {
        block_on(self.db.begin()).unwrap()
    }

    fn get(&self, transaction: &InteractiveTransaction, key: u64) -> Option<u64> {
        block_on(transaction.get(&self.table, &key)).unwrap()
    }

    fn put(&self, transaction: &InteractiveTransaction, key: u64, value: u64) -> Result<(), End> {
        match block_on(transaction.put(&self.table, &key, &value)) {
            Ok(()) => Ok(()),
            Err(Error::Conflict { .. }) => Err(End::Conflict),
            Err(other) => panic!("{other}"),
        }
    }

    fn delete(&self, transaction: &InteractiveTransaction, key: u64) -> Result<bool, End> {
        match block_on(transaction.delete(&self.table, &key)) {
            Ok(was) => Ok(was),
            Err(Error::Conflict { .. }) => Err(End::Conflict),
            Err(other) => panic!("{other}"),
        }
    }

    fn all(&self, transaction: &InteractiveTransaction) -> Vec<(u64, u64)> {
        block_on(transaction.scan(&self.table, .., false, u64::MAX)).unwrap()
    }

    /// Returns the records whose value `wanted` accepts: a predicate is a scan.
    fn with(&self, transaction: &InteractiveTransaction, wanted: fn(u64) -> bool) -> Vec<u64> {
        self.all(transaction).into_iter().filter(|r| wanted(r.1)).map(|r| r.0).collect()
    }

    fn now(&self) -> Vec<(u64, u64)> {
        let reader = self.begin();
        let all = self.all(&reader);
        assert_eq!(end(reader), End::Committed);
        all
    }
}

#[test]
fn g0_dirty_writes_are_prevented() {
    at(&BOTH, |bench, _| {
        let (one, two) = (bench.begin(), bench.begin());
        bench.put(&one, 1, 11).unwrap();
        assert_eq!(bench.put(&two, 1, 12), Err(End::Conflict));
        bench.put(&one, 2, 21).unwrap();
        assert_eq!(end(one), End::Committed);
        assert_eq!(end(two), End::Conflict);
        assert_eq!(bench.now(), [(1, 11), (2, 21)]);
    });
}

#[test]
fn g1a_aborted_reads_are_prevented() {
    at(&BOTH, |bench, _| {
        let (one, two) = (bench.begin(), bench.begin());
        bench.put(&one, 1, 101).unwrap();
        assert_eq!(bench.get(&two, 1), Some(10));
        block_on(one.abort()).unwrap();
        assert_eq!(bench.get(&two, 1), Some(10));
        assert_eq!(end(two), End::Committed);
    });
}

#[test]
fn g1b_intermediate_reads_are_prevented() {
    at(&BOTH, |bench, _| {
        let (one, two) = (bench.begin(), bench.begin());
        bench.put(&one, 1, 101).unwrap();
        assert_eq!(bench.get(&two, 1), Some(10));
        bench.put(&one, 1, 11).unwrap();
        assert_eq!(end(one), End::Committed);
        assert_eq!(bench.get(&two, 1), Some(10));
        assert_eq!(end(two), End::Committed);
    });
}

#[test]
fn g1c_circular_information_flow_is_prevented() {
    at(&BOTH, |bench, level| {
        let (one, two) = (bench.begin(), bench.begin());
        bench.put(&one, 1, 11).unwrap();
        bench.put(&two, 2, 22).unwrap();
        assert_eq!(bench.get(&one, 2), Some(20));
        assert_eq!(bench.get(&two, 1), Some(10));
        assert_eq!(end(one), End::Committed);
        // Neither saw the other. Only an order with the second one first explains this.
        assert_eq!(end(two), skewed(level));
    });
}

#[test]
fn otv_observed_transactions_do_not_vanish() {
    at(&BOTH, |bench, _| {
        let (one, two, three) = (bench.begin(), bench.begin(), bench.begin());
        bench.put(&one, 1, 11).unwrap();
        bench.put(&one, 2, 19).unwrap();
        assert_eq!(bench.put(&two, 1, 12), Err(End::Conflict));
        assert_eq!(end(one), End::Committed);
        assert_eq!(bench.get(&three, 1), Some(10));
        assert_eq!(end(two), End::Conflict);
        assert_eq!(bench.get(&three, 2), Some(20));
        assert_eq!(bench.get(&three, 1), Some(10));
        assert_eq!(end(three), End::Committed);
    });
}

#[test]
fn pmp_predicate_reads_are_repeatable() {
    at(&BOTH, |bench, _| {
        let (one, two) = (bench.begin(), bench.begin());
        assert!(bench.with(&one, |value| value == 30).is_empty());
        bench.put(&two, 3, 30).unwrap();
        assert_eq!(end(two), End::Committed);
        assert!(bench.with(&one, |value| value % 3 == 0).is_empty());
        assert_eq!(end(one), End::Committed);
    });
}

#[test]
fn pmp_predicate_writes_are_protected() {
    at(&BOTH, |bench, _| {
        let (one, two) = (bench.begin(), bench.begin());
        for (key, value) in bench.all(&one) {
            bench.put(&one, key, value + 10).unwrap();
        }
        let mut deleted = Ok(true);
        for key in bench.with(&two, |value| value == 20) {
            deleted = bench.delete(&two, key);
        }
        assert_eq!(deleted, Err(End::Conflict), "it is the record that the first has written");
        assert_eq!(end(one), End::Committed);
        assert_eq!(end(two), End::Conflict);
        assert_eq!(bench.now(), [(1, 20), (2, 30)]);
    });
}

#[test]
fn p4_updates_are_not_lost() {
    at(&BOTH, |bench, _| {
        let (one, two) = (bench.begin(), bench.begin());
        assert_eq!(bench.get(&one, 1), Some(10));
        assert_eq!(bench.get(&two, 1), Some(10));
        bench.put(&one, 1, 11).unwrap();
        assert_eq!(end(one), End::Committed);
        assert_eq!(bench.put(&two, 1, 11), Err(End::Conflict));
        assert_eq!(end(two), End::Conflict);
    });
}

#[test]
fn g_single_read_skew_is_prevented() {
    at(&BOTH, |bench, _| {
        let (one, two) = (bench.begin(), bench.begin());
        assert_eq!(bench.get(&one, 1), Some(10));
        bench.put(&two, 1, 12).unwrap();
        bench.put(&two, 2, 18).unwrap();
        assert_eq!(end(two), End::Committed);
        assert_eq!(bench.get(&one, 2), Some(20));
        assert_eq!(end(one), End::Committed);
    });
}

#[test]
fn g_single_read_skew_of_predicates_is_prevented() {
    at(&BOTH, |bench, _| {
        let (one, two) = (bench.begin(), bench.begin());
        assert_eq!(bench.with(&one, |value| value % 5 == 0), [1, 2]);
        bench.put(&two, 1, 12).unwrap();
        assert_eq!(end(two), End::Committed);
        assert!(bench.with(&one, |value| value % 3 == 0).is_empty());
        assert_eq!(end(one), End::Committed);
    });
}

#[test]
fn g_single_read_skew_into_a_write_is_prevented() {
    at(&BOTH, |bench, _| {
        let (one, two) = (bench.begin(), bench.begin());
        assert_eq!(bench.get(&one, 1), Some(10));
        assert_eq!(bench.all(&two), [(1, 10), (2, 20)]);
        bench.put(&two, 1, 12).unwrap();
        bench.put(&two, 2, 18).unwrap();
        assert_eq!(end(two), End::Committed);
        let mut deleted = Ok(true);
        for key in bench.with(&one, |value| value == 20) {
            deleted = bench.delete(&one, key);
        }
        assert_eq!(deleted, Err(End::Conflict));
        assert_eq!(end(one), End::Conflict);
    });
}

/// Returns the expected end of the second of two transactions with write skew.
fn skewed(level: Isolation) -> End {
    if level == Isolation::Serializable { End::NotSerializable } else { End::Committed }
}

#[test]
fn g2_item_write_skew_is_prevented_where_serializable() {
    at(&BOTH, |bench, level| {
        let (one, two) = (bench.begin(), bench.begin());
        for each in [&one, &two] {
            assert_eq!((bench.get(each, 1), bench.get(each, 2)), (Some(10), Some(20)));
        }
        bench.put(&one, 1, 11).unwrap();
        bench.put(&two, 2, 21).unwrap();
        assert_eq!(end(one), End::Committed);
        assert_eq!(end(two), skewed(level));
    });
}

#[test]
fn g2_phantoms_are_prevented_where_serializable() {
    at(&BOTH, |bench, level| {
        let (one, two) = (bench.begin(), bench.begin());
        for each in [&one, &two] {
            assert!(bench.with(each, |value| value % 3 == 0).is_empty());
        }
        bench.put(&one, 3, 30).unwrap();
        bench.put(&two, 4, 42).unwrap();
        assert_eq!(end(one), End::Committed);
        assert_eq!(end(two), skewed(level));
    });
}

#[test]
fn g2_of_a_reader_between_two_writers_is_prevented_where_serializable() {
    at(&BOTH, |bench, level| {
        // Fekete's anomaly of a read-only transaction.
        let one = bench.begin();
        assert_eq!(bench.all(&one), [(1, 10), (2, 20)]);
        let two = bench.begin();
        assert_eq!(bench.get(&two, 2), Some(20));
        bench.put(&two, 2, 25).unwrap();
        assert_eq!(end(two), End::Committed);
        let three = bench.begin();
        assert_eq!(bench.all(&three), [(1, 10), (2, 25)]);
        assert_eq!(end(three), End::Committed);
        bench.put(&one, 1, 0).unwrap();
        assert_eq!(end(one), skewed(level));
    });
}

#[test]
fn a_transaction_may_override_the_databases_isolation_level() {
    at(&[Isolation::Snapshot], |bench, _| {
        let one = bench.begin();
        let two =
            block_on(bench.db.transaction().isolation(Isolation::Serializable).begin()).unwrap();
        for each in [&one, &two] {
            assert_eq!((bench.get(each, 1), bench.get(each, 2)), (Some(10), Some(20)));
        }
        bench.put(&one, 1, 11).unwrap();
        bench.put(&two, 2, 21).unwrap();
        assert_eq!(end(one), End::Committed);
        assert_eq!(end(two), End::NotSerializable);
    });
}
