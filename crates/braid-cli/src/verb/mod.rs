//! The verbs of the command, one a file.

pub mod backup;
pub mod check;
pub mod checkpoint;
pub mod compact;
pub mod import;
mod json_text;
pub mod log;
pub mod overview;
mod pages;
pub mod point;
mod quotes;
pub mod rows;
pub mod scan;
pub mod shell;
pub mod table;
