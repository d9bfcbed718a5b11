//! `restore`: a backup becomes a database again.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use braiddb::{CheckReport, Error, LogError};

use crate::output::{Output, counted};
use crate::store::StoreArguments;
use crate::store::once_free;
use crate::verb::path_error::IDENTITY_FILE;

/// What whoever has a database open keeps locked.
const LOCK: &str = "LOCK";
/// What the names of a database's files end with, but for that which makes it one: the log, checkpoints, and pages to which these lead.
const COPIED: [&str; 3] = [".seg", ".ckpt", ".zone"];

/// Copies a backup to where there is no database yet, checks the copy, and gives it its place.
pub fn run(backup: &Path, store: &StoreArguments, output: &Output) -> Result<ExitCode> {
    let target = &store.db;
    check_places(backup, target)?;
    let lock = lock(backup)?;
    let name = target.file_name().with_context(|| format!("{} has no name", target.display()))?;
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = Unfinished(target.with_file_name(unfinished));
    let bytes = copy(backup, &unfinished.0)?;
    drop(lock);
    let report = check(store, &unfinished.0, backup)?;
    if !report.problems.is_empty() {
        // By the names of the backup's files: the copy is gone when this is read.
        let (copy, original) = (unfinished.0.display().to_string(), backup.display().to_string());
        for problem in &report.problems {
            eprintln!("braid: {}", problem.replace(&copy, &original));
        }
        bail!("the backup {original} is damaged; nothing was restored; take another backup");
    }
    let failed = || format!("cannot give {} its name", target.display());
    fs::rename(&unfinished.0, target).with_context(failed)?;
    sync(parent(target)).with_context(failed)?;
    if output.json {
        output.document(&Restored { bytes, records: report.records })?;
    } else {
        let (target, records) = (target.display(), counted(report.records, "record"));
        output.line(&format!("{target} holds the backup, checked: {records}, {bytes} bytes"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a restoration did.
#[derive(Debug, serde::Serialize)]
struct Restored {
    /// Bytes that were written.
    bytes: u64,
    /// Records that were checked, those of the catalog included.
    records: u64,
}

/// Refuses what is no backup, and a target where something is.
fn check_places(backup: &Path, target: &Path) -> Result<()> {
    if !backup.join(IDENTITY_FILE).is_file() {
        let why = match (backup.exists(), backup.is_dir()) {
            (false, _) => "there is no such directory",
            (true, false) => "it is a file, such as braid import reads",
            (true, true) => "it holds no database, for it has no file braid.meta",
        };
        bail!(
            "{} is no backup: {why}; name the directory that braid backup made",
            backup.display()
        );
    }
    let there = std::path::absolute(target)?;
    let there = there.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    if there.is_some_and(|there| there.starts_with(backup.canonicalize().unwrap_or_default())) {
        bail!(
            "{} lies within the backup, which is only read; name another directory with --db",
            target.display()
        );
    }
    if target.is_file() {
        bail!("{} is a file; name a directory that is new or empty with --db", target.display());
    }
    let entries = match fs::read_dir(target) {
        Ok(entries) => entries.count(),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error).context(format!("cannot read {}", target.display())),
    };
    if entries > 0 {
        bail!(
            "{} is not empty, and nothing is written over; name a directory that is new or empty with --db",
            target.display()
        );
    }
    Ok(())
}

/// Keeps others from opening the backup meanwhile, if it can be locked.
fn lock(backup: &Path) -> Result<Option<File>> {
    let file = match File::open(backup.join(LOCK)) {
        Ok(file) => file,
        // A copy of a backup need not have one.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context(format!("cannot read {}", backup.display())),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => bail!(
            "{} is open in another process; close it there, or make a backup of it with braid backup",
            backup.display()
        ),
        // Some file systems have no locks.
        Err(fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// Copies the files of a database, the one that makes it one last; returns their bytes.
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

/// Copies a file, and leaves holes where it has nothing but zeros, as most of a log's last segment is; returns the
/// bytes that were written.
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

/// Opens the copy, which replays its log, and looks at all that is in it.
fn check(store: &StoreArguments, copy: &Path, backup: &Path) -> Result<CheckReport> {
    let checked = store.open_at(copy).and_then(|db| {
        let report = once_free(|| db.check())?;
        db.close()?;
        Ok(report)
    });
    checked.map_err(|error| match damage(&error) {
        // The copy, which it speaks of, is gone when that is read.
        Some((file, reason)) => anyhow!(
            "the backup is damaged: {reason}, in {}; nothing was restored; take another backup",
            backup.join(file).display()
        ),
        None => error.context("the backup cannot be opened; nothing was restored"),
    })
}

/// The file that is damaged, if that is what an error says, and how.
fn damage(error: &anyhow::Error) -> Option<(&OsStr, &str)> {
    error.chain().find_map(|cause| {
        let log = match cause.downcast_ref() {
            Some(Error::Log(log)) => log,
            _ => return None,
        };
        match &**log {
            LogError::Corrupt { path, reason, .. } => Some((path.file_name()?, reason.as_str())),
            _ => None,
        }
    })
}

fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn sync(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// A directory that is removed with what is in it, unless it has another name by then.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // There is none once it was renamed, or if it could not be made.
        _ = fs::remove_dir_all(&self.0);
    }
}
