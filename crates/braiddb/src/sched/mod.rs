//! The executor: one thread per worker, each of which interleaves many tasks (MosaicDB §4 and §5,
//! CoroBase §4).
//!
//! Instead of waiting, a task suspends with a cause. Hot causes (a cache miss, a state that another
//! worker is about to decide) leave it in the hot queue, to be polled again within microseconds.
//! Cold causes (storage, commit, a foreign future) remove it from the hot queue until it is
//! resumed.

mod blocking;
mod boundary;
mod caller;
mod contention;
mod counters;
mod doorbell;
mod driver;
mod executor;
mod failure;
mod group;
mod immediate;
mod local;
mod mailbox;
mod observe;
mod observers;
mod options;
mod panics;
mod policy;
mod pulse;
mod queues;
mod remote_wait;
mod runtime;
mod services;
mod slot;
mod sort;
mod source;
mod stall;
mod step;
mod storage;
mod suspend;
mod takeover;
#[cfg(all(test, not(loom)))]
mod tests;
mod thread;
mod trace;
mod transfers;
mod tuner;
mod wait_cause;
mod waiter;
mod worker;

pub(crate) use blocking::{BlockingProbe, BlocksWorker, refuses_waits, refusing_waits};
pub(crate) use boundary::{ContainedFuture, OperationResult, UserFailure, engine_code};
pub(crate) use counters::{SchedulerCounters, WorkerCounter};
pub(crate) use driver::{Driver, Turn};
pub(crate) use executor::{Executor, JobSender, SourceHandle};
pub(crate) use failure::Failure;
pub(crate) use group::{ExecutorClosed, WorkersEnd};
pub(crate) use immediate::{ImmediateOperation, immediate_or};
pub(crate) use local::on_worker;
pub(crate) use mailbox::{Job, WorkerHandles};
pub(crate) use observe::{Observed, observe};
pub(crate) use observers::Observer;
pub(crate) use options::ExecutorOptions;
pub(crate) use panics::{
    Contained, Panic, UntilRecorded, contain, drop_contained, engine_call, hold_after_failure,
};
pub use policy::{Policy, Width};
pub(crate) use remote_wait::{RemoteWaiter, wait_remotely};
pub(crate) use runtime::CallerRuntime;
pub(crate) use services::resume;
pub(crate) use sort::sort;
pub(crate) use source::FromFn;
pub(crate) use step::{Stepped, Steps, forget_step, stepped};
pub(crate) use storage::{ordinary_transfers, read, sync, write};
#[cfg(not(loom))]
pub(crate) use storage::{read_then, write_then};
pub(crate) use suspend::{
    Interleaved, compiled_here, count_failed_attempt, count_steps, failed_attempts, interleaves,
    is_caller_gone, is_upkeep, may_go_on, may_take_steps, outlined, park, poll_for, prefetch,
    run_now, suspend_memory, suspended_for, touch, unless_caller_gone, upkeep, yield_now,
};
pub(crate) use trace::{PollEnd, SliceActivity, TimeSlice};
pub(crate) use transfers::HOUSEKEEPING_TOKEN;
pub use wait_cause::WaitCause;
pub(crate) use waiter::{Waiter, current_foreign_waiter, current_waiter};
