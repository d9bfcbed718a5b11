//! Keys of types from other crates, each behind a feature with the crate's name.

use super::buffer::KeyBuffer;
use super::error::DecodeError;
use super::key::{Key, decode_whole};

/// Implements a key that is stored as another one.
macro_rules! stored_as {
    ($($key:ty as $stored:ty, $name:literal, $to:expr, $from:expr;)*) => {$(
        impl Key for $key {
            type Owned = $key;

            fn type_name() -> String {
                $name.to_owned()
            }

            fn encode(&self, out: &mut KeyBuffer) {
                let stored: fn(&$key) -> $stored = $to;
                stored(self).encode(out);
            }

            fn decode(bytes: &[u8]) -> Result<$key, DecodeError> {
                decode_whole::<Self>(bytes)
            }

            fn shown(key: &$key) -> Option<String> {
                Some(key.to_string())
            }

            fn decode_part(bytes: &[u8]) -> Result<($key, &[u8]), DecodeError> {
                let (stored, rest) = <$stored>::decode_part(bytes)?;
                let from: fn($stored) -> Option<$key> = $from;
                Ok((from(stored).ok_or_else(|| DecodeError::new($name))?, rest))
            }
        }
    )*};
}

#[cfg(feature = "uuid")]
stored_as! {
    uuid::Uuid as [u8; 16], "uuid", |uuid| *uuid.as_bytes(), |bytes| Some(uuid::Uuid::from_bytes(bytes));
}

// Precise to the nanosecond; leap seconds are preserved.
#[cfg(feature = "chrono")]
stored_as! {
    chrono::DateTime<chrono::Utc> as (i64, u32), "time stamp in UTC",
        |time| (time.timestamp(), time.timestamp_subsec_nanos()),
        |(seconds, nanoseconds)| chrono::DateTime::from_timestamp(seconds, nanoseconds);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn encode(key: &impl Key) -> KeyBuffer {
        let mut buffer = KeyBuffer::new();
        key.encode(&mut buffer);
        buffer
    }

    #[cfg(feature = "uuid")]
    #[test]
    fn uuids_compare_by_their_bytes() {
        let [first, second] = [3, 7 << 100].map(uuid::Uuid::from_u128);
        assert!(encode(&first) < encode(&second));
        assert_eq!(uuid::Uuid::decode(&encode(&second)), Ok(second));
    }

    #[cfg(feature = "chrono")]
    #[test]
    fn time_stamps_compare_as_times() {
        type Time = chrono::DateTime<chrono::Utc>;
        let times = [(-1, 999_999_999), (0, 0), (0, 1), (1_700_000_000, 0)];
        let times = times.map(|(seconds, nanos)| Time::from_timestamp(seconds, nanos).unwrap());
        assert!(times.map(|time| encode(&time)).is_sorted_by(|a, b| a < b));
        assert!(times.iter().all(|time| Time::decode(&encode(time)).as_ref() == Ok(time)));
        assert!(Time::decode(&encode(&(i64::MAX, 0u32))).is_err(), "no such year");
    }
}
