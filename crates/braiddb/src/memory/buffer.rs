//! Growable byte buffer in the engine's own allocator. Its memory is returned after a peak, and
//! eviction counts it until then. The program's allocator may keep such memory (glibc kept 200 MiB
//! that a load had needed).

use std::alloc::Layout;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::{allocate_unset, free_uncounted};

/// Growable byte buffer. Its owner counts its memory.
///
/// Invariant: `block` has room for `capacity` bytes, of which the first `len` were written; it
/// dangles if `capacity` is zero.
pub(crate) struct Buffer {
    block: NonNull<u8>,
    len: usize,
    capacity: usize,
}

/// Room of a buffer for words. The words that were appended belong to its contents in the end.
///
/// Invariant: the block, which is borrowed exclusively, has room for `capacity` words from `start`
/// on, of which the first `used` were written.
pub(crate) struct SpareWords<'b> {
    start: NonNull<[u8; 8]>,
    used: usize,
    capacity: usize,
    len: &'b mut usize,
}

// SAFETY: it owns its block, whose bytes are reachable only through it.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference to it only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    const MIN_BYTES: usize = 64;

    /// Creates an empty buffer with room for `capacity` bytes.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut buffer = Self::default();
        buffer.set_capacity(capacity);
        buffer
    }

    /// Returns the number of bytes for which it has room.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends bytes.
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        let len =
            self.len.checked_add(bytes.len()).expect("no more bytes than there are addresses");
        if len > self.capacity {
            self.set_capacity(len.max(2 * self.capacity).max(Self::MIN_BYTES));
        }
        // SAFETY: the block has room for `len` bytes, and `bytes` do not overlap it, as the block
        // is borrowed exclusively.
        unsafe {
            self.block
                .add(self.len)
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len())
        };
        self.len = len;
    }

    /// Returns access to the room for whole words behind the contents, which appends to them.
    pub(crate) fn spare_words(&mut self) -> SpareWords<'_> {
        let capacity = (self.capacity - self.len) / size_of::<u64>();
        // SAFETY: within the block, or its end.
        let start = unsafe { self.block.add(self.len) };
        SpareWords { start: start.cast(), used: 0, capacity, len: &mut self.len }
    }

    /// Removes all bytes after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes all bytes, and frees the block if its capacity exceeds `most` bytes.
    pub(crate) fn clear_keeping(&mut self, most: usize) {
        self.len = 0;
        if self.capacity > most {
            self.set_capacity(0);
        }
    }

    /// Moves the contents to a block of another size, which is at least `len`.
    fn set_capacity(&mut self, capacity: usize) {
        let layout =
            |bytes| Layout::array::<u8>(bytes).expect("no more bytes than there are addresses");
        let block = match capacity {
            0 => NonNull::dangling(),
            _ => allocate_unset(layout(capacity)),
        };
        // SAFETY: both have room for `len` bytes (or `len` is zero), and a new block overlaps no other.
        unsafe { block.copy_from_nonoverlapping(self.block, self.len) };
        if self.capacity > 0 {
            // SAFETY: allocated here with this layout, and no longer referenced.
            unsafe { free_uncounted(self.block, layout(self.capacity)) };
        }
        (self.block, self.capacity) = (block, capacity);
    }
}

impl SpareWords<'_> {
    /// Appends words, in little-endian order, and returns their address, which is valid until the
    /// buffer is changed; `None` if the room is too small.
    #[inline(always)]
    pub(crate) fn append<W>(
        &mut self,
        words: &[W],
        get: impl Fn(&W) -> u64,
    ) -> Option<NonNull<u8>> {
        let end = self.used + words.len();
        if end > self.capacity {
            return None;
        }
        // SAFETY: within the block, or its end.
        let target = unsafe { self.start.add(self.used) };
        match words {
            // SAFETY: the block has room for the word, checked above.
            [word] => unsafe { target.write(get(word).to_le_bytes()) },
            // SAFETY: the block has room for the words, checked above.
            _ => unsafe { write_words(target, words, get) },
        }
        self.used = end;
        Some(target.cast())
    }
}

impl Drop for SpareWords<'_> {
    fn drop(&mut self) {
        *self.len += self.used * size_of::<u64>();
    }
}

/// Writes words to an address, in little-endian order.
///
/// # Safety
/// The address has room for them.
#[inline(never)]
unsafe fn write_words<W>(target: NonNull<[u8; 8]>, words: &[W], get: impl Fn(&W) -> u64) {
    for (number, word) in words.iter().enumerate() {
        // SAFETY: within the room, which needs no alignment.
        unsafe { target.add(number).write(get(word).to_le_bytes()) };
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::with_capacity(bytes.len());
        buffer.extend_from_slice(bytes);
        buffer
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self { block: NonNull::dangling(), len: 0, capacity: 0 }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.clear_keeping(0);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the first `len` bytes were written, and change through an exclusive reference only.
        unsafe { NonNull::slice_from_raw_parts(self.block, self.len).as_ref() }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the first `len` bytes were written, and this reference is exclusive.
        unsafe { NonNull::slice_from_raw_parts(self.block, self.len).as_mut() }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.len, self.capacity)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};

    #[test]
    fn buffer_behaves_like_a_vector() {
        with_limit(PART_SECONDS, |_| {
            let mut random = fastrand::Rng::with_seed(1);
            let (mut buffer, mut vector) = (Buffer::default(), Vec::new());
            for _ in 0..20_000 {
                match random.u8(..) {
                    0 => {
                        let most = random.usize(..4096);
                        buffer.clear_keeping(most);
                        assert!(buffer.capacity <= most);
                        vector.clear();
                    }
                    1..20 => {
                        let len = random.usize(..=vector.len() + 10);
                        buffer.truncate(len);
                        vector.truncate(len);
                    }
                    20..40 if !vector.is_empty() => {
                        let place = random.usize(..vector.len());
                        buffer[place] = 7;
                        vector[place] = 7;
                    }
                    fill => {
                        let more = vec![fill; random.usize(..300)];
                        buffer.extend_from_slice(&more);
                        vector.extend_from_slice(&more);
                    }
                }
                assert_eq!(&*buffer, &*vector);
            }
        });
    }
}
