//! The scale of a measurement: how many records, how long, how often; as arguments and as settings.

pub mod arguments;
pub mod count;
pub mod whole;
