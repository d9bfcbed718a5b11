//! The scale of a measurement: number of records, duration and rounds, as arguments and as
//! settings.

pub mod arguments;
pub mod count;
pub mod whole;
