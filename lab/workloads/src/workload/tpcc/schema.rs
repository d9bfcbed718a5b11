//! The nine tables of clause 1.3 with all their columns, and the two indexes; and the three tables
//! of TPC-H for Query2*.
//!
//! A table's key columns are in its keys. An index function sees only values, so a value repeats
//! the key columns that the function needs. Keys have at most eight bytes. Money is in cents, taxes
//! and discounts are in hundredths of a percent, times in microseconds since 1970.

use braiddb::{Database, Index, IndexKeys, IndexOptions, Table, TableOptions};
use clap::ValueEnum;

use crate::error::Error;
use crate::workload::encoding::{Text, View, padded, records};

pub(super) const DISTRICTS: u8 = 10;
/// The number of regions of TPC-H, and of nations in each.
pub(super) const REGIONS: u8 = 5;
pub(super) const NATIONS_OF_REGION: u8 = 5;

pub(super) type WarehouseKey = u16;
/// Warehouse, district.
pub(super) type DistrictKey = (u16, u8);
/// Warehouse, district, customer.
pub(super) type CustomerKey = (u16, u8, u32);
/// Warehouse, district, order.
pub(super) type OrderKey = (u16, u8, u32);
/// Warehouse, district, order, line.
pub(super) type OrderLineKey = (u16, u8, u32, u8);
pub(super) type ItemKey = u32;
/// Warehouse, item.
pub(super) type StockKey = (u16, u32);
/// Warehouse, district, last name, first name; texts padded with zeros.
pub(super) type NameKey = (u16, u8, [u8; 16], [u8; 16]);

records! {
    /// A postal address of a warehouse, district or customer.
    Address("tpcc address") {
        street_1: Text<20>,
        street_2: Text<20>,
        city: Text<20>,
        state: Text<2>,
        zip: Text<9>,
    }
    Warehouse("tpcc warehouse") {
        name: Text<10>,
        address: Address,
        tax: u16,
        ytd: i64,
    }
    District("tpcc district") {
        name: Text<10>,
        address: Address,
        tax: u16,
        ytd: i64,
        next_o_id: u32,
    }
    Customer("tpcc customer") {
        w_id: u16,
        d_id: u8,
        first: Text<16>,
        middle: Text<2>,
        last: Text<16>,
        address: Address,
        phone: Text<16>,
        since: u64,
        credit: Text<2>,
        credit_lim: i64,
        discount: u16,
        balance: i64,
        ytd_payment: i64,
        payment_cnt: u16,
        delivery_cnt: u16,
        data: Text<500>,
    }
    /// A payment record. It has no primary key in the standard; the table's key is a number.
    History("tpcc history") {
        c_w_id: u16,
        c_d_id: u8,
        c_id: u32,
        w_id: u16,
        d_id: u8,
        date: u64,
        amount: i64,
        data: Text<24>,
    }
    Order("tpcc order") {
        w_id: u16,
        d_id: u8,
        c_id: u32,
        entry_d: u64,
        carrier_id: Option<u8>,
        ol_cnt: u8,
        all_local: u8,
    }
    OrderLine("tpcc order line") {
        i_id: u32,
        supply_w_id: u16,
        delivery_d: Option<u64>,
        quantity: u8,
        amount: i64,
        dist_info: Text<24>,
    }
    Item("tpcc item") {
        im_id: u32,
        name: Text<24>,
        price: i64,
        data: Text<50>,
    }
    Stock("tpcc stock") {
        quantity: i16,
        /// One for each district.
        dist: [Text<24>; DISTRICTS as usize],
        ytd: u32,
        order_cnt: u16,
        remote_cnt: u16,
        data: Text<50>,
    }
    Supplier("tpcc supplier") {
        n_id: u8,
        name: Text<25>,
        address: Address,
        phone: Text<16>,
        balance: i64,
    }
    Nation("tpcc nation") {
        r_id: u8,
        name: Text<25>,
    }
    Region("tpcc region") {
        name: Text<25>,
    }
}

/// Handles of all tables and indexes of one database.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(super) warehouses: Table<WarehouseKey, Warehouse>,
    pub(super) districts: Table<DistrictKey, District>,
    pub(super) customers: Table<CustomerKey, Customer>,
    pub(super) history: Table<u64, History>,
    pub(super) new_orders: Table<OrderKey, ()>,
    pub(super) orders: Table<OrderKey, Order>,
    pub(super) order_lines: Table<OrderLineKey, OrderLine>,
    pub(super) items: Table<ItemKey, Item>,
    pub(super) stock: Table<StockKey, Stock>,
    pub(super) suppliers: Table<u32, Supplier>,
    pub(super) nations: Table<u8, Nation>,
    pub(super) regions: Table<u8, Region>,
    /// Customers by last name, then by first name.
    pub(super) customers_by_name: Index<NameKey, CustomerKey, Customer>,
    /// Orders by their customer; of one customer by their number.
    pub(super) orders_by_customer: Index<CustomerKey, OrderKey, Order>,
}

