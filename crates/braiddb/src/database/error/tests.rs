//! Tests of every error: its kind, its message and its remedy.

mod guide;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{
    BusyWith, ChangesError, Contended, Error, ErrorKind, IndexError, MemoryLimit, MissingTable,
    Misuse, RecordKey, TransactionEnd, TypeMismatch, UniqueViolation,
};
use crate::database::changes::TokenError;
use crate::log::LogError;
use crate::record::{EncodedKey, ShowKey};
use crate::transaction::NamedKeys;
use crate::types::{DecodeError, EncodeError};

/// Number of variants of [`Error`].
const VARIANTS: usize = 25;

fn missing_table(existing: &[&str], has_more: bool) -> MissingTable {
    let existing = existing.iter().map(|name| (*name).to_owned()).collect();
    MissingTable { existing: Some(existing), has_more, ..MissingTable::new("t") }
}

/// Position of a variant: a new variant must be added here and to the samples.
fn position(error: &Error) -> usize {
    match error {
        Error::Conflict { .. } => 0,
        Error::NotSerializable { .. } => 1,
        Error::Busy(_) => 2,
        Error::Overloaded => 3,
        Error::KeyExists(_) => 4,
        Error::KeyNotFound(_) => 5,
        Error::UniqueViolation(_) => 6,
        Error::TableNotFound(_) => 7,
        Error::TableExists(_) => 8,
        Error::Options(_) => 9,
        Error::Directory(_) => 10,
        Error::Index(_) => 11,
        Error::Changes(_) => 12,
        Error::Misuse(_) => 13,
        Error::Panicked(_) => 14,
        Error::Corrupt(_) => 15,
        Error::Decode(_) => 16,
        Error::DiskFull(_) => 17,
        Error::MemoryFull(_) => 18,
        Error::Io(_) => 19,
        Error::CommitUnknown { .. } => 20,
        Error::TransactionEnded(_) => 21,
        Error::Outdated(_) => 22,
        Error::Closed => 23,
        Error::Failed { .. } => 24,
    }
}

fn log_errors() -> Vec<LogError> {
    let path = || PathBuf::from("/data/file");
    let full = || Arc::new(std::io::Error::from(std::io::ErrorKind::StorageFull));
    let denied = || Arc::new(std::io::Error::from(std::io::ErrorKind::PermissionDenied));
    let other = || Arc::new(std::io::Error::other("a cable is loose"));
    let io = |cause| LogError::Io { action: "write", path: path(), offset: 7, cause };
    let grow = |cause| LogError::CannotGrow { action: "extend", path: path(), cause };
    vec![
        io(full()),
        io(denied()),
        io(other()),
        grow(full()),
        grow(denied()),
        grow(other()),
        LogError::NoRoomForCheckpoint {
            action: "write",
            path: path(),
            offset: 0,
            needed: 9,
            available: 3,
            cause: full(),
        },
        LogError::IncompleteBackup { action: "write", path: path(), offset: 0, cause: full() },
        LogError::Corrupt { path: path(), offset: 7, reason: "the checksum is wrong".into() },
        LogError::DamagedPage {
            path: path(),
            offset: 7,
            reason: "the checksum is wrong".into(),
            is_in_checkpoint: false,
        },
        LogError::ValueNotWhole { bytes: 9000 },
        LogError::NotADatabase { path: path(), reason: "it is a file".into() },
        LogError::BackupTarget { path: path(), reason: "it is not empty".into() },
        LogError::WrongVersion { path: path(), found: 9, expected: 4 },
        LogError::Locked { path: path() },
        LogError::Outdated { path: path() },
        LogError::Size { what: "a log ring", bytes: 1 << 50, limit: "at most 1024".into() },
    ]
}

