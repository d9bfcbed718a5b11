//! New-Order, clause 2.4.

use braiddb::{Error as Failure, Transaction};

use super::random::{ORIGINAL, Random};
use super::schema::{Cardinalities, DISTRICTS, Item, Order, OrderLine, Stock, Tables};
use super::terminal::{Home, Style, existing, now};
use crate::workload::encoding::{Encoded, Text, View, padded};

const MAX_LINES: usize = 15;

/// An ordered item.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    i_id: u32,
    supply_w_id: u16,
    quantity: u8,
}

impl Line {
    /// Reads the item and its stock. Returns `None` if the item does not exist.
    async fn read<'tx>(
        &self,
        tx: &'tx Transaction,
        tables: &Tables,
    ) -> Result<Option<Read<'tx>>, Failure> {
        let Some(item) = tx.get(&tables.items, &self.i_id).await? else { return Ok(None) };
        let stock = existing(tx.get(&tables.stock, &(self.supply_w_id, self.i_id)).await?)?;
        Ok(Some((item, stock)))
    }
}

/// The item of a line and its stock.
type Read<'tx> = (View<'tx, Item>, View<'tx, Stock>);

#[derive(Clone, Debug)]
pub(crate) struct NewOrder {
    w_id: u16,
    d_id: u8,
    c_id: u32,
    entry_d: u64,
    count: u8,
    lines: [Line; MAX_LINES],
    /// True if the last item does not exist. The transaction is then rolled back, which happens to
    /// one in a hundred.
    invalid: bool,
}

impl NewOrder {
    pub(super) fn draw(random: &mut Random, home: Home, cardinalities: Cardinalities) -> Self {
        let w_id = home.warehouse(random);
        let count = random.small(5, MAX_LINES as u8);
        let invalid = random.percent(1);
        let mut lines = [Line::default(); MAX_LINES];
        for line in &mut lines[..usize::from(count)] {
            let remote = random.percent(1);
            *line = Line {
                i_id: random.item(),
                supply_w_id: if remote { home.another(w_id, random) } else { w_id },
                quantity: random.small(1, 10),
            };
        }
        if invalid {
            lines[usize::from(count) - 1].i_id = cardinalities.items + 1;
        }
        let (d_id, c_id) = (random.small(1, DISTRICTS), random.customer());
        Self { w_id, d_id, c_id, entry_d: now(), count, lines, invalid }
    }

    /// Returns true if the transaction rolls back.
    pub(crate) fn is_invalid(&self) -> bool {
        self.invalid
    }

    /// Runs the transaction. If projected, it reads only the needed parts of warehouse and
    /// customer, so that payments, which change the other parts, do not conflict with it. If
    /// together, two operations of many keys read items and stock before the first line is written.
    pub(super) async fn run(
        &self,
        tx: &Transaction,
        tables: &Tables,
        style: Style,
    ) -> Result<(), Failure> {
        let &Self { w_id, d_id, c_id, .. } = self;
        let begin = tx.savepoint();
        let customer = (w_id, d_id, c_id);
        let (w_tax, discount) = if style.projected {
            let tax = tx.get_part(&tables.warehouses, &w_id, |warehouse| warehouse.tax()).await?;
            let part = tx
                .get_part(&tables.customers, &customer, |customer| {
                    (
                        customer.discount(),
                        padded::<16>(customer.last()),
                        padded::<2>(customer.credit()),
                    )
                })
                .await?;
            (existing(tax)?, existing(part)?.0)
        } else {
            let warehouse = existing(tx.get(&tables.warehouses, &w_id).await?)?;
            (warehouse.tax(), existing(tx.get(&tables.customers, &customer).await?)?.discount())
        };
        let district = existing(tx.get(&tables.districts, &(w_id, d_id)).await?)?;
        let o_id = district.next_o_id();
        let changed = district.change().next_o_id(o_id + 1);
        tx.update(&tables.districts, &(w_id, d_id), &changed).await?;
        let lines = &self.lines[..usize::from(self.count)];
        let order = Order {
            w_id,
            d_id,
            c_id,
            entry_d: self.entry_d,
            carrier_id: None,
            ol_cnt: self.count,
            all_local: u8::from(lines.iter().all(|line| line.supply_w_id == w_id)),
        };
        tx.insert(&tables.orders, &(w_id, d_id, o_id), &Encoded::of(&order)).await?;
        tx.insert(&tables.new_orders, &(w_id, d_id, o_id), &()).await?;
        let mut total = 0;
        let read = if style.together { self.read_together(tx, tables).await? } else { Vec::new() };
        for (number, line) in (1_u8..).zip(lines) {
            let read = match read.get(usize::from(number) - 1) {
                // If an item occurs twice, the first line changed its stock.
                Some(read) if !comes_before(lines, usize::from(number) - 1) => *read,
                _ => line.read(tx, tables).await?,
            };
            let Some((item, stock)) = read else {
                // A source ends when its caller receives an error. Therefore the transaction rolls
                // back its writes and commits nothing.
                return tx.rollback_to(&begin).await;
            };
            let at = (o_id, number);
            total += self.order_line(tx, tables, at, line, (item, stock)).await?;
        }
        // The output to the user: taxes and discount are hundredths of a percent.
        let taxed = total * (10_000 + i64::from(w_tax) + i64::from(district.tax())) / 10_000;
        std::hint::black_box(taxed * (10_000 - i64::from(discount)) / 10_000);
        Ok(())
    }

