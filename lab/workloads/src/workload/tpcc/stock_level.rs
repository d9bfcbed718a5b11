//! Stock-Level, clause 2.8: the number of items with low stock in a district's last twenty orders.

use braiddb::{Error as Failure, Transaction};

use super::random::Random;
use super::schema::{DISTRICTS, Tables};
use super::terminal::{Home, existing};

const ORDERS: u32 = 20;

#[derive(Clone, Debug)]
pub(crate) struct StockLevel {
    w_id: u16,
    d_id: u8,
    threshold: i16,
}

impl StockLevel {
    pub(super) fn draw(random: &mut Random, home: Home) -> Self {
        let (w_id, d_id) = (home.warehouse(random), random.small(1, DISTRICTS));
        Self { w_id, d_id, threshold: random.between(10, 20) as i16 }
    }

    /// Runs the transaction. If `together`, one operation reads all stock.
    pub(super) async fn run(
        &self,
        tx: &Transaction,
        tables: &Tables,
        together: bool,
    ) -> Result<(), Failure> {
        let &Self { w_id, d_id, threshold } = self;
        let district = existing(tx.get(&tables.districts, &(w_id, d_id)).await?)?;
        let next = district.next_o_id();
        let range = (w_id, d_id, next.saturating_sub(ORDERS), 0)..(w_id, d_id, next, 0);
        let mut lines = tx.scan(&tables.order_lines, range)?;
        let mut items = Vec::with_capacity(256);
        while let Some((_, line)) = lines.next().await? {
            items.push(line.i_id());
        }
        drop(lines);
        items.sort_unstable();
        items.dedup();
        let mut low = 0;
        if together {
            let places: Vec<_> = items.iter().map(|i_id| (w_id, *i_id)).collect();
            for stock in tx.multi_get(&tables.stock, &places).await? {
                low += u32::from(existing(stock)?.quantity() < threshold);
            }
        } else {
            for i_id in items {
                let stock = existing(tx.get(&tables.stock, &(w_id, i_id)).await?)?;
                low += u32::from(stock.quantity() < threshold);
            }
        }
        std::hint::black_box(low);
        Ok(())
    }
}
