//! The verbs of the command, one module each, and their common parts.

pub mod backup;
pub mod changes;
pub mod check;
pub mod checkpoint;
pub mod compact;
pub mod demo;
pub mod export;
pub mod external;
mod file_format;
pub mod generate;
pub mod import;
pub mod log;
pub mod overview;
pub mod pages;
pub mod path_error;
pub mod point;
pub mod restore;
pub mod scan;
pub mod shell;
mod statistics_file;
pub mod table;
#[cfg(feature = "top")]
pub mod top;
