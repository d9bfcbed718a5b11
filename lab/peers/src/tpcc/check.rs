//! Checks that the rows are consistent with each other.

use super::access::Accessed;
use super::deal::Deal;
use super::row::{Row, Rows, Table, UNDELIVERED, place};
use super::{DISTRICTS, Scale};
use crate::answer::Answer;

/// The number of a district's latest orders that a check reads.
const CHECKED_ORDERS: u64 = 500;

/// Checks that the rows are consistent with each other. The answer contains the number of records
/// that transactions wrote, the sum of the errors, and as digest the last wrong key.
pub(super) async fn check<A: Accessed>(
    scale: Scale,
    rows: &mut Rows<'_, A>,
) -> Result<Answer, A::Failure> {
    let mut found = Answer::default();
    let mut expect = |is_right: bool, key: u64| {
        if !is_right {
            (found.sum, found.digest) = (found.sum + 1, key);
        }
    };
    let mut wrote = 0;
    for warehouse in 0..scale.warehouses {
        wrote += rows.get(Table::Deliveries.key(warehouse, 0, 0)).await?.number(0);
        let mut paid = 0;
        for district in 0..DISTRICTS {
            let row = rows.get(Table::District.key(warehouse, district, 0)).await?;
            let (payments, next) = (row.number(place::PAYMENTS), row.number(place::NEXT_ORDER));
            paid += row.number(place::PAID);
            wrote += payments + next;
            for (payment, is_made) in [(payments.wrapping_sub(1), payments > 0), (payments, false)]
            {
                let key = Table::History.key(warehouse, district, payment & 0xff_ffff_ffff);
                expect(rows.find(key).await?.is_some() == is_made, key);
            }
            let oldest = rows.get(Table::Oldest.key(warehouse, district, 0)).await?.number(0);
            let deal = Deal { scale, at: (warehouse, district), seed: 0 };
            for order in next.saturating_sub(CHECKED_ORDERS)..next {
                let (row, lines) = deal.order(rows, district, order).await?;
                let new = Table::NewOrder.key(warehouse, district, order);
                let is_new = rows.find(new).await?.is_some();
                let all_are = |is: bool, what: usize, rows: &[Row]| {
                    rows.iter().all(|row| (row.number(what) == UNDELIVERED) == is)
                };
                expect(is_new == (order >= oldest), new);
                expect(all_are(is_new, place::DELIVERED, &lines), new);
                expect(all_are(is_new, place::CARRIER, &[row]), new);
            }
            let beyond = Table::Order.key(warehouse, district, next);
            expect(rows.find(beyond).await?.is_none(), beyond);
        }
        let key = Table::Warehouse.key(warehouse, 0, 0);
        expect(rows.get(key).await?.number(place::PAID) == paid, key);
    }
    found.records = wrote;
    Ok(found)
}
