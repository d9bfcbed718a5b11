//! Rows that are read without a copy.
//!
//! [`Postcard`](crate::Postcard) decodes a whole row at each read. If reads need only some columns,
//! give the rows a [`Value`](crate::Value) type whose [`Ref`](crate::Value::Ref) has accessors that
//! decode one column each, and read them with [`get_with`](crate::Transaction::get_with) and
//! [`visit`](crate::Scan::visit). Both lend values where the table has them.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use braiddb::{
//!     Database, DecodeError, EncodeError, EncodedValue, Error, Options, Table, Value, block_on,
//! };
//!
//! /// An account: eight bytes of cents, then the owner's name.
//! struct Account;
//!
//! struct AccountView<'a>(&'a [u8; 8], &'a [u8]);
//!
//! impl<'a> AccountView<'a> {
//!     fn cents(&self) -> i64 {
//!         i64::from_le_bytes(*self.0)
//!     }
//!
//!     fn owner(&self) -> Result<&'a str, Error> {
//!         std::str::from_utf8(self.1).map_err(|_| DecodeError::new("a name").into())
//!     }
//! }
//!
//! impl Value for Account {
//!     type Input = (i64, String);
//!     type Ref<'a> = AccountView<'a>;
//!     type Owned = Vec<u8>;
//!
//!     fn type_name() -> String {
//!         "bank.account.1".to_owned()
//!     }
//!
//!     fn encode((cents, owner): &(i64, String)) -> Result<EncodedValue<'_>, EncodeError> {
//!         Ok([&cents.to_le_bytes(), owner.as_bytes()].concat().into())
//!     }
//!
//!     fn decode(bytes: &[u8]) -> Result<AccountView<'_>, DecodeError> {
//!         let parts = bytes.split_first_chunk();
//!         let (cents, owner) = parts.ok_or_else(|| DecodeError::new("an account"))?;
//!         Ok(AccountView(cents, owner))
//!     }
//!
//!     fn into_owned(view: AccountView<'_>) -> Vec<u8> {
//!         [view.0, view.1].concat()
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let accounts: Table<u64, Account> = db.create_table("accounts").await?;
//!         db.put(&accounts, &1, &(250, "Ada".to_owned())).await?;
//!         db.put(&accounts, &2, &(100, "Ben".to_owned())).await?;
//!         let (found, sum) = db
//!             .run_on(&accounts, async |tx, accounts| {
//!                 let found =
//!                     tx.get_with(accounts, &1, |account| account.owner().map(str::to_owned));
//!                 let (found, mut sum) = (found.await?.transpose()?, 0);
//!                 let each = |_, account: AccountView<'_>| {
//!                     sum += account.cents();
//!                     ControlFlow::<()>::Continue(())
//!                 };
//!                 tx.scan(accounts, ..)?.visit(each).await?;
//!                 Ok((found, sum))
//!             })
//!             .await?;
//!         assert_eq!((found.as_deref(), sum), (Some("Ada"), 350));
//!         Ok(())
//!     })
//! }
//! ```
