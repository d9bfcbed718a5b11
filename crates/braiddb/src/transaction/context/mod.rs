//! Context: the state of the engine, of a worker and of a transaction, which contains the state in
//! `schedule`, `memory` and `sets`. Also the begin of transactions, waits between attempts, isolation
//! and durability levels, and errors.
//!
//! May import `schedule`, `memory` and `sets`.

pub(super) mod active_transaction;
pub(super) mod admission;
pub(super) mod back_off;
mod begin_stamps;
pub(super) mod counters;
pub(super) mod durability_level;
pub(super) mod engine;
pub(super) mod error;
pub(super) mod fault;
pub(super) mod guest_places;
pub(super) mod isolation;
pub(super) mod partial_operation;
#[cfg(feature = "experiment")]
pub(super) mod safety_net;
pub(super) mod starvation_guard;
mod tables;
pub(super) mod transaction_state;
pub(super) mod wall_clock;
pub(super) mod worker;
pub(super) mod write_intent;
pub(super) mod write_restriction;
