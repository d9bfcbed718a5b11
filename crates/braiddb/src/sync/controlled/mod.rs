//! Build for controlled schedules. The wrapped primitives let a schedule switch participating
//! threads at every access; other threads run as in the ordinary build.

pub(crate) mod atomic;
pub(crate) mod channel;
mod finding;
mod lock;
mod pool;
mod replies;
mod run;
mod schedule;
mod strategy;
#[cfg(test)]
mod tests;
pub(crate) mod thread;

pub use finding::{Finding, FindingKind, ScheduleReport, SwitchPoint, ThreadReport, TraceEntry};
pub(crate) use lock::{Condvar, Mutex, OnceLock, RawLock, RwLock, SegQueue};
pub(crate) use replies::{async_queue, oneshot};
pub use run::{
    Client, Runner, ScheduleResult, describe_by, found_wrong, give_way, pause, planned_panics,
    spawn, switch_threads,
};
pub(crate) use run::{announce, device_point, new_resource, virtual_now, wait_for};
pub use schedule::ScheduleOptions;
pub(crate) use schedule::{number_in_schedule, takes_part};
pub(crate) use thread::{clock, yield_thread, yield_thread as spin_loop};
