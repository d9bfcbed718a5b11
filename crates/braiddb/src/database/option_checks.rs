//! Setters and checks of options.

use std::ops::RangeInclusive;

/// Implements one setter per field, which returns the changed value.
macro_rules! setters {
    ($owner:ident: $($field:ident: $kind:ty),* $(,)?) => {
        impl $owner {
            $(
                #[doc = concat!("Sets [`", stringify!($owner), "::", stringify!($field), "`].")]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
pub(super) use setters;

/// Checks a number against its range; the message names `default` as a remedy.
pub(super) fn check_range(
    option: &str,
    value: u64,
    range: RangeInclusive<u64>,
    default: &str,
) -> Result<(), String> {
    if range.contains(&value) {
        return Ok(());
    }
    let allowed = match (*range.start(), *range.end()) {
        (low, u64::MAX) => format!("{low} or more"),
        (low, high) => format!("between {low} and {high}"),
    };
    Err(refused(option, value, &allowed, default))
}

/// Message for a value outside its range.
pub(super) fn refused(
    option: &str,
    value: impl std::fmt::Display,
    allowed: &str,
    default: &str,
) -> String {
    format!("{option} is {value}, but must be {allowed}; the default is {default}")
}
