//! Pages: records and index of tables that may exceed memory (`docs/paged.md`).

#![expect(
    dead_code,
    reason = "no table is paged yet: tests alone reach this layer, and not all of it"
)]

mod layout;
mod versions;
