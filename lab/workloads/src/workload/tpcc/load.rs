//! Fills the tables as in clause 4.3.3. Each part is a transaction; a seed determines its contents.

use std::collections::VecDeque;
use std::ops::Range;

use braiddb::{Database, Error as Failure, SourceRun, Transaction};

use super::random::{Constants, Random, last_name_of};
use super::schema::{
    Address, Cardinalities, Customer, DISTRICTS, District, History, Item, NATIONS_OF_REGION,
    Nation, Order, OrderLine, REGIONS, Region, Stock, Supplier, Tables, Warehouse,
};
use crate::error::Error;
use crate::harness::progress::Progress;
use crate::workload::encoding::{Encoded, Text};

/// The number of items or stock records that one transaction inserts, and of customers or orders.
const ITEMS: u32 = 1_000;
const CUSTOMERS: u32 = 100;
/// The number of parts sent ahead to each worker.
const AHEAD: usize = 8;
/// The initial payments of each customer, in cents.
const PAID_FIRST: i64 = 1_000;
/// The time stamp of all loaded records: the beginning of 2026.
const LOADED_AT: u64 = 1_767_225_600_000_000;

/// The records that one transaction inserts: numbers from 1 on.
#[derive(Clone, Debug)]
enum Part {
    Items(Range<u32>),
    Nations,
    Suppliers(Range<u32>),
    Warehouse(u16),
    Stock(u16, Range<u32>),
    Customers(u16, u8, Range<u32>),
    Orders(u16, u8, Range<u32>),
}

/// Fills the tables of an empty database.
pub(crate) fn load(
    database: &Database,
    tables: &Tables,
    cardinalities: Cardinalities,
    seed: u64,
    workers: usize,
    progress: &Progress,
) -> Result<(), Error> {
    let loader = Loader { tables: tables.clone(), cardinalities, seed };
    let mut running: VecDeque<SourceRun> = VecDeque::new();
    // Each part is a separate source: a worker runs its sources one after the other, so keys arrive
    // in order.
    let mut send = |part: Part, worker: usize| -> Result<(), Error> {
        if running.len() == AHEAD * workers {
            running.pop_front().expect("there are so many").wait()?;
        }
        let loader = loader.clone();
        let body = async move |tx: &Transaction, part: &Part| loader.insert(tx, part).await;
        running.push_back(database.run_source(worker, [part], body)?);
        Ok(())
    };
    for items in parts(cardinalities.items, ITEMS) {
        send(Part::Items(items), 0)?;
    }
    send(Part::Nations, 0)?;
    for suppliers in parts(cardinalities.suppliers(), ITEMS) {
        send(Part::Suppliers(suppliers), 0)?;
    }
    // Each worker fills one warehouse at a time, part by part, in turn with the others.
    for first in (1..=cardinalities.warehouses).step_by(workers) {
        progress.doing(format!("loading warehouse {first} of {}", cardinalities.warehouses));
        let last = cardinalities.warehouses.min(first.saturating_add(workers as u16 - 1));
        let mut waiting: Vec<_> = (first..=last)
            .map(|warehouse| parts_of(warehouse, cardinalities).into_iter())
            .collect();
        while !waiting.is_empty() {
            for (worker, parts) in waiting.iter_mut().enumerate() {
                parts.next().map_or(Ok(()), |part| send(part, worker))?;
            }
            waiting.retain(|parts| parts.len() > 0);
        }
    }
    running.into_iter().try_for_each(SourceRun::wait)?;
    Ok(())
}

/// Returns the numbers from 1 to `most` in ranges of `each`.
fn parts(most: u32, each: u32) -> impl Iterator<Item = Range<u32>> {
    (1..=most).step_by(each as usize).map(move |first| first..(first + each).min(most + 1))
}

fn parts_of(warehouse: u16, cardinalities: Cardinalities) -> Vec<Part> {
    let mut all = vec![Part::Warehouse(warehouse)];
    all.extend(parts(cardinalities.items, ITEMS).map(|items| Part::Stock(warehouse, items)));
    for district in 1..=DISTRICTS {
        let customers = || parts(cardinalities.customers, CUSTOMERS);
        all.extend(customers().map(|numbers| Part::Customers(warehouse, district, numbers)));
        all.extend(customers().map(|numbers| Part::Orders(warehouse, district, numbers)));
    }
    all
}

