//! Keys in descending order.

use std::cmp::Reverse;

use super::buffer::KeyBuffer;
use super::error::DecodeError;
use super::key::Key;

/// The descending order of `K`, also as a part of a tuple: a `Table<(u64, Reverse<u64>), _>` lists
/// the newest events of each user first.
impl<K: Key> Key for Reverse<K> {
    type Owned = Reverse<K::Owned>;

    fn type_name() -> String {
        format!("Reverse<{}>", K::type_name())
    }

    /// Encodes the complemented bytes of a part, even in the last place. If one key is a prefix of
    /// another, the longer one must come first, and only a part marks its end.
    fn encode(&self, out: &mut KeyBuffer) {
        let start = out.len();
        self.0.encode_part(out);
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }

    fn decode(bytes: &[u8]) -> Result<Self::Owned, DecodeError> {
        match Self::decode_part(bytes)? {
            (key, []) => Ok(key),
            (_, _) => Err(DecodeError::new(Self::type_name())),
        }
    }

    fn shown(key: &Self::Owned) -> Option<String> {
        Some(format!("Reverse({})", K::shown(&key.0)?))
    }

    fn decode_part(bytes: &[u8]) -> Result<(Self::Owned, &[u8]), DecodeError> {
        let complement: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
        let (key, rest) = K::decode_part(&complement)?;
        let length = complement.len() - rest.len();
        Ok((Reverse(key), &bytes[length..]))
    }
}
