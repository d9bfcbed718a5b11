//! What the compiler says about programs that do not compile: that it names what is missing, and what to do.
//!
//! `TRYBUILD=overwrite cargo test -p braiddb --test messages` writes what it says now, to be read before it is kept.

#[test]
fn what_does_not_compile_is_told_with_a_remedy() {
    trybuild::TestCases::new().compile_fail("tests/messages/*.rs");
}
