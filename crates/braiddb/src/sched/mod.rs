//! The executor: one thread per worker, each of which interleaves many tasks (MosaicDB §4 and §5,
//! CoroBase §4).
//!
//! Instead of waiting, a task suspends with a cause. Hot causes (a cache miss, a state that another
//! worker is about to decide) leave it in the hot queue, to be polled again within microseconds.
//! Cold causes (storage, commit, a foreign future) remove it from the hot queue until it is
//! resumed.

mod blocking;
mod caller;
mod contention;
mod counters;
mod doorbell;
mod driver;
mod executor;
mod group;
mod local;
mod mailbox;
mod observe;
mod panics;
mod policy;
mod queues;
mod runtime;
mod slot;
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
mod tuner;
mod waiter;
mod worker;

pub(crate) use blocking::{BlockingProbe, BlocksWorker};
pub(crate) use caller::{is_caller_gone, poll_for, unless_caller_gone};
pub(crate) use counters::{SchedulerCounters, WorkerCounter};
pub(crate) use driver::{Driver, Turn};
pub(crate) use executor::{
    Executor, ExecutorClosed, ExecutorOptions, Job, JobSender, SourceHandle, WorkerHandles,
};
pub use local::WaitCause;
pub(crate) use local::on_worker;
pub(crate) use observe::{Observed, Observer, observe};
pub(crate) use panics::{
    Contained, ContainedFuture, Failure, OperationResult, Panic, UntilRecorded, UserFailure,
    contain, drop_contained, engine_call, engine_code, hold_after_failure,
};
pub use policy::{Policy, Width};
pub(crate) use runtime::CallerRuntime;
pub(crate) use source::FromFn;
pub(crate) use step::{Stepped, Steps, forget_step, stepped};
pub(crate) use storage::{HOUSEKEEPING_TOKEN, ordinary_transfers, read, sync, write};
#[cfg(not(loom))]
pub(crate) use storage::{read_then, write_then};
pub(crate) use suspend::{
    Interleaved, count_failed_attempt, count_steps, failed_attempts, interleaves, is_upkeep,
    may_go_on, may_take_steps, outlined, park, prefetch, run_now, suspend_memory, suspended_for,
    touch, upkeep, yield_now,
};
pub(crate) use trace::{PollEnd, SliceActivity, TimeSlice};
pub(crate) use waiter::{
    RemoteWaiter, Waiter, current_foreign_waiter, current_waiter, resume, wait_remotely,
};
