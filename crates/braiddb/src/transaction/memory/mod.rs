//! Memory: the budget and its shares, garbage, and recent commits to paged tables, which
//! certification searches until they are collected.
//!
//! May import no other room.

pub(super) mod budget;
mod examined_queue;
pub(super) mod garbage;
pub(super) mod memory_watch;
pub(super) mod page_share;
pub(super) mod recent_commits;
