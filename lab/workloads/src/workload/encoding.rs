//! Encodes records as bytes: columns in the order of declaration, integers little-endian, text as a
//! two-byte length and its bytes.
//!
//! Reads lend the stored bytes as a [`View`], which finds and decodes single columns. Writes take an
//! [`Encoded`] record: a new one, or a copy of a read one with some columns replaced. Records with
//! all columns decoded need no allocation, because text has a maximum length and is stored inside
//! the record.

use std::marker::PhantomData;

/// The type of a column.
pub(crate) trait Column: Sized {
    /// The maximum number of encoded bytes.
    const MAX_BYTES: usize;
    /// The type that reads return; text is borrowed from the record.
    type Lent<'a>;
    fn write(&self, out: &mut Vec<u8>);
    /// Returns the end of the column that begins at `at`; returns `None` if its length is invalid.
    /// Columns of fixed size may end behind the bytes.
    fn end(bytes: &[u8], at: usize) -> Option<usize>;
    /// Reads the column that begins at `at` in a valid record.
    fn lend(bytes: &[u8], at: usize) -> Self::Lent<'_>;
    fn own(lent: Self::Lent<'_>) -> Self;

    /// Overwrites the column that begins at `at` in a valid record.
    fn replace(&self, bytes: &mut Vec<u8>, at: usize) {
        let end = Self::end(bytes, at).expect(VALID);
        let mut column = Vec::with_capacity(Self::MAX_BYTES);
        self.write(&mut column);
        bytes.splice(at..end, column);
    }
}

/// Reading checks the lengths of all columns first.
pub(crate) const VALID: &str = "decoding has checked the record";

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Column for $integer {
            const MAX_BYTES: usize = size_of::<Self>();
            type Lent<'a> = Self;

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn end(_: &[u8], at: usize) -> Option<usize> {
                Some(at + Self::MAX_BYTES)
            }

            #[inline]
            fn lend(bytes: &[u8], at: usize) -> Self {
                Self::from_le_bytes(*bytes[at..].first_chunk().expect(VALID))
            }

            #[inline]
            fn own(lent: Self) -> Self {
                lent
            }

            #[inline]
            fn replace(&self, bytes: &mut Vec<u8>, at: usize) {
                bytes[at..at + Self::MAX_BYTES].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, i16, i64);

impl<C: Column> Column for Option<C> {
    const MAX_BYTES: usize = 1 + C::MAX_BYTES;
    type Lent<'a> = Option<C::Lent<'a>>;

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(column) = self {
            column.write(out);
        }
    }

    #[inline]
    fn end(bytes: &[u8], at: usize) -> Option<usize> {
        match bytes.get(at)? {
            0 => Some(at + 1),
            1 => C::end(bytes, at + 1),
            _ => None,
        }
    }

    #[inline]
    fn lend(bytes: &[u8], at: usize) -> Option<C::Lent<'_>> {
        (bytes[at] == 1).then(|| C::lend(bytes, at + 1))
    }

    fn own(lent: Option<C::Lent<'_>>) -> Self {
        lent.map(C::own)
    }
}

impl<C: Column, const N: usize> Column for [C; N] {
    const MAX_BYTES: usize = N * C::MAX_BYTES;
    type Lent<'a> = [C::Lent<'a>; N];

    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|column| column.write(out));
    }

    #[inline]
    fn end(bytes: &[u8], at: usize) -> Option<usize> {
        (0..N).try_fold(at, |at, _| C::end(bytes, at))
    }

    #[inline]
    fn lend(bytes: &[u8], mut at: usize) -> [C::Lent<'_>; N] {
        std::array::from_fn(|_| next::<C>(bytes, &mut at))
    }

    fn own(lent: [C::Lent<'_>; N]) -> Self {
        lent.map(C::own)
    }
}

/// Reads the column that begins at `at` in a valid record, and moves `at` to its end.
#[inline]
pub(crate) fn next<'a, C: Column>(bytes: &'a [u8], at: &mut usize) -> C::Lent<'a> {
    let column = C::lend(bytes, *at);
    *at = C::end(bytes, *at).expect(VALID);
    column
}

/// Text of at most `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text<const N: usize> {
    length: u16,
    /// The bytes of the text, followed by zeros.
    bytes: [u8; N],
}

/// Returns the first `N` bytes of `text`, padded with zeros. For texts without zeros the padded
/// texts have the same order.
#[inline]
pub(crate) fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let text = &text[..text.len().min(N)];
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text);
    bytes
}

impl<const N: usize> Text<N> {
    /// Returns the first `N` bytes of `text`.
    #[inline]
    pub(crate) fn of(text: &[u8]) -> Self {
        const { assert!(N <= u16::MAX as usize) };
        Self { length: text.len().min(N) as u16, bytes: padded(text) }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns the text padded with zeros, as [`padded`].
    pub(crate) fn padded(&self) -> [u8; N] {
        self.bytes
    }
}

impl<const N: usize> std::fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl<const N: usize> Column for Text<N> {
    const MAX_BYTES: usize = 2 + N;
    type Lent<'a> = &'a [u8];

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.length.write(out);
        out.extend_from_slice(self.as_bytes());
    }

