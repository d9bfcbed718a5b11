//! Tests the compiler's messages for wrong programs: they must name the missing part and the
//! remedy. The tests are in this crate because few dependencies need a second check for them.
//!
//! `TRYBUILD=overwrite cargo test -p braid-derive --test messages` updates the expected messages;
//! review them before you commit them.

#[path = "../../braiddb/tests/common/mod.rs"]
mod common;

use common::with_limit;

/// Far more than the time to check the crate and its dependencies on a loaded machine.
const LIMIT_SECONDS: u64 = 900;

#[test]
fn what_does_not_compile_is_told_with_a_remedy() {
    with_limit(LIMIT_SECONDS, |_| {
        trybuild::TestCases::new().compile_fail("tests/messages/*.rs");
    });
}
