//! Chooses the next procedure and its customers, and sums the money that committed procedures added
//! or removed.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use braiddb::{Error as Failure, Transaction};

use super::procedures::{Operation, Tables, name_of};
use crate::engine::drive::Procedure;

/// Percent of accesses to the hotspot.
const HOT_PERCENT: u32 = 90;

/// Draws and runs procedures.
#[derive(Clone)]
pub(super) struct Teller {
    pub(super) tables: Tables,
    pub(super) customers: u64,
    /// The first customers, this many, are the hotspot; at least two.
    pub(super) hotspot: u64,
    pub(super) random: fastrand::Rng,
    /// The change of the total of all balances by committed transactions.
    pub(super) book: Arc<AtomicI64>,
}

/// A procedure in progress. The engine drops it at commit; a failure ends the measurement.
pub(super) struct Order {
    operation: Operation,
    /// The change by the latest attempt.
    change: Cell<i64>,
    book: Arc<AtomicI64>,
}

impl Drop for Order {
    fn drop(&mut self) {
        // Relaxed: it is read after the threads that add to it were waited for.
        self.book.fetch_add(self.change.get(), Ordering::Relaxed);
    }
}

impl Teller {
    fn customer(&mut self) -> u64 {
        match self.random.u32(0..100) < HOT_PERCENT {
            true => self.random.u64(0..self.hotspot),
            false => self.random.u64(0..self.customers),
        }
    }

    fn two(&mut self) -> (String, String) {
        let first = self.customer();
        loop {
            let second = self.customer();
            if first != second {
                return (name_of(first), name_of(second));
            }
        }
    }
}

impl Procedure for Teller {
    type Input = Order;

    const KINDS: &'static [&'static str] = &[
        "Balance",
        "DepositChecking",
        "TransactSavings",
        "Amalgamate",
        "WriteCheck",
        "SendPayment",
    ];

    fn draw(&mut self) -> Order {
        let percent = self.random.u32(0..100);
        let amount = self.random.i64(1..=10_000);
        let operation = match percent {
            0..15 => Operation::Balance(name_of(self.customer())),
            15..30 => Operation::DepositChecking(name_of(self.customer()), amount),
            30..45 => {
                let sign = if self.random.bool() { 1 } else { -1 };
                Operation::TransactSavings(name_of(self.customer()), sign * amount)
            }
            45..60 => {
                let (from, to) = self.two();
                Operation::Amalgamate(from, to)
            }
            60..75 => Operation::WriteCheck(name_of(self.customer()), amount),
            _ => {
                let (from, to) = self.two();
                Operation::SendPayment(from, to, amount)
            }
        };
        Order { operation, change: Cell::new(0), book: self.book.clone() }
    }

    fn kind(order: &Order) -> usize {
        match order.operation {
            Operation::Balance(..) => 0,
            Operation::DepositChecking(..) => 1,
            Operation::TransactSavings(..) => 2,
            Operation::Amalgamate(..) => 3,
            Operation::WriteCheck(..) => 4,
            Operation::SendPayment(..) => 5,
        }
    }

    async fn run(&self, tx: &Transaction, order: &Order) -> Result<(), Failure> {
        order.change.set(0);
        order.change.set(order.operation.run(tx, &self.tables).await?);
        Ok(())
    }
}
