//! Integers. As keys: big-endian, the sign bit of signed ones flipped, so that bytes compare as
//! numbers do. As values: little-endian.

use super::buffer::KeyBuffer;
use super::error::{DecodeError, EncodeError};
use super::key::{Key, split};
use super::value::{EncodedValue, Value};

macro_rules! integers {
    ($($integer:ty, $unsigned:ty, $flip:expr;)*) => {$(
        impl Key for $integer {
            type Owned = $integer;

            fn type_name() -> String {
                stringify!($integer).to_owned()
            }

            #[inline(always)]
            fn encode(&self, out: &mut KeyBuffer) {
                out.extend_from_array((*self as $unsigned ^ $flip).to_be_bytes());
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<$integer, DecodeError> {
                let bytes = bytes.try_into();
                let bytes = bytes.map_err(|_| DecodeError::new(<Self as Key>::type_name()))?;
                Ok((<$unsigned>::from_be_bytes(bytes) ^ $flip) as $integer)
            }

            fn shown(key: &$integer) -> Option<String> {
                Some(key.to_string())
            }

            fn decode_part(bytes: &[u8]) -> Result<($integer, &[u8]), DecodeError> {
                let (part, rest) = split(bytes, <Self as Key>::type_name)?;
                Ok(((<$unsigned>::from_be_bytes(part) ^ $flip) as $integer, rest))
            }
        }

        impl Value for $integer {
            type Input = $integer;
            type Ref<'a> = $integer;
            type Owned = $integer;

            fn type_name() -> String {
                stringify!($integer).to_owned()
            }

            #[inline]
            fn encode(input: &$integer) -> Result<EncodedValue<'_>, EncodeError> {
                Ok(EncodedValue::small(&input.to_le_bytes()))
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<$integer, DecodeError> {
                let bytes = bytes.try_into();
                let bytes = bytes.map_err(|_| DecodeError::new(stringify!($integer)))?;
                Ok(<$integer>::from_le_bytes(bytes))
            }

            #[inline]
            fn decode_kept<'a>(
                bytes: &[u8],
                _keep: impl FnOnce() -> &'a [u8],
            ) -> Result<$integer, DecodeError> {
                <Self as Value>::decode(bytes)
            }

            fn into_owned(value: $integer) -> $integer {
                value
            }
        }
    )*};
}

integers! {
    u8, u8, 0;
    u16, u16, 0;
    u32, u32, 0;
    u64, u64, 0;
    u128, u128, 0;
    i8, u8, 1 << 7;
    i16, u16, 1 << 15;
    i32, u32, 1 << 31;
    i64, u64, 1 << 63;
    i128, u128, 1 << 127;
}
