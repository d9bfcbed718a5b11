//! Delivery, clause 2.7: the oldest order of each of the ten districts, all in one transaction.

use braiddb::{Error as Failure, Transaction};

use super::random::Random;
use super::schema::{DISTRICTS, Tables};
use super::terminal::{Home, existing, now};

#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    w_id: u16,
    carrier_id: u8,
    date: u64,
}

impl Delivery {
    pub(super) fn draw(random: &mut Random, home: Home) -> Self {
        let w_id = home.warehouse(random);
        Self { w_id, carrier_id: random.small(1, 10), date: now() }
    }

    pub(super) async fn run(&self, tx: &Transaction, tables: &Tables) -> Result<(), Failure> {
        for d_id in 1..=DISTRICTS {
            self.deliver(tx, tables, d_id).await?;
        }
        Ok(())
    }

    /// Delivers the oldest order of a district; skips a district without orders.
    async fn deliver(&self, tx: &Transaction, tables: &Tables, d_id: u8) -> Result<(), Failure> {
        let w_id = self.w_id;
        let range = (w_id, d_id, 0)..=(w_id, d_id, u32::MAX);
        let mut oldest = tx.scan(&tables.new_orders, range)?.limit(1);
        let Some((key, ())) = oldest.next().await? else { return Ok(()) };
        drop(oldest);
        tx.delete(&tables.new_orders, &key).await?;
        let order = existing(tx.get(&tables.orders, &key).await?)?;
        let changed = order.change().carrier_id(Some(self.carrier_id));
        tx.update(&tables.orders, &key, &changed).await?;
        let (.., o_id) = key;
        let range = (w_id, d_id, o_id, 0)..=(w_id, d_id, o_id, u8::MAX);
        let mut lines = tx.scan(&tables.order_lines, range)?.limit(u64::from(order.ol_cnt()));
        let mut amount = 0;
        while let Some((key, line)) = lines.next().await? {
            amount += line.amount();
            let changed = line.change().delivery_d(Some(self.date));
            tx.update(&tables.order_lines, &key, &changed).await?;
        }
        let key = (w_id, d_id, order.c_id());
        let customer = existing(tx.get(&tables.customers, &key).await?)?;
        let changed = customer
            .change()
            .balance(customer.balance() + amount)
            .delivery_cnt(customer.delivery_cnt().wrapping_add(1));
        tx.update(&tables.customers, &key, &changed).await
    }
}
