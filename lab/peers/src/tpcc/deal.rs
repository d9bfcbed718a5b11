//! The five transactions.

use fastrand::Rng;

use super::access::Accessed;
use super::row::{Row, Rows, Table, UNDELIVERED, place};
use super::{DISTRICTS, Scale};

/// One of the five transactions, with its warehouse and district.
pub(super) struct Deal {
    pub(super) scale: Scale,
    pub(super) at: (u64, u64),
    pub(super) seed: u64,
}

impl Deal {
    fn customer(&self, random: &mut Rng) -> u64 {
        uneven(random, 1_023, self.scale.customers)
    }

    pub(super) async fn new_order<A: Accessed>(
        &self,
        rows: &mut Rows<'_, A>,
        random: &mut Rng,
    ) -> Result<(), A::Failure> {
        let (warehouse, district) = self.at;
        let customer = self.customer(random);
        let count = random.u64(5..=15);
        let mut ordered = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let item = uneven(random, 8_191, self.scale.items);
            // One item in a hundred is supplied by another warehouse.
            let others = random.u8(0..100) == 0;
            let of = if others { random.u64(0..self.scale.warehouses) } else { warehouse };
            let price = rows.get(Table::Item.key(0, 0, item)).await?.number(place::PRICE);
            ordered.push((item, of, random.u64(1..=10), price));
        }
        if asks_for_unused(self.seed) {
            let unused = rows.find(Table::Item.key(0, 0, self.scale.items)).await?;
            debug_assert!(unused.is_none(), "there are so many only");
            return Ok(());
        }
        let mut tax = rows.get(Table::Warehouse.key(warehouse, 0, 0)).await?.number(place::TAX);
        rows.get(Table::Customer.key(warehouse, district, customer)).await?;
        let key = Table::District.key(warehouse, district, 0);
        let row = rows.change(key, |row| row.add(place::NEXT_ORDER, 1)).await?;
        let order = row.number(place::NEXT_ORDER) - 1;
        tax += row.number(place::TAX);
        let mut total = 0;
        for (line, (item, of, quantity, price)) in (0..).zip(ordered) {
            let key = Table::Stock.key(of, 0, item);
            let sell = |stock: &mut Row| {
                let left = stock.number(place::QUANTITY);
                let refilled = if left >= quantity + 10 { left } else { left + 91 };
                stock.set(place::QUANTITY, refilled - quantity);
                stock.add(place::SOLD, quantity);
                stock.add(place::ORDERS, 1);
            };
            rows.change(key, sell).await?;
            let amount = quantity * price;
            total += amount;
            let row = Row::new(Table::Line, &[item, amount, UNDELIVERED]);
            rows.put(Table::Line.key(warehouse, district, order << 4 | line), &row).await?;
        }
        let row = Row::new(Table::Order, &[customer, UNDELIVERED, count, total * (10_000 + tax)]);
        rows.put(Table::Order.key(warehouse, district, order), &row).await?;
        let row = Row::new(Table::NewOrder, &[order]);
        rows.put(Table::NewOrder.key(warehouse, district, order), &row).await?;
        let row = Row::new(Table::Last, &[order]);
        rows.put(Table::Last.key(warehouse, district, customer), &row).await
    }

    pub(super) async fn payment<A: Accessed>(
        &self,
        rows: &mut Rows<'_, A>,
        random: &mut Rng,
    ) -> Result<(), A::Failure> {
        let (warehouse, district) = self.at;
        let amount = random.u64(100..=500_000);
        // Fifteen of a hundred customers belong to another warehouse.
        let of = match random.u8(0..100) < 15 {
            true => (random.u64(0..self.scale.warehouses), random.u64(0..DISTRICTS)),
            false => self.at,
        };
        let key = Table::Customer.key(of.0, of.1, self.customer(random));
        let pay = |row: &mut Row| {
            row.add(place::PAID, amount);
            row.add(place::PAYMENTS, 1);
        };
        let pay_off = |customer: &mut Row| {
            pay(customer);
            customer.add(place::BALANCE, amount.wrapping_neg());
        };
        rows.change(key, pay_off).await?;
        let row = rows.change(Table::District.key(warehouse, district, 0), pay).await?;
        let payment = row.number(place::PAYMENTS) - 1;
        let row = Row::new(Table::History, &[amount, of.0, of.1]);
        rows.put(Table::History.key(warehouse, district, payment), &row).await?;
        // Last, because all payments of the warehouse meet here.
        let key = Table::Warehouse.key(warehouse, 0, 0);
        rows.change(key, |row| row.add(place::PAID, amount)).await.map(drop)
    }

    pub(super) async fn order_status<A: Accessed>(
        &self,
        rows: &mut Rows<'_, A>,
        random: &mut Rng,
    ) -> Result<(), A::Failure> {
        let (warehouse, district) = self.at;
        let customer = self.customer(random);
        rows.get(Table::Customer.key(warehouse, district, customer)).await?;
        let last = rows.find(Table::Last.key(warehouse, district, customer)).await?;
        let Some(last) = last else { return Ok(()) };
        self.order(rows, district, last.number(0)).await.map(drop)
    }

    /// Reads an order with its lines.
    pub(super) async fn order<A: Accessed>(
        &self,
        rows: &mut Rows<'_, A>,
        district: u64,
        order: u64,
    ) -> Result<(Row, Vec<Row>), A::Failure> {
        let row = rows.get(Table::Order.key(self.at.0, district, order)).await?;
        let mut lines = Vec::new();
        for line in 0..row.number(place::LINES) {
            lines.push(rows.get(Table::Line.key(self.at.0, district, order << 4 | line)).await?);
        }
        Ok((row, lines))
    }

    pub(super) async fn delivery<A: Accessed>(
        &self,
        rows: &mut Rows<'_, A>,
        random: &mut Rng,
    ) -> Result<(), A::Failure> {
        let (warehouse, _) = self.at;
        let carrier = random.u64(1..=10);
        let key = Table::Deliveries.key(warehouse, 0, 0);
        rows.change(key, |row| row.add(0, 1)).await?;
        for district in 0..DISTRICTS {
            let key = Table::Oldest.key(warehouse, district, 0);
            let mut oldest = rows.get(key).await?;
            let order = oldest.number(0);
            let new = Table::NewOrder.key(warehouse, district, order);
            if rows.find(new).await?.is_none() {
                // All orders have been delivered.
                continue;
            }
            rows.delete(new).await?;
            oldest.add(0, 1);
            rows.put(key, &oldest).await?;
            let (mut row, lines) = self.order(rows, district, order).await?;
            row.set(place::CARRIER, carrier);
            rows.put(Table::Order.key(warehouse, district, order), &row).await?;
            let mut sum = 0;
            for (line, mut row) in (0..).zip(lines) {
                sum += row.number(place::AMOUNT);
                row.set(place::DELIVERED, self.seed | 1);
                rows.put(Table::Line.key(warehouse, district, order << 4 | line), &row).await?;
            }
            let customer = row.number(place::CUSTOMER);
            let key = Table::Customer.key(warehouse, district, customer);
            rows.change(key, |row| row.add(place::BALANCE, sum)).await?;
        }
        Ok(())
    }

    pub(super) async fn stock_level<A: Accessed>(
        &self,
        rows: &mut Rows<'_, A>,
        random: &mut Rng,
    ) -> Result<(), A::Failure> {
        let (warehouse, district) = self.at;
        let threshold = random.u64(10..=20);
        let row = rows.get(Table::District.key(warehouse, district, 0)).await?;
        let next = row.number(place::NEXT_ORDER);
        let mut items = Vec::new();
        for order in next.saturating_sub(20)..next {
            let (_, lines) = self.order(rows, district, order).await?;
            items.extend(lines.iter().map(|line| line.number(place::ITEM)));
        }
        items.sort_unstable();
        items.dedup();
        let mut low = 0_u64;
        for item in items {
            let stock = rows.get(Table::Stock.key(warehouse, 0, item)).await?;
            low += u64::from(stock.number(place::QUANTITY) < threshold);
        }
        rows.answer.sum = rows.answer.sum.wrapping_add(low);
        Ok(())
    }
}

/// Returns true if a New-Order orders an unused article, as one in a hundred does.
pub(super) fn asks_for_unused(seed: u64) -> bool {
    seed.is_multiple_of(100)
}

/// Returns a non-uniform number as specified, which prefers some values.
fn uneven(random: &mut Rng, spread: u64, count: u64) -> u64 {
    ((random.u64(0..=spread) | random.u64(0..count)) + 42) % count
}
