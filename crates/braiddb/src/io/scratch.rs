//! Scratch files: files without a name, which exist only as long as the process has them open,
//! however it ends. They are in the system's directory for temporary files, `TMPDIR` or `/tmp`.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::File;
use crate::sync::statistic::{AtomicU64, Ordering};

/// Name prefix for systems without unnamed files. The process id and a unique number follow it, and
/// the name is removed immediately.
const PREFIX: &str = "braid-scratch";

impl File {
    /// Creates a file without a name for reading and writing. Uses direct I/O where the file system
    /// supports it. The file keeps its descriptor.
    ///
    /// # Errors
    /// Errors of `open(2)`.
    pub(super) fn scratch() -> io::Result<Self> {
        Self::scratch_in(&std::env::temp_dir())
    }

    fn scratch_in(directory: &Path) -> io::Result<Self> {
        let file = match nameless(directory, libc::O_DIRECT) {
            // The file system does not support direct I/O.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => nameless(directory, 0),
            made => made,
        };
        Ok(Self::unpooled(file?, directory.join(PREFIX)))
    }
}

/// Creates a file without a name, or with a name that is removed immediately.
fn nameless(directory: &Path, flags: i32) -> io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().custom_flags(libc::O_TMPFILE | flags).open(directory) {
        // The file system or the kernel does not support files without a name.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)
            ) => {}
        made => return made,
    }
    static USED: AtomicU64 = AtomicU64::new(0);
    loop {
        // Relaxed: only uniqueness matters.
        let number = USED.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{PREFIX}-{}-{number}", std::process::id()));
        match options.clone().create_new(true).custom_flags(flags).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                let file = made?;
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::io::{AlignedBuffer, SECTOR_BYTES};

    #[test]
    fn scratch_files_are_read_back_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (
            File::scratch_in(directory.path()).unwrap(),
            File::scratch_in(directory.path()).unwrap(),
        );
        let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
        buffer.fill(7);
        one.write_all_at(&buffer, SECTOR_BYTES as u64).unwrap();
        buffer.fill(0);
        assert_eq!(other.read_at(&mut buffer, 0).unwrap(), 0, "it is empty");
        assert_eq!(one.read_at(&mut buffer, SECTOR_BYTES as u64).unwrap(), SECTOR_BYTES);
        assert!(buffer.iter().all(|byte| *byte == 7));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let missing = File::scratch_in(&directory.path().join("missing"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
