//! Finding records by other keys than their own.
//!
//! An index has a function that receives each written value and pushes its index keys: none, one or
//! several. The function is code and is not stored. So a program *attaches* its indexes after each
//! opening, before it writes, with the same call that creates them. Until then, all writes to the
//! table, also deletions, fail with [`IndexError::Detached`](crate::IndexError).
//!
//! | wanted | call |
//! |---|---|
//! | records in a range of index keys | [`scan_by`](crate::Transaction::scan_by) |
//! | records whose text key has a prefix | [`scan_prefix_by`](crate::Transaction::scan_prefix_by) |
//! | the record with a key of a unique index | [`get_by`](crate::Transaction::get_by) |
//! | only index keys and record keys | [`entries_by`](crate::Transaction::entries_by) |
//!
//! A range over text has bounds of type `String`. A key that consists of several fields is a tuple;
//! its order is that of the fields. The function pushes a `str`, so a field of type `String` is
//! pushed as `&*user.city`.
//!
//! This program needs `cargo add serde --features derive`:
//!
//! ```
//! use braiddb::{Database, Error, IndexOptions, Options, Postcard, Schema, Table, block_on};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct User {
//!     email: String,
//!     city: String,
//!     age: u32,
//! }
//!
//! impl Schema for User {
//!     const NAME: &'static str = "user";
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let users: Table<u64, Postcard<User>> = db.open_or_create_table("users").await?;
//!         let by_email = db
//!             .index(
//!                 &users,
//!                 "by_email",
//!                 IndexOptions::default().unique(true),
//!                 |user: User, keys| {
//!                     keys.push(&*user.email);
//!                 },
//!             )
//!             .await?;
//!         let by_city_and_age = db
//!             .index(&users, "by_city_and_age", IndexOptions::default(), |user: User, keys| {
//!                 keys.push(&(user.city, user.age));
//!             })
//!             .await?;
//!
//!         for (id, name, city, age) in
//!             [(1, "ada", "Graz", 36), (2, "bob", "Graz", 20), (3, "eva", "Linz", 41)]
//!         {
//!             let user =
//!                 User { email: format!("{name}@example.org"), city: city.to_owned(), age };
//!             db.insert(&users, &id, &user).await?;
//!         }
//!
//!         let adults_of_graz = db
//!             .run(async move |tx| {
//!                 let eva = tx.get_by(&by_email, "eva@example.org").await?;
//!                 assert_eq!(eva.map(|(id, user)| (id, user.age)), Some((3, 41)));
//!                 let graz = |age| ("Graz".to_owned(), age);
//!                 let mut scan = tx.scan_by(&by_city_and_age, graz(30)..graz(u32::MAX))?;
//!                 let mut found = Vec::new();
//!                 while let Some((_key, id, user)) = scan.next().await? {
//!                     found.push((id, user.age));
//!                 }
//!                 Ok(found)
//!             })
//!             .await?;
//!         assert_eq!(adults_of_graz, [(1, 36)]);
//!
//!         // A write that would give two records one key of a unique index has no effect.
//!         let twin =
//!             User { email: "ada@example.org".to_owned(), city: "Wels".to_owned(), age: 1 };
//!         let refused = db.insert(&users, &4, &twin).await;
//!         assert!(matches!(refused, Err(Error::UniqueViolation(_))));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! When the function changes and pushes other keys for the same value, drop the index with
//! [`drop_index`](crate::Database::drop_index) and create it again, with the next
//! [`version`](crate::IndexOptions::version), while transactions run. A program with the old function
//! then cannot attach the index by mistake.
