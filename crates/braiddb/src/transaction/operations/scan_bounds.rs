//! Bounds and direction of a scan.

use std::ops::Bound;

use crate::types::KeyBuffer;

/// The key bounds of a scan.
#[derive(Clone, Debug)]
pub(crate) struct ScanBounds {
    pub(crate) low: Bound<KeyBuffer>,
    pub(crate) high: Bound<KeyBuffer>,
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Reverse,
}

/// Converts a bound on a buffer to a bound on its bytes.
pub(super) fn as_bytes(bound: &Bound<KeyBuffer>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}
