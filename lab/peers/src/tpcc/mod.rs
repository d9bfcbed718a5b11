//! TPC-C, reduced to access by key so that every store can run it: its five transactions, in the
//! specified shares, over one table.
//!
//! Rows replace look-ups by index or by least key: a customer's last order, and a district's oldest
//! undelivered order. Customers are found by number, never by name, and no orders exist initially.
//! One New-Order in a hundred orders an unused article, and detects this before it writes.

mod access;
mod check;
mod deal;
mod row;

use fastrand::Rng;

pub use access::{Access, Accessed, only_reads, run_at_once};
use check::check;
use deal::{Deal, asks_for_unused};
use row::{Rows, Table, first_row};

use crate::answer::Answer;

const DISTRICTS: u64 = 10;
/// The number of rows that one loading transaction inserts.
const PIECE: u64 = 1_000;

/// The numbers of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub warehouses: u64,
    /// Articles; each warehouse has a stock of each.
    items: u64,
    /// Customers of each district.
    customers: u64,
}

impl Scale {
    /// The number of records in a warehouse: 100 000 stocks and 30 000 customers. A smaller number
    /// gives one small warehouse.
    const WAREHOUSE: u64 = 130_000;

    /// Returns the scale for this number of records.
    pub fn of(records: u64) -> Self {
        let warehouses = (records / Self::WAREHOUSE).max(1);
        let of_one = records.min(Self::WAREHOUSE);
        let (items, customers) = (of_one * 10 / 13, of_one * 3 / 130);
        Self { warehouses, items: items.max(100), customers: customers.max(10) }
    }

    /// Returns the transactions that fill an empty store, in key order except for small rows.
    pub fn fill(self) -> Vec<Trade> {
        let pieces = |table, warehouse, district, count: u64| {
            (0..count).step_by(PIECE as usize).map(move |from| {
                let to = count.min(from + PIECE);
                Trade::Fill { table, warehouse, district, from, to }
            })
        };
        let mut fill: Vec<Trade> = pieces(Table::Item, 0, 0, self.items).collect();
        for warehouse in 0..self.warehouses {
            fill.extend(pieces(Table::Warehouse, warehouse, 0, 1));
            fill.extend(pieces(Table::Deliveries, warehouse, 0, 1));
            fill.extend(pieces(Table::Stock, warehouse, 0, self.items));
            for district in 0..DISTRICTS {
                fill.extend(pieces(Table::District, warehouse, district, 1));
                fill.extend(pieces(Table::Oldest, warehouse, district, 1));
                fill.extend(pieces(Table::Customer, warehouse, district, self.customers));
            }
        }
        fill
    }
}

/// The kinds of transactions; each has a fixed percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

const SHARES: [(Kind, u8); 5] = [
    (Kind::NewOrder, 45),
    (Kind::Payment, 43),
    (Kind::OrderStatus, 4),
    (Kind::Delivery, 4),
    (Kind::StockLevel, 4),
];

/// A transaction.
#[derive(Clone, Copy, Debug)]
pub enum Trade {
    /// Inserts rows of a table.
    Fill { table: Table, warehouse: u64, district: u64, from: u64, to: u64 },
    /// One of the five, with inputs drawn from a seed.
    Deal { kind: Kind, scale: Scale, seed: u64 },
    /// Checks that the rows are consistent.
    Check(Scale),
}

impl Trade {
    /// Draws one of the five.
    pub fn draw(scale: Scale, random: &mut Rng) -> Self {
        let mut drawn = random.u8(0..100);
        let mut shares = SHARES.iter();
        let kind = loop {
            let (kind, share) = *shares.next().expect("the shares make a hundred");
            match drawn.checked_sub(share) {
                Some(rest) => drawn = rest,
                None => break kind,
            }
        };
        Self::Deal { kind, scale, seed: random.u64(..) }
    }

    /// Returns true if the transaction writes nothing.
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Fill { .. } => false,
            Self::Check(_) => true,
            Self::Deal { kind, seed, .. } => match kind {
                Kind::OrderStatus | Kind::StockLevel => true,
                Kind::NewOrder => asks_for_unused(*seed),
                Kind::Payment | Kind::Delivery => false,
            },
        }
    }

    /// Runs the transaction. The answer contains the records read, or the results of a check.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn run<A: Accessed>(&self, store: &mut A) -> Result<Answer, A::Failure> {
        let mut rows = Rows { store, answer: Answer::default() };
        match *self {
            Self::Fill { table, warehouse, district, from, to } => {
                for number in from..to {
                    let row = first_row(table, number);
                    rows.put(table.key(warehouse, district, number), &row).await?;
                }
            }
            Self::Check(scale) => return check(scale, &mut rows).await,
            Self::Deal { kind, scale, seed } => {
                let mut random = Rng::with_seed(seed);
                let at = (random.u64(0..scale.warehouses), random.u64(0..DISTRICTS));
                let deal = Deal { scale, at, seed };
                match kind {
                    Kind::NewOrder => deal.new_order(&mut rows, &mut random).await?,
                    Kind::Payment => deal.payment(&mut rows, &mut random).await?,
                    Kind::OrderStatus => deal.order_status(&mut rows, &mut random).await?,
                    Kind::Delivery => deal.delivery(&mut rows, &mut random).await?,
                    Kind::StockLevel => deal.stock_level(&mut rows, &mut random).await?,
                }
            }
        }
        Ok(rows.answer)
    }
}
