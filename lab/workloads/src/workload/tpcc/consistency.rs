//! The consistency conditions of clause 3.3.2, each checked over all records.

use braiddb::{Database, Transaction};

use super::schema::{Cardinalities, CustomerKey, DISTRICTS, DistrictKey, OrderKey, Tables};
use crate::error::Error;

/// The number of committed transactions of some kinds, counted from their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Orders, except those from loading.
    pub(crate) orders: u64,
    /// Payments, except those from loading.
    pub(crate) payments: u64,
}

/// Checks all conditions in one transaction.
///
/// # Errors
/// Returns [`Error::Wrong`] with the first violated condition and its place.
pub(crate) fn check(
    database: &Database,
    tables: &Tables,
    cardinalities: Cardinalities,
) -> Result<Totals, Error> {
    let tables = tables.clone();
    let check = async move |tx: &Transaction| {
        let mut books = Books::new(cardinalities);
        books.read_payments(tx, &tables).await?;
        books.read_orders(tx, &tables).await?;
        books.check_customers(tx, &tables).await?;
        books.check_districts(tx, &tables).await?;
        books.check_warehouses(tx, &tables).await?;
        Ok::<_, Error>(books.totals())
    };
    Ok(pollster::block_on(database.transaction().read_only(true).try_run(check))?.value)
}

/// Sums over the records of one district.
#[derive(Clone, Debug, Default)]
struct DistrictSums {
    ytd: i64,
    paid: i64,
    orders: u64,
    lines: u64,
    lines_of_orders: u64,
    last_order: u32,
    new_orders: u64,
    first_new_order: Option<u32>,
    last_new_order: Option<u32>,
    deliveries: u64,
}

/// Sums over the records of one customer.
#[derive(Clone, Copy, Debug, Default)]
struct CustomerSums {
    /// Amounts of delivered lines.
    delivered: i64,
    paid: i64,
}

struct Books {
    cardinalities: Cardinalities,
    districts: Vec<DistrictSums>,
    customers: Vec<CustomerSums>,
    payments: u64,
}

fn wrong<T>(condition: u32, told: impl std::fmt::Display) -> Result<T, Error> {
    Err(Error::Wrong(format!("TPC-C consistency condition {condition}: {told}")))
}

/// Fails with the condition's number unless both sides are equal.
fn equal<T: PartialEq + std::fmt::Debug>(
    condition: u32,
    place: impl std::fmt::Debug,
    left: T,
    right: T,
) -> Result<(), Error> {
    if left == right {
        return Ok(());
    }
    wrong(condition, format_args!("{place:?}: {left:?} is not {right:?}"))
}

impl Books {
    fn new(cardinalities: Cardinalities) -> Self {
        let districts = usize::from(cardinalities.warehouses) * usize::from(DISTRICTS);
        let customers = districts * cardinalities.customers as usize;
        Self {
            cardinalities,
            districts: vec![DistrictSums::default(); districts],
            customers: vec![CustomerSums::default(); customers],
            payments: 0,
        }
    }

    fn district_place(&self, (w_id, d_id): DistrictKey) -> Result<usize, Error> {
        let known =
            (1..=self.cardinalities.warehouses).contains(&w_id) && (1..=DISTRICTS).contains(&d_id);
        if !known {
            return Err(Error::Wrong(format!("there is no district {d_id} of warehouse {w_id}")));
        }
        Ok(usize::from(w_id - 1) * usize::from(DISTRICTS) + usize::from(d_id - 1))
    }

    fn district(&mut self, key: DistrictKey) -> Result<&mut DistrictSums, Error> {
        let place = self.district_place(key)?;
        Ok(&mut self.districts[place])
    }

    fn customer(&mut self, (w_id, d_id, c_id): CustomerKey) -> Result<&mut CustomerSums, Error> {
        let customers = self.cardinalities.customers;
        if !(1..=customers).contains(&c_id) {
            return Err(Error::Wrong(format!("there is no customer {c_id}")));
        }
        let district = self.district_place((w_id, d_id))?;
        Ok(&mut self.customers[district * customers as usize + c_id as usize - 1])
    }

    async fn read_payments(&mut self, tx: &Transaction, tables: &Tables) -> Result<(), Error> {
        let mut payments = tx.scan(&tables.history, ..)?;
        while let Some((_, payment)) = payments.next().await? {
            self.payments += 1;
            self.district((payment.w_id(), payment.d_id()))?.paid += payment.amount();
            let customer = (payment.c_w_id(), payment.c_d_id(), payment.c_id());
            self.customer(customer)?.paid += payment.amount();
        }
        Ok(())
    }

