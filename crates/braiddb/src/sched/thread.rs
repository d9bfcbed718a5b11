//! A worker's thread, from its first to its last instruction. No panic leaves it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::counters::SchedulerCounters;
use super::driver::Driver;
use super::executor::ExecutorOptions;
use super::group::WorkerGroup;
use super::local::{self, WorkerLocal};
use super::panics::{contain, drop_contained, message_of};
use super::runtime;
use super::trace::{TraceWriter, WorkerTrace};
use super::worker::Worker;
use crate::io::Device;
use crate::sync::channel::Sender;

/// The parameters of a worker's thread.
pub(super) struct WorkerThread<'c> {
    pub(super) number: usize,
    pub(super) group: &'c Arc<WorkerGroup>,
    pub(super) counters: Arc<SchedulerCounters>,
    pub(super) trace: Arc<WorkerTrace>,
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
        let Self { number, group, counters, trace, options } = self;
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
        let local = WorkerLocal::new(
            number,
            options.read_depth,
            group.mailboxes[number].clone(),
            counters,
            failure,
        );
        let _entered = local::enter(&local);
        let driver = match catch_unwind(AssertUnwindSafe(make_driver)) {
            Ok(driver) => Box::new(driver),
            Err(panic) => {
                _ = ready.send(Err(std::io::Error::other(message_of(panic))));
                return;
            }
        };
        _ = ready.send(Ok(()));
        let tracer = (options.trace > 0).then(|| TraceWriter::new(trace));
        let mut worker = Worker::new(&local, group.clone(), options, device, driver, tracer);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| worker.main())) {
            group.fail(&local, panic);
        }
        runtime::leave();
        group.mailboxes[number].drop_resumptions();
        let Worker { device, driver, mut waiting_sources, .. } = worker;
        waiting_sources.drain(..).for_each(drop_contained);
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
        while let Some(message) = mailbox.messages.pop() {
            drop_contained(message);
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
        local.transfers.leak();
    }
}
