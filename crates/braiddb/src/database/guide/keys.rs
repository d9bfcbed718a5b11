//! Using your own types as keys.
//!
//! Tuples are keys without further work. A `Table<(u64, String), V>` is ordered by the number, then
//! by the text. Opened as `Table<(u64, &str), V>`, it accepts borrowed text for lookups
//! ([`TableKey`](crate::TableKey)). Enums and structs derive [`Key`](derive@crate::Key). The
//! catalog stores the name of the key type, so this name must never change:
//!
//! ```
//! use braiddb::{Database, Error, Key, Options, Table, block_on};
//!
//! #[derive(Key, Clone, Copy, Debug, PartialEq)]
//! #[key(name = "shop.queue")]
//! enum Queue {
//!     Urgent,
//!     Normal,
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let jobs: Table<(Queue, u64), str> = db.create_table("jobs").await?;
//!         db.put(&jobs, &(Queue::Normal, 1), "sweep").await?;
//!         db.put(&jobs, &(Queue::Urgent, 2), "mend").await?;
//!         let next =
//!             db.run(async move |tx| Ok(tx.first(&jobs).await?.map(|(key, _)| key))).await?;
//!         assert_eq!(next, Some((Queue::Urgent, 2)));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Variants compare in declaration order, and new variants may be added at the end. Explicit
//! discriminants (`= 10`) leave room between variants and allow a variant to be removed without
//! moving later ones. The fields of a variant must not change, and the engine cannot detect if they
//! do. See [what is stored, and what may change](derive@crate::Key).
//!
//! A table has either tuple keys or struct keys, and the two cannot be exchanged. Only tuples
//! support scans by their first parts and lookups by borrowed parts.
//!
//! `derive` does not support every type; for example, it does not support generic types. For these,
//! implement the [trait](trait@crate::Key) by hand: encode the parts in the order in which they
//! compare. Test that the implementation fulfils the contract of the trait; `keeps_the_contract`
//! below fits any type.
//!
//! ```
//! use std::marker::PhantomData;
//!
//! use braiddb::{Database, DecodeError, Error, Key, KeyBuffer, Options, Table, block_on};
//!
//! /// The number of a `T`. The type distinguishes it from numbers of other things.
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
//! /// `keys` must be distinct and sorted; `wrong` must be the encoding of no key.
//! fn keeps_the_contract<K: Key>(keys: &[K], same: fn(&K, &K::Owned) -> bool, wrong: &[u8]) {
//!     let whole = |key: &K| {
//!         let mut bytes = KeyBuffer::new();
//!         key.encode(&mut bytes);
//!         bytes
//!     };
//!     // Tests the key as the first part of a tuple, with bytes after it.
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
//!         assert!(
//!             K::decode(&whole(key)).is_ok_and(|found| same(key, &found)),
//!             "every key must decode"
//!         );
//!         let part = before(key, 7);
//!         let (found, rest) = K::decode_part(&part).unwrap();
//!         assert!(same(key, &found) && rest == [7], "a part consumes only its own bytes");
//!     }
//!     assert!(K::decode(wrong).is_err(), "bytes that encode no key are rejected");
//! }
//!
//! struct Article;
//!
//! fn main() -> Result<(), Error> {
//!     let ids = [0, 1, 255, 256, u64::MAX].map(|number| Id::<Article>(number, PhantomData));
//!     keeps_the_contract(&ids, |one, other| one.0 == other.0, b"seven");
//!
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let stock: Table<(Id<Article>, u64), u64> = db.create_table("stock").await?;
//!         db.put(&stock, &(Id(7, PhantomData), 1), &40).await?;
//!         assert_eq!(db.get(&stock, &(Id(7, PhantomData), 1)).await?, Some(40));
//!         Ok(())
//!     })
//! }
//! ```
