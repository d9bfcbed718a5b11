//! Typed keys and values: the mapping between Rust types and the bytes in tables.

mod buffer;
pub(crate) mod checksum;
mod error;
#[cfg(any(feature = "json", feature = "messagepack"))]
mod fields;
mod float;
#[cfg(any(feature = "chrono", feature = "uuid"))]
mod foreign;
mod integer;
mod key;
mod on_disk;
mod prefix;
mod reverse;
mod scanned_record;
mod schema;
mod serde_formats;
mod shape;
mod table_key;
#[cfg(all(test, not(loom)))]
mod tests;
mod tuple;
mod value;
mod value_shape;

pub use buffer::KeyBuffer;
pub use error::{DecodeError, EncodeError};
pub use key::Key;
pub(crate) use on_disk::{OnDisk, U16, U32, U64, on_disk};
pub use prefix::KeyPrefix;
pub(crate) use scanned_record::{SHORT_KEY_BYTES, ScannedRecord};
pub use schema::Schema;
#[cfg(feature = "json")]
pub use serde_formats::Json;
#[cfg(feature = "messagepack")]
pub use serde_formats::MessagePack;
pub use serde_formats::Postcard;
pub use table_key::TableKey;
pub use value::{EncodedValue, Value};
pub use value_shape::ValueShape;
