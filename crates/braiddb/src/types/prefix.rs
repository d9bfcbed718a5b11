//! Key prefixes: of text, of bytes, and of tuples.

use super::buffer::KeyBuffer;
use super::key::escape_start;
use super::table_key::KeyPart;

/// A key type that can start with a `P`: for text and bytes a shorter one, for tuples their first
/// parts.
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let sold: Table<(u32, u32, String), u64> = db.create_table("sold").await?;
///         for (year, day, article) in
///             [(2025, 365, "nails"), (2026, 1, "glue"), (2026, 2, "nails")]
///         {
///             db.put(&sold, &(year, day, article.to_owned()), &1).await?;
///         }
///         let (in_a_year, on_a_day) = db
///             .run(async move |tx| {
///                 let in_a_year = tx.scan_prefix(&sold, &(2026,))?.count().await?;
///                 Ok((in_a_year, tx.scan_prefix(&sold, &(2026, 2))?.count().await?))
///             })
///             .await?;
///         assert_eq!((in_a_year, on_a_day), (2, 1));
///         Ok(())
///     })
/// }
/// ```
///
/// ```
/// use braiddb::{Key, KeyBuffer, KeyPrefix};
///
/// let (mut key, mut prefix) = (KeyBuffer::new(), KeyBuffer::new());
/// ("Maribor".to_owned(), 7_u64).encode(&mut key);
/// <str as KeyPrefix<str>>::encode_part_prefix("Mar", &mut prefix);
/// assert!(key.starts_with(&prefix));
/// prefix.clear();
/// <(String, u64) as KeyPrefix<(String,)>>::encode_prefix(&("Mar".to_owned(),), &mut prefix);
/// assert!(!key.starts_with(&prefix), "another text");
/// ```
#[diagnostic::on_unimplemented(
    message = "no key of type `{Self}` begins with what is given here",
    note = "keys that are texts or bytes start with `str` or `[u8]`; tuples with tuples of their first parts, as `&(7,)`"
)]
pub trait KeyPrefix<P: ?Sized> {
    /// Appends the bytes with which the encodings of exactly the keys that start with `prefix`
    /// begin.
    fn encode_prefix(prefix: &P, out: &mut KeyBuffer);

    /// Appends the same for keys in a place before the last of a tuple.
    fn encode_part_prefix(prefix: &P, out: &mut KeyBuffer) {
        Self::encode_prefix(prefix, out);
    }
}

macro_rules! slices {
    ($($key:ty, $prefix:ty, $bytes:expr;)*) => {$(
        impl KeyPrefix<$prefix> for $key {
            fn encode_prefix(prefix: &$prefix, out: &mut KeyBuffer) {
                let bytes: fn(&$prefix) -> &[u8] = $bytes;
                out.extend_from_slice(bytes(prefix));
            }

            fn encode_part_prefix(prefix: &$prefix, out: &mut KeyBuffer) {
                let bytes: fn(&$prefix) -> &[u8] = $bytes;
                escape_start(bytes(prefix), out);
            }
        }
    )*};
}

slices! {
    str, str, str::as_bytes;
    str, String, String::as_bytes;
    String, str, str::as_bytes;
    String, String, String::as_bytes;
    [u8], [u8], |bytes| bytes;
    [u8], Vec<u8>, |bytes| bytes;
    Vec<u8>, [u8], |bytes| bytes;
    Vec<u8>, Vec<u8>, |bytes| bytes;
}

macro_rules! tuples {
    ($(($($part:ident $place:tt),+; $($rest:ident),+);)*) => {$(
        impl<$($part: KeyPart,)+ $($rest,)+> KeyPrefix<($($part,)+)> for ($($part,)+ $($rest,)+) {
            fn encode_prefix(prefix: &($($part,)+), out: &mut KeyBuffer) {
                $(prefix.$place.encode_before(out);)+
            }
        }
    )*};
}

tuples! {
    (A 0; B);
    (A 0; B, C);
    (A 0, B 1; C);
    (A 0; B, C, D);
    (A 0, B 1; C, D);
    (A 0, B 1, C 2; D);
    (A 0; B, C, D, E);
    (A 0, B 1; C, D, E);
    (A 0, B 1, C 2; D, E);
    (A 0, B 1, C 2, D 3; E);
    (A 0; B, C, D, E, F);
    (A 0, B 1; C, D, E, F);
    (A 0, B 1, C 2; D, E, F);
    (A 0, B 1, C 2, D 3; E, F);
    (A 0, B 1, C 2, D 3, E 4; F);
}
