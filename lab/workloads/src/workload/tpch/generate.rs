//! Orders and their lines as in clause 4.2.3 of TPC-H. Each order has a separate seed. Every caller
//! therefore draws the same order, and refreshes know the contents that they delete.
//!
//! Order numbers have no limit. The first ones are loaded. Each pair of refreshes inserts the next
//! orders and deletes the oldest.

use super::schema::{Day, FullOrder, Line, Order, OrderKey};
use crate::workload::encoding::Text;

/// The number of orders at scale 1.
pub(super) const ORDERS: u64 = 1_500_000;
/// The average number of lines in an order: one to seven.
pub(super) const LINES_OF_ORDER: u64 = 4;
/// Numbers of orders and of their customers, parts, suppliers and clerks.
const ORDERS_OF_CUSTOMERS: (u64, u64) = (10, 1);
const ORDERS_OF_PARTS: (u64, u64) = (15, 2);
const ORDERS_OF_SUPPLIERS: (u64, u64) = (150, 1);
const ORDERS_OF_CLERKS: (u64, u64) = (1_500, 1);

/// The first eight of every 32 consecutive keys are loaded; refreshes use the others, eight at a
/// time.
const KEYS_IN_ROW: u64 = 32;
const KEYS_LOADED: u64 = 8;

/// 1995-06-17, the current date of the data.
const CURRENT_DATE: Day = 1_263;
/// 1998-12-31 less 151 days: the date of the last possible order.
const LAST_ORDER_DATE: Day = 2_556 - 151;

const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const INSTRUCTIONS: [&str; 4] = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"];
const MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];

/// Draws orders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Generator {
    seed: u64,
    /// The number of loaded orders.
    orders: u64,
}

impl Generator {
    pub(super) fn new(seed: u64, orders: u64) -> Self {
        Self { seed, orders }
    }

    /// Returns the number of orders after each pair of refreshes.
    pub(super) fn orders(&self) -> u64 {
        self.orders
    }

    /// Returns the key of the order with this number. Keys are unique among orders that exist at
    /// the same time.
    fn key(&self, number: u64) -> OrderKey {
        let (generation, place) = (number / self.orders, number % self.orders);
        let parts = KEYS_IN_ROW / KEYS_LOADED;
        let (row, rest) = (place / KEYS_LOADED, place % KEYS_LOADED);
        row * KEYS_IN_ROW + generation % parts * KEYS_LOADED + rest + 1
    }

    fn many(&self, (orders, each): (u64, u64)) -> u64 {
        (self.orders * each / orders).max(1)
    }

    /// Returns the order with this number, with its lines.
    pub(super) fn order(&self, number: u64) -> FullOrder {
        let mut random =
            fastrand::Rng::with_seed(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let random = &mut random;
        let date = random.u16(..=LAST_ORDER_DATE);
        let lines: Vec<Line> = (0..random.usize(1..=7)).map(|_| self.line(random, date)).collect();
        let open = lines.iter().filter(|line| line.status == b'O').count();
        let status = match open {
            0 => b'F',
            open if open == lines.len() => b'O',
            _ => b'P',
        };
        let order = Order {
            customer: self.customer(random),
            status,
            total_price: lines.iter().map(Line::price_in_cents).sum(),
            date,
            priority: one_of(random, &PRIORITIES),
            clerk: {
                let clerk = random.u64(1..=self.many(ORDERS_OF_CLERKS));
                Text::of(format!("Clerk#{clerk:09}").as_bytes())
            },
            ship_priority: 0,
            comment: text(random, 19, 78),
        };
        FullOrder { key: self.key(number), order, lines }
    }

    /// A third of the customers never order.
    fn customer(&self, random: &mut fastrand::Rng) -> u64 {
        let most = self.many(ORDERS_OF_CUSTOMERS);
        loop {
            let customer = random.u64(1..=most);
            if !customer.is_multiple_of(3) {
                return customer;
            }
        }
    }

    fn line(&self, random: &mut fastrand::Rng, ordered: Day) -> Line {
        let part = random.u64(1..=self.many(ORDERS_OF_PARTS));
        let suppliers = self.many(ORDERS_OF_SUPPLIERS);
        let step = random.u64(..4) * (suppliers / 4 + (part - 1) / suppliers);
        let quantity = random.u8(1..=50);
        let retail_price = 90_000 + part / 10 % 20_001 + 100 * (part % 1_000);
        let ship_date = ordered + random.u16(1..=121);
        let receipt_date = ship_date + random.u16(1..=30);
        let return_flag = match (receipt_date <= CURRENT_DATE, random.bool()) {
            (true, true) => b'R',
            (true, false) => b'A',
            (false, _) => b'N',
        };
        Line {
            part,
            supplier: (part + step) % suppliers + 1,
            quantity,
            extended_price: i64::from(quantity) * retail_price as i64,
            discount: random.u8(..=10),
            tax: random.u8(..=8),
            return_flag,
            status: if ship_date > CURRENT_DATE { b'O' } else { b'F' },
            ship_date,
            commit_date: ordered + random.u16(30..=90),
            receipt_date,
            ship_instruction: one_of(random, &INSTRUCTIONS),
            ship_mode: one_of(random, &MODES),
            comment: text(random, 10, 43),
        }
    }
}

impl Line {
    /// Returns the price with tax and less the discount.
    fn price_in_cents(&self) -> i64 {
        let (discount, tax) = (i64::from(self.discount), i64::from(self.tax));
        self.extended_price * (100 - discount) * (100 + tax) / 10_000
    }
}

fn one_of<const N: usize>(random: &mut fastrand::Rng, texts: &[&str]) -> Text<N> {
    Text::of(texts[random.usize(..texts.len())].as_bytes())
}

fn text<const N: usize>(random: &mut fastrand::Rng, least: usize, most: usize) -> Text<N> {
    let mut bytes = [0; N];
    let length = random.usize(least..=most);
    bytes[..length].fill_with(|| random.lowercase() as u8);
    Text::of(&bytes[..length])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn orders_that_exist_at_the_same_time_have_different_keys() {
        let generator = Generator::new(1, 100);
        for first in [0, 1, 50, 99, 100, 350, 399, 1_000] {
            let keys: BTreeSet<_> =
                (first..first + 200).map(|number| generator.key(number)).collect();
            assert_eq!(keys.len(), 200, "from {first} on");
        }
        let loaded: Vec<_> = (0..16).map(|number| generator.key(number)).collect();
        assert_eq!(loaded, (1..=8).chain(33..=40).collect::<Vec<_>>());
    }

    #[test]
    fn orders_match_the_specification() {
        let generator = Generator::new(1, ORDERS);
        let mut lines = 0;
        for number in 0..2_000 {
            let full = generator.order(number);
            assert_eq!(
                format!("{full:?}"),
                format!("{:?}", generator.order(number)),
                "each the same"
            );
            let Order { customer, date, .. } = full.order;
            assert!((1..=150_000).contains(&customer) && customer % 3 > 0);
            lines += full.lines.len() as u64;
            for line in &full.lines {
                assert!(
                    (1..=200_000).contains(&line.part) && (1..=10_000).contains(&line.supplier)
                );
                assert!(line.ship_date > date && line.receipt_date > line.ship_date);
                assert_eq!(line.return_flag == b'N', line.receipt_date > CURRENT_DATE);
                assert!(line.receipt_date <= 2_556, "nothing is after 1998");
            }
        }
        assert!(lines.abs_diff(2_000 * LINES_OF_ORDER) < 200, "{lines} lines");
    }
}