    #[inline]
    fn end(bytes: &[u8], at: usize) -> Option<usize> {
        let length = usize::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        (length <= N).then_some(at + 2 + length)
    }

    #[inline]
    fn lend(bytes: &[u8], at: usize) -> &[u8] {
        let length = u16::lend(bytes, at);
        &bytes[at + 2..][..usize::from(length)]
    }

    #[inline]
    fn own(lent: &[u8]) -> Self {
        Self::of(lent)
    }
}

/// A list of columns from the beginning of a record: `()`, or a list and one more column.
pub(crate) trait Prefix {
    /// Returns the end of the columns in a valid record.
    fn end(bytes: &[u8]) -> Option<usize>;
}

impl Prefix for () {
    #[inline]
    fn end(_: &[u8]) -> Option<usize> {
        Some(0)
    }
}

impl<P: Prefix, C: Column> Prefix for (P, C) {
    #[inline]
    fn end(bytes: &[u8]) -> Option<usize> {
        C::end(bytes, P::end(bytes)?)
    }
}

/// A record in its stored bytes, which are borrowed. It has a method for each column.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, R> {
    bytes: &'a [u8],
    record: PhantomData<fn() -> R>,
}

impl<'a, R: Column> View<'a, R> {
    /// Returns a view of `bytes`, which must be a valid record.
    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, record: PhantomData }
    }

    /// Checks the lengths of all columns.
    #[inline]
    pub(crate) fn checked(bytes: &'a [u8]) -> Option<Self> {
        (R::end(bytes, 0)? == bytes.len()).then(|| Self::of(bytes))
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the column after the columns `P`.
    #[inline]
    pub(crate) fn column<P: Prefix, C: Column>(self) -> C::Lent<'a> {
        C::lend(self.bytes, P::end(self.bytes).expect(VALID))
    }

    /// Returns a copy whose columns can be replaced.
    pub(crate) fn change(self) -> Encoded<R> {
        Encoded { bytes: self.bytes.to_vec(), record: PhantomData }
    }
}

impl<'a, R: Column<Lent<'a> = Self>> View<'a, R> {
    /// Decodes all columns.
    pub(crate) fn record(self) -> R {
        R::own(self)
    }
}

impl<'a, R: Column<Lent<'a> = Self> + std::fmt::Debug> std::fmt::Debug for View<'a, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        R::own(Self::of(self.bytes)).fmt(f)
    }
}

/// A record in its encoding. It has a method for each column, which replaces the column.
pub(crate) struct Encoded<R> {
    bytes: Vec<u8>,
    record: PhantomData<fn() -> R>,
}

impl<R: Column> Encoded<R> {
    pub(crate) fn of(record: &R) -> Self {
        let mut bytes = Vec::with_capacity(R::MAX_BYTES);
        record.write(&mut bytes);
        Self { bytes, record: PhantomData }
    }

    pub(crate) fn view(&self) -> View<'_, R> {
        View::of(&self.bytes)
    }

    /// Replaces the column after the columns `P`.
    #[inline]
    pub(crate) fn replace<P: Prefix>(mut self, column: &impl Column) -> Self {
        let at = P::end(&self.bytes).expect(VALID);
        column.replace(&mut self.bytes, at);
        self
    }
}

/// Declares records and their encoding, also as columns of other records.
macro_rules! records {
    ($(
        $(#[$about:meta])*
        $record:ident($type_name:literal) { $($(#[$what:meta])* $column:ident: $kind:ty,)* }
    )*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $record {
            $($(#[$what])* pub(crate) $column: $kind,)*
        }

        $crate::workload::encoding::columns! { $record (), $($column: $kind,)* }

        impl $crate::workload::encoding::Column for $record {
            const MAX_BYTES: usize =
                0 $(+ <$kind as $crate::workload::encoding::Column>::MAX_BYTES)*;
            type Lent<'a> = $crate::workload::encoding::View<'a, Self>;

            fn write(&self, out: &mut Vec<u8>) {
                use $crate::workload::encoding::Column;
                $(Column::write(&self.$column, out);)*
            }

            #[inline]
            fn end(bytes: &[u8], at: usize) -> Option<usize> {
                use $crate::workload::encoding::Column;
                $(let at = <$kind as Column>::end(bytes, at)?;)*
                Some(at)
            }

            #[inline]
            fn lend(bytes: &[u8], at: usize) -> Self::Lent<'_> {
                use $crate::workload::encoding::{VALID, View};
                View::of(&bytes[at..Self::end(bytes, at).expect(VALID)])
            }

            fn own(view: Self::Lent<'_>) -> Self {
                use $crate::workload::encoding::{Column, next};
                let at = &mut 0;
                Self { $($column: Column::own(next::<$kind>(view.bytes(), at)),)* }
            }
        }

        impl braiddb::Value for $record {
            type Input = $crate::workload::encoding::Encoded<Self>;
            type Ref<'a> = $crate::workload::encoding::View<'a, Self>;
            type Owned = Self;

            fn type_name() -> String {
                $type_name.to_owned()
            }

            #[inline]
            fn encode(
                input: &Self::Input,
            ) -> Result<braiddb::EncodedValue<'_>, braiddb::EncodeError> {
                Ok(braiddb::EncodedValue::from(input.view().bytes()))
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<Self::Ref<'_>, braiddb::DecodeError> {
                let view = $crate::workload::encoding::View::checked(bytes);
                view.ok_or_else(|| braiddb::DecodeError::new(Self::type_name()))
            }

            fn into_owned(view: Self::Ref<'_>) -> Self {
                view.record()
            }
        }
    )*};
}
pub(crate) use records;

/// Declares the methods of a record's views and encoded records, each with the columns before it.
macro_rules! columns {
    ($record:ident $before:ty,) => {};
    ($record:ident $before:ty, $column:ident: $kind:ty, $($rest:tt)*) => {
        #[allow(dead_code, reason = "some columns are only stored")]
        impl<'a> $crate::workload::encoding::View<'a, $record> {
            #[inline]
            pub(crate) fn $column(
                self,
            ) -> <$kind as $crate::workload::encoding::Column>::Lent<'a> {
                self.column::<$before, $kind>()
            }
        }

        #[allow(
            dead_code,
            clippy::wrong_self_convention,
            reason = "methods have the names of columns, and some columns never change"
        )]
        impl $crate::workload::encoding::Encoded<$record> {
            #[inline]
            pub(crate) fn $column(self, column: $kind) -> Self {
                self.replace::<$before>(&column)
            }
        }

        $crate::workload::encoding::columns! { $record ($before, $kind), $($rest)* }
    };
}
pub(crate) use columns;

