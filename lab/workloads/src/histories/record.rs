//! Records the operations that clients requested and the answers that they received, in order, in
//! the format of the checker `adya`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use adya::history::{Id, Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{History, Opts, Report, Workload, check};

const NO_PANIC: &str = "no thread panics while it is locked";

/// An operation of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Reads a register or a list.
    Read(u64),
    /// Writes a unique value to a register.
    Write(u64, u64),
    /// Appends a unique element to a list.
    Append(u64, u64),
}

/// The answer to a read: the elements of a list, or the value of a register if it has one.
pub(super) type Told = Vec<u64>;

/// The end of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    /// The transaction committed; its reads returned these answers.
    Committed(Vec<Told>),
    /// The transaction left no writes.
    Failed,
    /// The client received no result.
    Unknown,
}

/// The operations of all clients on lists or on registers.
#[derive(Debug)]
pub(super) struct Record {
    workload: Workload,
    ops: Mutex<(Vec<Op>, Interner)>,
    processes: AtomicI64,
}

/// A client that runs one transaction at a time. A process whose transaction ended with an unknown
/// result runs no more.
#[derive(Debug)]
pub(super) struct Process(i64);

impl Record {
    pub(super) fn new(workload: Workload) -> Self {
        Self { workload, ops: Mutex::default(), processes: AtomicI64::new(0) }
    }

    pub(super) fn process(&self) -> Process {
        // Relaxed: the counter only makes numbers unique.
        Process(self.processes.fetch_add(1, Ordering::Relaxed))
    }

    /// Records the beginning of a transaction.
    pub(super) fn invoke(&self, process: &Process, wanted: &[Wanted]) {
        let (ops, interner) = &mut *self.ops.lock().expect(NO_PANIC);
        let value = wanted.iter().map(|wanted| mop(interner, wanted, ReadValue::Nil)).collect();
        push(ops, OpType::Invoke, process, value);
    }

    /// Records the end of a transaction.
    pub(super) fn complete(&self, process: &mut Process, wanted: &[Wanted], ended: &Ended) {
        let (ops, interner) = &mut *self.ops.lock().expect(NO_PANIC);
        let mut told = match ended {
            Ended::Committed(told) => told.iter(),
            Ended::Failed | Ended::Unknown => [].iter(),
        };
        let mut value = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let read = match (wanted, self.workload) {
                (Wanted::Read(_), Workload::ListAppend) => told.next().map(|elements| {
                    ReadValue::List(elements.iter().map(|one| intern(interner, *one)).collect())
                }),
                (Wanted::Read(_), Workload::RwRegister) => told.next().map(|value| {
                    value
                        .first()
                        .map_or(ReadValue::Nil, |one| ReadValue::Scalar(intern(interner, *one)))
                }),
                _ => None,
            };
            value.push(mop(interner, wanted, read.unwrap_or(ReadValue::Nil)));
        }
        let kind = match ended {
            Ended::Committed(_) => OpType::Ok,
            Ended::Failed => OpType::Fail,
            Ended::Unknown => OpType::Info,
        };
        push(ops, kind, process, value);
        if matches!(ended, Ended::Unknown) {
            *process = self.process();
        }
    }

    /// Searches for anomalies that strict serializability forbids.
    pub(super) fn check(self) -> Report {
        let (ops, interner) = self.ops.into_inner().expect(NO_PANIC);
        let options = Opts {
            // Strict serializability implies this. Without it, the checker knows little about the
            // order of values.
            linearizable_keys: self.workload == Workload::RwRegister,
            timeout: std::time::Duration::from_secs(60),
            ..Opts::default()
        };
        check(&History::from_ops(ops, interner), self.workload, &options)
    }
}

fn intern(interner: &mut Interner, number: u64) -> Id {
    interner.intern(Scalar::Int(i64::try_from(number).expect("a small number")))
}

fn mop(interner: &mut Interner, wanted: &Wanted, value: ReadValue) -> Mop {
    let mut id = |number| intern(interner, number);
    match *wanted {
        Wanted::Read(key) => Mop::Read { key: id(key), value },
        Wanted::Write(key, value) => Mop::Write { key: id(key), value: id(value) },
        Wanted::Append(key, value) => Mop::Append { key: id(key), value: id(value) },
    }
}

fn push(ops: &mut Vec<Op>, kind: OpType, process: &Process, value: Vec<Mop>) {
    let index = ops.len() as u64;
    ops.push(Op { index, kind, process: Some(process.0), value, time: None });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a history of two concurrent transactions, each with the answer to its one read.
    fn side_by_side(workload: Workload, wanted: [&[Wanted]; 2], told: [Told; 2]) -> Report {
        let record = Record::new(workload);
        let mut processes = [record.process(), record.process()];
        for (process, wanted) in processes.iter().zip(wanted) {
            record.invoke(process, wanted);
        }
        for ((process, wanted), told) in processes.iter_mut().zip(wanted).zip(told) {
            record.complete(process, wanted, &Ended::Committed(vec![told]));
        }
        record.check()
    }

    #[test]
    fn write_skew_is_found_in_lists_and_registers() {
        use Wanted::{Append, Read, Write};
        let lists: [&[_]; 2] = [&[Read(1), Append(2, 1)], &[Read(2), Append(1, 2)]];
        let skew = side_by_side(Workload::ListAppend, lists, [vec![], vec![]]);
        assert_eq!(skew.valid, adya::Valid::False, "{skew:?}");
        let serial = side_by_side(Workload::ListAppend, lists, [vec![], vec![1]]);
        assert_eq!(serial.valid, adya::Valid::True, "{serial:?}");
        let registers: [&[_]; 2] = [&[Read(1), Write(2, 1)], &[Read(2), Write(1, 2)]];
        let skew = side_by_side(Workload::RwRegister, registers, [vec![], vec![]]);
        assert_eq!(skew.valid, adya::Valid::False, "{skew:?}");
        let serial = side_by_side(Workload::RwRegister, registers, [vec![], vec![1]]);
        assert_eq!(serial.valid, adya::Valid::True, "{serial:?}");
    }
}
