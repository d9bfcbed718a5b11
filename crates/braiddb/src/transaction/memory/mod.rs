//! Memory: the budget and its shares, and garbage that waits until no transaction needs it.
//!
//! May import no other room.

pub(super) mod budget;
mod examined_queue;
pub(super) mod garbage;
pub(super) mod memory_watch;
pub(super) mod page_share;
pub(super) mod recent_commits;
