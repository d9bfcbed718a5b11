//! The scripts of sysbench: the statements of a transaction, their rows, and their execution.

use std::cell::Cell;

use braiddb::{Error as Failure, Transaction};
use clap::ValueEnum;

use super::distribution::Distribution;
use super::rows::{Row, Tables, draw_c, draw_pad};
use crate::engine::drive::Procedure;
use crate::workload::book::Book;
use crate::workload::encoding::{Encoded, Text, padded};
use crate::workload::missing_record;

/// The number of point selects in a transaction that also has other statements, with one statement
/// of each other kind.
const POINT_SELECTS: usize = 10;
/// Rows of a range.
const RANGE: u32 = 100;

/// The scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Script {
    /// `oltp_read_only`: ten point selects and four ranges.
    ReadOnly,
    /// `oltp_write_only`: two updates, a deletion and an insertion.
    WriteOnly,
    /// `oltp_read_write`: all of these statements.
    ReadWrite,
    /// `oltp_point_select`: one point select.
    PointSelect,
}

impl Script {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WriteOnly => "write-only",
            Self::ReadWrite => "read-write",
            Self::PointSelect => "point-select",
        }
    }

    fn point_selects(self) -> usize {
        match self {
            Self::ReadOnly | Self::ReadWrite => POINT_SELECTS,
            Self::WriteOnly => 0,
            Self::PointSelect => 1,
        }
    }
}

/// The operation on the rows of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    /// Returns `c` of all rows.
    Simple,
    /// Returns the sum of `k`.
    Sum,
    /// Returns `c` of all rows, sorted.
    Order,
    /// Returns the distinct `c`, sorted.
    Distinct,
}

#[derive(Clone, Debug)]
enum Action {
    PointSelect,
    Range(Range),
    /// Adds one to `k`.
    IndexUpdate,
    /// Replaces `c`.
    NonIndexUpdate(Box<Text<120>>),
    /// Deletes the row and inserts another under the same key.
    DeleteInsert(Box<Row>),
}

/// A statement: its table, and its row or the first row of its range.
#[derive(Clone, Debug)]
struct Statement {
    table: usize,
    id: u32,
    action: Action,
}

/// A transaction in progress. The engine drops it at commit; a failure ends the measurement.
pub(super) struct Event {
    statements: Vec<Statement>,
    /// The change of the sum of all `k` by the latest attempt.
    change: Cell<i64>,
    book: Book<i64>,
}

impl Drop for Event {
    fn drop(&mut self) {
        self.book.add(self.change.get());
    }
}

/// Draws and runs transactions of one script.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) script: Script,
    pub(super) distribution: Distribution,
    pub(super) tables: Tables,
    /// Rows of each table.
    pub(super) size: u32,
    pub(super) random: fastrand::Rng,
    /// The change of the sum of all `k` by committed transactions.
    pub(super) book: Book<i64>,
}

impl Client {
    fn id(&mut self) -> u32 {
        self.distribution.draw(self.size, &mut self.random)
    }

    fn table(&mut self) -> usize {
        self.random.usize(0..self.tables.len())
    }

    fn statement(&mut self, action: Action) -> Statement {
        Statement { table: self.table(), id: self.id(), action }
    }

    async fn run_one(&self, tx: &Transaction, statement: &Statement) -> Result<i64, Failure> {
        let (table, id) = (&self.tables[statement.table].table, statement.id);
        match &statement.action {
            Action::PointSelect => {
                // A copy, as sent to a client.
                let row = existing(tx.get(table, &id).await?)?;
                std::hint::black_box(Text::<120>::of(row.c()));
            }
            Action::Range(range) => self.select_range(tx, statement, *range).await?,
            Action::IndexUpdate => {
                let row = existing(tx.get(table, &id).await?)?;
                tx.update(table, &id, &row.change().k(row.k() + 1)).await?;
                return Ok(1);
            }
            Action::NonIndexUpdate(c) => {
                let row = existing(tx.get(table, &id).await?)?;
                tx.update(table, &id, &row.change().c(**c)).await?;
            }
            Action::DeleteInsert(row) => {
                // Reads the row only for the sum that is checked at the end.
                let before = existing(tx.get(table, &id).await?)?;
                tx.delete(table, &id).await?;
                tx.insert(table, &id, &Encoded::of(row)).await?;
                return Ok(i64::from(row.k) - i64::from(before.k()));
            }
        }
        Ok(0)
    }

    async fn select_range(
        &self,
        tx: &Transaction,
        statement: &Statement,
        range: Range,
    ) -> Result<(), Failure> {
        let table = &self.tables[statement.table].table;
        let mut rows = tx.scan(table, statement.id..=statement.id + (RANGE - 1))?;
        if range == Range::Sum {
            let mut sum = 0;
            while let Some((_, row)) = rows.next().await? {
                sum += u64::from(row.k());
            }
            std::hint::black_box(sum);
            return Ok(());
        }
        let mut texts = Vec::with_capacity(RANGE as usize);
        while let Some((_, row)) = rows.next().await? {
            texts.push(padded::<120>(row.c()));
        }
        if range != Range::Simple {
            texts.sort_unstable();
        }
        if range == Range::Distinct {
            texts.dedup();
        }
        std::hint::black_box(texts);
        Ok(())
    }
}

impl Procedure for Client {
    type Input = Event;

    fn draw(&mut self) -> Event {
        let reads = matches!(self.script, Script::ReadOnly | Script::ReadWrite);
        let writes = matches!(self.script, Script::WriteOnly | Script::ReadWrite);
        let selects = self.script.point_selects();
        let mut statements = Vec::with_capacity(selects + 7);
        // All point selects of a transaction use one table.
        let table = self.table();
        for _ in 0..selects {
            statements.push(Statement { table, id: self.id(), action: Action::PointSelect });
        }
        if reads {
            for range in [Range::Simple, Range::Sum, Range::Order, Range::Distinct] {
                statements.push(self.statement(Action::Range(range)));
            }
        }
        if writes {
            statements.push(self.statement(Action::IndexUpdate));
            let c = draw_c(&mut self.random);
            statements.push(self.statement(Action::NonIndexUpdate(c.into())));
            let k = self.id();
            let random = &mut self.random;
            let row = Row { k, c: draw_c(random), pad: draw_pad(random) };
            statements.push(self.statement(Action::DeleteInsert(row.into())));
        }
        Event { statements, change: Cell::new(0), book: self.book.clone() }
    }

    async fn run(&self, tx: &Transaction, event: &Event) -> Result<(), Failure> {
        event.change.set(0);
        let mut change = 0;
        for statement in &event.statements {
            change += self.run_one(tx, statement).await?;
        }
        event.change.set(change);
        Ok(())
    }
}

fn existing<T>(found: Option<T>) -> Result<T, Failure> {
    found.ok_or_else(missing_record)
}
