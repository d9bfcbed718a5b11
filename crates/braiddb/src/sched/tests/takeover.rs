//! Jobs that were sent to a blocked worker.

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
            // As if the job had been sent before the worker was known to be blocked.
            executor.jobs().group.mailboxes[blocked].jobs.push(answering(reply.clone()));
            executor.jobs().group.mailboxes[blocked].ring();
        }
        drop(reply);
        assert_eq!(answers.iter().count(), 5);
        let taken_over = executor.counters().iter().map(|counters| counters.taken_over.get());
        assert!(taken_over.sum::<u64>() >= 5, "{:#?}", executor.counters());
        drop(resume);
        // The worker returns from its task, and runs the jobs sent to it.
        let (reply, answers) = mpsc::channel();
        executor.jobs().group.mailboxes[blocked].jobs.push(answering(reply));
        executor.jobs().group.mailboxes[blocked].ring();
        assert_eq!(answers.iter().count(), 1);
    });
}

/// One worker after another blocks: the remaining one checks all of them.
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

/// A job sent to one specific worker waits for it, independent of the others.
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

/// A task blocks its worker and waits for a job that was sent to the same worker. The job has not
/// started when all workers are ordered to stop.
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
