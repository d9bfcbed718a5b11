//! Jobs that were sent to a worker which does not come back from a task.

use std::sync::mpsc;

use super::super::mailbox::WorkerHandle;
use super::*;
use crate::common::{PART_SECONDS, with_limit};

fn answering(reply: mpsc::Sender<std::thread::ThreadId>) -> Job {
    Box::new(move || Box::pin(async move { reply.send(std::thread::current().id()).unwrap() }))
}

/// Blocks a worker until the returned sender is dropped.
fn block(executor: &Executor) -> (mpsc::Sender<()>, usize) {
    let (resume, waits) = mpsc::channel::<()>();
    let (reply, blocked) = mpsc::channel();
    executor
        .jobs()
        .spawn(Box::new(move || {
            Box::pin(async move {
                let worker = local::local(|local| local.unwrap().worker);
                reply.send(worker as usize).unwrap();
                _ = waits.recv();
            })
        }))
        .unwrap();
    (resume, blocked.recv().unwrap())
}

#[test]
fn jobs_of_a_blocked_worker_are_taken_over() {
    with_limit(PART_SECONDS, |_| {
        let executor = start(3, Policy::DualQueue, Width::Auto);
        let (resume, blocked) = block(&executor);
        let (reply, answers) = mpsc::channel();
        for _ in 0..5 {
            // As if it had been sent before anybody could know.
            executor.jobs().group.mailboxes[blocked].jobs.push(answering(reply.clone()));
            executor.jobs().group.mailboxes[blocked].ring();
        }
        drop(reply);
        assert_eq!(answers.iter().count(), 5);
        let taken_over = executor.counters().iter().map(|counters| counters.taken_over.get());
        assert!(taken_over.sum::<u64>() >= 5, "{:#?}", executor.counters());
        drop(resume);
        // It comes back, and does what it is sent.
        let (reply, answers) = mpsc::channel();
        executor.jobs().group.mailboxes[blocked].jobs.push(answering(reply));
        executor.jobs().group.mailboxes[blocked].ring();
        assert_eq!(answers.iter().count(), 1);
    });
}

/// One worker after another does not come back: the one that is left looks past all of them.
#[test]
fn one_worker_takes_over_from_all_others() {
    with_limit(PART_SECONDS, |_| {
        let executor = start(4, Policy::DualQueue, Width::Auto);
        let blocked: Vec<_> = (0..3).map(|_| block(&executor)).collect();
        let (reply, answers) = mpsc::channel();
        for (_, worker) in &blocked {
            executor.jobs().group.mailboxes[*worker].jobs.push(answering(reply.clone()));
            executor.jobs().group.mailboxes[*worker].ring();
        }
        drop(reply);
        let answers: Vec<_> = answers.iter().collect();
        assert!(answers.iter().all(|id| *id == answers[0]), "one worker is left: {answers:?}");
        assert_eq!(answers.len(), 3);
    });
}

/// What was sent to nobody but this worker waits for it, whatever the others do.
#[test]
fn jobs_of_one_worker_stay_with_it() {
    with_limit(PART_SECONDS, |_| {
        let executor = start(2, Policy::DualQueue, Width::Auto);
        let (resume, blocked) = block(&executor);
        let handle = WorkerHandle(executor.jobs().group.mailboxes[blocked].clone());
        let (reply, answers) = mpsc::channel();
        handle.give(answering(reply));
        let (reply, others) = mpsc::channel();
        executor.jobs().group.mailboxes[blocked].jobs.push(answering(reply));
        let other = others.recv().unwrap();
        assert!(answers.try_recv().is_err(), "its worker is blocked");
        drop(resume);
        assert_ne!(answers.recv().unwrap(), other);
    });
}

/// A task that blocks its worker waits for a job that was sent to the same worker, and has not begun when all are told to
/// stop.
#[test]
fn stopping_runs_unstarted_tasks_of_a_blocked_worker() {
    with_limit(PART_SECONDS, |_| {
        for workers in [2, 4] {
            let executor = start(workers, Policy::DualQueue, Width::Auto);
            let (resume, blocked) = block(&executor);
            let (reply, answers) = mpsc::channel();
            let mailbox = &executor.jobs().group.mailboxes[blocked];
            mailbox.jobs.push(Box::new(move || {
                Box::pin(async move {
                    drop(resume);
                    reply.send(()).unwrap();
                })
            }));
            executor.stop();
            answers.recv().unwrap();
        }
    });
}
