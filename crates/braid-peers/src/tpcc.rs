//! TPC-C by keys alone, so that each store can do it: its five transactions, in their shares, over one table.
//!
//! What the specification finds by an index or the least key is a row here: a customer's last order, and a district's
//! oldest order that is not delivered. Customers are found by their numbers, never by name, and there are no orders at
//! first. A New-Order with an unused article, one in a hundred, finds that out before it writes.

use fastrand::Rng;

use crate::answer::{Answer, Failure, Missing};

const DISTRICTS: u64 = 10;
/// Rows that one transaction fills in.
const PIECE: u64 = 1_000;
const UNDELIVERED: u64 = 0;

/// What a transaction does to a store.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    Get(u64),
    Put(u64, &'a [u8]),
    Delete(u64),
}

/// A transaction of a store.
pub trait Accessed {
    type Failure;

    /// What a row holds, if that is asked for, and there is one.
    async fn access(&mut self, access: Access<'_>) -> Result<Option<Vec<u8>>, Self::Failure>;

    /// A row is not there that must be.
    fn missing(key: u64) -> Self::Failure;
}

/// A transaction that waits for nothing.
pub struct AtOnce<F>(pub F);

impl<F> Accessed for AtOnce<F>
where
    F: FnMut(Access<'_>) -> Result<Option<Vec<u8>>, Failure>,
{
    type Failure = Failure;

    async fn access(&mut self, access: Access<'_>) -> Result<Option<Vec<u8>>, Failure> {
        self.0(access)
    }

    fn missing(key: u64) -> Failure {
        Missing(key).into()
    }
}

/// Runs a trade in a transaction that waits for nothing.
pub fn run_at_once(
    trade: &Trade,
    access: impl FnMut(Access<'_>) -> Result<Option<Vec<u8>>, Failure>,
) -> Result<Answer, Failure> {
    // It is ready when it is polled first.
    pollster::block_on(trade.run(&mut AtOnce(access)))
}

/// For transactions that only read: what else they ask for is refused.
pub fn only_reads() -> Result<Option<Vec<u8>>, Failure> {
    Err("a transaction that only reads is to write".into())
}

/// How many there are of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub warehouses: u64,
    /// Articles, of each of which every warehouse has a stock.
    items: u64,
    /// Of each district.
    customers: u64,
}

impl Scale {
    /// Of a warehouse there are 100 000 stocks and 30 000 customers. With fewer records it is one small warehouse.
    const WAREHOUSE: u64 = 130_000;

    /// What makes so many records.
    pub fn of(records: u64) -> Self {
        let warehouses = (records / Self::WAREHOUSE).max(1);
        let of_one = records.min(Self::WAREHOUSE);
        let (items, customers) = (of_one * 10 / 13, of_one * 3 / 130);
        Self { warehouses, items: items.max(100), customers: customers.max(10) }
    }

    /// What fills an empty store, in the order of the keys but for small rows.
    pub fn fill(self) -> Vec<Trade> {
        let pieces = |table, warehouse, district, count: u64| {
            (0..count).step_by(PIECE as usize).map(move |from| {
                let to = count.min(from + PIECE);
                Trade::Fill { table, warehouse, district, from, to }
            })
        };
        let mut fill: Vec<Trade> = pieces(Table::Item, 0, 0, self.items).collect();
        for warehouse in 0..self.warehouses {
            fill.extend(pieces(Table::Warehouse, warehouse, 0, 1));
            fill.extend(pieces(Table::Deliveries, warehouse, 0, 1));
            fill.extend(pieces(Table::Stock, warehouse, 0, self.items));
            for district in 0..DISTRICTS {
                fill.extend(pieces(Table::District, warehouse, district, 1));
                fill.extend(pieces(Table::Oldest, warehouse, district, 1));
                fill.extend(pieces(Table::Customer, warehouse, district, self.customers));
            }
        }
        fill
    }
}

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
    /// The key of a row. Those of a table are next to one another, of a district in order.
    fn key(self, warehouse: u64, district: u64, number: u64) -> u64 {
        (self as u64) << 58 | warehouse << 44 | district << 40 | number
    }

    /// Bytes of a row, about as the specification has it.
    fn bytes(self) -> usize {
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

/// Numbers at the beginning of a row.
struct Row(Vec<u8>);

impl Row {
    fn new(table: Table, numbers: &[u64]) -> Self {
        let mut row = Self(vec![b'x'; table.bytes()]);
        numbers.iter().enumerate().for_each(|(place, number)| row.set(place, *number));
        row
    }

    fn number(&self, place: usize) -> u64 {
        let bytes = self.0[place * 8..][..8].try_into();
        u64::from_le_bytes(bytes.expect("it is eight bytes"))
    }

    fn set(&mut self, place: usize, number: u64) {
        self.0[place * 8..][..8].copy_from_slice(&number.to_le_bytes());
    }

    fn add(&mut self, place: usize, number: u64) {
        self.set(place, self.number(place).wrapping_add(number));
    }
}

/// Numbers of rows by their places.
mod place {
    pub const PRICE: usize = 0;
    /// Of a warehouse, a district and a customer: what was paid.
    pub const PAID: usize = 0;
    /// Of a district and a customer: how often.
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

/// The kinds of transactions, and how many of a hundred are of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

const SHARES: [(Kind, u8); 5] = [
    (Kind::NewOrder, 45),
    (Kind::Payment, 43),
    (Kind::OrderStatus, 4),
    (Kind::Delivery, 4),
    (Kind::StockLevel, 4),
];

/// A transaction.
#[derive(Clone, Copy, Debug)]
pub enum Trade {
    /// Makes rows of a table.
    Fill { table: Table, warehouse: u64, district: u64, from: u64, to: u64 },
    /// One of the five, with what is drawn from a seed.
    Deal { kind: Kind, scale: Scale, seed: u64 },
    /// Looks whether the rows fit one another.
    Check(Scale),
}

impl Trade {
    /// One of the five.
    pub fn draw(scale: Scale, random: &mut Rng) -> Self {
        let mut drawn = random.u8(0..100);
        let kind = SHARES.iter().find(|(_, share)| {
            let is_it = drawn < *share;
            drawn = drawn.wrapping_sub(*share);
            is_it
        });
        let kind = kind.expect("the shares make a hundred").0;
        Self::Deal { kind, scale, seed: random.u64(..) }
    }

    /// Whether it writes nothing.
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Fill { .. } => false,
            Self::Check(_) => true,
            Self::Deal { kind, seed, .. } => match kind {
                Kind::OrderStatus | Kind::StockLevel => true,
                Kind::NewOrder => asks_for_unused(*seed),
                Kind::Payment | Kind::Delivery => false,
            },
        }
    }

    /// Runs it; the answer has what it read, or what a check found.
    ///
    /// # Errors
    /// The store's.
    pub async fn run<A: Accessed>(&self, store: &mut A) -> Result<Answer, A::Failure> {
        let mut rows = Rows { store, answer: Answer::default() };
        match *self {
            Self::Fill { table, warehouse, district, from, to } => {
                for number in from..to {
                    let row = first_row(table, number);
                    rows.put(table.key(warehouse, district, number), &row).await?;
                }
            }
            Self::Check(scale) => return check(scale, &mut rows).await,
            Self::Deal { kind, scale, seed } => {
                let mut random = Rng::with_seed(seed);
                let at = (random.u64(0..scale.warehouses), random.u64(0..DISTRICTS));
                let deal = Deal { scale, at, seed };
                match kind {
                    Kind::NewOrder => deal.new_order(&mut rows, &mut random).await?,
                    Kind::Payment => deal.payment(&mut rows, &mut random).await?,
                    Kind::OrderStatus => deal.order_status(&mut rows, &mut random).await?,
                    Kind::Delivery => deal.delivery(&mut rows, &mut random).await?,
                    Kind::StockLevel => deal.stock_level(&mut rows, &mut random).await?,
                }
            }
        }
        Ok(rows.answer)
    }
}

fn asks_for_unused(seed: u64) -> bool {
    seed.is_multiple_of(100)
}

fn first_row(table: Table, number: u64) -> Row {
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

/// The specification's draw that prefers some.
fn uneven(random: &mut Rng, spread: u64, count: u64) -> u64 {
    ((random.u64(0..=spread) | random.u64(0..count)) + 42) % count
}

/// The rows of a store, in a transaction.
struct Rows<'s, A> {
    store: &'s mut A,
    answer: Answer,
}

impl<A: Accessed> Rows<'_, A> {
    async fn find(&mut self, key: u64) -> Result<Option<Row>, A::Failure> {
        let value = self.store.access(Access::Get(key)).await?;
        if let Some(value) = &value {
            self.answer.add(key, value);
        }
        Ok(value.map(Row))
    }

    async fn get(&mut self, key: u64) -> Result<Row, A::Failure> {
        self.find(key).await?.ok_or_else(|| A::missing(key))
    }

    async fn put(&mut self, key: u64, row: &Row) -> Result<(), A::Failure> {
        self.store.access(Access::Put(key, &row.0)).await.map(drop)
    }

    async fn delete(&mut self, key: u64) -> Result<(), A::Failure> {
        self.store.access(Access::Delete(key)).await.map(drop)
    }
}

/// One of the five transactions, of a warehouse and a district.
struct Deal {
    scale: Scale,
    at: (u64, u64),
    seed: u64,
}

impl Deal {
    fn customer(&self, random: &mut Rng) -> u64 {
        uneven(random, 1_023, self.scale.customers)
    }