#[derive(Clone)]
struct Loader {
    tables: Tables,
    cardinalities: Cardinalities,
    seed: u64,
}

impl Loader {
    /// Returns a separate generator for each part, so that a part has the same contents in any
    /// order of execution.
    fn random(&self, part: [u64; 3]) -> Random {
        let mixed = part.iter().fold(self.seed, |mixed, number| {
            (mixed ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        Random::new(mixed, Constants::of_load(self.seed), self.cardinalities)
    }

    async fn insert(&self, tx: &Transaction, part: &Part) -> Result<(), Failure> {
        match part.clone() {
            Part::Items(numbers) => self.items(tx, numbers).await,
            Part::Nations => self.nations(tx).await,
            Part::Suppliers(numbers) => self.suppliers(tx, numbers).await,
            Part::Warehouse(number) => self.warehouse(tx, number).await,
            Part::Stock(warehouse, numbers) => self.stock(tx, warehouse, numbers).await,
            Part::Customers(warehouse, district, numbers) => {
                self.customers(tx, (warehouse, district), numbers).await
            }
            Part::Orders(warehouse, district, numbers) => {
                self.orders(tx, (warehouse, district), numbers).await
            }
        }
    }

    async fn items(&self, tx: &Transaction, numbers: Range<u32>) -> Result<(), Failure> {
        let mut random = self.random([1, 0, u64::from(numbers.start)]);
        for number in numbers {
            let item = Item {
                im_id: random.between(1, 10_000),
                name: random.text(14, 24),
                price: random.cents(100, 10_000),
                data: random.data(),
            };
            tx.insert(&self.tables.items, &number, &Encoded::of(&item)).await?;
        }
        Ok(())
    }

    async fn nations(&self, tx: &Transaction) -> Result<(), Failure> {
        let mut random = self.random([7, 0, 0]);
        for r_id in 1..=REGIONS {
            let region = Region { name: random.text(6, 25) };
            tx.insert(&self.tables.regions, &r_id, &Encoded::of(&region)).await?;
            for number in 1..=NATIONS_OF_REGION {
                let nation = Nation { r_id, name: random.text(6, 25) };
                let n_id = (r_id - 1) * NATIONS_OF_REGION + number;
                tx.insert(&self.tables.nations, &n_id, &Encoded::of(&nation)).await?;
            }
        }
        Ok(())
    }

    async fn suppliers(&self, tx: &Transaction, numbers: Range<u32>) -> Result<(), Failure> {
        let mut random = self.random([8, 0, u64::from(numbers.start)]);
        for number in numbers {
            let supplier = Supplier {
                n_id: random.small(1, REGIONS * NATIONS_OF_REGION),
                name: random.text(10, 25),
                address: address(&mut random),
                phone: random.digits(),
                balance: random.cents(0, 1_000_000),
            };
            tx.insert(&self.tables.suppliers, &number, &Encoded::of(&supplier)).await?;
        }
        Ok(())
    }

    async fn warehouse(&self, tx: &Transaction, number: u16) -> Result<(), Failure> {
        let mut random = self.random([2, u64::from(number), 0]);
        let paid = i64::from(self.cardinalities.customers) * PAID_FIRST;
        let warehouse = Warehouse {
            name: random.text(6, 10),
            address: address(&mut random),
            tax: random.between(0, 2_000) as u16,
            ytd: paid * i64::from(DISTRICTS),
        };
        tx.insert(&self.tables.warehouses, &number, &Encoded::of(&warehouse)).await?;
        for district in 1..=DISTRICTS {
            let record = District {
                name: random.text(6, 10),
                address: address(&mut random),
                tax: random.between(0, 2_000) as u16,
                ytd: paid,
                next_o_id: self.cardinalities.customers + 1,
            };
            tx.insert(&self.tables.districts, &(number, district), &Encoded::of(&record)).await?;
        }
        Ok(())
    }

    async fn stock(&self, tx: &Transaction, w_id: u16, items: Range<u32>) -> Result<(), Failure> {
        let mut random = self.random([3, u64::from(w_id), u64::from(items.start)]);
        for number in items {
            let stock = Stock {
                quantity: random.between(10, 100) as i16,
                dist: std::array::from_fn(|_| random.text(24, 24)),
                ytd: 0,
                order_cnt: 0,
                remote_cnt: 0,
                data: random.data(),
            };
            tx.insert(&self.tables.stock, &(w_id, number), &Encoded::of(&stock)).await?;
        }
        Ok(())
    }

    async fn customers(
        &self,
        tx: &Transaction,
        (w_id, d_id): (u16, u8),
        numbers: Range<u32>,
    ) -> Result<(), Failure> {
        let place = u64::from(w_id) << 8 | u64::from(d_id);
        let mut random = self.random([4, place, u64::from(numbers.start)]);
        let names = self.cardinalities.last_names();
        for c_id in numbers {
            let customer = Customer {
                w_id,
                d_id,
                first: random.text(8, 16),
                middle: Text::of(b"OE"),
                last: if c_id <= names { last_name_of(c_id - 1) } else { random.last_name() },
                address: address(&mut random),
                phone: random.digits(),
                since: LOADED_AT,
                credit: Text::of(if random.percent(10) { BAD_CREDIT } else { b"GC" }),
                credit_lim: 5_000_000,
                discount: random.between(0, 5_000) as u16,
                balance: -PAID_FIRST,
                ytd_payment: PAID_FIRST,
                payment_cnt: 1,
                delivery_cnt: 0,
                data: random.text(300, 500),
            };
            tx.insert(&self.tables.customers, &(w_id, d_id, c_id), &Encoded::of(&customer)).await?;
            let payment = History {
                c_w_id: w_id,
                c_d_id: d_id,
                c_id,
                w_id,
                d_id,
                date: LOADED_AT,
                amount: PAID_FIRST,
                data: random.text(12, 24),
            };
            let district = u64::from(w_id - 1) * u64::from(DISTRICTS) + u64::from(d_id - 1);
            let number = district * u64::from(self.cardinalities.customers) + u64::from(c_id - 1);
            tx.insert(&self.tables.history, &number, &Encoded::of(&payment)).await?;
        }
        Ok(())
    }

    async fn orders(
        &self,
        tx: &Transaction,
        (w_id, d_id): (u16, u8),
        numbers: Range<u32>,
    ) -> Result<(), Failure> {
        let place = u64::from(w_id) << 8 | u64::from(d_id);
        // One order for each customer, in an order that all parts of the district share.
        let customers = self.random([5, place, 0]).permutation(self.cardinalities.customers);
        let mut random = self.random([6, place, u64::from(numbers.start)]);
        for o_id in numbers {
            let delivered = o_id <= self.cardinalities.delivered();
            let order = Order {
                w_id,
                d_id,
                c_id: customers[o_id as usize - 1],
                entry_d: LOADED_AT,
                carrier_id: delivered.then(|| random.small(1, 10)),
                ol_cnt: random.small(5, 15),
                all_local: 1,
            };
            tx.insert(&self.tables.orders, &(w_id, d_id, o_id), &Encoded::of(&order)).await?;
            if !delivered {
                tx.insert(&self.tables.new_orders, &(w_id, d_id, o_id), &()).await?;
            }
            for number in 1..=order.ol_cnt {
                let line = OrderLine {
                    i_id: random.between(1, self.cardinalities.items),
                    supply_w_id: w_id,
                    delivery_d: delivered.then_some(LOADED_AT),
                    quantity: 5,
                    amount: if delivered { 0 } else { random.cents(1, 999_999) },
                    dist_info: random.text(24, 24),
                };
                tx.insert(
                    &self.tables.order_lines,
                    &(w_id, d_id, o_id, number),
                    &Encoded::of(&line),
                )
                .await?;
            }
        }
        Ok(())
    }
}

/// The credit of a tenth of the customers.
pub(super) const BAD_CREDIT: &[u8] = b"BC";

fn address(random: &mut Random) -> Address {
    let mut zip = random.digits::<4>().as_bytes().to_vec();
    zip.extend_from_slice(b"11111");
    Address {
        street_1: random.text(10, 20),
        street_2: random.text(10, 20),
        city: random.text(10, 20),
        state: random.text(2, 2),
        zip: Text::of(&zip),
    }
}
