//! Formats the keys of a table in errors.

/// Formats an encoded key for humans; `None` if its type is not known.
#[derive(Clone, Copy)]
pub(crate) struct ShowKey(pub(crate) fn(&[u8]) -> Option<String>);

impl ShowKey {
    /// Formats the key, or its bytes.
    pub(crate) fn show(self, key: &[u8]) -> String {
        (self.0)(key).unwrap_or_else(|| key.escape_ascii().to_string())
    }
}

/// The format does not affect the equality of keys.
impl PartialEq for ShowKey {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ShowKey {}

impl std::fmt::Debug for ShowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShowKey")
    }
}

/// An encoded key. Errors show it as its type defines ([`Key::shown`](crate::Key::shown)), or as
/// its bytes. [`RecordKey::key_as`](crate::RecordKey::key_as) and
/// [`UniqueViolation::key_as`](crate::UniqueViolation::key_as) decode it.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedKey {
    bytes: Vec<u8>,
    show_key: ShowKey,
}

impl EncodedKey {
    pub(crate) fn new(key: &[u8], show_key: ShowKey) -> Self {
        Self { bytes: key.to_vec(), show_key }
    }
}

impl std::ops::Deref for EncodedKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Display for EncodedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.show_key.show(&self.bytes))
    }
}

impl std::fmt::Debug for EncodedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.bytes.escape_ascii())
    }
}
