//! Execution of a transaction without commit.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::encoding::{KeySpace, SpacesToEncode};
use super::key_set::{KeySet, KeySetBuilder};
use super::row_writes::{BYTES_PER_STEP, RowWrites, RowWritesBuilder};
use crate::database::catalog::CatalogEntry;
use crate::database::error::{BusyWith, Error, Misuse, Result};
use crate::database::handle::Database;
use crate::database::ticket::Ticket;
use crate::database::transaction::Transaction;
use crate::database::transaction_builder::{
    Ending, Outcome, TransactionBuilder, TransactionOptions,
};
use crate::record::{Records, split_expiry};
use crate::rid::{CATALOG, TableId};
use crate::sched::{self, engine_call, engine_code};
use crate::transaction::{ExecutedWrite, Isolation, OperationError};

/// A transaction that was executed and not committed: its result, and what it read and wrote.
/// [`Database::execute`] returns it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Proposal<T> {
    /// The value that the closure returned.
    pub value: T,
    /// Everything that the closure read, except the records that it wrote. The transaction is
    /// valid until another one writes one of these keys or of those in [`RowWrites::keys`].
    pub reads: KeySet,
    /// Everything that the closure wrote.
    pub writes: RowWrites,
    /// The closure saw exactly the transactions that committed at an LSN below this one.
    pub snapshot_lsn: u64,
    /// How often the closure ran: 1 without conflicts.
    pub attempts: u32,
    /// Is durable once everything is that the value and the writes depend on.
    pub ticket: Ticket,
}

/// The read set and the write set of a transaction, the numbers of tables and indexes in each, and
/// their names.
#[derive(Default)]
struct CollectedSets {
    reads: KeySetBuilder,
    read_spaces: NumberedSpaces,
    writes: RowWritesBuilder,
    written_spaces: NumberedSpaces,
    named: NamedTables,
}

/// Tables and indexes with their names, by the id of their records or entries.
type NamedTables = BTreeMap<TableId, (String, Option<String>)>;

