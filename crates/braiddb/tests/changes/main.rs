//! Change feeds.

mod cancelled_wait;
#[path = "../common/mod.rs"]
mod common;
mod edges;
mod feeds;
mod past;
mod slots;
mod stress;
