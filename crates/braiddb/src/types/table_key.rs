//! Key types accepted by table operations: keys, and tuples whose text and byte parts are borrowed.

use super::buffer::KeyBuffer;
use super::error::DecodeError;
use super::key::Key;

/// A type that identifies records of a table: every [`Key`], and tuples of up to four parts with
/// `&str` for text and `&[u8]` for bytes. Lookups by such tuples need no owned text. The stored
/// keys are the same: a table created with keys of type `(String, u64)` can also be opened with
/// `(&str, u64)`.
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         // As in `static`s and structs, where lifetimes are written: `Table<(&'static str, u64), u64>`.
///         let sold: Table<(&str, u64), u64> = db.create_table("sold").await?;
///         let region = String::from("eu");
///         let pieces = db
///             .run(async move |tx| {
///                 tx.put(&sold, &(&region, 7), &40).await?;
///                 tx.put(&sold, &(&region, 8), &2).await?;
///                 let (mut scan, mut pieces) = (tx.scan(&sold, (&*region, 7)..(&*region, 9))?, 0);
///                 while let Some(((_region, _day), count)) = scan.next().await? {
///                     pieces += count;
///                 }
///                 Ok(pieces)
///             })
///             .await?;
///         assert_eq!(pieces, 42);
///         Ok(())
///     })
/// }
/// ```
///
/// Operations that store keys from the program need owned keys:
/// [`Database::stage_table`](crate::Database::stage_table), its loads, and index functions (except
/// [`IndexKeys::push_borrowed`](crate::IndexKeys::push_borrowed)).
/// [`Table::borrowed`](crate::Table::borrowed) converts a handle with owned keys to one with
/// borrowed keys.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a table's key",
    label = "not a key",
    note = "text and bytes that are borrowed are given as what they borrow: `str` for `&str`, `[u8]` for `&[u8]`",
    note = "keys are what implements `Key`; in tuples of up to four parts texts and bytes may be borrowed: `(&str, u64)`",
    note = "for an enum or a struct of your own: `#[derive(braiddb::Key)]` with `#[key(name = \"...\")]`"
)]
pub trait TableKey: Sealed {
    /// The type of the stored keys.
    type Stored: Key<Owned = Self::Decoded> + ?Sized;

    /// The decoded type of a stored key.
    type Decoded: Send + 'static;

    /// Appends the encoding, which equals that of the stored key.
    #[doc(hidden)]
    fn encode_key(&self, out: &mut KeyBuffer);

    /// Appends the encoding for a place before the last of a tuple.
    #[doc(hidden)]
    fn encode_key_part(&self, out: &mut KeyBuffer);

    /// Returns the name of the stored key type in the catalog.
    #[doc(hidden)]
    fn key_type_name() -> String {
        Self::Stored::type_name()
    }

    /// Decodes the stored key from `bytes`.
    #[doc(hidden)]
    #[inline(always)]
    fn decode_key(bytes: &[u8]) -> Result<Self::Decoded, DecodeError> {
        Self::Stored::decode(bytes)
    }
}

/// Prevents other types from being table keys: their encoding must decode as the stored key type.
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

/// A part of a lookup tuple: a key, borrowed text, or borrowed bytes.
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

/// Implements the trait for all tuples of a length whose parts are keys, `&str` or `&[u8]`, except
/// those of keys only, which are keys themselves. An implementation generic over all three kinds of
/// parts would overlap with these for the compiler.
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
