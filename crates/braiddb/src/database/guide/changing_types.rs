//! Changing the type of stored values.
//!
//! A stored serde type has a [`Schema`](crate::Schema). Its name stays the same when the type is
//! renamed or moved in the code. If a type stored as [`Postcard`](crate::Postcard) changes, opening
//! the table fails with an error that describes the difference. Opening succeeds again once the
//! type declares its new version and how to read the older one.
//!
//! These are changes: a field is added, removed, moved, renamed or has another type, in the type
//! itself or in a nested type. The same holds for elements of tuples and variants of enums. The
//! engine finds the shape of a type by deserializing sample values. A type that rejects all samples
//! is compared only as far as the engine could read it.
//!
//! Records are rewritten only when the program writes them. Records of both versions can exist in
//! one table.
//!
//! The first opening by the new program records the new version in the catalog, even if the program
//! then writes nothing. [`open_table`](crate::Database::open_table) and
//! [`open_or_create_table`](crate::Database::open_or_create_table) both do so. Afterwards the older
//! program can no longer open the table, also not for reading. So replace read-only programs that use
//! the table first, or with it, and make a [backup](super::backup) if you may return to the older
//! program. Opening it in a read-only database changes nothing.
//!
//! This program needs `cargo add serde --features derive`:
//!
//! ```
//! use braiddb::{Database, DecodeError, Error, Options, Postcard, Schema, Table, block_on};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct AccountV1 {
//!     owner: String,
//!     cents: i64,
//! }
//!
//! impl Schema for AccountV1 {
//!     const NAME: &'static str = "account";
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Account {
//!     owner: String,
//!     cents: i64,
//!     limit: i64,
//! }
//!
//! impl Schema for Account {
//!     const NAME: &'static str = "account";
//!     const VERSION: u32 = 2;
//!     const OLDEST: u32 = 1;
//!
//!     fn upgrade(_version: u32, bytes: &[u8]) -> Result<Self, DecodeError> {
//!         let old: AccountV1 = Postcard::from_bytes(bytes)?;
//!         Ok(Account { owner: old.owner, cents: old.cents, limit: 0 })
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let old: Table<u64, Postcard<AccountV1>> = db.create_table("accounts").await?;
//!         db.put(&old, &7, &AccountV1 { owner: "ada".to_owned(), cents: 250 }).await?;
//!
//!         let accounts: Table<u64, Postcard<Account>> = db.open_table("accounts").await?;
//!         let ada = db.get(&accounts, &7).await?.unwrap();
//!         assert_eq!((ada.cents, ada.limit), (250, 0));
//!         // From now on, the program from before the change cannot open the table.
//!         assert!(db.open_table::<u64, Postcard<AccountV1>>("accounts").await.is_err());
//!         Ok(())
//!     })
//! }
//! ```
//!
//! With the features `json` and `messagepack`, `Json` and `MessagePack` store the field names in
//! each record. A new field then needs `#[serde(default)]` and no new version, but records are
//! larger. Opening the table reports a field that has no default and is missing from some records.
//! This check covers the stored struct and its nested structs.
//!
//! This program needs `cargo add serde --features derive`:
//!
//! ```
//! use braiddb::{Database, Error, Json, Options, Schema, Table, block_on};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct ArticleOfLastYear {
//!     name: String,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Article {
//!     name: String,
//!     #[serde(default)]
//!     pieces: u64,
//! }
//!
//! impl Schema for ArticleOfLastYear {
//!     const NAME: &'static str = "article";
//! }
//!
//! impl Schema for Article {
//!     const NAME: &'static str = "article";
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct ArticleWithoutDefault {
//!     name: String,
//!     cents: u64,
//! }
//!
//! impl Schema for ArticleWithoutDefault {
//!     const NAME: &'static str = "article";
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let old: Table<u64, Json<ArticleOfLastYear>> = db.create_table("articles").await?;
//!         db.put(&old, &7, &ArticleOfLastYear { name: "nails".to_owned() }).await?;
//!
//!         let articles: Table<u64, Json<Article>> = db.open_table("articles").await?;
//!         let nails = db.get(&articles, &7).await?.unwrap();
//!         assert_eq!((nails.name.as_str(), nails.pieces), ("nails", 0));
//!
//!         // Refused: "field `cents` is new and has no `#[serde(default)]`".
//!         let refused = db.open_table::<u64, Json<ArticleWithoutDefault>>("articles").await;
//!         assert!(refused.unwrap_err().to_string().contains("field `cents` is new"));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Key types have names too, but no versions. A table with another key type is another table.
