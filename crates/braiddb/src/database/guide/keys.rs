//! Keys of your own types.
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
