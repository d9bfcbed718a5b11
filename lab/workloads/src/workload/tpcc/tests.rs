//! Tests of small databases: runs at both isolation levels leave them consistent, and the check
//! reports each violated condition.

use braiddb::{Database, Error as Failure, Isolation, Key, Options, Table, Transaction, Value};

use super::consistency::check;
use super::schema::{Customer, District, Order, OrderLine, Tables, Warehouse};
use super::terminal::{NEW_ORDER, PAYMENT, QUERY_2};
use super::{Cardinalities, Kept, Mix, Style, Totals, TpccBed};
use crate::engine::drive::Driven;
use crate::error::Error;
use crate::harness::progress::Progress;
use crate::harness::rounds::{Effort, Subject};
use crate::limit::{Watched, with_limit};
use crate::workload::encoding::{Column, Encoded};

/// Several times the duration of a test.
const LIMIT_SECONDS: u64 = 600;
const SEED: u64 = 1;

fn bed(kept: Kept, warehouses: u16, workers: usize) -> TpccBed {
    let database = Database::in_memory(Options::default().workers(workers)).unwrap().watched();
    let cardinalities = Cardinalities::tiny(warehouses);
    TpccBed::fill(database, kept, cardinalities, SEED, workers, &Progress::of(0)).unwrap()
}

#[test]
fn runs_under_both_levels_leave_it_consistent() {
    with_limit(LIMIT_SECONDS, |_| {
        for kept in [Kept::Memory, Kept::Paged, Kept::Both] {
            leaves_it_consistent(kept);
        }
    });
}

fn leaves_it_consistent(kept: Kept) {
    let workers = 2;
    let bed = bed(kept, 2, workers);
    let mut committed = Totals::default();
    for (isolation, projected) in [
        (Isolation::Serializable, false),
        (Isolation::Serializable, true),
        (Isolation::Snapshot, false),
    ] {
        let make = bed.terminals(workers, Style { projected, ..Style::default() });
        let mut driven = Driven::new("", &bed.database, workers, SEED, make).isolation(isolation);
        let sample = driven.round(Effort::Transactions(2_000)).unwrap();
        let of = |name: &str| {
            let kinds = sample.kinds.iter().filter(|kind| kind.name == name);
            kinds.map(|kind| kind.transactions).sum::<u64>()
        };
        let all = sample.kinds.iter().filter(|kind| kind.name != QUERY_2);
        assert!(all.clone().all(|kind| kind.transactions > 0), "all kinds were run");
        committed.orders += of(NEW_ORDER);
        committed.payments += of(PAYMENT);
        assert_eq!(bed.check().unwrap(), committed);
    }
    // A deck has exact shares.
    assert_eq!(committed.payments, 6_000 * 43 / 100);
}

/// Changes a record, checks the conditions and restores the record. Returns the error of the check.
fn with<K, V>(
    bed: &TpccBed,
    table: &Table<K, V>,
    key: K,
    change: impl Fn(&mut V::Owned) + Send + 'static,
) -> String
where
    K: Key + Clone + Send,
    V: Value<Input = Encoded<V>, Owned = V> + Column + Copy + Send,
{
    let write = |value: V| {
        let (table, key) = (table.clone(), key.clone());
        let update =
            async move |tx: &Transaction| tx.update(&table, &key, &Encoded::of(&value)).await;
        bed.database.run_blocking(update).unwrap();
    };
    let (of, at) = (table.clone(), key.clone());
    let read = async move |tx: &Transaction| {
        let found = tx.get(&of, &at).await?;
        Ok::<_, Failure>(found.map(V::into_owned))
    };
    let before = bed.database.run_blocking(read).unwrap().unwrap();
    let mut changed = before;
    change(&mut changed);
    write(changed);
    let told = told(bed);
    write(before);
    bed.check().unwrap();
    told
}

fn told(bed: &TpccBed) -> String {
    match bed.check() {
        Err(Error::Wrong(told)) => told,
        other => panic!("the check said {other:?}"),
    }
}

