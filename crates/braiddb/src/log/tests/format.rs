//! The page `docs/format.md` is true.
