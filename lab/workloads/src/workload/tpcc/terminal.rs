//! A terminal: chooses the next transaction and its inputs, and runs it, without keying and
//! thinking times.

use std::time::{SystemTime, UNIX_EPOCH};

use braiddb::{Error as Failure, Transaction};
use clap::ValueEnum;

use super::delivery::Delivery;
use super::new_order::NewOrder;
use super::order_status::OrderStatus;
use super::payment::Payment;
use super::query_2::Query2;
use super::random::{Constants, Random};
use super::schema::{Cardinalities, CustomerKey, Tables};
use super::stock_level::StockLevel;
use crate::engine::drive::Procedure;
use crate::workload::encoding::Text;
use crate::workload::missing_record;

/// The mix of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mix {
    /// The minimum shares of clause 5.2.3, and New-Orders for the rest.
    #[default]
    Standard,
    /// TPC-CR: half Order-Status, half Stock-Level.
    ReadOnly,
    /// TPC-CH: a tenth Query2*, 40 of 100 New-Orders, 38 Payments, 4 of each other.
    Queries,
}

impl Mix {
    /// Returns the shares of a hundred transactions, which a deck puts in random order.
    fn deck(self) -> &'static [(Card, usize)] {
        match self {
            Self::Standard => &[
                (Card::NewOrder, 45),
                (Card::Payment, 43),
                (Card::OrderStatus, 4),
                (Card::Delivery, 4),
                (Card::StockLevel, 4),
            ],
            Self::ReadOnly => &[(Card::OrderStatus, 50), (Card::StockLevel, 50)],
            Self::Queries => &[
                (Card::Query2, 10),
                (Card::NewOrder, 40),
                (Card::Payment, 38),
                (Card::OrderStatus, 4),
                (Card::Delivery, 4),
                (Card::StockLevel, 4),
            ],
        }
    }
}

/// The style of the terminals' transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) mix: Mix,
    /// The number of suppliers that a Query2* reads.
    pub(crate) suppliers: u32,
    /// New-Orders read only the needed parts of warehouse and customer.
    pub(crate) projected: bool,
    /// New-Order, Stock-Level and Query2* read items and stock by operations of many keys.
    pub(crate) together: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { mix: Mix::Standard, suppliers: 100, projected: false, together: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Card {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
    Query2,
}

/// Names of the kinds of transactions that are counted separately.
pub(crate) const NEW_ORDER: &str = "New-Order";
pub(crate) const ROLLED_BACK: &str = "New-Order, rolled back";
pub(crate) const PAYMENT: &str = "Payment";
pub(crate) const QUERY_2: &str = "Query2*";

/// A transaction with its inputs.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
    Query2(Query2),
}

/// The warehouses of a terminal's transactions, and the total number of warehouses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    least: u16,
    most: u16,
    warehouses: u16,
}

impl Home {
    /// Returns the share of one of `workers` workers: the same number of warehouses each, at least
    /// one.
    pub(crate) fn of_worker(worker: usize, workers: usize, warehouses: u16) -> Self {
        let (worker, workers, all) = (worker as u64, workers as u64, u64::from(warehouses));
        let (first, end) = (worker * all / workers, (worker + 1) * all / workers);
        let least = (first + 1).min(all) as u16;
        Self { least, most: (end.max(first + 1)).min(all) as u16, warehouses }
    }

    pub(super) fn warehouse(self, random: &mut Random) -> u16 {
        random.warehouse(self.least, self.most)
    }

    /// Returns any warehouse except `own`, or `own` if it is the only one.
    pub(super) fn another(self, own: u16, random: &mut Random) -> u16 {
        if self.warehouses == 1 {
            return own;
        }
        let drawn = random.warehouse(1, self.warehouses - 1);
        drawn + u16::from(drawn >= own)
    }
}

/// A customer, by number or, in 60 of 100 cases, by last name.
#[derive(Clone, Debug)]
pub(super) enum Who {
    Number(CustomerKey),
    LastName(u16, u8, Text<16>),
}

impl Who {
    pub(super) fn draw(random: &mut Random, w_id: u16, d_id: u8) -> Self {
        match random.percent(60) {
            true => Self::LastName(w_id, d_id, random.last_name()),
            false => Self::Number((w_id, d_id, random.customer())),
        }
    }

    /// Returns the customer's key. Among several customers with the last name, sorted by first
    /// name, it chooses the middle one, rounded up.
    pub(super) async fn find(
        &self,
        tx: &Transaction,
        tables: &Tables,
    ) -> Result<CustomerKey, Failure> {
        let (w_id, d_id, last) = match self {
            Self::Number(key) => return Ok(*key),
            Self::LastName(w_id, d_id, last) => (*w_id, *d_id, last.padded()),
        };
        let range = (w_id, d_id, last, [0; 16])..=(w_id, d_id, last, [u8::MAX; 16]);
        let mut entries = tx.entries_by(&tables.customers_by_name, range)?;
        let mut found = Vec::with_capacity(8);
        while let Some((_, key)) = entries.next().await? {
            found.push(key);
        }
        existing(middle(&found))
    }
}