fn misuses() -> Vec<Misuse> {
    let name = || "t".to_owned();
    vec![
        Misuse::ReadOnlyTransaction,
        Misuse::ReadOnlyDatabase,
        Misuse::RestrictedWrite { table: "t".into(), writer: "cluster.run".into() },
        Misuse::WouldBlock,
        Misuse::ForeignTable(name()),
        Misuse::TableType(Box::new(TypeMismatch {
            table: name(),
            stored: "keys of type u64".into(),
            requested: "keys of type str".into(),
            advice: "open it with the types it was created with".into(),
        })),
        Misuse::TableName(name()),
        Misuse::SlotName(name()),
        Misuse::TypeNameTooLong { bytes: 70_000, limit: 65_535 },
        Misuse::KeyTooLong { bytes: 600, limit: 512 },
        Misuse::ValueTooLong { bytes: 600, limit: 512 },
        Misuse::Encode(EncodeError::new("it has no end")),
        Misuse::TableFull { records: 9 },
        Misuse::OutOfPageIds,
        Misuse::NoLog,
        Misuse::NeedsReadValidation { feature: "snapshots" },
        Misuse::NotExpiring(name()),
        Misuse::IndexOnStagedTable(name()),
        Misuse::NotPaged(name()),
        Misuse::IncompleteBulkWrite,
        Misuse::IncompleteRollback,
        Misuse::BulkSavepoint,
        Misuse::SavepointEnded,
        Misuse::ScanBegun,
        Misuse::NoSuchWorker { worker: 2, last: 1 },
    ]
}

fn index_errors() -> Vec<IndexError> {
    let names = || ("t".to_owned(), "by_name".to_owned());
    let key = || EncodedKey::new(&[1], ShowKey(|_| None));
    let (table, index) = names();
    let mut errors = vec![IndexError::NotFound { table, index }];
    let (table, index) = names();
    errors.push(IndexError::Detached { table, index });
    let (table, index) = names();
    let (stored, requested) = ("unique".into(), "not unique".into());
    errors.push(IndexError::Mismatch { table, index, stored, requested });
    let (table, index) = names();
    errors.push(IndexError::NotUnique { table, index });
    let (table, index) = names();
    let records = Box::new([key(), key()]);
    errors.push(IndexError::DuplicateKey { table, index, key: key(), records });
    let (table, index) = names();
    errors.push(IndexError::Inconsistent { table, index });
    errors
}

/// Every variant of the error and of its details.
fn samples() -> Vec<Error> {
    let named = || {
        let keys = (Bound::Included(vec![1]), Bound::Included(vec![1]));
        Box::new(NamedKeys { table: "t".into(), keys, show_key: ShowKey(|_| None) })
    };
    let cause = || Arc::new(LogError::Locked { path: "/data".into() });
    let key = || EncodedKey::new(&[1], ShowKey(|_| None));
    let mut samples = vec![
        Error::conflict(1, None),
        Error::conflict(3, Some(named())),
        Error::NotSerializable { attempts: 2, read: Box::new((*named()).into()) },
        BusyWith::BulkOperation { table: "t".into() }.into(),
        BusyWith::TableChange { table: "t".into() }.into(),
        BusyWith::Checkpoint.into(),
        Error::Overloaded,
        Error::KeyExists(Box::new(RecordKey { table: "t".into(), key: key() })),
        Error::KeyNotFound(Box::new(RecordKey { table: "t".into(), key: key() })),
        Error::UniqueViolation(Box::new(UniqueViolation {
            table: "t".into(),
            index: "by_name".into(),
            key: key(),
        })),
        MissingTable::new("t").into(),
        missing_table(&[], false).into(),
        missing_table(&["a", "b"], true).into(),
        Error::TableExists("t".into()),
        Error::Options("workers is 0; choose a number from 1 to 256".into()),
        Error::Panicked("index out of bounds".into()),
        Error::Decode(DecodeError::new("a color")),
        MemoryLimit::Versions { bytes: 9, limit: 8 }.into(),
        MemoryLimit::PageFrames { frames: 64, page_bytes: 8192 }.into(),
        MemoryLimit::PageFramesContended { frames: 64, page_bytes: 8192 }.into(),
        MemoryLimit::Allocation { purpose: "record ids", bytes: 9, reason: "no memory".into() }
            .into(),
        Error::DiskFull(Arc::new(log_errors().swap_remove(0))),
        Error::CommitUnknown { lsn: 7, cause: cause() },
        TransactionEnd::Finished.into(),
        TransactionEnd::Expired { option: "interactive_idle", limit: Duration::from_secs(1) }
            .into(),
        ChangesError::LogGone { oldest: 7 }.into(),
        ChangesError::SlotNotFound("s".into()).into(),
        ChangesError::SlotExists("s".into()).into(),
        TokenError::Damaged.into(),
        TokenError::OtherDatabase.into(),
        TokenError::AheadOfLog { token: 8, end: 7 }.into(),
        TokenError::NotInLog { token: 7 }.into(),
        TokenError::OtherLog { token: 7 }.into(),
        Error::Closed,
        Error::Failed { message: "a latch is held twice".into() },
    ];
    samples.extend(log_errors().into_iter().map(Error::from));
    samples.extend(misuses().into_iter().map(Error::from));
    samples.extend(index_errors().into_iter().map(Error::from));
    samples
}

