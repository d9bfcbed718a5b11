//! Payment, clause 2.5.

use std::io::Write;

use braiddb::{Error as Failure, Transaction};

use super::load::BAD_CREDIT;
use super::random::Random;
use super::schema::{Customer, DISTRICTS, History, Tables};
use super::terminal::{Home, Who, existing, now};
use crate::workload::encoding::{Encoded, Text, View};

#[derive(Clone, Debug)]
pub(crate) struct Payment {
    w_id: u16,
    d_id: u8,
    /// A customer of another warehouse in 15 of 100 cases.
    customer: Who,
    amount: i64,
    date: u64,
    /// The key of the payment's history record.
    number: u64,
}

impl Payment {
    pub(super) fn draw(random: &mut Random, home: Home, number: u64) -> Self {
        let (w_id, d_id) = (home.warehouse(random), random.small(1, DISTRICTS));
        let (c_w_id, c_d_id) = match random.percent(15) {
            true => (home.another(w_id, random), random.small(1, DISTRICTS)),
            false => (w_id, d_id),
        };
        let customer = Who::draw(random, c_w_id, c_d_id);
        let amount = random.cents(100, 500_000);
        Self { w_id, d_id, customer, amount, date: now(), number }
    }

    pub(super) async fn run(&self, tx: &Transaction, tables: &Tables) -> Result<(), Failure> {
        let &Self { w_id, d_id, amount, .. } = self;
        let warehouse = existing(tx.get(&tables.warehouses, &w_id).await?)?;
        let changed = warehouse.change().ytd(warehouse.ytd() + amount);
        tx.update(&tables.warehouses, &w_id, &changed).await?;
        let district = existing(tx.get(&tables.districts, &(w_id, d_id)).await?)?;
        let changed = district.change().ytd(district.ytd() + amount);
        tx.update(&tables.districts, &(w_id, d_id), &changed).await?;
        let key = self.customer.find(tx, tables).await?;
        let (c_w_id, c_d_id, c_id) = key;
        let customer = existing(tx.get(&tables.customers, &key).await?)?;
        let mut changed = customer
            .change()
            .balance(customer.balance() - amount)
            .ytd_payment(customer.ytd_payment() + amount)
            .payment_cnt(customer.payment_cnt().wrapping_add(1));
        if customer.credit() == BAD_CREDIT {
            changed = changed.data(self.noted(customer, c_id));
        }
        tx.update(&tables.customers, &key, &changed).await?;
        let data = [warehouse.name(), b"    ", district.name()].concat();
        let date = self.date;
        let data = Text::of(&data);
        let record = History { c_w_id, c_d_id, c_id, w_id, d_id, date, amount, data };
        tx.insert(&tables.history, &self.number, &Encoded::of(&record)).await
    }

    /// Returns the new data of a customer with bad credit: this payment, then the old data, cut at
    /// 500 characters.
    fn noted(&self, customer: View<'_, Customer>, c_id: u32) -> Text<500> {
        let (w_id, d_id) = (customer.w_id(), customer.d_id());
        let mut noted = Vec::with_capacity(600);
        let amount = self.amount;
        write!(
            noted,
            "{c_id} {d_id} {w_id} {} {} {}.{:02}|",
            self.d_id,
            self.w_id,
            amount / 100,
            amount % 100
        )
        .expect("memory takes whatever is written");
        noted.extend_from_slice(customer.data());
        Text::of(&noted)
    }
}