/// The storage of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kept {
    #[default]
    Memory,
    /// All on pages.
    Paged,
    /// Orders, their lines and the history, which grow without limit, on pages; the rest in memory.
    Both,
}

impl Kept {
    /// Returns paged or in-memory storage.
    pub(crate) fn paged(paged: bool) -> Self {
        if paged { Self::Paged } else { Self::Memory }
    }

    /// Returns the options of a table that grows, or of one that does not.
    fn options(self, grows: bool) -> TableOptions {
        let options = TableOptions::default();
        let is_paged = self == Self::Paged || (self == Self::Both && grows);
        if is_paged { options.paged() } else { options }
    }
}

impl Tables {
    /// Opens or creates the tables and attaches the indexes.
    pub(crate) fn open(database: &Database, kept: Kept) -> Result<Self, Error> {
        let (made, growing) = (kept.options(false), kept.options(true));
        pollster::block_on(async {
            let customers = database.open_or_create_table_with("customer", made).await?;
            let orders = database.open_or_create_table_with("order", growing).await?;
            let by_name = |customer: View<'_, Customer>, keys: &mut IndexKeys<'_, NameKey>| {
                let (last, first) = (padded(customer.last()), padded(customer.first()));
                keys.push(&(customer.w_id(), customer.d_id(), last, first));
            };
            let by_customer = |order: View<'_, Order>, keys: &mut IndexKeys<'_, CustomerKey>| {
                keys.push(&(order.w_id(), order.d_id(), order.c_id()));
            };
            let options = IndexOptions::default();
            Ok(Self {
                warehouses: database.open_or_create_table_with("warehouse", made).await?,
                districts: database.open_or_create_table_with("district", made).await?,
                history: database.open_or_create_table_with("history", growing).await?,
                new_orders: database.open_or_create_table_with("new-order", growing).await?,
                order_lines: database.open_or_create_table_with("order-line", growing).await?,
                items: database.open_or_create_table_with("item", made).await?,
                stock: database.open_or_create_table_with("stock", made).await?,
                suppliers: database.open_or_create_table_with("supplier", made).await?,
                nations: database.open_or_create_table_with("nation", made).await?,
                regions: database.open_or_create_table_with("region", made).await?,
                customers_by_name: database
                    .index(&customers, "customer-by-name", options, by_name)
                    .await?,
                orders_by_customer: database
                    .index(&orders, "order-by-customer", options, by_customer)
                    .await?,
                customers,
                orders,
            })
        })
    }
}

/// The size of a database: as specified, or smaller for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cardinalities {
    pub(crate) warehouses: u16,
    pub(crate) items: u32,
    /// Customers of each district, and initial orders.
    pub(crate) customers: u32,
}

impl Cardinalities {
    /// Returns the numbers of clause 1.2.1.
    pub(crate) fn specified(warehouses: u16) -> Self {
        Self { warehouses, items: 100_000, customers: 3_000 }
    }

    /// Returns about a thirtieth of all specified numbers.
    pub(crate) fn tiny(warehouses: u16) -> Self {
        Self { warehouses, items: 1_000, customers: 60 }
    }

    /// Returns the number of initial orders of each district that were delivered: all except the
    /// last 900 of 3000.
    pub(super) fn delivered(&self) -> u32 {
        self.customers / 10 * 7
    }

    /// Returns the number of last names in use: the first customers of each district have one each.
    pub(super) fn last_names(&self) -> u32 {
        self.customers.min(1_000)
    }

    /// Returns the number of suppliers: one for every ten items.
    pub(super) fn suppliers(&self) -> u32 {
        self.items / 10
    }

    /// Returns the approximate number of initial records in all tables: an order has ten lines.
    pub(crate) fn records(&self) -> u64 {
        let (warehouses, items) = (u64::from(self.warehouses), u64::from(self.items));
        let districts = warehouses * u64::from(DISTRICTS);
        // A customer, its payment, and its order with ten lines, three in ten of which are new; two
        // entries.
        let a_customer = 15;
        items
            + items / 10
            + warehouses * (1 + items)
            + districts * (1 + u64::from(self.customers) * a_customer)
    }

    /// Returns the approximate memory of all records.
    pub(crate) fn bytes(&self) -> u64 {
        const STOCK: u64 = 400;
        const CUSTOMER: u64 = 2_500;
        let warehouses = u64::from(self.warehouses);
        let customers = warehouses * u64::from(DISTRICTS) * u64::from(self.customers);
        warehouses * u64::from(self.items) * STOCK + customers * CUSTOMER
    }
}
