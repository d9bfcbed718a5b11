//! Order-Status, clause 2.6.

use braiddb::{Error as Failure, Transaction};

use super::random::Random;
use super::schema::{DISTRICTS, Tables};
use super::terminal::{Home, Who, existing};

#[derive(Clone, Debug)]
pub(crate) struct OrderStatus {
    customer: Who,
}

impl OrderStatus {
    pub(super) fn draw(random: &mut Random, home: Home) -> Self {
        let (w_id, d_id) = (home.warehouse(random), random.small(1, DISTRICTS));
        Self { customer: Who::draw(random, w_id, d_id) }
    }

    pub(super) async fn run(&self, tx: &Transaction, tables: &Tables) -> Result<(), Failure> {
        let key = self.customer.find(tx, tables).await?;
        let customer = existing(tx.get(&tables.customers, &key).await?)?;
        let name = (customer.first(), customer.middle(), customer.last());
        std::hint::black_box((customer.balance(), name));
        let mut latest = tx.entries_by(&tables.orders_by_customer, key..=key)?.rev().limit(1);
        let (_, order_key) = existing(latest.next().await?)?;
        drop(latest);
        let order = existing(tx.get(&tables.orders, &order_key).await?)?;
        std::hint::black_box((order.entry_d(), order.carrier_id()));
        let (w_id, d_id, o_id) = order_key;
        let range = (w_id, d_id, o_id, 0)..=(w_id, d_id, o_id, u8::MAX);
        let mut lines = tx.scan(&tables.order_lines, range)?.limit(u64::from(order.ol_cnt()));
        while let Some((_, line)) = lines.next().await? {
            let ordered = (line.i_id(), line.supply_w_id(), line.quantity());
            std::hint::black_box((ordered, line.amount(), line.delivery_d()));
        }
        Ok(())
    }
}
