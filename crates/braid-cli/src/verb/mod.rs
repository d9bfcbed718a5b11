//! The verbs of the command, one a file.

pub mod backup;
pub mod check;
pub mod checkpoint;
pub mod compact;
pub mod export;
mod file_format;
pub mod generate;
pub mod import;
mod json_text;
pub mod log;
pub mod overview;
mod pages;
pub mod place;
pub mod point;
pub mod restore;
pub mod scan;
pub mod shell;
pub mod table;
pub mod top;
