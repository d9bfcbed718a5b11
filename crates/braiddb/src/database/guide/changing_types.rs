//! Types that change.
//!
//! A serde type that is stored has a [`Schema`](crate::Schema): a name that stays when the type is renamed or moved. When
//! a type that is stored as [`Postcard`](crate::Postcard) changes, opening the table fails and says so, until the type says
//! which version it is now and how the older one is read. A change is a field that comes, goes, moves or has another
//! name or type, in the type or in any within it, and so it is with elements of tuples and cases of enums. Types that
//! refuse whatever values the engine makes up to see what they are like are compared as far as those go. Records are
//! written anew when your program writes them; those of both versions live side by side.
//!
//! ```
//! use braiddb::{Database, DecodeError, Error, Options, Postcard, Schema, Table};
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
//!         let old: AccountV1 =
//!             postcard::from_bytes(bytes).map_err(|_| DecodeError::new("an account of version 1"))?;
//!         Ok(Account { owner: old.owner, cents: old.cents, limit: 0 })
//!     }
//! }
//!
//! # pollster::block_on(async {
//! # let db = Database::in_memory(Options::default().workers(1))?;
//! let old: Table<u64, Postcard<AccountV1>> = db.create_table("accounts").await?;
//! db.put(&old, &7, &AccountV1 { owner: "ada".to_owned(), cents: 250 }).await?;
//!
//! let accounts: Table<u64, Postcard<Account>> = db.open_table("accounts").await?;
//! let ada = db.get(&accounts, &7).await?.unwrap();
//! assert_eq!((ada.cents, ada.limit), (250, 0));
//! // A program of before the change is refused from now on.
//! assert!(db.open_table::<u64, Postcard<AccountV1>>("accounts").await.is_err());
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! With the features `json` and `messagepack`, `Json` and `MessagePack` name the fields in each record: there a new field needs
//! `#[serde(default)]` and no version, at the price of larger records. Of the struct that is stored, and of those
//! within it, opening the table tells a field that has no default and is not in all records:
//!
//! ```
//! # #[cfg(feature = "json")]
//! # fn main() -> Result<(), braiddb::Error> {
//! use braiddb::{Database, Error, Json, Options, Schema, Table};
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
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let old: Table<u64, Json<ArticleOfLastYear>> = db.create_table("articles").await?;
//! db.put(&old, &7, &ArticleOfLastYear { name: "nails".to_owned() }).await?;
//!
//! let articles: Table<u64, Json<Article>> = db.open_table("articles").await?;
//! let nails = db.get(&articles, &7).await?.unwrap();
//! assert_eq!((nails.name.as_str(), nails.pieces), ("nails", 0));
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
//! let refused = db.open_table::<u64, Json<ArticleWithoutDefault>>("articles").await;
//! assert!(refused.unwrap_err().to_string().contains("field `cents` is new and has no `#[serde(default)]`"));
//! # Ok(()) })
//! # }
//! # #[cfg(not(feature = "json"))]
//! # fn main() {}
//! ```
//!
//! Key types have names too, and no versions: a table with other keys is another table.