/// Returns the element at `n / 2`, rounded up and counted from 1.
fn middle<T: Copy>(found: &[T]) -> Option<T> {
    found.get(found.len().div_ceil(2).checked_sub(1)?).copied()
}

/// Fails if a required record is missing.
pub(super) fn existing<T>(found: Option<T>) -> Result<T, Failure> {
    found.ok_or_else(missing_record)
}

/// Returns microseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// Draws and runs transactions.
#[derive(Clone)]
pub(crate) struct Terminal {
    tables: Tables,
    cardinalities: Cardinalities,
    random: Random,
    home: Home,
    deck: Vec<Card>,
    /// The key of the next history record.
    next_history: u64,
    style: Style,
}

impl Terminal {
    /// `session` is a number from 1 on that no other terminal of the database ever has.
    pub(crate) fn new(
        tables: &Tables,
        cardinalities: Cardinalities,
        home: Home,
        (seed, loaded_with): (u64, u64),
        session: u32,
        style: Style,
    ) -> Self {
        let constants = Constants::of_load(loaded_with).of_run(seed);
        Self {
            tables: tables.clone(),
            cardinalities,
            random: Random::new(seed, constants, cardinalities),
            home,
            deck: Vec::new(),
            next_history: u64::from(session) << 32,
            style,
        }
    }

    fn next_card(&mut self) -> Card {
        if self.deck.is_empty() {
            let cards = self
                .style
                .mix
                .deck()
                .iter()
                .flat_map(|&(card, count)| std::iter::repeat_n(card, count));
            self.deck.extend(cards);
            self.random.shuffle(&mut self.deck);
        }
        self.deck.pop().expect("a deck has cards")
    }
}

impl Procedure for Terminal {
    type Input = Request;

    const KINDS: &'static [&'static str] =
        &[NEW_ORDER, ROLLED_BACK, PAYMENT, "Order-Status", "Delivery", "Stock-Level", QUERY_2];

    fn draw(&mut self) -> Request {
        let card = self.next_card();
        let (random, home) = (&mut self.random, self.home);
        match card {
            Card::NewOrder => Request::NewOrder(NewOrder::draw(random, home, self.cardinalities)),
            Card::Payment => {
                self.next_history += 1;
                Request::Payment(Payment::draw(random, home, self.next_history))
            }
            Card::OrderStatus => Request::OrderStatus(OrderStatus::draw(random, home)),
            Card::Delivery => Request::Delivery(Delivery::draw(random, home)),
            Card::StockLevel => Request::StockLevel(StockLevel::draw(random, home)),
            Card::Query2 => {
                let (looked_at, cardinalities) = (self.style.suppliers, self.cardinalities);
                Request::Query2(Query2::draw(random, home, looked_at, cardinalities))
            }
        }
    }

    fn kind(request: &Request) -> usize {
        match request {
            Request::NewOrder(order) => usize::from(order.is_invalid()),
            Request::Payment(_) => 2,
            Request::OrderStatus(_) => 3,
            Request::Delivery(_) => 4,
            Request::StockLevel(_) => 5,
            Request::Query2(_) => 6,
        }
    }

    async fn run(&self, tx: &Transaction, request: &Request) -> Result<(), Failure> {
        match request {
            Request::NewOrder(order) => order.run(tx, &self.tables, self.style).await,
            Request::Payment(payment) => payment.run(tx, &self.tables).await,
            Request::OrderStatus(status) => status.run(tx, &self.tables).await,
            Request::Delivery(delivery) => delivery.run(tx, &self.tables).await,
            Request::StockLevel(level) => level.run(tx, &self.tables, self.style.together).await,
            Request::Query2(query) => query.run(tx, &self.tables, self.style.together).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_customer_is_rounded_up() {
        assert_eq!(middle::<u32>(&[]), None);
        assert_eq!(middle(&[1]), Some(1));
        assert_eq!(middle(&[1, 2]), Some(1));
        assert_eq!(middle(&[1, 2, 3]), Some(2));
        assert_eq!(middle(&[1, 2, 3, 4, 5, 6]), Some(3));
    }

    #[test]
    fn workers_share_the_warehouses() {
        for (workers, warehouses) in [(2, 2), (2, 100), (3, 100), (4, 2), (1, 1)] {
            let mut seen = Vec::new();
            for worker in 0..workers {
                let home = Home::of_worker(worker, workers, warehouses);
                assert!(1 <= home.least && home.least <= home.most && home.most <= warehouses);
                seen.extend(home.least..=home.most);
            }
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), usize::from(warehouses), "{workers} workers");
        }
    }

    #[test]
    fn another_warehouse_is_never_the_own_one() {
        let cardinalities = Cardinalities::tiny(3);
        let mut random = Random::new(1, Constants::of_load(1), cardinalities);
        let home = Home::of_worker(0, 1, 3);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[usize::from(home.another(2, &mut random))] = true;
        }
        assert_eq!(seen, [false, true, false, true]);
    }
}
