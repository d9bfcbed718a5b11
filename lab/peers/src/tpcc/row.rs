//! Rows: their keys, the numbers at their beginning, and functions that read and change them in a
//! transaction.

use super::access::{Access, Accessed};
use crate::answer::Answer;

/// The delivery number of a row before its order is delivered.
pub(super) const UNDELIVERED: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Item = 1,
    Warehouse,
    Deliveries,
    District,
    Oldest,
    Customer,
    Last,
    Stock,
    Order,
    NewOrder,
    Line,
    History,
}

impl Table {
    /// Returns the key of a row. Keys of one table are adjacent, those of a district in order.
    pub(super) fn key(self, warehouse: u64, district: u64, number: u64) -> u64 {
        (self as u64) << 58 | warehouse << 44 | district << 40 | number
    }

    /// Returns the approximate size of a row in the specification.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Item => 80,
            Self::Warehouse | Self::District => 96,
            Self::Customer => 656,
            Self::Stock => 304,
            Self::Line => 56,
            Self::History => 48,
            Self::Order => 32,
            Self::Deliveries | Self::Oldest | Self::Last | Self::NewOrder => 8,
        }
    }
}

/// A row with numbers at its beginning.
pub(super) struct Row(Vec<u8>);

impl Row {
    pub(super) fn new(table: Table, numbers: &[u64]) -> Self {
        let mut row = Self(vec![b'x'; table.bytes()]);
        numbers.iter().enumerate().for_each(|(place, number)| row.set(place, *number));
        row
    }

    pub(super) fn number(&self, place: usize) -> u64 {
        let bytes = self.0[place * 8..][..8].try_into();
        u64::from_le_bytes(bytes.expect("it is eight bytes"))
    }

    pub(super) fn set(&mut self, place: usize, number: u64) {
        self.0[place * 8..][..8].copy_from_slice(&number.to_le_bytes());
    }

    pub(super) fn add(&mut self, place: usize, number: u64) {
        self.set(place, self.number(place).wrapping_add(number));
    }
}

/// Positions of numbers in rows.
pub(super) mod place {
    pub const PRICE: usize = 0;
    /// In warehouses, districts and customers: the amount paid.
    pub const PAID: usize = 0;
    /// In districts and customers: the number of payments.
    pub const PAYMENTS: usize = 1;
    pub const NEXT_ORDER: usize = 2;
    pub const TAX: usize = 3;
    pub const BALANCE: usize = 2;
    pub const QUANTITY: usize = 0;
    pub const SOLD: usize = 1;
    pub const ORDERS: usize = 2;
    pub const CUSTOMER: usize = 0;
    pub const CARRIER: usize = 1;
    pub const LINES: usize = 2;
    pub const ITEM: usize = 0;
    pub const AMOUNT: usize = 1;
    pub const DELIVERED: usize = 2;
}

/// Returns the initial row.
pub(super) fn first_row(table: Table, number: u64) -> Row {
    let price = 100 + number * 7919 % 9_901;
    match table {
        Table::Item => Row::new(table, &[price]),
        Table::District => Row::new(table, &[0, 0, 0, price % 2_000]),
        Table::Warehouse => Row::new(table, &[0, 0, 0, 1_000]),
        Table::Customer => Row::new(table, &[0, 0, 0]),
        Table::Stock => Row::new(table, &[10 + price % 90, 0, 0]),
        _ => Row::new(table, &[0]),
    }
}

/// The rows of a store in a transaction.
pub(super) struct Rows<'s, A> {
    pub(super) store: &'s mut A,
    pub(super) answer: Answer,
}

impl<A: Accessed> Rows<'_, A> {
    pub(super) async fn find(&mut self, key: u64) -> Result<Option<Row>, A::Failure> {
        let value = self.store.access(Access::Get(key)).await?;
        if let Some(value) = &value {
            self.answer.add(key, value);
        }
        Ok(value.map(Row))
    }

    pub(super) async fn get(&mut self, key: u64) -> Result<Row, A::Failure> {
        self.find(key).await?.ok_or_else(|| A::missing(key))
    }

    pub(super) async fn put(&mut self, key: u64, row: &Row) -> Result<(), A::Failure> {
        self.store.access(Access::Put(key, &row.0)).await.map(drop)
    }

    /// Changes an existing row and returns the changed row.
    pub(super) async fn change(
        &mut self,
        key: u64,
        change: impl FnOnce(&mut Row),
    ) -> Result<Row, A::Failure> {
        let mut row = self.get(key).await?;
        change(&mut row);
        self.put(key, &row).await?;
        Ok(row)
    }

    pub(super) async fn delete(&mut self, key: u64) -> Result<(), A::Failure> {
        self.store.access(Access::Delete(key)).await.map(drop)
    }
}
