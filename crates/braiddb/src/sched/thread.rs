//! A worker's thread, from its first to its last instruction. No panic leaves it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::counters::SchedulerCounters;
use super::driver::Driver;
use super::group::WorkerGroup;
use super::local::{self, WorkerLocal};
use super::options::ExecutorOptions;
use super::panics::{contain, drop_contained, message_of};
use super::runtime;
use super::services::{self, WorkerServices};
use super::trace::{TraceWriter, WorkerTrace};
use super::worker::{SourceQueue, Worker, drop_sources};
use crate::io::Device;
use crate::sync::channel::Sender;

/// The parameters of a worker's thread.
pub(super) struct WorkerThread<'c> {
    pub(super) number: usize,
    pub(super) group: &'c Arc<WorkerGroup>,
    pub(super) counters: Arc<SchedulerCounters>,
    pub(super) trace: Arc<WorkerTrace>,
    pub(super) sources: Arc<SourceQueue>,
    pub(super) options: ExecutorOptions,
}

impl WorkerThread<'_> {
    /// Reports through `ready` whether the worker could start, and runs it until it must stop or
    /// the engine has failed.
    pub(super) fn main<D: Driver + 'static>(
        self,
        ready: &Sender<std::io::Result<()>>,
        make_device: impl FnOnce() -> std::io::Result<Box<dyn Device>>,
        make_driver: impl FnOnce() -> D,
    ) {
        let Self { number, group, counters, trace, sources, options } = self;
        let device = catch_unwind(AssertUnwindSafe(make_device));
        let device = device.unwrap_or_else(|panic| Err(std::io::Error::other(message_of(panic))));
        let device = match device {
            Ok(device) => device,
            Err(error) => {
                // `start` waits for it, unless another worker failed first.
                _ = ready.send(Err(error));
                return;
            }
        };
        if let Some(seed) = options.seed {
            fastrand::seed(seed ^ (number as u64) << 48);
        }
        group.mailboxes[number].set_notifier(device.notifier());
        let failure = group.failure.clone();
        let local = WorkerLocal::new(number, counters, failure);
        let mailbox = group.mailboxes[number].clone();
        let services = WorkerServices::new(number, options.read_depth, mailbox);
        let _entered = (local::enter(&local), services::enter(&services));
        let driver = match catch_unwind(AssertUnwindSafe(make_driver)) {
            Ok(driver) => Box::new(driver),
            Err(panic) => {
                _ = ready.send(Err(std::io::Error::other(message_of(panic))));
                return;
            }
        };
        _ = ready.send(Ok(()));
        let mut worker =
            Worker::new(&local, &services, sources, group.clone(), options, device, driver);
        if options.trace > 0 {
            worker.trace(TraceWriter::new(trace));
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| worker.main())) {
            group.fail(&local, panic);
        }
        runtime::leave();
        group.mailboxes[number].drop_resumptions();
        let Worker { device, driver, sources, .. } = worker;
        if group.failure.message().is_none() {
            // The device may still have operations of the driver in flight.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop((device, driver)))) {
                group.fail(&local, panic);
            }
            return;
        }
        // No more messages are sent, so the queues are complete; their senders notice that they are
        // dropped.
        group.close();
        let mailbox = &group.mailboxes[number];
        drop_sources(&sources);
        while let Some(job) = mailbox.own_jobs.pop() {
            drop_contained(job);
        }
        while let Some(job) = mailbox.jobs.pop() {
            drop_contained(job);
        }
        // The kernel may still use the memory of operations in flight, so the device waits for
        // them. Their results are ignored.
        drop_contained(device);
        // The driver's state of the engine cannot be trusted, so it is leaked instead of dropped.
        std::mem::forget(driver);
        _ = contain(|| local.wake_callers_after_failure());
        services.transfers.leak();
    }
}
