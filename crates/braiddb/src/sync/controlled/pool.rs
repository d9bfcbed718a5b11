//! Thread pool for schedules: starting a thread takes longer than most schedules use it.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Thread;

/// The next function for a thread to run.
type Work = Box<dyn FnOnce() + Send>;

/// An idle thread.
pub(super) struct IdleThread {
    work: Sender<Work>,
    thread: Thread,
}

/// The idle threads.
#[derive(Default)]
pub(super) struct ThreadPool(Mutex<Vec<IdleThread>>);

impl IdleThread {
    pub(super) fn thread(&self) -> &Thread {
        &self.thread
    }
}

impl ThreadPool {
    /// Returns an idle thread, started if necessary.
    pub(super) fn take(&self) -> std::io::Result<IdleThread> {
        let idle = self.0.lock().expect("no holder panics").pop();
        idle.map_or_else(Self::start, Ok)
    }

    /// Runs `run` on a thread, which is idle again afterwards.
    pub(super) fn run_on(self: &Arc<Self>, idle: IdleThread, run: impl FnOnce() + Send + 'static) {
        let (work, pool) = (idle.work.clone(), self.clone());
        let work_again = Box::new(move || {
            run();
            pool.0.lock().expect("no holder panics").push(idle);
        });
        work.send(work_again).expect("an idle thread listens");
    }

    fn start() -> std::io::Result<IdleThread> {
        let (work, listen) = channel::<Work>();
        let builder = std::thread::Builder::new().name("scheduled".to_owned());
        let thread = builder.stack_size(1 << 20).spawn(move || {
            while let Ok(work) = listen.recv() {
                work();
            }
        })?;
        Ok(IdleThread { work, thread: thread.thread().clone() })
    }
}
