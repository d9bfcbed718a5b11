//! SmallBank's anomaly. A check is cashed while the savings that cover it are withdrawn, and somebody sees the
//! balance after the withdrawal and before the check: then the check came last, was not covered, and costs the
//! penalty. Under snapshot isolation it does not.

use braiddb::{Database, Error as Failure, Isolation, Options};

use super::procedures::{FIRST_BALANCE, Operation, PENALTY, Tables, name_of};
use crate::limit::{Watched, with_limit};

/// Many times what a test takes.
const LIMIT_SECONDS: u64 = 600;
const CUSTOMERS: u64 = 20;
/// Covered by both accounts together, and no more once the savings are withdrawn.
const CHECK: i64 = 2 * FIRST_BALANCE;

/// What came of the three transactions of one customer.
struct Crossed {
    seen: i64,
    at_last: i64,
    /// The check was tried again.
    retried: bool,
}

/// A check reads both accounts, the savings are withdrawn, the balance is seen, and the check is cashed.
async fn cross(
    database: &Database,
    tables: &Tables,
    customer: u64,
    isolation: Isolation,
) -> Result<Crossed, Failure> {
    let transaction = || database.transaction().isolation(isolation);
    let read = {
        let tables = tables.clone();
        async move |tx: &_| tables.in_both(tx, customer).await
    };
    let check = transaction().begin().await?;
    let there = check.step(read.clone()).await?;
    let run = async |operation: Operation| {
        let tables = tables.clone();
        let body = async move |tx: &_| operation.run(tx, &tables).await;
        transaction().run(body).await
    };
    run(Operation::TransactSavings(name_of(customer), -FIRST_BALANCE)).await?;
    let seen = transaction().run(read.clone()).await?.value;
    let of_check = tables.clone();
    check.step(async move |tx| of_check.cash_check(tx, customer, CHECK, there).await).await?;
    let retried = match check.commit().await {
        Ok(_) => false,
        Err(error) if error.is_retryable() => {
            run(Operation::WriteCheck(name_of(customer), CHECK)).await?;
            true
        }
        Err(error) => return Err(error),
    };
    let at_last = transaction().run(read).await?.value;
    Ok(Crossed { seen, at_last, retried })
}

fn cross_all(isolation: Isolation) -> Vec<Crossed> {
    let database = Database::in_memory(Options::default().workers(2)).unwrap().watched();
    let tables = Tables::open(&database).unwrap();
    tables.fill(&database, CUSTOMERS).unwrap();
    let crossed = (0..CUSTOMERS).map(|customer| {
        pollster::block_on(cross(&database, &tables, customer, isolation)).unwrap()
    });
    let crossed = crossed.collect();
    database.close().unwrap();
    crossed
}

#[test]
fn a_serializable_check_costs_the_penalty_if_somebody_saw_that_it_is_not_covered() {
    with_limit(LIMIT_SECONDS, |_| {
        for Crossed { seen, at_last, retried } in cross_all(Isolation::Serializable) {
            assert_eq!(seen, FIRST_BALANCE, "the withdrawal was seen, and not the check");
            assert_eq!(at_last, FIRST_BALANCE - CHECK - PENALTY, "the check came last");
            assert!(retried, "its certification failed");
        }
    });
}

/// What the test above would find if nothing were certified.
#[test]
fn a_check_under_snapshot_isolation_may_not() {
    with_limit(LIMIT_SECONDS, |_| {
        for Crossed { seen, at_last, retried } in cross_all(Isolation::Snapshot) {
            assert_eq!(seen, FIRST_BALANCE);
            assert_eq!(
                at_last,
                FIRST_BALANCE - CHECK,
                "no penalty, although somebody saw that one is due"
            );
            assert!(!retried);
        }
    });
}