impl Database {
    /// Runs `body` as a transaction and, instead of committing it, returns what it read and wrote.
    /// The database is unchanged.
    ///
    /// A replicated service executes a transaction on any node, decides its place in an order of
    /// all transactions, and commits it on every node by [`Transaction::apply`]. An
    /// [`OrderedCertifier`](super::OrderedCertifier) decides whether it is still valid there. A
    /// service can also show the effects of a transaction before it runs it.
    ///
    /// - **Isolation**: reads are always tracked, as under
    ///   [`Isolation::Serializable`](crate::Isolation). [`Proposal::reads`] does not contain a
    ///   record because a write of it succeeded, although that may reveal whether it existed. Treat
    ///   the written keys as read. [`Transaction::get_part`] counts as a read of the whole record.
    /// - **Durability**: the result is returned without waiting for the log.
    ///   [`Proposal::ticket`] waits for what it depends on. Errors wait, as those of
    ///   [`Database::run`].
    /// - **Other transactions**: the closure holds the records that it writes until it ends. Until
    ///   then, a transaction that writes the same record meets a conflict and runs again.
    /// - **Not possible** are: creating, changing, renaming and dropping tables and indexes, opening
    ///   a table whose value type has changed, and writes to staged tables.
    ///
    /// Cancellation, panics and retries after conflicts are as for [`Database::run`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let here = Database::in_memory(Options::default().workers(1))?;
    ///         let there = Database::in_memory(Options::default().workers(1))?;
    ///         let cents: Table<str, u64> = here.create_table("cents").await?;
    ///         let copy: Table<str, u64> = there.create_table("cents").await?;
    ///
    ///         let table = cents.clone();
    ///         let proposal = here
    ///             .execute(async move |tx| {
    ///                 let cents = tx.get(&table, "ada").await?.unwrap_or(0) + 100;
    ///                 tx.put(&table, "ada", &cents).await?;
    ///                 Ok(cents)
    ///             })
    ///             .await?;
    ///         assert_eq!((proposal.value, proposal.attempts), (100, 1));
    ///         assert_eq!(here.get(&cents, "ada").await?, None);
    ///
    ///         let writes = proposal.writes;
    ///         there.run(async move |tx| tx.apply(&writes).await).await?;
    ///         assert_eq!(there.get(&copy, "ada").await?, Some(100));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// - The error of `body`, and those of [`Database::run`] except [`Error::CommitUnknown`].
    /// - [`Misuse::NotExecutable`](crate::Misuse) if `body` did something listed above.
    /// - [`Error::Busy`] if a table that `body` used was created, renamed or dropped at the same time
    ///   and is not in the catalog as of the transaction's snapshot.
    pub fn execute<T, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<Proposal<T>>> + Send + use<T, F>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.transaction().try_execute(body)
    }

    /// Like [`Database::execute`], for a closure with its own error type; see
    /// [`Database::try_run`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let renamed = db.try_execute(async move |tx| {
    ///             let name = tx.get(&names, &1).await?;
    ///             let name = name.ok_or_else(|| anyhow::anyhow!("no person has this number"))?;
    ///             Ok::<_, anyhow::Error>(name.len())
    ///         });
    ///         assert_eq!(renamed.await.unwrap_err().to_string(), "no person has this number");
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::execute`].
    pub fn try_execute<T, E, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<Proposal<T>, E>> + Send + use<T, E, F>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.transaction().try_execute(body)
    }
}

impl TransactionBuilder {
    /// Like [`Database::execute`], with the number of attempts of this builder. With
    /// [`TransactionBuilder::read_only`], reads are not tracked, so that [`Proposal::reads`] is
    /// empty.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let once = db.transaction().max_attempts(1);
    ///         let proposal = once.execute(async move |tx| tx.put(&names, &1, "ada").await).await?;
    ///         assert_eq!(proposal.writes.rows().count(), 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::execute`].
    pub fn execute<T, F>(
        self,
        body: F,
    ) -> impl Future<Output = Result<Proposal<T>>> + Send + use<T, F>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_execute(body)
    }

    /// Like [`TransactionBuilder::execute`], for a closure with its own error type; see
    /// [`Database::try_run`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let once = db.transaction().max_attempts(1);
    ///         let refused = once.try_execute(async move |tx| {
    ///             anyhow::ensure!(tx.contains(&names, &1).await?, "no person has this number");
    ///             anyhow::Ok(())
    ///         });
    ///         assert!(refused.await.is_err());
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::execute`].
    pub fn try_execute<T, E, F>(
        self,
        body: F,
    ) -> impl Future<Output = Result<Proposal<T>, E>> + Send + use<T, E, F>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let Self { db, options } = self;
        let isolation = Some(Isolation::Serializable);
        let options = TransactionOptions { isolation, ending: Ending::Abort, ..options };
        let run = Self { db: db.clone(), options }.try_run(async move |tx: &Transaction| {
            engine_call(|| tx.core().prepare_execution());
            let value = body(tx).await?;
            let (reads, writes) = tx.executed_sets().await?;
            Ok::<_, E>((value, reads, writes))
        });
        async move {
            let Outcome { value, attempts, commit_lsn: snapshot_lsn, depends_on } = run.await?;
            let (value, reads, writes) = value;
            let ticket = Ticket::new(db, depends_on);
            Ok(Proposal { value, reads, writes, snapshot_lsn, attempts, ticket })
        }
    }
}

impl Transaction {
    /// Returns what the transaction has read and written so far.
    ///
    /// # Errors
    /// The error with which a commit would fail; those of [`Database::execute`].
    async fn executed_sets(&self) -> Result<(KeySet, RowWrites)> {
        engine_call(|| self.core().check_executed())?;
        let mut sets = self.collect_sets().await?;
        if !self.are_names_of_snapshot(&sets.named).await? {
            // Tables were renamed since then.
            let listed = self.names_of_snapshot().await?;
            for (id, (table, index)) in &sets.named {
                if !listed.contains_key(id) {
                    return Err(self.unlisted(*id, table, index.as_deref()).await?);
                }
            }
            engine_call(|| sets.rename(&listed));
        }
        // The checks above may have met conflicts.
        engine_call(|| self.core().check_executed())?;
        let time_ms = self.core().used_time().unwrap_or(0);
        let CollectedSets { reads, writes, .. } = sets;
        let build =
            async { Ok::<_, OperationError>((reads.build().await, writes.build(time_ms).await)) };
        Ok(engine_code(build).await?)
    }

    /// Copies what the transaction has read and written, in steps.
    async fn collect_sets(&self) -> Result<CollectedSets> {
        /// Number of reads or writes that are copied without suspension.
        const ITEMS: usize = 8;
        let mut sets = CollectedSets::default();
        let CollectedSets { reads, read_spaces, writes, written_spaces, named } = &mut sets;
        let (mut refusal, mut first, mut has_more) = (None, 0, true);
        while has_more && refusal.is_none() {
            has_more = engine_call(|| {
                self.core().each_read(first..first + ITEMS, |table, low, high| {
                    match read_spaces.number(table, &mut reads.spaces, named) {
                        Ok(space) => reads.range(space, low, high),
                        Err(error) => refusal = Some(error),
                    }
                })
            });
            first += ITEMS;
            sched::count_steps(ITEMS as u32).await;
        }
        (first, has_more) = (0, true);
        while has_more && refusal.is_none() {
            let mut bytes = 0;
            has_more = engine_call(|| {
                self.core().each_write(first..first + ITEMS, |write| {
                    bytes += write.stored.map_or(0, <[u8]>::len);
                    let added = add_write(&write, writes, written_spaces, named);
                    refusal = refusal.take().or(added.err());
                })
            });
            first += ITEMS;
            sched::count_steps((ITEMS + bytes / BYTES_PER_STEP) as u32).await;
        }
        match refusal {
            Some(error) => Err(error),
            None => Ok(sets),
        }
    }

    /// Returns whether the tables and indexes have these names in the transaction's snapshot.
    async fn are_names_of_snapshot(&self, named: &NamedTables) -> Result<bool> {
        for (id, (table, index)) in named {
            let found = self.table_id_of(table).await?;
            let found = match (found, index) {
                (Some(found), Some(index)) => {
                    let index = engine_call(|| self.engine().table(found).secondary(index));
                    index.map(|index| index.entries().id)
                }
                (found, _) => found,
            };
            if found != Some(*id) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the names of all tables and indexes in the transaction's snapshot.
    async fn names_of_snapshot(&self) -> Result<NamedTables> {
        let (mut names, mut indexes) = (NamedTables::new(), Vec::new());
        for row in self.catalog_rows(Bound::Unbounded, Bound::Unbounded).await? {
            match row {
                CatalogEntry::Table(table) => {
                    names.insert(TableId(table.id), (table.name, None));
                }
                CatalogEntry::Index(index) => indexes.push(index),
                CatalogEntry::DroppedTable(_) => {}
            }
        }
        for index in indexes {
            if let Some((table, _)) = names.get(&TableId(index.table_id)) {
                let name = (table.clone(), Some(index.name));
                names.insert(TableId(index.id), name);
            }
        }
        Ok(names)
    }

    /// Returns the error for a table or an index that the transaction's snapshot does not list.
    async fn unlisted(&self, id: TableId, table: &str, index: Option<&str>) -> Result<Error> {
        if index.is_none() && self.is_listed_as_dropped(id.0).await? {
            return Ok(Misuse::NotExecutable(format!("use the staged table {table:?}")).into());
        }
        Ok(BusyWith::TableChange { table: table.to_owned() }.into())
    }
}

/// Adds a write to a set.
///
/// # Errors
/// `NotExecutable`.
fn add_write(
    write: &ExecutedWrite<'_>,
    writes: &mut RowWritesBuilder,
    spaces: &mut NumberedSpaces,
    named: &mut NamedTables,
) -> Result<()> {
    let table = write.table;
    if table.id == CATALOG {
        let what = "create, change or drop tables or indexes".to_owned();
        return Err(Misuse::NotExecutable(what).into());
    }
    let space = spaces.number(table, &mut writes.spaces, named)?;
    if table.of_index().is_some() {
        writes.entry(space, write.key);
        return Ok(());
    }
    let value = write.stored.map(|stored| match table.expires() {
        true => {
            let (expiry, value) = split_expiry(stored);
            (value, Some(expiry))
        }
        false => (stored, None),
    });
    writes.row(space, write.key, write.existed, value);
    Ok(())
}

impl CollectedSets {
    /// Gives all tables and indexes these names.
    fn rename(&mut self, listed: &NamedTables) {
        let sets = [
            (&self.read_spaces, &mut self.reads.spaces),
            (&self.written_spaces, &mut self.writes.spaces),
        ];
        for (numbers, spaces) in sets {
            for (id, number) in &numbers.0 {
                if let Some((table, index)) = listed.get(id) {
                    spaces.rename(*number, table.clone(), index.clone());
                }
            }
        }
    }
}

/// The numbers of tables and indexes in a set.
#[derive(Default)]
struct NumberedSpaces(BTreeMap<TableId, u16>);

impl NumberedSpaces {
    /// Returns the number of a table or an index in a set, of which it becomes a space. Lists its
    /// names, unless it is the catalog.
    fn number(
        &mut self,
        table: &Records,
        spaces: &mut SpacesToEncode,
        named: &mut NamedTables,
    ) -> Result<u16> {
        if let Some(number) = self.0.get(&table.id) {
            return Ok(*number);
        }
        let name = table.name();
        // The entries of an index are named after the table and the index.
        let index = table.of_index();
        let of_table = match index {
            Some(index) => &name[..name.len() - index.len() - 1],
            None => &name,
        };
        let number = spaces.add(KeySpace { table: of_table, index }).ok_or_else(|| {
            Misuse::NotExecutable("use more than 65,534 tables and indexes".to_owned())
        })?;
        if table.id != CATALOG {
            named.insert(table.id, (of_table.to_owned(), index.map(str::to_owned)));
        }
        self.0.insert(table.id, number);
        Ok(number)
    }
}
