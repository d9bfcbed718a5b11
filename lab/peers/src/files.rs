//! The files of a store: their size on disk and in the page cache, and their removal from the page
//! cache.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Calls `each` with every file below `directory`, its length and its blocks.
fn for_each(
    directory: &Path,
    each: &mut dyn FnMut(&Path, u64, u64) -> io::Result<()>,
) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let metadata = match std::fs::symlink_metadata(&path) {
            // Stores may remove files at any time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        if metadata.is_dir() {
            for_each(&path, each)?;
        } else if metadata.is_file() {
            each(&path, metadata.len(), metadata.blocks() * 512)?;
        }
    }
    Ok(())
}

/// Returns the disk space of the files below `directory`.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for_each(directory, &mut |_, _, blocks| {
        sum += blocks;
        Ok(())
    })?;
    Ok(sum)
}

/// Returns the bytes of the files below `directory` in the page cache.
///
/// # Errors
/// Fails if a file cannot be read or mapped.
pub fn cached_bytes(directory: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for_each(directory, &mut |path, length, _| {
        if length > 0 {
            sum += cached(&File::open(path)?, usize::try_from(length).map_err(io::Error::other)?)?;
        }
        Ok(())
    })?;
    Ok(sum)
}

fn cached(file: &File, length: usize) -> io::Result<u64> {
    const PAGE: usize = 4096;
    // SAFETY: a new mapping whose contents are never read or written.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut pages = vec![0_u8; length.div_ceil(PAGE)];
    // SAFETY: the mapping has `length` bytes, and `pages` a byte for each page of it.
    let status = unsafe { libc::mincore(map, length, pages.as_mut_ptr()) };
    let failed = (status != 0).then(io::Error::last_os_error);
    // SAFETY: it was mapped above, and no other code uses the mapping.
    unsafe { libc::munmap(map, length) };
    match failed {
        Some(error) => Err(error),
        None => Ok(pages.iter().filter(|page| **page & 1 == 1).count() as u64 * PAGE as u64),
    }
}

/// Writes the files below `directory` to disk and drops them from the page cache.
///
/// # Errors
/// Fails if a file cannot be synced.
pub fn forget(directory: &Path) -> io::Result<()> {
    for_each(directory, &mut |path, _, _| {
        let file = File::open(path)?;
        file.sync_all()?;
        // SAFETY: advice on an open file touches no memory of ours.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_sizes_are_measured_and_cached_pages_dropped() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("file"), vec![7; 1 << 20]).unwrap();
        assert!(disk_bytes(directory.path()).unwrap() <= 1 << 21);
        assert_eq!(cached_bytes(directory.path()).unwrap(), 1 << 20);
        forget(directory.path()).unwrap();
        assert!(disk_bytes(directory.path()).unwrap() >= 1 << 20);
        assert!(cached_bytes(directory.path()).unwrap() < 1 << 19);
    }
}
