//! The scale of a measurement: how many records, how long, how often; as arguments and as settings.

pub(crate) mod arguments;
pub(crate) mod count;
