//! An array in one anonymous mapping on huge pages, for large baselines.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Types whose all-zero bytes are a value, so that fresh pages of a mapping can hold them.
///
/// # Safety
/// The type must be plain memory: all zero bytes are a valid value, and the type has nothing to
/// drop.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: any bits are an integer.
unsafe impl Plain for u64 {}

/// An array of `length` values of `T`, initially zero, in a separate mapping.
///
/// Invariant: `start` points to a private mapping of at least `length` values, aligned for `T`,
/// unmapped only when this is dropped.
pub(crate) struct Region<T: Plain> {
    start: NonNull<T>,
    length: usize,
    owns: PhantomData<T>,
}

// SAFETY: a region owns plain memory, as a `Vec<T>` would.
unsafe impl<T: Plain + Send> Send for Region<T> {}

// SAFETY: a shared region only hands out shared references, as a `Vec<T>` would.
unsafe impl<T: Plain + Sync> Sync for Region<T> {}

impl<T: Plain> Region<T> {
    /// Maps zeroed memory for `length` values; the system allocates pages when they are first
    /// written.
    pub(crate) fn zeroed(length: usize) -> std::io::Result<Self> {
        let bytes = Self::mapped_bytes(length);
        // SAFETY: an anonymous mapping at an address that the kernel chooses affects no other
        // memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        #[cfg(target_os = "linux")]
        // SAFETY: advice about the mapping just made. Without huge pages it is only slower.
        unsafe {
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        }
        let start = NonNull::new(start.cast::<T>()).expect("a mapping is not at address 0");
        assert!(start.is_aligned(), "pages are aligned for every plain type");
        Ok(Self { start, length, owns: PhantomData })
    }

    /// Returns the address of a value. The caller may write to it if no other reference to it
    /// exists.
    pub(crate) fn pointer(&self, place: usize) -> *mut T {
        assert!(place < self.length, "{place} is outside of {} values", self.length);
        // SAFETY: by the invariant and the assertion, it is inside of the mapping.
        unsafe { self.start.as_ptr().add(place) }
    }

    fn mapped_bytes(length: usize) -> usize {
        length.max(1).checked_mul(size_of::<T>()).expect("the array fits the address space")
    }
}

impl<T: Plain> Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: by the invariant, `length` valid values start there; `&self` keeps them mapped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T: Plain> DerefMut for Region<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: by the invariant, `length` valid values start there; `&mut self` keeps them
        // mapped, and is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T: Plain> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this size, and nothing borrows it any more.
        let status =
            unsafe { libc::munmap(self.start.as_ptr().cast(), Self::mapped_bytes(self.length)) };
        assert_eq!(status, 0, "unmapping a mapped region succeeds");
    }
}
