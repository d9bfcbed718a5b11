//! Floating-point keys, in the total order of IEEE 754: from -NaN over -∞, -0, +0 and +∞ to +NaN.

use super::buffer::KeyBuffer;
use super::error::DecodeError;
use super::key::{Key, decode_whole, split};

macro_rules! floats {
    ($($float:ident, $bits:ty;)*) => {$(
        impl Key for $float {
            type Owned = $float;

            fn type_name() -> String {
                stringify!($float).to_owned()
            }

            #[inline]
            fn encode(&self, out: &mut KeyBuffer) {
                // Numbers with a sign compare in reverse, and before all others.
                let bits = self.to_bits();
                let sign = 1 << (<$bits>::BITS - 1);
                let ordered = if bits & sign == 0 { bits | sign } else { !bits };
                out.extend_from_array(ordered.to_be_bytes());
            }

            fn decode(bytes: &[u8]) -> Result<$float, DecodeError> {
                decode_whole::<Self>(bytes)
            }

            fn shown(key: &$float) -> Option<String> {
                Some(key.to_string())
            }

            fn decode_part(bytes: &[u8]) -> Result<($float, &[u8]), DecodeError> {
                let (part, rest) = split(bytes, <Self as Key>::type_name)?;
                let ordered = <$bits>::from_be_bytes(part);
                let sign = 1 << (<$bits>::BITS - 1);
                let bits = if ordered & sign == 0 { !ordered } else { ordered & !sign };
                Ok(($float::from_bits(bits), rest))
            }
        }
    )*};
}

floats! {
    f32, u32;
    f64, u64;
}
