//! The log's tail in memory: a ring of bytes, mapped once, in which LSN `l` is stored at `l mod
//! size`.
//!
//! Other modules control the access to its bytes. Only the reservation accesses the bytes it
//! reserved until it is finished. From then until they are durable, no thread changes them, and the
//! device reads them. Admission ensures that they are not reserved again before.

use std::ptr::NonNull;

use super::Lsn;

/// Maximum ring size: blocks store distances within the ring in 32 bits.
pub(crate) const MAX_RING: u64 = 2 << 30;

/// An anonymous mapping of a power of two bytes, zeroed and page-aligned.
#[derive(Debug)]
pub(super) struct Ring {
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the ring is plain memory; the module comment states which thread accesses which part.
unsafe impl Send for Ring {}
// SAFETY: a shared ring returns only addresses; a thread that copies to it has exclusive access to
// those bytes (`copy_in`).
unsafe impl Sync for Ring {}

impl Ring {
    pub(super) fn new(bytes: usize) -> std::io::Result<Self> {
        assert!(bytes.is_power_of_two(), "positions wrap by masking");
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping affects no existing memory.
        let pointer = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if pointer == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let pointer = NonNull::new(pointer.cast()).expect("the kernel maps nothing at null");
        Ok(Self { pointer, bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn offset(&self, lsn: u64) -> usize {
        lsn as usize & (self.bytes - 1)
    }

    /// Returns the address of a position's byte.
    pub(super) fn at(&self, lsn: Lsn) -> *const u8 {
        // SAFETY: the mask keeps the offset within the mapping.
        unsafe { self.pointer.as_ptr().add(self.offset(lsn.0)) }
    }

    /// Copies bytes to a position, wrapping around the end if necessary.
    ///
    /// # Safety
    /// The caller has exclusive access to these bytes of the ring.
    #[inline]
    pub(super) unsafe fn copy_in(&self, lsn: u64, bytes: &[u8]) {
        let offset = self.offset(lsn);
        if bytes.len() > self.bytes - offset {
            // SAFETY: the caller has exclusive access to the bytes, as it promised.
            return unsafe { self.copy_around(offset, bytes) };
        }
        // The length stays visible to the compiler, which turns short copies into moves. SAFETY:
        // ends within the mapping; the caller has exclusive access to the bytes.
        unsafe {
            let to = self.pointer.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Copies parts to consecutive positions from `lsn` on.
    ///
    /// # Safety
    /// As for `copy_in`.
    #[inline(always)]
    pub(super) unsafe fn copy_in_all<const N: usize>(&self, lsn: u64, parts: [&[u8]; N]) {
        let offset = self.offset(lsn);
        if parts.iter().map(|part| part.len()).sum::<usize>() > self.bytes - offset {
            // SAFETY: the caller has exclusive access to the bytes, as it promised.
            return unsafe { self.copy_each(lsn, parts) };
        }
        // SAFETY: within the mapping, by the mask.
        let mut to = unsafe { self.pointer.as_ptr().add(offset) };
        for part in parts {
            // SAFETY: ends within the mapping, by the check of the sum; the caller has exclusive
            // access to the bytes.
            unsafe {
                match part.len() {
                    // A short key or value: a single move.
                    8 => std::ptr::copy_nonoverlapping(part.as_ptr(), to, 8),
                    bytes => std::ptr::copy_nonoverlapping(part.as_ptr(), to, bytes),
                }
                to = to.add(part.len());
            }
        }
    }

    /// # Safety
    /// As for `copy_in`.
    #[cold]
    #[inline(never)]
    unsafe fn copy_each<const N: usize>(&self, mut lsn: u64, parts: [&[u8]; N]) {
        for part in parts {
            // SAFETY: the caller has exclusive access to the bytes, as it promised.
            unsafe { self.copy_in(lsn, part) };
            lsn += part.len() as u64;
        }
    }

    /// # Safety
    /// As for `copy_in`.
    #[cold]
    unsafe fn copy_around(&self, offset: usize, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(self.bytes - offset);
        assert!(rest.len() <= offset, "no block is as long as the ring");
        let start = self.pointer.as_ptr();
        // SAFETY: within the mapping; the caller has exclusive access to the bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(first.as_ptr(), start.add(offset), first.len());
            std::ptr::copy_nonoverlapping(rest.as_ptr(), start, rest.len());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no reference to it remains.
        unsafe { libc::munmap(self.pointer.as_ptr().cast(), self.bytes) };
    }
}
