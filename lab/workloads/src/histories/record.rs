//! What clients asked of a database, and what they were told, in the order in which both happened; as the
//! checker `adya` reads it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use adya::history::{Id, Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{History, Opts, Report, Workload, check};

const NO_PANIC: &str = "nobody panics with it";

/// One operation of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Of a register, or a list.
    Read(u64),
    /// To a register: a value that nobody else writes.
    Write(u64, u64),
    /// To a list: an element that nobody else appends.
    Append(u64, u64),
}

/// What a read was told: the elements of a list, or the value of a register, if it has one.
pub(super) type Told = Vec<u64>;

/// How a transaction ended.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    /// With what its reads were told.
    Committed(Vec<Told>),
    /// Nothing of it is there.
    Failed,
    /// Nobody was told.
    Unknown,
}

/// What was asked of lists, or of registers, by all clients.
#[derive(Debug)]
pub(super) struct Record {
    workload: Workload,
    ops: Mutex<(Vec<Op>, Interner)>,
    processes: AtomicI64,
}

/// Who asks one transaction after another. One whose transaction ended nobody knows how asks no more.
#[derive(Debug)]
pub(super) struct Process(i64);

impl Record {
    pub(super) fn new(workload: Workload) -> Self {
        Self { workload, ops: Mutex::default(), processes: AtomicI64::new(0) }
    }

    pub(super) fn process(&self) -> Process {
        // Relaxed: a number for each.
        Process(self.processes.fetch_add(1, Ordering::Relaxed))
    }

    /// A transaction is about to begin.
    pub(super) fn invoke(&self, process: &Process, wanted: &[Wanted]) {
        let (ops, interner) = &mut *self.ops.lock().expect(NO_PANIC);
        let value = wanted.iter().map(|wanted| mop(interner, wanted, ReadValue::Nil)).collect();
        push(ops, OpType::Invoke, process, value);
    }

    /// It is over.
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

    /// Looks for what strict serializability does not allow.
    pub(super) fn check(self) -> Report {
        let (ops, interner) = self.ops.into_inner().expect(NO_PANIC);
        let options = Opts {
            // What follows from strict serializability; else it knows little of the order of values.
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

    /// Two transactions, side by side, each with what its one read was told.
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
