//! Tuples of keys: encoded part by part, the last one plainly.

use super::buffer::KeyBuffer;
use super::error::DecodeError;
use super::key::Key;

macro_rules! tuples {
    ($(($($part:ident $place:tt),*; $last:ident $last_place:tt);)*) => {$(
        impl<$($part: Key,)* $last: Key> Key for ($($part,)* $last,) {
            type Owned = ($($part::Owned,)* $last::Owned,);

            fn type_name() -> String {
                let parts = [$($part::type_name(),)* $last::type_name()];
                format!("({})", parts.join(", "))
            }

            fn encode(&self, out: &mut KeyBuffer) {
                $(self.$place.encode_part(out);)*
                self.$last_place.encode(out);
            }

            fn decode(bytes: &[u8]) -> Result<Self::Owned, DecodeError> {
                let rest = bytes;
                $(
                    #[expect(non_snake_case, reason = "named after its type parameter")]
                    let ($part, rest) = $part::decode_part(rest)?;
                )*
                Ok(($($part,)* $last::decode(rest)?,))
            }

            fn shown(key: &Self::Owned) -> Option<String> {
                let parts = [$($part::shown(&key.$place)?,)* $last::shown(&key.$last_place)?];
                Some(match &parts[..] {
                    [one] => format!("({one},)"),
                    parts => format!("({})", parts.join(", ")),
                })
            }

            fn encode_part(&self, out: &mut KeyBuffer) {
                $(self.$place.encode_part(out);)*
                self.$last_place.encode_part(out);
            }

            fn decode_part(bytes: &[u8]) -> Result<(Self::Owned, &[u8]), DecodeError> {
                let rest = bytes;
                $(
                    #[expect(non_snake_case, reason = "named after its type parameter")]
                    let ($part, rest) = $part::decode_part(rest)?;
                )*
                let (last, rest) = $last::decode_part(rest)?;
                Ok((($($part,)* last,), rest))
            }
        }
    )*};
}

tuples! {
    (; A 0);
    (A 0; B 1);
    (A 0, B 1; C 2);
    (A 0, B 1, C 2; D 3);
    (A 0, B 1, C 2, D 3; E 4);
    (A 0, B 1, C 2, D 3, E 4; F 5);
}
