//! How to write what services need: errors of your own, pages of results, tokio, cancellation, keys of
//! your own types, transactions that span requests. Every example is compiled and run by the tests.
//!
//! # Closures, and tables in them
//!
//! A transaction is a closure that may run more than once, on a thread of the database. So it owns what it
//! uses. [`Database::run_on`](crate::Database::run_on) clones the tables that it is given for the closure, which is cheap:
//!
//! ```
//! # use braiddb::{Database, Error, Options, Table};
//! # pollster::block_on(async {
//! # let db = Database::in_memory(Options::default().workers(1))?;
//! let stock: Table<str, u64> = db.open_or_create_table("stock").await?;
//! let sold: Table<u64, str> = db.open_or_create_table("sold").await?;
//! db.put(&stock, "nails", &2).await?;
//! let left = db.run_on((&stock, &sold), async |tx, (stock, sold)| {
//!     let left = tx.get(stock, "nails").await?.unwrap_or(0) - 1;
//!     tx.put(stock, "nails", &left).await?;
//!     tx.insert(sold, &1, "nails").await?;
//!     Ok(left)
//! });
//! assert_eq!(left.await?, 1);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! Other values the closure takes along: it is an `async move` closure then. A group of tables in a struct of your own, with
//! the database, is one clone:
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
//!
//! #[derive(Clone)]
//! struct Shop {
//!     db: Database,
//!     stock: Table<str, u64>,
//!     sold: Table<(String, u64), u64>,
//! }
//!
//! impl Shop {
//!     async fn open(db: Database) -> Result<Self, Error> {
//!         let stock = db.open_or_create_table("stock").await?;
//!         let sold = db.open_or_create_table("sold").await?;
//!         Ok(Self { db, stock, sold })
//!     }
//!
//!     /// Sells one piece; what is left.
//!     async fn sell(&self, article: &str, order: u64) -> Result<u64, Error> {
//!         let (shop, article) = (self.clone(), article.to_owned());
//!         self.db
//!             .run(async move |tx| {
//!                 let left = tx.get(&shop.stock, &article).await?.unwrap_or(0);
//!                 let left = left.checked_sub(1).ok_or(Error::KeyNotFound)?;
//!                 tx.put(&shop.stock, &article, &left).await?;
//!                 tx.insert(&shop.sold, &(article.clone(), order), &1).await?;
//!                 Ok(left)
//!             })
//!             .await
//!     }
//! }
//!
//! # pollster::block_on(async {
//! let shop = Shop::open(Database::in_memory(Options::default().workers(1))?).await?;
//! shop.db.put(&shop.stock, "nails", &2).await?;
//! assert_eq!(shop.sell("nails", 1).await?, 1);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! A closure that borrows a table, `&Table`, does not compile ("borrowed data escapes", "does not live long enough"): take
//! `run_on`, or clone the table before it. A value of text or bytes that a read gives is lent until the transaction is over; one that is to leave
//! it ("lifetime may not live long enough") is made the closure's own by `.to_owned()`:
//! `tx.get(&names, &1).await?.map(str::to_owned)`. [`Database::get`](crate::Database::get) gives such a value at once.
//!
//! What is cloned inside the closure (`article.clone()` above) is cloned because an attempt that meets a
//! conflict runs again, and must find everything as it was.
//!
//! # Errors of your own
//!
//! [`Database::run`](crate::Database::run) is for closures whose error is [`Error`](crate::Error).
//! [`Database::try_run`](crate::Database::try_run) takes any error that an [`Error`](crate::Error) can be
//! turned into; `?` works for both. That "`?` couldn't convert the error to `braiddb::Error`"
//! (or "expected `braiddb::Error`, found `anyhow::Error`") means that `run` should be `try_run`; "type annotations needed"
//! in `try_run`, that the closure's error must be said, since `?` is applied to what `try_run` gives, too, and may convert it once
//! more: `Ok::<_, TransferError>(..)`, `anyhow::Ok(..)`. An error aborts the transaction and comes back as it is; it is not tried
//! again.
//!
//! ```
//! use braiddb::{Database, Options, Table};
//!
//! #[derive(Debug)]
//! enum TransferError {
//!     Overdrawn { missing: u64 },
//!     Database(braiddb::Error),
//! }
//!
//! impl From<braiddb::Error> for TransferError {
//!     fn from(error: braiddb::Error) -> Self {
//!         TransferError::Database(error)
//!     }
//! }
//!
//! async fn withdraw(db: &Database, accounts: &Table<u64, u64>, from: u64, sum: u64) -> Result<u64, TransferError> {
//!     let accounts = accounts.clone();
//!     db.try_run(async move |tx| {
//!         let there = tx.get(&accounts, &from).await?.unwrap_or(0);
//!         let Some(left) = there.checked_sub(sum) else {
//!             return Err(TransferError::Overdrawn { missing: sum - there });
//!         };
//!         tx.put(&accounts, &from, &left).await?;
//!         Ok(left)
//!     })
//!     .await
//! }
//!
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let accounts = db.create_table("accounts").await?;
//! db.put(&accounts, &7, &100).await?;
//! assert_eq!(withdraw(&db, &accounts, 7, 60).await?, 40);
//! let refused = withdraw(&db, &accounts, 7, 60).await;
//! assert!(matches!(refused, Err(TransferError::Overdrawn { missing: 20 })));
//! # Ok::<_, TransferError>(()) }).unwrap();
//! ```
//!
//! Three errors of the engine deserve an arm of their own in a service:
//! [`Error::Conflict`](crate::Error::Conflict) and [`Error::NotSerializable`](crate::Error::NotSerializable) come
//! after many attempts, and mean "too much at once on the same records"; try later.
//! [`Error::CommitUnknown`](crate::Error::CommitUnknown) means that the disk failed during the commit: the
//! transaction may be there after the next opening, so look before you repeat it.
//!
//! # Pages of results
//!
//! A page is a scan with a limit, from just behind the last key of the page before. It holds nothing between
//! requests, and sees what was committed in between.
//!
//! ```
//! use std::ops::Bound;
//!
//! use braiddb::{Database, Error, Options, Table};
//!
//! async fn page(
//!     db: &Database,
//!     names: &Table<str, u64>,
//!     after: Option<String>,
//!     size: u64,
//! ) -> Result<Vec<(String, u64)>, Error> {
//!     let names = names.clone();
//!     db.run(async move |tx| {
//!         let low = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
//!         let (mut scan, mut page) = (tx.scan(&names, (low, Bound::Unbounded))?.limit(size), Vec::new());
//!         while let Some((name, value)) = scan.next().await? {
//!             page.push((name, value));
//!         }
//!         Ok(page)
//!     })
//!     .await
//! }
//!
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let names: Table<str, u64> = db.create_table("names").await?;
//! for (number, name) in ["ada", "ben", "cleo"].into_iter().enumerate() {
//!     db.put(&names, name, &(number as u64)).await?;
//! }
//! let first = page(&db, &names, None, 2).await?;
//! assert_eq!(first.last().map(|(name, _)| name.as_str()), Some("ben"));
//! let second = page(&db, &names, Some("ben".to_owned()), 2).await?;
//! assert_eq!(second, [("cleo".to_owned(), 2)]);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! # Keys of your own types
//!
//! Tuples need nothing: `Table<(u64, String), V>` is ordered by the number, then by the text; as `Table<(u64, &str), V>` it
//! is asked by borrowed texts ([`TableKey`](crate::TableKey)). Enums and
//! structs of your own derive [`Key`](derive@crate::Key), with a name that never changes, for the catalog has it:
//!
//! ```
//! use braiddb::{Database, Error, Key, Options, Table};
//!
//! #[derive(Key, Clone, Copy, Debug, PartialEq)]
//! #[key(name = "shop.queue")]
//! enum Queue {
//!     Urgent,
//!     Normal,
//! }
//!
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let jobs: Table<(Queue, u64), str> = db.create_table("jobs").await?;
//! db.put(&jobs, &(Queue::Normal, 1), "sweep").await?;
//! db.put(&jobs, &(Queue::Urgent, 2), "mend").await?;
//! let next = db.run(async move |tx| Ok(tx.first(&jobs).await?.map(|(key, _)| key))).await?;
//! assert_eq!(next, Some((Queue::Urgent, 2)));
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! Variants compare in the order in which they are written, and more of them may be added at the end. Numbers after `=`,
//! as Rust has them, leave room between variants, and let one go without moving those after it. The fields of a variant
//! must not change, and nobody can tell if they do; [what is stored, and what may change](derive@crate::Key) says all of it.
//! Before you turn a tuple into a struct: tables are of the one or the other, and only tuples are scanned by their first
//! parts and looked up by borrowed ones. What `derive` cannot do, generic types above all, implements the
//! [trait](trait@crate::Key) by hand: it encodes its parts in the order in which they are to compare. What a table relies on
//! then is for a test of yours: `keeps_the_contract` here fits any type.
//!
//! ```
//! use std::marker::PhantomData;
//!
//! use braiddb::{Database, DecodeError, Error, Key, KeyBuffer, Options, Table};
//!
//! /// The number of a `T`, which no number of anything else is taken for.
//! struct Id<T>(u64, PhantomData<fn() -> T>);
//!
//! impl<T: 'static> Key for Id<T> {
//!     type Owned = Self;
//!
//!     fn type_name() -> String {
//!         "shop.id".to_owned()
//!     }
//!
//!     fn encode(&self, out: &mut KeyBuffer) {
//!         self.0.encode(out);
//!     }
//!
//!     fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
//!         Ok(Id(u64::decode(bytes)?, PhantomData))
//!     }
//!
//!     fn decode_part(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
//!         let (number, rest) = u64::decode_part(bytes)?;
//!         Ok((Id(number, PhantomData), rest))
//!     }
//! }
//!
//! /// `keys` are all different, and in their order; none is encoded by `wrong`.
//! fn keeps_the_contract<K: Key>(keys: &[K], same: fn(&K, &K::Owned) -> bool, wrong: &[u8]) {
//!     let whole = |key: &K| {
//!         let mut bytes = KeyBuffer::new();
//!         key.encode(&mut bytes);
//!         bytes
//!     };
//!     // As in a tuple, where something follows.
//!     let before = |key: &K, next: u8| {
//!         let mut bytes = KeyBuffer::new();
//!         key.encode_part(&mut bytes);
//!         bytes.push(next);
//!         bytes
//!     };
//!     for pair in keys.windows(2) {
//!         assert!(whole(&pair[0]) < whole(&pair[1]), "encodings compare as keys do");
//!         assert!(before(&pair[0], 255) < before(&pair[1], 0), "whatever follows");
//!     }
//!     for key in keys {
//!         assert!(K::decode(&whole(key)).is_ok_and(|found| same(key, &found)), "and are decoded");
//!         let part = before(key, 7);
//!         let (found, rest) = K::decode_part(&part).unwrap();
//!         assert!(same(key, &found) && rest == [7], "a part takes its own bytes");
//!     }
//!     assert!(K::decode(wrong).is_err(), "what is no key is told");
//! }
//!
//! struct Article;
//! let ids = [0, 1, 255, 256, u64::MAX].map(|number| Id::<Article>(number, PhantomData));
//! keeps_the_contract(&ids, |one, other| one.0 == other.0, b"seven");
//!
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let stock: Table<(Id<Article>, u64), u64> = db.create_table("stock").await?;
//! db.put(&stock, &(Id(7, PhantomData), 1), &40).await?;
//! assert_eq!(db.get(&stock, &(Id(7, PhantomData), 1)).await?, Some(40));
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! # Types that change
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
//! `#[serde(default)]` and no version, at the price of larger records. Of the struct that is stored, though not of those
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
//!
//! # Conditional writes without a transaction of your own
//!
//! [`Database::fetch_update`](crate::Database::fetch_update), [`compare_and_set`](crate::Database::compare_and_set) and
//! [`update_with`](crate::Database::update_with) read and write in one call and one transaction, as
//! [`Transaction`](crate::Transaction) does within a larger one. [`scan`](crate::Database::scan),
//! [`first`](crate::Database::first), [`count`](crate::Database::count) and
//! [`delete_range`](crate::Database::delete_range) are of several records.
//!
//! # tokio, and other executors
//!
//! Futures of Braid need no runtime: any executor polls them. Where a closure awaits something of tokio's (a
//! timer, a channel, a client), Braid enters the runtime that called `run` while it polls the closure. A
//! closure that waits for something outside keeps its transaction open, and what it wrote locked against other
//! writers: wait before the transaction, or after it, where you can.
//!
//! ```
//! use std::time::Duration;
//!
//! use braiddb::{Database, Error, Options, Table};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Error> {
//!     let db = Database::in_memory(Options::default().workers(1))?;
//!     let visits: Table<str, u64> = db.create_table("visits").await?;
//!     // Many at once, from tasks of tokio's; each awaits its own commit, and holds no thread meanwhile.
//!     let mut tasks = tokio::task::JoinSet::new();
//!     for _ in 0..10 {
//!         let (db, visits) = (db.clone(), visits.clone());
//!         tasks.spawn(async move {
//!             let more = |count: Option<u64>| Some(count.unwrap_or(0) + 1);
//!             db.fetch_update(&visits, "home", more).await
//!         });
//!     }
//!     while let Some(done) = tasks.join_next().await {
//!         done.expect("it does not panic")?;
//!     }
//!     // What is of tokio's works within a transaction too.
//!     let count = db
//!         .run(async move |tx| {
//!             tokio::time::sleep(Duration::from_millis(1)).await;
//!             tx.get(&visits, "home").await
//!         })
//!         .await?;
//!     assert_eq!(count, Some(10));
//!     // Waits for what is under way: off the threads on which tokio runs its tasks.
//!     tokio::task::spawn_blocking(move || db.close()).await.expect("it does not panic")
//! }
//! ```
//!
//! A closure that *blocks* (`std::thread::sleep`, a blocking client, long computation) stops its worker, and
//! everything that worker has begun. Do that before the transaction, or on a thread for it. What was sent to the worker
//! and has not begun is taken over by another one within some 20 ms ([`WorkerStats::taken_over`](crate::WorkerStats)).
//! The longest time for which a worker did nothing else is in its statistics
//! ([`WorkerStats::longest_stretch`](crate::WorkerStats)), and `tracing` warns of half a second, once.
//!
//! # Cancellation
//!
//! A future that is dropped before it is ready aborts its transaction, unless the commit was decided already: the
//! caller who no longer waits cannot know which. `tokio::time::timeout(limit, db.run(...))` is how a request gets a
//! deadline; whoever must know what became of it writes a record of its own in the transaction (a request's number, say),
//! and looks for it.
//!
//! ```
//! use std::time::Duration;
//!
//! use braiddb::{Database, Error, Options, Table};
//! use tokio::time::timeout;
//!
//! #[derive(Clone)]
//! struct Bank {
//!     db: Database,
//!     balances: Table<u64, u64>,
//!     /// The requests that were carried out, by their numbers.
//!     paid: Table<u64, u64>,
//! }
//!
//! impl Bank {
//!     /// Pays in, once, however often a request is sent; `false` if it was carried out before.
//!     async fn pay_in(&self, request: u64, account: u64, cents: u64) -> Result<bool, Error> {
//!         let bank = self.clone();
//!         self.db
//!             .run(async move |tx| {
//!                 match tx.insert(&bank.paid, &request, &cents).await {
//!                     Err(Error::KeyExists) => return Ok(false),
//!                     inserted => inserted?,
//!                 }
//!                 let more = |there: Option<u64>| Some(there.unwrap_or(0) + cents);
//!                 tx.fetch_update(&bank.balances, &account, more).await?;
//!                 Ok(true)
//!             })
//!             .await
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Error> {
//!     let db = Database::in_memory(Options::default().workers(1))?;
//!     let balances = db.create_table("balances").await?;
//!     let bank = Bank { paid: db.create_table("paid").await?, balances, db };
//!     // Whether this one was in time or not, the next one knows.
//!     _ = timeout(Duration::from_micros(1), bank.pay_in(1, 7, 100)).await;
//!     bank.pay_in(1, 7, 100).await?;
//!     assert_eq!(bank.db.get(&bank.balances, &7).await?, Some(100));
//!
//!     // What is given up before it ends has not happened.
//!     let within = bank.clone();
//!     let given_up = bank.db.run(async move |tx| {
//!         tx.put(&within.balances, &7, &0).await?;
//!         std::future::pending::<Result<(), Error>>().await
//!     });
//!     assert!(timeout(Duration::from_millis(1), given_up).await.is_err());
//!     assert_eq!(bank.db.get(&bank.balances, &7).await?, Some(100));
//!     Ok(())
//! }
//! ```
//!
//! # Transactions that span requests
//!
//! [`Database::begin`](crate::Database::begin) gives a transaction whose steps come one by one, from any thread:
//! a session may keep it from request to request. It is aborted when it is dropped, when it waits longer for a step
//! than [`Options::interactive_idle`](crate::Options::interactive_idle), and when it is older than
//! [`Options::interactive_age`](crate::Options::interactive_age).
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
//!
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let carts: Table<str, u64> = db.create_table("carts").await?;
//! let session = db.begin().await?;
//! session.put(&carts, "ada", &1).await?;
//! // Another request of the same session.
//! assert_eq!(session.get(&carts, "ada").await?, Some(1));
//! session.commit().await?;
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! Nothing is tried again by itself here: on [`Error::Conflict`](crate::Error::Conflict) begin anew.
//!
//! # Snapshots
//!
//! [`Database::snapshot`](crate::Database::snapshot) is for what reads for long, or in several places, and must see one
//! state: a report, an export, a check. It costs one older version of each record that is changed while it is held.
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
//!
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let orders: Table<u64, u64> = db.create_table("orders").await?;
//! db.put(&orders, &1, &250).await?;
//! let snapshot = db.snapshot().await?;
//! db.delete(&orders, &1).await?;
//! let total = snapshot
//!     .run(async move |tx| {
//!         let (mut scan, mut total) = (tx.scan(&orders, ..)?, 0);
//!         while let Some((_, cents)) = scan.next().await? {
//!             total += cents;
//!         }
//!         Ok(total)
//!     })
//!     .await?;
//! assert_eq!(total, 250);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! # Reading a database that a service has open
//!
//! [`Database::open_read_only`](crate::Database::open_read_only) opens it in another process, for a report or an export, and
//! takes nothing from the service. It shows the database as it was when it was opened.
//!
//! # Following what is committed
//!
//! [`Database::changes`](crate::Database::changes) is a stream of whole transactions, in the order of their commits: for an index
//! elsewhere, a cache that is to be emptied, a queue. Its tokens say where to go on after a restart, and a slot keeps the log until
//! then ([`Database::create_change_slot`](crate::Database::create_change_slot)).
//!
//! # Watching a database
//!
//! [`Database::stats`](crate::Database::stats) counts what happened and how full everything is. A database is open in one
//! process at a time; so that others can watch it, the program writes the figures to a file now and then, and
//! `braid top --from FILE` shows them on a live screen:
//!
//! ```
//! use std::path::Path;
//! use std::{fs, io};
//!
//! use braiddb::{Database, Error, Options};
//!
//! /// To be called every second, say, by a thread or a task of the program.
//! fn write_statistics(db: &Database, file: &Path) -> io::Result<()> {
//!     let unfinished = file.with_extension("unfinished");
//!     fs::write(&unfinished, serde_json::to_vec(&db.stats())?)?;
//!     fs::rename(unfinished, file)
//! }
//!
//! let db = Database::in_memory(Options::default().workers(1))?;
//! db.run_blocking(async |tx| tx.tables().await)?;
//! # let directory = tempfile::tempdir().unwrap();
//! # let file = directory.path().join("statistics.json");
//! write_statistics(&db, &file).unwrap();
//! # let read: braiddb::Stats = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
//! # assert_eq!((read.committed, read.workers.len()), (1, 1));
//! # Ok::<_, Error>(())
//! ```
//!
//! # Shutting down
//!
//! [`Database::close`](crate::Database::close) refuses new transactions, lets those that run come to their end,
//! writes what is left, and gives the directory free. If nobody calls it, dropping the last handle does the same
//! without telling what failed; a process that is killed loses nothing that was acknowledged.