#[test]
fn broken_conditions_are_reported() {
    with_limit(LIMIT_SECONDS, |_| {
        let bed = bed(Kept::Memory, 1, 1);
        let tables = Tables::open(&bed.database, Kept::Memory).unwrap();
        let district = (1, 3);
        let delivered = (1, 3, 5);
        let line = (1, 3, 5, 1);
        let customer = (1, 3, 7);
        let told = [
            (1, with(&bed, &tables.warehouses, 1, |warehouse: &mut Warehouse| warehouse.ytd += 1)),
            (
                2,
                with(&bed, &tables.districts, district, |district: &mut District| {
                    district.next_o_id += 1;
                }),
            ),
            (5, with(&bed, &tables.orders, delivered, |order: &mut Order| order.carrier_id = None)),
            (6, with(&bed, &tables.orders, delivered, |order: &mut Order| order.ol_cnt += 1)),
            (
                7,
                with(&bed, &tables.order_lines, line, |line: &mut OrderLine| {
                    line.delivery_d = None
                }),
            ),
            (
                9,
                with(&bed, &tables.districts, district, |district: &mut District| {
                    district.ytd -= 1
                }),
            ),
            (
                10,
                with(&bed, &tables.customers, customer, |customer: &mut Customer| {
                    customer.balance += 1;
                }),
            ),
            (
                11,
                with(&bed, &tables.customers, customer, |customer: &mut Customer| {
                    customer.delivery_cnt += 1;
                }),
            ),
            (
                12,
                with(&bed, &tables.customers, customer, |customer: &mut Customer| {
                    customer.ytd_payment += 1;
                }),
            ),
        ];
        for (condition, told) in told {
            let expected = format!("condition {condition}:");
            assert!(told.contains(&expected), "the message should contain {expected}: {told}");
        }
        check(&bed.database, &tables, Cardinalities::tiny(1)).unwrap();
        deliver_out_of_order(&bed, &tables);
        let told = self::told(&bed);
        assert!(told.contains("condition 3:"), "{told}");
    });
}

/// Delivers an order without lines that is neither the oldest nor the last of a district, so that
/// only condition 3 fails.
fn deliver_out_of_order(bed: &TpccBed, tables: &Tables) {
    let tables = tables.clone();
    let deliver = async move |tx: &Transaction| {
        let key = (1, 3, Cardinalities::tiny(1).customers - 1);
        assert!(tx.delete(&tables.new_orders, &key).await?, "it was new");
        let order = tx.get(&tables.orders, &key).await?.expect("it is there");
        tx.update(&tables.orders, &key, &order.change().carrier_id(Some(1))).await?;
        for number in 1..=order.ol_cnt() {
            let key = (key.0, key.1, key.2, number);
            let line = tx.get(&tables.order_lines, &key).await?.expect("it is there");
            let changed = line.change().delivery_d(Some(1)).amount(0);
            tx.update(&tables.order_lines, &key, &changed).await?;
        }
        Ok::<_, Failure>(())
    };
    bed.database.run_blocking(deliver).unwrap();
}

/// An order with an unknown last item leaves no records, and other orders do not reuse its number.
#[test]
fn orders_of_missing_items_have_no_effect() {
    with_limit(LIMIT_SECONDS, |_| {
        let bed = bed(Kept::Memory, 1, 1);
        let make = bed.terminals(1, Style::default());
        let mut driven = Driven::new("", &bed.database, 1, SEED, make);
        let sample = driven.round(Effort::Transactions(3_000)).unwrap();
        let of = |place: usize| sample.kinds[place].transactions;
        assert_eq!(of(0) + of(1), 3_000 * 45 / 100);
        assert!((3..40).contains(&of(1)), "{} of 1350 were rolled back, about 13 should be", of(1));
        assert_eq!(bed.check().unwrap().orders, of(0));
    });
}

#[test]
fn other_mixes_keep_consistency_and_refill_low_stock() {
    with_limit(LIMIT_SECONDS, |_| {
        let bed = bed(Kept::Memory, 2, 2);
        let tables = Tables::open(&bed.database, Kept::Memory).unwrap();
        let low = || {
            let tables = tables.clone();
            let count = async move |tx: &Transaction| {
                let (mut stock, mut low) = (tx.scan(&tables.stock, ..)?, 0);
                while let Some((_, stock)) = stock.next().await? {
                    low += u32::from(stock.quantity() < 15);
                }
                Ok::<_, Failure>(low)
            };
            bed.database.run_blocking(count).unwrap()
        };
        let run = |mix, together, transactions, committed: &mut Totals| {
            let style = Style { mix, together, suppliers: 25, ..Style::default() };
            let mut driven = Driven::new("", &bed.database, 2, SEED, bed.terminals(2, style));
            let sample = driven.round(Effort::Transactions(transactions)).unwrap();
            let of = |name: &str| {
                let kinds = sample.kinds.iter().filter(|kind| kind.name == name);
                kinds.map(|kind| kind.transactions).sum::<u64>()
            };
            committed.orders += of(NEW_ORDER);
            committed.payments += of(PAYMENT);
            assert_eq!(bed.check().unwrap(), *committed, "{mix:?}");
            of(QUERY_2)
        };
        let mut committed = Totals::default();
        for together in [false, true] {
            assert_eq!(run(Mix::ReadOnly, together, 400, &mut committed), 0);
            run(Mix::Standard, together, 1_000, &mut committed);
            let before = low();
            assert_eq!(run(Mix::Queries, together, 1_000, &mut committed), 100, "a tenth");
            assert!(low() < before, "{} records of stock are low, {before} were", low());
        }
    });
}
