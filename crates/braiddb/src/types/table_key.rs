//! What keys of tables are given as: keys, and tuples some of whose texts and bytes are borrowed.

use super::buffer::KeyBuffer;
use super::error::DecodeError;
use super::key::Key;

/// A type by which the records of a table are asked for: every [`Key`], and tuples of up to four parts in which `&str`
/// stands for a text and `&[u8]` for bytes, so that nobody need own a text to look something up by it. What is stored is
/// the same: a table that was made with keys of type `(String, u64)` is one of `(&str, u64)` too.
///
/// ```
/// use braiddb::{Database, Error, Options, Table};
///
/// # pollster::block_on(async {
/// let db = Database::in_memory(Options::default().workers(1))?;
/// // As in `static`s and structs, where lifetimes are written: `Table<(&'static str, u64), u64>`.
/// let sold: Table<(&str, u64), u64> = db.create_table("sold").await?;
/// let region = String::from("eu");
/// let pieces = db
///     .run(async move |tx| {
///         tx.put(&sold, &(&region, 7), &40).await?;
///         tx.put(&sold, &(&region, 8), &2).await?;
///         let (mut scan, mut pieces) = (tx.scan(&sold, (&*region, 7)..(&*region, 9))?, 0);
///         while let Some(((_region, _day), count)) = scan.next().await? {
///             pieces += count;
///         }
///         Ok(pieces)
///     })
///     .await?;
/// assert_eq!(pieces, 42);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
///
/// Where keys are taken from the program's own code rather than looked up, in [`Database::stage_table`](crate::Database::stage_table), its loads, and the
/// functions that give an index its keys ([`IndexKeys::push_borrowed`](crate::IndexKeys::push_borrowed) but for these), they
/// are owned. A handle with keys that are owned gives one with keys that are borrowed: [`Table::borrowed`](crate::Table::borrowed).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a table's key",
    label = "not a key",
    note = "text and bytes that are borrowed are given as what they borrow: `str` for `&str`, `[u8]` for `&[u8]`",
    note = "keys are what implements `Key`; in tuples of up to four parts texts and bytes may be borrowed: `(&str, u64)`",
    note = "for an enum or a struct of your own: `#[derive(braiddb::Key)]` with `#[key(name = \"...\")]`"
)]
pub trait TableKey: Sealed {
    /// The keys that are stored.
    type Stored: Key<Owned = Self::Decoded> + ?Sized;

    /// What a stored key decodes to.
    type Decoded: Send + 'static;

    /// Appends the encoding, which is that of the stored key.
    #[doc(hidden)]
    fn encode_key(&self, out: &mut KeyBuffer);

    /// Appends the encoding for a place before the last of a tuple.
    #[doc(hidden)]
    fn encode_key_part(&self, out: &mut KeyBuffer);

    /// The name by which the catalog knows the stored keys.
    #[doc(hidden)]
    fn key_type_name() -> String {
        Self::Stored::type_name()
    }

    /// The stored key that `bytes` encode.
    #[doc(hidden)]
    #[inline(always)]
    fn decode_key(bytes: &[u8]) -> Result<Self::Decoded, DecodeError> {
        Self::Stored::decode(bytes)
    }
}

/// Keeps other types from being table keys: what they encode must be what the stored keys' type decodes.
pub trait Sealed {}

impl<K: Key + ?Sized> Sealed for K {}

impl<K: Key + ?Sized> TableKey for K {
    type Stored = K;
    type Decoded = K::Owned;

    #[inline(always)]
    fn encode_key(&self, out: &mut KeyBuffer) {
        self.encode(out);
    }

    #[inline(always)]
    fn encode_key_part(&self, out: &mut KeyBuffer) {
        self.encode_part(out);
    }
}

/// A part of a tuple by which records are asked for: a key, or a borrowed text, or borrowed bytes.
pub trait KeyPart {
    /// Appends the encoding for a place before the last.
    fn encode_before(&self, out: &mut KeyBuffer);

    /// Appends the encoding for the last place.
    fn encode_last(&self, out: &mut KeyBuffer);
}

impl<K: Key> KeyPart for K {
    #[inline]
    fn encode_before(&self, out: &mut KeyBuffer) {
        self.encode_part(out);
    }

    #[inline]
    fn encode_last(&self, out: &mut KeyBuffer) {
        self.encode(out);
    }
}

macro_rules! borrowed_parts {
    ($($borrowed:ty),*) => {$(
        impl KeyPart for &$borrowed {
            #[inline]
            fn encode_before(&self, out: &mut KeyBuffer) {
                (**self).encode_part(out);
            }

            #[inline]
            fn encode_last(&self, out: &mut KeyBuffer) {
                (**self).encode(out);
            }
        }
    )*};
}

borrowed_parts!(str, [u8]);

/// Implementations for all tuples of so many parts each of which is a key, `&str` or `&[u8]`, but for those of keys
/// only, which are keys themselves. One for parts of any of the three kinds would, as the compiler sees it, be a
/// second one for these.
macro_rules! borrowed_tuples {
    // The last part.
    (@ $kind:ident [$($key:ident)*] [$($done:tt)*] ($name:ident $place:tt)) => {
        borrowed_tuples!(@impl $kind [$($key)* $name] [$($done)*] ($name as $name, $place));
        borrowed_tuples!(@impl borrowed [$($key)*] [$($done)*] (&str as String, $place));
        borrowed_tuples!(@impl borrowed [$($key)*] [$($done)*] (&[u8] as Vec<u8>, $place));
    };
    (@ $kind:ident [$($key:ident)*] [$($done:tt)*] ($name:ident $place:tt) $($more:tt)+) => {
        borrowed_tuples!(@ $kind [$($key)* $name] [$($done)* ($name as $name, $place)] $($more)+);
        borrowed_tuples!(@ borrowed [$($key)*] [$($done)* (&str as String, $place)] $($more)+);
        borrowed_tuples!(@ borrowed [$($key)*] [$($done)* (&[u8] as Vec<u8>, $place)] $($more)+);
    };
    (@impl owned $($rest:tt)*) => {};
    (@impl borrowed [$($key:ident)*] [$(($part:ty as $stored:ty, $place:tt))*]
        ($last:ty as $last_stored:ty, $last_place:tt)
    ) => {
        #[doc(hidden)]
        impl<$($key: Key),*> Sealed for ($($part,)* $last,) {}

        #[doc(hidden)]
        impl<$($key: Key),*> TableKey for ($($part,)* $last,) {
            type Stored = ($($stored,)* $last_stored,);
            type Decoded = <Self::Stored as Key>::Owned;

            #[inline]
            fn encode_key(&self, out: &mut KeyBuffer) {
                $(self.$place.encode_before(out);)*
                self.$last_place.encode_last(out);
            }

            #[inline]
            fn encode_key_part(&self, out: &mut KeyBuffer) {
                $(self.$place.encode_before(out);)*
                self.$last_place.encode_before(out);
            }
        }
    };
}

borrowed_tuples!(@ owned [] [] (A 0));
borrowed_tuples!(@ owned [] [] (A 0) (B 1));
borrowed_tuples!(@ owned [] [] (A 0) (B 1) (C 2));
borrowed_tuples!(@ owned [] [] (A 0) (B 1) (C 2) (D 3));
