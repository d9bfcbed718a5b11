//! A control group that bounds the memory of a process together with the page cache it fills: the only bound that is
//! the same for stores with caches of their own and for stores that live in the page cache.

use std::path::{Path, PathBuf};

/// A group, removed when this is dropped.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

/// Where the groups for memory are, and what its limit is called, by version of the interface.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

impl Group {
    /// A new group with this limit in bytes, or without one, called by `name`.
    ///
    /// # Errors
    /// Why there can be none, in words: usually rights.
    pub fn new(name: &str, limit: Option<u64>) -> Result<Self, String> {
        let (parent, file) = PLACES
            .into_iter()
            .find(|(place, _)| {
                ["memory.usage_in_bytes", "memory.stat"]
                    .iter()
                    .any(|file| Path::new(place).join(file).exists())
            })
            .ok_or("there are no control groups for memory")?;
        let path = Path::new(parent).join(name);
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir(&path).map_err(said)?;
        // From here on it is removed, whatever happens.
        let group = Self { path: path.clone() };
        if let Some(limit) = limit {
            std::fs::write(path.join(file), limit.to_string()).map_err(said)?;
        }
        Ok(group)
    }

    /// What a process writes its number to, to be in the group.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may still be on its way out.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("cannot remove {}", self.path.display());
    }
}
