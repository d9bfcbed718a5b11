//! Pages: records and index of tables that may exceed memory (`docs/paged.md`).
//!
//! A page is found by its id, which one word leads to the frame that holds it (`map`, `frame`, `space`);
//! what is on it is in `layout`, and `tree` makes maps of pages.

#![expect(
    dead_code,
    reason = "no table is paged yet: tests alone reach this layer, and not all of it"
)]

mod error;
mod frame;
mod layout;
mod map;
mod space;
mod tree;
mod versions;
