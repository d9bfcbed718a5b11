//! Bare baselines: the limits of the memory system for a look-up without an engine.

pub(crate) mod hinted_lookup;
pub(crate) mod in_place;
pub(crate) mod interleave;
pub(crate) mod probing;
pub(crate) mod region;
