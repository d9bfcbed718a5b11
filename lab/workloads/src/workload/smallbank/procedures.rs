//! SmallBank's six procedures, on its three tables: customers by name, savings and checking
//! accounts by customer. Amounts are in cents.

use braiddb::{Database, Error as Failure, Table, Transaction};

use crate::error::Error;
use crate::workload::missing_record;

/// The initial balance of each account.
pub(super) const FIRST_BALANCE: i64 = 1_000_000;
/// The charge for a check that is not covered.
pub(super) const PENALTY: i64 = 100;
/// The number of customers that one loading transaction inserts.
const BATCH: u64 = 500;

/// The tables.
#[derive(Clone)]
pub(super) struct Tables {
    /// Customer numbers by name.
    accounts: Table<str, u64>,
    savings: Table<u64, i64>,
    checking: Table<u64, i64>,
}

/// Returns a customer's name.
pub(super) fn name_of(customer: u64) -> String {
    format!("customer-{customer:09}")
}

impl Tables {
    /// Opens or creates the tables.
    pub(super) fn open(database: &Database) -> Result<Self, Error> {
        pollster::block_on(async {
            Ok(Self {
                accounts: database.open_or_create_table("account").await?,
                savings: database.open_or_create_table("savings").await?,
                checking: database.open_or_create_table("checking").await?,
            })
        })
    }

    /// Inserts this number of customers, each with the initial balance in both accounts.
    pub(super) fn fill(&self, database: &Database, customers: u64) -> Result<(), Error> {
        for start in (0..customers).step_by(BATCH as usize) {
            let tables = self.clone();
            database.run_blocking(async move |tx: &Transaction| {
                for customer in start..customers.min(start + BATCH) {
                    tx.insert(&tables.accounts, &name_of(customer), &customer).await?;
                    tx.insert(&tables.savings, &customer, &FIRST_BALANCE).await?;
                    tx.insert(&tables.checking, &customer, &FIRST_BALANCE).await?;
                }
                Ok::<_, Failure>(())
            })?;
        }
        Ok(())
    }

    /// Returns the total of all balances, read in one transaction.
    pub(super) fn total(&self, database: &Database) -> Result<i64, Error> {
        let tables = self.clone();
        let total = database.run_blocking(async move |tx: &Transaction| {
            let mut total = 0;
            for table in [&tables.savings, &tables.checking] {
                let mut scan = tx.scan(table, ..)?;
                while let Some((_, balance)) = scan.next().await? {
                    total += balance;
                }
            }
            Ok::<_, Failure>(total)
        })?;
        Ok(total)
    }
}

/// A procedure with its parameters.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// Reads the balances of both accounts of a customer.
    Balance(String),
    DepositChecking(String, i64),
    /// Deposits to savings, or withdraws up to the balance.
    TransactSavings(String, i64),
    /// Moves all of the first customer's money to the second's checking account.
    Amalgamate(String, String),
    /// Cashes a check. Both accounts together must cover it, otherwise it costs a penalty.
    WriteCheck(String, i64),
    /// Moves money between checking accounts if the first has enough.
    SendPayment(String, String, i64),
}

impl Operation {
    /// Runs the procedure. Returns the change of the total of all balances.
    pub(super) async fn run(&self, tx: &Transaction, tables: &Tables) -> Result<i64, Failure> {
        match self {
            Self::Balance(name) => {
                let customer = tables.customer(tx, name).await?;
                std::hint::black_box(tables.in_both(tx, customer).await?);
                Ok(0)
            }
            Self::DepositChecking(name, amount) => {
                let customer = tables.customer(tx, name).await?;
                tables.add(tx, &tables.checking, customer, *amount).await?;
                Ok(*amount)
            }
            Self::TransactSavings(name, amount) => {
                let customer = tables.customer(tx, name).await?;
                tables.transact_savings(tx, customer, *amount).await
            }
            Self::Amalgamate(from, to) => {
                let from = tables.customer(tx, from).await?;
                let to = tables.customer(tx, to).await?;
                let all = tables.in_both(tx, from).await?;
                tx.update(&tables.savings, &from, &0).await?;
                tx.update(&tables.checking, &from, &0).await?;
                tables.add(tx, &tables.checking, to, all).await?;
                Ok(0)
            }
            Self::WriteCheck(name, amount) => {
                let customer = tables.customer(tx, name).await?;
                let there = tables.in_both(tx, customer).await?;
                tables.cash_check(tx, customer, *amount, there).await
            }
            Self::SendPayment(from, to, amount) => {
                let from = tables.customer(tx, from).await?;
                let to = tables.customer(tx, to).await?;
                let there = existing(tx.get(&tables.checking, &from).await?)?;
                if there >= *amount {
                    tx.update(&tables.checking, &from, &(there - amount)).await?;
                    tables.add(tx, &tables.checking, to, *amount).await?;
                }
                Ok(0)
            }
        }
    }
}

impl Tables {
    async fn customer(&self, tx: &Transaction, name: &str) -> Result<u64, Failure> {
        existing(tx.get(&self.accounts, name).await?)
    }

    /// Returns the sum of both accounts of a customer.
    pub(super) async fn in_both(&self, tx: &Transaction, customer: u64) -> Result<i64, Failure> {
        let savings = existing(tx.get(&self.savings, &customer).await?)?;
        Ok(savings + existing(tx.get(&self.checking, &customer).await?)?)
    }

    async fn add(
        &self,
        tx: &Transaction,
        table: &Table<u64, i64>,
        customer: u64,
        amount: i64,
    ) -> Result<(), Failure> {
        let balance = existing(tx.get(table, &customer).await?)?;
        tx.update(table, &customer, &(balance + amount)).await
    }

    /// Changes the savings unless they would fall below zero. Returns the change.
    pub(super) async fn transact_savings(
        &self,
        tx: &Transaction,
        customer: u64,
        amount: i64,
    ) -> Result<i64, Failure> {
        let balance = existing(tx.get(&self.savings, &customer).await?)?;
        if balance + amount < 0 {
            return Ok(0);
        }
        tx.update(&self.savings, &customer, &(balance + amount)).await?;
        Ok(amount)
    }

    /// Subtracts a check's amount, and the penalty if `there` does not cover it, from the checking
    /// account. Returns the change.
    pub(super) async fn cash_check(
        &self,
        tx: &Transaction,
        customer: u64,
        amount: i64,
        there: i64,
    ) -> Result<i64, Failure> {
        let taken = if there < amount { amount + PENALTY } else { amount };
        self.add(tx, &self.checking, customer, -taken).await?;
        Ok(-taken)
    }
}

fn existing<T>(found: Option<T>) -> Result<T, Failure> {
    found.ok_or_else(missing_record)
}