    /// Reads the data for all lines; `None` for an item that does not exist.
    async fn read_together<'tx>(
        &self,
        tx: &'tx Transaction,
        tables: &Tables,
    ) -> Result<Vec<Option<Read<'tx>>>, Failure> {
        let lines = &self.lines[..usize::from(self.count)];
        let items: Vec<_> = lines.iter().map(|line| line.i_id).collect();
        let places: Vec<_> = lines.iter().map(|line| (line.supply_w_id, line.i_id)).collect();
        let items = tx.multi_get(&tables.items, &items).await?;
        let stock = tx.multi_get(&tables.stock, &places).await?;
        Ok(items.into_iter().zip(stock).map(|(item, stock)| item.zip(stock)).collect())
    }

    /// Writes one line of the order and returns its amount.
    async fn order_line(
        &self,
        tx: &Transaction,
        tables: &Tables,
        (o_id, number): (u32, u8),
        line: &Line,
        (item, stock): Read<'_>,
    ) -> Result<i64, Failure> {
        let place = (line.supply_w_id, line.i_id);
        let quantity = i16::from(line.quantity);
        let in_stock = stock.quantity();
        let taken = if in_stock >= quantity + 10 { quantity } else { quantity - 91 };
        let remote = u16::from(line.supply_w_id != self.w_id);
        let changed = stock
            .change()
            .quantity(in_stock - taken)
            .ytd(stock.ytd() + u32::from(line.quantity))
            .order_cnt(stock.order_cnt() + 1)
            .remote_cnt(stock.remote_cnt() + remote);
        tx.update(&tables.stock, &place, &changed).await?;
        let amount = i64::from(line.quantity) * item.price();
        let record = OrderLine {
            i_id: line.i_id,
            supply_w_id: line.supply_w_id,
            delivery_d: None,
            quantity: line.quantity,
            amount,
            dist_info: Text::of(stock.dist()[usize::from(self.d_id) - 1]),
        };
        let key = (self.w_id, self.d_id, o_id, number);
        tx.insert(&tables.order_lines, &key, &Encoded::of(&record)).await?;
        // The output to the user: brand or generic.
        std::hint::black_box(is_original(item.data()) && is_original(stock.data()));
        Ok(amount)
    }
}

/// Returns true if an earlier line orders the same item from the same warehouse.
fn comes_before(lines: &[Line], place: usize) -> bool {
    let of = |line: &Line| (line.supply_w_id, line.i_id);
    lines[..place].iter().any(|line| of(line) == of(&lines[place]))
}

fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|part| part == ORIGINAL)
}
