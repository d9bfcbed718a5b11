//! The scenes of a run: the worker's tasks before the change, while its commit is awaited, and
//! after it.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::{MAX_IN_FLIGHT, Run};
use futures_util::stream::{FuturesUnordered, StreamExt};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Plays the scenes of a run on the worker, until no scene is left.
#[derive(Clone)]
pub struct Script {
    pub run: Run,
    pub seed: u64,
}

pub struct Scenes(Rc<RefCell<Scene>>);

/// The tasks on the worker.
pub struct Scene {
    run: Run,
    random: fastrand::Rng,
    tasks: FuturesUnordered<Task>,
    part: Part,
}

#[derive(Debug, PartialEq)]
enum Part {
    Before,
    Change,
    End,
    After,
    Over,
}

impl IntoIterator for Script {
    type Item = Rc<RefCell<Scene>>;
    type IntoIter = Scenes;

    fn into_iter(self) -> Scenes {
        let tasks = FuturesUnordered::<Task>::new();
        tasks.push(Box::pin(self.run.clone().ask()));
        let random = fastrand::Rng::with_seed(self.seed);
        let scene = Scene { run: self.run, random, tasks, part: Part::Before };
        Scenes(Rc::new(RefCell::new(scene)))
    }
}

impl Iterator for Scenes {
    type Item = Rc<RefCell<Scene>>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.0.borrow().part != Part::Over).then(|| self.0.clone())
    }
}

impl Scene {
    /// Polls the tasks that are ready; each round visits all of them.
    pub fn go_on(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(())) = self.tasks.poll_next_unpin(&mut context) {}
        match self.part {
            Part::Before if self.tasks.is_empty() => {
                self.tasks.push(Box::pin(self.run.clone().make_change()));
                self.part = Part::Change;
            }
            Part::Change if self.run.record.lock().unwrap().changed.is_some() => {
                self.part = Part::End;
            }
            Part::Change if self.tasks.len() < MAX_IN_FLIGHT => match self.random.u32(0..40) {
                0..5 => self.tasks.push(Box::pin(self.run.clone().ask())),
                // Another commit, so that begin stamps pass the change's.
                5 => self.tasks.push(Box::pin(self.run.clone().write_beside())),
                _ => {}
            },
            Part::End if self.tasks.is_empty() => {
                self.tasks.push(Box::pin(self.run.clone().ask()));
                self.part = Part::After;
            }
            Part::After if self.tasks.is_empty() => self.part = Part::Over,
            _ => {}
        }
    }
}
