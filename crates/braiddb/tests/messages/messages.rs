//! Tests the compiler's messages for wrong programs: they must name the missing part and the
//! remedy. They are a package with few dependencies, because all of them are checked a second time.
//!
//! `TRYBUILD=overwrite cargo test -p braiddb-messages` updates the expected messages;
//! review them before you commit them.

#[path = "../common/mod.rs"]
mod common;

use common::with_limit;

/// Far more than the time to check the crate and its dependencies on a loaded machine.
const LIMIT_SECONDS: u64 = 900;

#[test]
fn compiler_messages_for_wrong_programs_state_the_remedy() {
    with_limit(LIMIT_SECONDS, |_| {
        trybuild::TestCases::new().compile_fail("programs/*.rs");
    });
}
