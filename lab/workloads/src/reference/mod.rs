//! Bare baselines: what the memory system would allow without an engine around the lookup.

pub(crate) mod hinted_lookup;
pub(crate) mod in_place;
pub(crate) mod interleave;
pub(crate) mod probing;
pub(crate) mod region;
