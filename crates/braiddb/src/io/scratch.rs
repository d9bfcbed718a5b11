//! Files without a name, for what is of use only as long as the process holds them open: they are gone with it, however
//! it ends. They are in the system's directory for temporary files, `TMPDIR` or `/tmp`.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::File;
use crate::sync::statistic::{AtomicU64, Ordering};

/// What a file that is made under a name, where there are none without, is called until it has none; with the
/// process's number and one that it uses once.
const PREFIX: &str = "braid-scratch";

impl File {
    /// Makes a file without a name, to read and write, past the page cache where the file system allows. It keeps its
    /// descriptor.
    ///
    /// # Errors
    /// As `open(2)`.
    pub(super) fn scratch() -> io::Result<Self> {
        Self::scratch_in(&std::env::temp_dir())
    }

    fn scratch_in(directory: &Path) -> io::Result<Self> {
        let file = match nameless(directory, libc::O_DIRECT) {
            // Not past the page cache there.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => nameless(directory, 0),
            made => made,
        };
        Ok(Self::unpooled(file?, directory.join(PREFIX)))
    }
}

/// A file without a name, or one that loses its name at once.
fn nameless(directory: &Path, flags: i32) -> io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().custom_flags(libc::O_TMPFILE | flags).open(directory) {
        // The file system, or the kernel, has none without a name.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)
            ) => {}
        made => return made,
    }
    static USED: AtomicU64 = AtomicU64::new(0);
    loop {
        // Relaxed: only that each has another.
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
    fn what_is_written_is_read_and_leaves_nothing_behind() {
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
