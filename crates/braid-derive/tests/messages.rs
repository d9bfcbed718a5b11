//! What the compiler says about programs that do not compile: that it names what is missing, and what to do. Here, as what
//! this crate needs is soon checked once more for it.
//!
//! `TRYBUILD=overwrite cargo test -p braid-derive --test messages` writes what it says now, to be read before it is kept.

#[path = "../../braiddb/tests/common/mod.rs"]
mod common;

use common::with_limit;

/// Far more than it takes to check the crate and what it depends on, on a loaded machine.
const LIMIT_SECONDS: u64 = 900;

#[test]
fn what_does_not_compile_is_told_with_a_remedy() {
    with_limit(LIMIT_SECONDS, |_| {
        trybuild::TestCases::new().compile_fail("tests/messages/*.rs");
    });
}