    /// Reads orders with their new orders and lines: conditions 5, 6 and 7.
    async fn read_orders(&mut self, tx: &Transaction, tables: &Tables) -> Result<(), Error> {
        let mut orders = tx.scan(&tables.orders, ..)?;
        let mut new_orders = tx.scan(&tables.new_orders, ..)?;
        let mut lines = tx.scan(&tables.order_lines, ..)?;
        let mut next_new = new_orders.next().await?.map(|(key, ())| key);
        let mut next_line = lines.next().await?;
        while let Some((key, order)) = orders.next().await? {
            let (w_id, d_id, o_id) = key;
            let is_new = next_new == Some(key);
            equal(5, key, is_new, order.carrier_id().is_none())?;
            if is_new {
                next_new = new_orders.next().await?.map(|(key, ())| key);
                let district = self.district((w_id, d_id))?;
                district.new_orders += 1;
                district.first_new_order.get_or_insert(o_id);
                district.last_new_order = Some(o_id);
            }
            let (mut count, mut delivered) = (0_u64, 0);
            while let Some((line_key, line)) = next_line {
                if order_of(line_key) != key {
                    break;
                }
                equal(7, line_key, line.delivery_d().is_none(), order.carrier_id().is_none())?;
                count += 1;
                delivered += if line.delivery_d().is_some() { line.amount() } else { 0 };
                next_line = lines.next().await?;
            }
            equal(6, key, u64::from(order.ol_cnt()), count)?;
            self.customer((w_id, d_id, order.c_id()))?.delivered += delivered;
            let district = self.district((w_id, d_id))?;
            district.orders += 1;
            district.lines += count;
            district.lines_of_orders += u64::from(order.ol_cnt());
            district.last_order = o_id;
        }
        if let Some(key) = next_new {
            return wrong(5, format_args!("there is no order for the new order {key:?}"));
        }
        match next_line {
            Some((key, _)) => wrong(6, format_args!("there is no order for the line {key:?}")),
            None => Ok(()),
        }
    }

    /// Checks conditions 10 and 12.
    async fn check_customers(&mut self, tx: &Transaction, tables: &Tables) -> Result<(), Error> {
        let mut customers = tx.scan(&tables.customers, ..)?;
        while let Some((key, customer)) = customers.next().await? {
            let sums = *self.customer(key)?;
            equal(10, key, customer.balance(), sums.delivered - sums.paid)?;
            equal(12, key, customer.balance() + customer.ytd_payment(), sums.delivered)?;
            let (w_id, d_id, _) = key;
            self.district((w_id, d_id))?.deliveries += u64::from(customer.delivery_cnt());
        }
        Ok(())
    }

    /// Checks conditions 2, 3, 4, 9 and 11. The last one is about the loaded database; the check
    /// allows for later deliveries.
    async fn check_districts(&mut self, tx: &Transaction, tables: &Tables) -> Result<(), Error> {
        let delivered_at_first = u64::from(self.cardinalities.delivered());
        let (mut districts, mut count) = (tx.scan(&tables.districts, ..)?, 0);
        while let Some((key, district)) = districts.next().await? {
            count += 1;
            let sums = self.district(key)?;
            sums.ytd = district.ytd();
            equal(2, key, district.next_o_id() - 1, sums.last_order)?;
            if let Some((first, last)) = sums.first_new_order.zip(sums.last_new_order) {
                equal(2, key, last, sums.last_order)?;
                equal(3, key, u64::from(last - first + 1), sums.new_orders)?;
            }
            equal(4, key, sums.lines_of_orders, sums.lines)?;
            equal(9, key, district.ytd(), sums.paid)?;
            let deliveries = delivered_at_first + sums.deliveries;
            equal(11, key, sums.orders - sums.new_orders, deliveries)?;
            equal(2, key, sums.orders, u64::from(sums.last_order))?;
        }
        equal(2, "districts", count, self.districts.len())
    }

    /// Checks conditions 1 and 8.
    async fn check_warehouses(&mut self, tx: &Transaction, tables: &Tables) -> Result<(), Error> {
        let (mut warehouses, mut count) = (tx.scan(&tables.warehouses, ..)?, 0);
        while let Some((key, warehouse)) = warehouses.next().await? {
            count += 1;
            let first = self.district_place((key, 1))?;
            let districts = &self.districts[first..first + usize::from(DISTRICTS)];
            equal(1, key, warehouse.ytd(), districts.iter().map(|sums| sums.ytd).sum())?;
            equal(8, key, warehouse.ytd(), districts.iter().map(|sums| sums.paid).sum())?;
        }
        equal(1, "warehouses", count, self.cardinalities.warehouses)
    }

    fn totals(&self) -> Totals {
        let orders: u64 = self.districts.iter().map(|sums| sums.orders).sum();
        let loaded = self.customers.len() as u64;
        Totals { orders: orders - loaded, payments: self.payments - loaded }
    }
}

/// Returns the key of the order that a line belongs to.
fn order_of((w_id, d_id, o_id, _): (u16, u8, u32, u8)) -> OrderKey {
    (w_id, d_id, o_id)
}
