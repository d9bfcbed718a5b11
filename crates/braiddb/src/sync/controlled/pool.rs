//! Thread pool for schedules: starting a thread takes longer than most schedules use it.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Thread;

use super::schedule::{Schedule, ThreadPart};

/// The next function for a thread to run.
type Work = Box<dyn FnOnce() + Send>;

/// An idle thread.
struct IdleThread {
    work: Sender<Work>,
    thread: Thread,
}

/// The idle threads.
#[derive(Default)]
pub(super) struct ThreadPool(Mutex<Vec<IdleThread>>);

impl ThreadPool {
    /// Assigns a thread to `number` of a schedule, where it runs `run` once it holds the baton.
    pub(super) fn seat(
        self: &Arc<Self>,
        schedule: &Arc<Schedule>,
        number: usize,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let idle = self.0.lock().expect("no holder panics").pop();
        let idle = match idle {
            Some(idle) => idle,
            None => Self::start()?,
        };
        schedule.seat(number, idle.thread.clone());
        let (part, pool) = (ThreadPart { schedule: schedule.clone(), number }, self.clone());
        let work = idle.work.clone();
        let work_again = Box::new(move || {
            part.play(run);
            drop(part);
            pool.0.lock().expect("no holder panics").push(idle);
        });
        work.send(work_again).expect("an idle thread listens");
        Ok(())
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
