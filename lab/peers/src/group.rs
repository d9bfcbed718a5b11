//! A control group that limits the memory of a process together with its page cache. Only this
//! limit is equal for stores with their own cache and for stores that use the page cache.

use std::path::{Path, PathBuf};

/// A group, removed when this is dropped.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

/// The directories of memory groups and the names of their limits, by version of the interface.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

impl Group {
    /// Creates a group `name` with this limit in bytes, or without a limit.
    ///
    /// # Errors
    /// Returns the reason as text; usually missing rights.
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
        // From here on `drop` removes it in any case.
        let group = Self { path: path.clone() };
        if let Some(limit) = limit {
            std::fs::write(path.join(file), limit.to_string()).map_err(said)?;
        }
        Ok(group)
    }

    /// Returns the file to which a process writes its number to enter the group.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may still be exiting.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("cannot remove {}", self.path.display());
    }
}
