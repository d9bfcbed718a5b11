//! `restore`: creates a database from a backup.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use braiddb::maintenance::CheckReport;
use braiddb::{Error, LogError};

use crate::output::{Output, counted};
use crate::store::StoreArguments;
use crate::store::once_free;
use crate::verb::path_error::IDENTITY_FILE;

/// The file that a process locks while it has the database open.
const LOCK: &str = "LOCK";
/// Extensions of the files of a database: log segments, checkpoints, and pages. The identity file
/// is copied last.
const COPIED: [&str; 3] = [".seg", ".ckpt", ".zone"];

/// Copies a backup next to the target, checks the copy, and renames it to the target.
pub fn run(backup: &Path, store: &StoreArguments, output: &Output) -> Result<ExitCode> {
    let target = &store.db;
    check_paths(backup, target)?;
    let lock = lock(backup)?;
    let name = target.file_name().with_context(|| format!("{} has no name", target.display()))?;
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = Unfinished(target.with_file_name(unfinished));
    let bytes = copy(backup, &unfinished.0)?;
    drop(lock);
    let report = check(store, &unfinished.0, backup)?;
    if !report.problems.is_empty() {
        // Names the files of the backup, because the copy is deleted.
        let (copy, original) = (unfinished.0.display().to_string(), backup.display().to_string());
        for problem in &report.problems {
            eprintln!("braid: {}", problem.replace(&copy, &original));
        }
        bail!("the backup {original} is damaged; nothing was restored; use another backup");
    }
    let failed = || format!("cannot rename the restored copy to {}", target.display());
    fs::rename(&unfinished.0, target).with_context(failed)?;
    sync(parent(target)).with_context(failed)?;
    if output.json {
        output.document(&Restored { bytes, records: report.records })?;
    } else {
        let (target, records) = (target.display(), counted(report.records, "record"));
        output.line(&format!("restored and checked {target}: {records}, {bytes} bytes"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Result of a restore.
#[derive(Debug, serde::Serialize)]
struct Restored {
    /// Bytes written.
    bytes: u64,
    /// Records checked, including those of the catalog.
    records: u64,
}

/// Rejects a path that is not a backup, and a target that is not free.
fn check_paths(backup: &Path, target: &Path) -> Result<()> {
    if !backup.join(IDENTITY_FILE).is_file() {
        let why = match (backup.exists(), backup.is_dir()) {
            (false, _) => "the directory does not exist",
            (true, false) => "it is a file; braid import reads files",
            (true, true) => "it has no file braid.meta",
        };
        bail!(
            "{} is not a backup: {why}; name the directory that braid backup created",
            backup.display()
        );
    }
    let absolute = std::path::absolute(target)?;
    let existing = absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    if existing
        .is_some_and(|existing| existing.starts_with(backup.canonicalize().unwrap_or_default()))
    {
        bail!(
            "{} is inside the backup, which must not change; name another directory with --db",
            target.display()
        );
    }
    if target.is_file() {
        bail!("{} is a file; name a new or empty directory with --db", target.display());
    }
    let entries = match fs::read_dir(target) {
        Ok(entries) => entries.count(),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error).context(format!("cannot read {}", target.display())),
    };
    if entries > 0 {
        bail!("{} is not empty; name a new or empty directory with --db", target.display());
    }
    Ok(())
}

/// Locks the backup, so that no process writes to it during the copy. Returns `None` if it cannot
/// be locked.
fn lock(backup: &Path) -> Result<Option<File>> {
    let file = match File::open(backup.join(LOCK)) {
        Ok(file) => file,
        // The lock file may be missing.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context(format!("cannot read {}", backup.display())),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => bail!(
            "{} is open in another process; close it there, or back it up with braid backup",
            backup.display()
        ),
        // Some file systems do not support locks.
        Err(fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// Copies the files of a database, and the identity file last. Returns the bytes written.
fn copy(backup: &Path, target: &Path) -> Result<u64> {
    let failed = || format!("cannot copy {} to {}", backup.display(), target.display());
    fs::create_dir_all(parent(target)).with_context(failed)?;
    fs::create_dir(target).with_context(failed)?;
    let mut bytes = 0;
    for entry in fs::read_dir(backup).with_context(failed)? {
        let name = entry.with_context(failed)?.file_name();
        let is_copied = |name: &str| COPIED.iter().any(|ending| name.ends_with(ending));
        if name.to_str().is_some_and(is_copied) {
            bytes += copy_file(&backup.join(&name), &target.join(&name))?;
        }
    }
    bytes += copy_file(&backup.join(IDENTITY_FILE), &target.join(IDENTITY_FILE))?;
    sync(target).with_context(failed)?;
    Ok(bytes)
}

/// Copies a file, and leaves holes instead of zeros, which fill most of the last log segment.
/// Returns the bytes written.
fn copy_file(from: &Path, to: &Path) -> Result<u64> {
    const PIECE_BYTES: usize = 64 << 10;
    let failed = || format!("cannot copy {}", from.display());
    let mut source = File::open(from).with_context(failed)?;
    let target = OpenOptions::new().write(true).create_new(true).open(to);
    let target = target.with_context(failed)?;
    let (mut piece, mut at, mut written) = (vec![0; PIECE_BYTES], 0, 0);
    loop {
        let bytes = source.read(&mut piece).with_context(failed)?;
        if bytes == 0 {
            break;
        }
        let piece = &piece[..bytes];
        if piece.iter().any(|byte| *byte != 0) {
            target.write_all_at(piece, at).with_context(failed)?;
            written += bytes as u64;
        }
        at += bytes as u64;
    }
    target.set_len(at).with_context(failed)?;
    target.sync_all().with_context(failed)?;
    Ok(written)
}

/// Opens the copy, which replays its log, and checks all of it.
fn check(store: &StoreArguments, copy: &Path, backup: &Path) -> Result<CheckReport> {
    let checked = store.open_at(copy).and_then(|db| {
        let report = once_free(|| db.check())?;
        db.close()?;
        Ok(report)
    });
    checked.map_err(|error| match damage(&error) {
        // The error names the copy, which is deleted. Name the file of the backup instead.
        Some((file, reason)) => anyhow!(
            "the backup is damaged: {reason}, in {}; nothing was restored; use another backup",
            backup.join(file).display()
        ),
        None => error.context("the backup cannot be opened; nothing was restored"),
    })
}

/// The damaged file and the damage, if the error reports damage.
fn damage(error: &anyhow::Error) -> Option<(&OsStr, &str)> {
    error.chain().find_map(|cause| match cause.downcast_ref().and_then(Error::log_error)? {
        LogError::Corrupt { path, reason, .. } => Some((path.file_name()?, reason.as_str())),
        _ => None,
    })
}

fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn sync(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// A directory that is deleted on drop, unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Fails if the directory was renamed or never created.
        _ = fs::remove_dir_all(&self.0);
    }
}
