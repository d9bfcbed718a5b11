//! Buffer for encoded keys, on the stack while they are short.

use smallvec::SmallVec;

const INLINE_BYTES: usize = 32;

/// The bytes of an encoded key; up to 32 of them need no allocation.
///
/// ```
/// use braiddb::KeyBuffer;
///
/// let mut key = KeyBuffer::new();
/// key.push(1);
/// key.extend_from_slice(b"ab");
/// key.extend_from_array([7, 8]);
/// assert_eq!(&*key, [1, b'a', b'b', 7, 8]);
/// key.clear();
/// assert!(key.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyBuffer(SmallVec<[u8; INLINE_BYTES]>);

impl KeyBuffer {
    /// Creates an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a buffer with these bytes.
    pub(crate) fn from_slice(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// Appends one byte.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Appends bytes.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends an array. For an empty buffer this is a plain store.
    #[inline(always)]
    pub fn extend_from_array<const N: usize>(&mut self, bytes: [u8; N]) {
        const { assert!(N <= INLINE_BYTES) };
        if !self.0.is_empty() {
            return self.extend_from_slice(&bytes);
        }
        let mut buffer = [0; INLINE_BYTES];
        buffer[..N].copy_from_slice(&bytes);
        self.0 = SmallVec::from_buf_and_len(buffer, N);
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the inner small vector, for layers that fill it themselves.
    pub(crate) fn inner_mut(&mut self) -> &mut SmallVec<[u8; INLINE_BYTES]> {
        &mut self.0
    }
}

impl std::ops::Deref for KeyBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for KeyBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
