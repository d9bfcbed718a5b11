//! Pages: records and index of tables that may exceed memory (`docs/paged.md`).
//!
//! A page is found by its id, which one word leads to the frame that holds it (`map`, `frame`, `space`);
//! what is on it is in `layout`, `tree` makes maps of pages, `versions` is what lies beside a record while
//! somebody may need it, and `table` puts all that together.

#![expect(
    dead_code,
    reason = "pages do not leave memory yet: only tests take images of them, and not all is used by them"
)]

mod error;
mod frame;
mod layout;
mod map;
mod replay;
mod space;
mod table;
mod tree;
mod versions;

pub(crate) use error::PageError;
pub(crate) use space::PageSpace;
pub(crate) use table::{Decision, Met, PagedCursor, PagedRecord, PagedTable, Written};
pub(crate) use versions::{Base, ChangeRef, LeftChain, Refusal};
