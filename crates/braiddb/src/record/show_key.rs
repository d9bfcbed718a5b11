//! How errors show the keys of a table.

/// The key that some bytes encode, for people; `None` if that is not known.
#[derive(Clone, Copy)]
pub(crate) struct ShowKey(pub(crate) fn(&[u8]) -> Option<String>);

impl ShowKey {
    /// The key, or its bytes.
    pub(crate) fn show(self, key: &[u8]) -> String {
        (self.0)(key).unwrap_or_else(|| key.escape_ascii().to_string())
    }
}

/// No part of what keys are.
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
