//! `orders` and `lineitem` with all their columns. Key columns are in the keys. Money is in cents,
//! shares are in hundredths, dates are in days since 1992-01-01.

use braiddb::{Database, StagedTable, Table, TableOptions};

use crate::error::Error;
use crate::workload::encoding::{Text, records};

/// Days since 1992-01-01.
pub(super) type Day = u16;

pub(super) type OrderKey = u64;
/// Order and line number.
pub(super) type LineKey = (u64, u8);

records! {
    Order("tpch order") {
        customer: u64,
        status: u8,
        total_price: i64,
        date: u16,
        priority: Text<15>,
        clerk: Text<15>,
        ship_priority: u8,
        comment: Text<79>,
    }
    Line("tpch lineitem") {
        part: u64,
        supplier: u64,
        quantity: u8,
        extended_price: i64,
        discount: u8,
        tax: u8,
        return_flag: u8,
        status: u8,
        ship_date: u16,
        commit_date: u16,
        receipt_date: u16,
        ship_instruction: Text<25>,
        ship_mode: Text<10>,
        comment: Text<44>,
    }
}

/// The stored records of one order.
#[derive(Clone, Debug)]
pub(super) struct FullOrder {
    pub(super) key: OrderKey,
    pub(super) order: Order,
    pub(super) lines: Vec<Line>,
}

impl FullOrder {
    /// Returns the lines with their keys.
    pub(super) fn keyed_lines(&self) -> impl Iterator<Item = (LineKey, Line)> {
        (1..).zip(&self.lines).map(|(number, line)| ((self.key, number), *line))
    }
}

/// Handles of the tables of one database.
#[derive(Clone)]
pub(super) struct Tables {
    pub(super) orders: Table<OrderKey, Order>,
    pub(super) lines: Table<LineKey, Line>,
}

/// The tables during loading.
pub(super) struct StagedTables {
    pub(super) orders: StagedTable<OrderKey, Order>,
    pub(super) lines: StagedTable<LineKey, Line>,
}

impl StagedTables {
    pub(super) async fn make(database: &Database, options: TableOptions) -> Result<Self, Error> {
        Ok(Self {
            orders: database.stage_table_with("orders", options).await?,
            lines: database.stage_table_with("lineitem", options).await?,
        })
    }

    pub(super) async fn publish(&self) -> Result<Tables, Error> {
        Ok(Tables { orders: self.orders.publish().await?, lines: self.lines.publish().await? })
    }
}