#[test]
fn every_error_states_its_reason_and_its_remedy_in_one_line() {
    for error in samples() {
        let message = error.to_string();
        let parts = message.rsplit_once("; ");
        let (reason, remedy) =
            parts.unwrap_or_else(|| panic!("{error:?} has no remedy: {message}"));
        assert!(reason.len() > 10 && remedy.len() > 5, "{error:?}: {message}");
        assert!(!message.contains('\n') && !message.ends_with('.'), "{error:?}: {message}");
        assert!(!message.contains("  "), "{error:?}: {message}");
    }
}

#[test]
fn every_variant_has_a_kind_and_retries_are_retryable() {
    let mut found = BTreeSet::new();
    let mut kinds = Vec::new();
    for error in samples() {
        found.insert(position(&error));
        kinds.push(error.kind());
        assert_eq!(error.is_retryable(), error.kind() == ErrorKind::Retry, "{error:?}");
    }
    assert_eq!(found.len(), VARIANTS);
    use ErrorKind::{Call, Data, Ended, Machine, Retry, Unknown};
    for kind in [Retry, Call, Data, Machine, Unknown, Ended] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[test]
fn failures_of_files_are_grouped_by_remedy() {
    for log in log_errors() {
        let (error, size) = (Error::from(log.clone()), matches!(log, LogError::Size { .. }));
        let expected = match log {
            LogError::Corrupt { .. }
            | LogError::DamagedPage { .. }
            | LogError::ValueNotWhole { .. } => ErrorKind::Data,
            LogError::NotADatabase { .. }
            | LogError::BackupTarget { .. }
            | LogError::WrongVersion { .. }
            | LogError::Locked { .. }
            | LogError::Size { .. } => ErrorKind::Call,
            LogError::Outdated { .. } => ErrorKind::Ended,
            LogError::Io { .. }
            | LogError::CannotGrow { .. }
            | LogError::IncompleteBackup { .. }
            | LogError::NoRoomForCheckpoint { .. } => ErrorKind::Machine,
        };
        assert_eq!(error.kind(), expected, "{error:?}");
        assert_eq!(error.log_error().is_none(), size, "{error:?}");
    }
}

/// Results are returned through many futures, so an error must stay small.
#[test]
fn an_error_is_small() {
    assert!(size_of::<Error>() <= 40, "{} bytes", size_of::<Error>());
}

#[test]
fn the_key_of_a_conflict_is_decoded() {
    let contended = |keys| {
        let (table, show_key) = ("t".to_owned(), ShowKey(|_| None));
        Contended::from(NamedKeys { table, keys, show_key })
    };
    let key = || 7_u64.to_be_bytes().to_vec();
    let one = contended((Bound::Included(key()), Bound::Included(key())));
    assert_eq!(one.key_as::<u64>().unwrap(), Some(7));
    assert!(one.key_as::<u8>().is_err());
    let two = contended((Bound::Included(key()), Bound::Excluded(vec![9])));
    assert_eq!(two.key_as::<u64>().unwrap(), None);
    let all = contended((Bound::Unbounded, Bound::Unbounded));
    assert_eq!(all.key_as::<u64>().unwrap(), None);
}
