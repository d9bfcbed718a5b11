//! Queries 1, 6 and 12 of TPC-H as hand-written scans with exact results in whole hundredths of
//! cents. The result for a set of orders is the sum of the results for each order.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use braiddb::{Error, Transaction};

use super::schema::{Day, FullOrder, Line, LineKey, Order, Tables};
use crate::workload::encoding::{Encoded, View};
use crate::workload::missing_record;

/// Query 1: lines shipped up to 1998-12-01 less 90 days.
const SHIPPED_UNTIL: Day = 2_526 - 90;
/// Queries 6 and 12: the year 1994.
const YEAR: std::ops::Range<Day> = 731..1_096;
/// Query 6: discounts of about six percent, and small quantities.
const DISCOUNTS: std::ops::RangeInclusive<u8> = 5..=7;
const QUANTITIES: std::ops::Range<u8> = 0..24;
/// Query 12: ship modes.
const MODES: [&[u8]; 2] = [b"MAIL", b"SHIP"];
/// Query 12: priorities of urgent orders.
const URGENT: [&[u8]; 2] = [b"1-URGENT", b"2-HIGH"];

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Query {
    /// Sums of prices by return flag and status.
    Pricing,
    /// Revenue lost to discounts in a year.
    Revenue,
    /// Late deliveries of urgent orders and of others, by ship mode.
    ShippingModes,
}

impl Query {
    pub(super) const ALL: [Self; 3] = [Self::Pricing, Self::Revenue, Self::ShippingModes];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pricing => "Q1",
            Self::Revenue => "Q6",
            Self::ShippingModes => "Q12",
        }
    }

    /// Runs the query.
    pub(super) async fn run(self, tx: &Transaction, tables: &Tables) -> Result<Answer, Error> {
        let mut answer = Answer::default();
        match self {
            Self::Pricing => visit(tx, tables, |_, line| answer.add_pricing(line, 1)).await?,
            Self::Revenue => visit(tx, tables, |_, line| answer.add_revenue(line, 1)).await?,
            Self::ShippingModes => {
                let mut late = Vec::new();
                let each = |key: LineKey, line: View<'_, Line>| {
                    late.extend(late_by_mode(line).map(|mode| (key.0, mode)));
                };
                visit(tx, tables, each).await?;
                for (key, mode) in late {
                    let order = tx.get(&tables.orders, &key).await?.ok_or_else(missing_record)?;
                    answer.add_late(mode, order, 1);
                }
            }
        }
        Ok(answer)
    }
}

/// Visits all lines.
async fn visit(
    tx: &Transaction,
    tables: &Tables,
    mut each: impl FnMut(LineKey, View<'_, Line>),
) -> Result<(), Error> {
    let visited = tx.scan(&tables.lines, ..)?.visit(|key, line| {
        each(key, line);
        ControlFlow::<()>::Continue(())
    });
    visited.await.map(drop)
}

/// The result of a query; a result with groups contains only groups with records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Sums by return flag and status.
    pricing: BTreeMap<(u8, u8), Pricing>,
    revenue: i64,
    /// Urgent and other orders by ship mode.
    late: [[i64; 2]; MODES.len()],
}

/// A row of query 1; averages are computed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pricing {
    quantity: i64,
    base_price: i64,
    /// In hundredths of cents.
    discounted_price: i64,
    /// In ten-thousandths of cents.
    charge: i128,
    discount: i64,
    lines: i64,
}

impl Answer {
    /// Adds an order to the results of all queries `times` times: 1, or -1 to remove it.
    pub(super) fn add(&mut self, full: &FullOrder, times: i64) {
        let order = Encoded::of(&full.order);
        for line in &full.lines {
            let line = Encoded::of(line);
            let line = line.view();
            self.add_pricing(line, times);
            self.add_revenue(line, times);
            if let Some(mode) = late_by_mode(line) {
                self.add_late(mode, order.view(), times);
            }
        }
    }

    /// Returns the result of one query out of the results of all.
    pub(super) fn of(&self, query: Query) -> Self {
        let all = self.clone();
        match query {
            Query::Pricing => Self { pricing: all.pricing, ..Self::default() },
            Query::Revenue => Self { revenue: all.revenue, ..Self::default() },
            Query::ShippingModes => Self { late: all.late, ..Self::default() },
        }
    }

    fn add_pricing(&mut self, line: View<'_, Line>, times: i64) {
        if line.ship_date() > SHIPPED_UNTIL {
            return;
        }
        let discounted = line.extended_price() * (100 - i64::from(line.discount()));
        let group = (line.return_flag(), line.status());
        let row = self.pricing.entry(group).or_default();
        row.quantity += times * i64::from(line.quantity());
        row.base_price += times * line.extended_price();
        row.discounted_price += times * discounted;
        row.charge += i128::from(times * discounted) * i128::from(100 + line.tax());
        row.discount += times * i64::from(line.discount());
        row.lines += times;
        if row.lines == 0 {
            self.pricing.remove(&group);
        }
    }

    fn add_revenue(&mut self, line: View<'_, Line>, times: i64) {
        let counts = YEAR.contains(&line.ship_date())
            && DISCOUNTS.contains(&line.discount())
            && QUANTITIES.contains(&line.quantity());
        if counts {
            self.revenue += times * line.extended_price() * i64::from(line.discount());
        }
    }

    fn add_late(&mut self, mode: usize, order: View<'_, Order>, times: i64) {
        let is_urgent = URGENT.contains(&order.priority());
        self.late[mode][usize::from(!is_urgent)] += times;
    }
}

/// Returns the ship mode of a line that counts as late for query 12.
fn late_by_mode(line: View<'_, Line>) -> Option<usize> {
    let is_late = YEAR.contains(&line.receipt_date())
        && line.commit_date() < line.receipt_date()
        && line.ship_date() < line.commit_date();
    let mode = is_late.then_some(line.ship_mode())?;
    MODES.iter().position(|other| *other == mode)
}
