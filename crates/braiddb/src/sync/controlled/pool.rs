//! Threads that play one part after another: making one takes longer than most parts do.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Thread;

use super::schedule::{Part, Schedule};

/// What a thread is to run next.
type Work = Box<dyn FnOnce() + Send>;

/// An idle thread.
struct Idle {
    work: Sender<Work>,
    thread: Thread,
}

/// The threads that are idle.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<Idle>>);

impl Pool {
    /// Seats a thread at `number` of a schedule, where it runs `run` once it gets the baton.
    pub(super) fn seat(
        self: &Arc<Self>,
        schedule: &Arc<Schedule>,
        number: usize,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let idle = self.0.lock().expect("nobody panics with it").pop();
        let idle = match idle {
            Some(idle) => idle,
            None => Self::start()?,
        };
        schedule.seat(number, idle.thread.clone());
        let (part, pool) = (Part { schedule: schedule.clone(), number }, self.clone());
        let work = idle.work.clone();
        let work_again = Box::new(move || {
            part.play(run);
            drop(part);
            pool.0.lock().expect("nobody panics with it").push(idle);
        });
        work.send(work_again).expect("an idle thread listens");
        Ok(())
    }

    fn start() -> std::io::Result<Idle> {
        let (work, listen) = channel::<Work>();
        let builder = std::thread::Builder::new().name("scheduled".to_owned());
        let thread = builder.stack_size(1 << 20).spawn(move || {
            while let Ok(work) = listen.recv() {
                work();
            }
        })?;
        Ok(Idle { work, thread: thread.thread().clone() })
    }
}