#[cfg(test)]
mod tests {
    use braiddb::Value;

    use super::*;

    records! {
        Part("test part") {
            name: Text<4>,
            kind: u8,
        }
        Sample("test sample") {
            number: i64,
            absent: Option<u8>,
            present: Option<u64>,
            names: [Text<4>; 2],
            part: Part,
            last: u16,
        }
    }

    fn sample() -> Sample {
        Sample {
            number: -7,
            absent: None,
            present: Some(1 << 40),
            names: [Text::of(b"ab"), Text::of(b"longer")],
            part: Part { name: Text::of(b"c"), kind: 3 },
            last: 500,
        }
    }

    #[test]
    fn views_read_single_columns() {
        let sample = sample();
        let encoded = Encoded::of(&sample);
        let bytes = Sample::encode(&encoded).unwrap().to_vec();
        assert_eq!(bytes.len(), 8 + 1 + 9 + 4 + 6 + 4 + 2);
        let view = Sample::decode(&bytes).unwrap();
        assert_eq!(view.record(), sample);
        assert_eq!((view.number(), view.last()), (-7, 500));
        assert_eq!((view.absent(), view.present()), (None, Some(1 << 40)));
        assert_eq!(view.names(), [&b"ab"[..], b"long"]);
        assert_eq!((view.part().name(), view.part().kind()), (&b"c"[..], 3));
        assert_eq!(format!("{view:?}"), format!("{sample:?}"));
        assert_eq!(padded(view.names()[0]), *b"ab\0\0");
        assert_eq!(sample.names[0].padded(), *b"ab\0\0");
    }

    #[test]
    fn damaged_records_are_rejected() {
        let bytes = Sample::encode(&Encoded::of(&sample())).unwrap().to_vec();
        for cut in 0..bytes.len() {
            assert!(Sample::decode(&bytes[..cut]).is_err(), "{cut} bytes are no record");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Sample::decode(&longer).is_err(), "trailing bytes are detected");
        // The tags of the options and the lengths of the texts.
        for (place, wrong) in [(8, 2), (9, 2), (9, 0), (18, 5), (19, 1), (22, 3), (28, 5)] {
            let mut damaged = bytes.clone();
            damaged[place] = wrong;
            assert!(Sample::decode(&damaged).is_err(), "{wrong} at {place} is detected");
        }
        // Any other byte may change the record, but reading must not fail.
        for (place, byte) in (0..bytes.len()).flat_map(|place| (0..=255).map(move |to| (place, to)))
        {
            let mut damaged = bytes.clone();
            damaged[place] = byte;
            if let Ok(view) = Sample::decode(&damaged) {
                assert_eq!(Sample::encode(&Encoded::of(&view.record())).unwrap()[..], damaged);
            }
        }
    }

    #[test]
    fn columns_are_replaced_in_place() {
        let mut sample = sample();
        let changed = Encoded::of(&sample).view().change();
        let changed = changed.number(9).absent(Some(1)).present(None).last(7);
        let changed = changed.names([Text::of(b""), Text::of(b"abc")]);
        (sample.number, sample.absent, sample.present, sample.last) = (9, Some(1), None, 7);
        sample.names = [Text::of(b""), Text::of(b"abc")];
        assert_eq!(changed.view().record(), sample);
        let part = Part { name: Text::of(b"name"), kind: 4 };
        assert_eq!(changed.part(part).view().record(), Sample { part, ..sample });
    }
}
