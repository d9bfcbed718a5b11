//! Query2* of TPC-CH (ERMIA's variant of TPC-H's query 2, as CoroBase runs it). It reads some
//! suppliers of a region, and for each the item with the lowest stock in its warehouse. Low stock
//! is filled up.
//!
//! A supplier supplies ten items to every warehouse: those whose number is equal to the supplier's
//! modulo the number of suppliers.

use braiddb::{Error as Failure, Transaction};

use super::random::Random;
use super::schema::{Cardinalities, REGIONS, Stock, StockKey, Tables};
use super::terminal::{Home, existing};
use crate::workload::encoding::View;

/// Stock below this level is filled up, by this amount.
const LOW: i16 = 15;
const FILLED_BY: i16 = 50;

#[derive(Clone, Debug)]
pub(crate) struct Query2 {
    w_id: u16,
    region: u8,
    /// The first supplier to read; the number of suppliers is given at the run.
    first: u32,
    looked_at: u32,
    cardinalities: Cardinalities,
}

impl Query2 {
    pub(super) fn draw(
        random: &mut Random,
        home: Home,
        looked_at: u32,
        cardinalities: Cardinalities,
    ) -> Self {
        let (w_id, region) = (home.warehouse(random), random.small(1, REGIONS));
        let first = random.between(1, cardinalities.suppliers());
        Self { w_id, region, first, looked_at, cardinalities }
    }

    /// Runs the transaction. If `together`, one operation reads the stock of a supplier.
    pub(super) async fn run(
        &self,
        tx: &Transaction,
        tables: &Tables,
        together: bool,
    ) -> Result<(), Failure> {
        let region = existing(tx.get(&tables.regions, &self.region).await?)?;
        std::hint::black_box(region.name());
        let suppliers = self.cardinalities.suppliers();
        for offset in 0..self.looked_at.min(suppliers) {
            let number = (self.first - 1 + offset) % suppliers + 1;
            let supplier = existing(tx.get(&tables.suppliers, &number).await?)?;
            let nation = existing(tx.get(&tables.nations, &supplier.n_id()).await?)?;
            if nation.r_id() == self.region {
                std::hint::black_box((supplier.name(), nation.name()));
                self.look_at(tx, tables, number, together).await?;
            }
        }
        Ok(())
    }

    /// Returns the item of a supplier with the lowest stock.
    async fn look_at<'tx>(
        &self,
        tx: &'tx Transaction,
        tables: &Tables,
        supplier: u32,
        together: bool,
    ) -> Result<(), Failure> {
        let (items, step) = (self.cardinalities.items, self.cardinalities.suppliers());
        let places = (supplier..=items).step_by(step as usize).map(|i_id| (self.w_id, i_id));
        let mut least: Option<(StockKey, View<'tx, Stock>)> = None;
        let mut note = |place: StockKey, stock: View<'tx, Stock>| {
            if least.is_none_or(|(_, least)| stock.quantity() < least.quantity()) {
                least = Some((place, stock));
            }
        };
        if together {
            let places: Vec<StockKey> = places.collect();
            let all = tx.multi_get(&tables.stock, &places).await?;
            for (place, stock) in places.iter().zip(all) {
                note(*place, existing(stock)?);
            }
        } else {
            for place in places {
                note(place, existing(tx.get(&tables.stock, &place).await?)?);
            }
        }
        let (place, stock) = existing(least)?;
        let item = existing(tx.get(&tables.items, &place.1).await?)?;
        std::hint::black_box((item.name(), item.price()));
        if stock.quantity() < LOW {
            let changed = stock.change().quantity(stock.quantity() + FILLED_BY);
            tx.update(&tables.stock, &place, &changed).await?;
        }
        Ok(())
    }
}
