//! Change feeds.

#[path = "../common/mod.rs"]
mod common;
mod edges;
mod feeds;
mod given_up;
mod slots;
mod stress;