    async fn new_order<A: Accessed>(
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
            // One in a hundred comes from another warehouse.
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
        let mut row = rows.get(key).await?;
        let order = row.number(place::NEXT_ORDER);
        tax += row.number(place::TAX);
        row.add(place::NEXT_ORDER, 1);
        rows.put(key, &row).await?;
        let mut total = 0;
        for (line, (item, of, quantity, price)) in (0..).zip(ordered) {
            let key = Table::Stock.key(of, 0, item);
            let mut stock = rows.get(key).await?;
            let left = stock.number(place::QUANTITY);
            let refilled = if left >= quantity + 10 { left } else { left + 91 };
            stock.set(place::QUANTITY, refilled - quantity);
            stock.add(place::SOLD, quantity);
            stock.add(place::ORDERS, 1);
            rows.put(key, &stock).await?;
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

    async fn payment<A: Accessed>(
        &self,
        rows: &mut Rows<'_, A>,
        random: &mut Rng,
    ) -> Result<(), A::Failure> {
        let (warehouse, district) = self.at;
        let amount = random.u64(100..=500_000);
        // Fifteen of a hundred customers are those of some other warehouse.
        let of = match random.u8(0..100) < 15 {
            true => (random.u64(0..self.scale.warehouses), random.u64(0..DISTRICTS)),
            false => self.at,
        };
        let key = Table::Customer.key(of.0, of.1, self.customer(random));
        let mut customer = rows.get(key).await?;
        customer.add(place::PAID, amount);
        customer.add(place::PAYMENTS, 1);
        customer.add(place::BALANCE, amount.wrapping_neg());
        rows.put(key, &customer).await?;
        let key = Table::District.key(warehouse, district, 0);
        let mut row = rows.get(key).await?;
        let payment = row.number(place::PAYMENTS);
        row.add(place::PAID, amount);
        row.add(place::PAYMENTS, 1);
        rows.put(key, &row).await?;
        let row = Row::new(Table::History, &[amount, of.0, of.1]);
        rows.put(Table::History.key(warehouse, district, payment), &row).await?;
        // Last, as all payments of the warehouse meet here.
        let key = Table::Warehouse.key(warehouse, 0, 0);
        let mut row = rows.get(key).await?;
        row.add(place::PAID, amount);
        rows.put(key, &row).await
    }

    async fn order_status<A: Accessed>(
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

    /// An order with its lines.
    async fn order<A: Accessed>(
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

    async fn delivery<A: Accessed>(
        &self,
        rows: &mut Rows<'_, A>,
        random: &mut Rng,
    ) -> Result<(), A::Failure> {
        let (warehouse, _) = self.at;
        let carrier = random.u64(1..=10);
        let key = Table::Deliveries.key(warehouse, 0, 0);
        let mut row = rows.get(key).await?;
        row.add(0, 1);
        rows.put(key, &row).await?;
        for district in 0..DISTRICTS {
            let key = Table::Oldest.key(warehouse, district, 0);
            let mut oldest = rows.get(key).await?;
            let order = oldest.number(0);
            let new = Table::NewOrder.key(warehouse, district, order);
            if rows.find(new).await?.is_none() {
                // All have been delivered.
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
            let mut row = rows.get(key).await?;
            row.add(place::BALANCE, sum);
            rows.put(key, &row).await?;
        }
        Ok(())
    }

    async fn stock_level<A: Accessed>(
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

/// Orders of a district that are looked at in a check: the last ones.
const CHECKED_ORDERS: u64 = 500;

/// Looks whether the rows fit one another. The answer has as many records as transactions have written, and the sum of what
/// is wrong; of that the digest has the last key.
async fn check<A: Accessed>(scale: Scale, rows: &mut Rows<'_, A>) -> Result<Answer, A::Failure> {
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
