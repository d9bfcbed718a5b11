//! Backup of a database that this process does not have open. It only reads the directory, in which
//! another process may write.
//!
//! The copy contains the newest checkpoint, the log up to its last complete block, and the images
//! of pages that the checkpoint lists. As in a read-only opening, the shared locks on the files keep
//! the writer from reusing what is copied (`log/read_only.rs`, `page/zone.rs`). A lock may be
//! missing, for example where the file system has none, or after the writer was restarted. So the
//! headers of segments are read again after the copy. If a newer checkpoint exists then, the images
//! in the copy are checked.

use std::path::Path;

use super::checkpoint::{self, CheckpointReader};
use crate::log::{DirectoryCopy, Log, LogError, LogFiles, LogOptions, Lsn};
use crate::page::StoredImages;

/// A copied database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackupCopy {
    /// The copy contains exactly the commits before this LSN.
    pub(crate) until: Lsn,
    pub(crate) bytes: u64,
    pub(crate) page_bytes: u64,
}

/// Copies the database in the directory of `options` into an empty directory, with blocking calls.
///
/// # Errors
/// As [`LogFiles::copy_to`], and those of a read-only opening. A writer may cause any of them, so
/// the caller tries again if the directory has changed.
pub(crate) fn back_up(options: &LogOptions, target: &Path) -> Result<BackupCopy, LogError> {
    let (log, mut reader) = Log::open_read_only(options)?;
    let files = log.readable_files().expect("a log that was opened has files");
    files.note_loaded_checkpoint()?;
    let checkpoint = match checkpoint::newest(&files)? {
        Some(lsn) => Some((CheckpointReader::open(&files, lsn)?, lsn)),
        None => None,
    };
    let (mut images, mut end, mut file) = (None, Lsn::FIRST, None);
    if let Some((mut listed, lsn)) = checkpoint {
        images = listed.claim_images()?;
        if files.is_superseded() {
            // The places may have been overwritten before this process locked the zones.
            return Err(outdated(&files));
        }
        reader.check_before(lsn)?;
        reader.start_at(lsn);
        end = listed.end;
        file = Some(listed.into_file());
    }
    while reader.next_block()?.is_some() {}
    let until = reader.end();
    if until < end {
        return Err(files.cut_short(until, end));
    }
    let mut page_bytes = 0;
    let copy_images = |copy: &DirectoryCopy<'_>| {
        page_bytes = images.map_or(Ok(0), |images: StoredImages| images.copy_to(copy))?;
        Ok(page_bytes)
    };
    let check = |copy: &Path| {
        files.check_current()?;
        if file.is_some() && files.is_superseded() {
            let (copy, _) = Log::open_read_only(&LogOptions::new(copy, 1))?;
            let copy = copy.readable_files().expect("a log that was opened has files");
            let newest = checkpoint::newest(&copy)?.expect("the copy has the checkpoint");
            checkpoint::check(&copy, newest).map_err(|_| outdated(&files))?;
        }
        Ok(())
    };
    let bytes = files.copy_to(target, file.as_ref(), until, copy_images, check)?;
    Ok(BackupCopy { until, bytes, page_bytes })
}

fn outdated(files: &LogFiles) -> LogError {
    LogError::Outdated { path: files.directory().path().into() }
}
