//! Encodes records as bytes: columns in the order of declaration, integers little-endian, text as a
//! two-byte length and its bytes. Decoding allocates nothing, because text has a maximum length and
//! is stored inside the record.

/// The type of a column.
pub(crate) trait Column: Sized {
    /// The maximum number of encoded bytes.
    const MAX_BYTES: usize;
    fn write(&self, out: &mut Vec<u8>);
    /// Removes a column from the front of `bytes`; returns `None` if they do not start with one.
    fn read(bytes: &mut &[u8]) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Column for $integer {
            const MAX_BYTES: usize = size_of::<Self>();

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn read(bytes: &mut &[u8]) -> Option<Self> {
                let (column, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*column))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, i16, i64);

impl<C: Column> Column for Option<C> {
    const MAX_BYTES: usize = 1 + C::MAX_BYTES;

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(column) = self {
            column.write(out);
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        match u8::read(bytes)? {
            0 => Some(None),
            1 => Some(Some(C::read(bytes)?)),
            _ => None,
        }
    }
}

impl<C: Column, const N: usize> Column for [C; N] {
    const MAX_BYTES: usize = N * C::MAX_BYTES;

    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|column| column.write(out));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut columns = [const { None }; N];
        for column in &mut columns {
            *column = Some(C::read(bytes)?);
        }
        Some(columns.map(|column| column.expect("each was read")))
    }
}

/// Text of at most `N` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text<const N: usize> {
    length: u16,
    /// The bytes of the text, followed by zeros.
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// Returns the first `N` bytes of `text`.
    pub(crate) fn of(text: &[u8]) -> Self {
        const { assert!(N <= u16::MAX as usize) };
        let text = &text[..text.len().min(N)];
        let mut bytes = [0; N];
        bytes[..text.len()].copy_from_slice(text);
        Self { length: text.len() as u16, bytes }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns the text padded with zeros. For texts without zeros the padded texts have the same
    /// order.
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

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.length.write(out);
        out.extend_from_slice(self.as_bytes());
    }

    #[inline]
    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let length = u16::read(bytes)?;
        let (text, rest) = bytes.split_at_checked(usize::from(length))?;
        *bytes = rest;
        (text.len() <= N).then(|| Self::of(text))
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

        impl $crate::workload::encoding::Column for $record {
            const MAX_BYTES: usize =
                0 $(+ <$kind as $crate::workload::encoding::Column>::MAX_BYTES)*;

            fn write(&self, out: &mut Vec<u8>) {
                use $crate::workload::encoding::Column;
                $(Column::write(&self.$column, out);)*
            }

            fn read(bytes: &mut &[u8]) -> Option<Self> {
                use $crate::workload::encoding::Column;
                Some(Self { $($column: Column::read(bytes)?,)* })
            }
        }

        impl braiddb::Value for $record {
            type Input = Self;
            type Ref<'a> = Self;
            type Owned = Self;

            fn type_name() -> String {
                $type_name.to_owned()
            }

            fn encode(input: &Self) -> Result<braiddb::EncodedValue<'_>, braiddb::EncodeError> {
                use $crate::workload::encoding::Column;
                let mut bytes = Vec::with_capacity(Self::MAX_BYTES);
                input.write(&mut bytes);
                Ok(braiddb::EncodedValue::from(bytes))
            }

            fn decode(mut bytes: &[u8]) -> Result<Self, braiddb::DecodeError> {
                use $crate::workload::encoding::Column;
                let record = Self::read(&mut bytes).filter(|_| bytes.is_empty());
                record.ok_or_else(|| braiddb::DecodeError::new(Self::type_name()))
            }

            #[inline]
            fn decode_kept<'a>(
                bytes: &[u8],
                _keep: impl FnOnce() -> &'a [u8],
            ) -> Result<Self, braiddb::DecodeError> {
                Self::decode(bytes)
            }

            fn into_owned(record: Self) -> Self {
                record
            }
        }
    )*};
}
pub(crate) use records;

#[cfg(test)]
mod tests {
    use braiddb::Value;

    use super::*;

    records! {
        Sample("test sample") {
            number: i64,
            absent: Option<u8>,
            present: Option<u64>,
            names: [Text<4>; 2],
        }
    }

    #[test]
    fn records_are_decoded_and_damaged_ones_rejected() {
        let sample = Sample {
            number: -7,
            absent: None,
            present: Some(1 << 40),
            names: [Text::of(b"ab"), Text::of(b"longer")],
        };
        let bytes = Sample::encode(&sample).unwrap().to_vec();
        assert_eq!(bytes.len(), 8 + 1 + 9 + 4 + 6);
        assert_eq!(Sample::decode(&bytes).unwrap(), sample);
        assert_eq!(sample.names[1].as_bytes(), b"long");
        for cut in 0..bytes.len() {
            assert!(Sample::decode(&bytes[..cut]).is_err(), "{cut} bytes are no record");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Sample::decode(&longer).is_err(), "trailing bytes are detected");
        assert_eq!(Text::<4>::of(b"ab").padded(), *b"ab\0\0");
    }
}
