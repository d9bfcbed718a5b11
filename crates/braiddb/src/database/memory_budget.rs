//! The memory budget of a database, and the memory limit set by the machine or by the control group
//! of the process.
//!
//! Limits of control groups apply to their descendants too. The lowest limit on the path from the
//! process's group to the root is therefore effective. A container cannot see the groups above its
//! own; its own group appears as the root.

use std::fs;
use std::path::Path;

/// The limit in bytes for records, indexes and the log's ring together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryBudget {
    /// Half of the memory of the machine at opening, or half of the limit of the process's control
    /// group (version 2 or 1) if that is lower. If neither is known, 256 MiB. A database that
    /// exists only in memory has no limit, because it cannot evict anything to disk.
    #[default]
    Automatic,
    /// This number of bytes. It must be larger than the log's ring
    /// ([`Tuning::log_ring_bytes`](crate::Tuning::log_ring_bytes)).
    Bytes(u64),
    /// No limit.
    Unlimited,
}

/// Divisor of the memory available to the process. The rest is for the program itself and the
/// kernel's buffers.
const SHARE: u64 = 2;
/// The budget if the available memory is unknown, without the ring.
const FALLBACK_BYTES: u64 = 256 << 20;
/// The default size of the log's ring. If this exceeds the ring's share of the budget, the ring
/// gets its minimum size.
const DEFAULT_RING: u64 = 64 << 20;
const MIN_RING: u64 = 32 << 20;
const RING_SHARE: u64 = 4;

impl From<u64> for MemoryBudget {
    fn from(bytes: u64) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Option<u64>> for MemoryBudget {
    fn from(bytes: Option<u64>) -> Self {
        bytes.map_or(Self::Unlimited, Self::Bytes)
    }
}

impl MemoryBudget {
    /// Returns the budget of a database with a log, and the size of its ring.
    ///
    /// # Errors
    /// A message if the budget does not exceed the ring.
    pub(super) fn resolve(self, ring: RingSize) -> Result<ResolvedBudget, String> {
        self.resolve_of(ring, || available(Path::new("/")))
    }

    fn resolve_of(
        self,
        ring: RingSize,
        available: impl FnOnce() -> Option<u64>,
    ) -> Result<ResolvedBudget, String> {
        let usual = ring.beside(None);
        let (bytes, origin) = match self {
            Self::Unlimited => return Ok(ResolvedBudget { budget: None, ring_bytes: usual }),
            Self::Bytes(bytes) => (bytes, String::new()),
            Self::Automatic => {
                let Some(all) = available() else {
                    let budget = Some(FALLBACK_BYTES + usual);
                    return Ok(ResolvedBudget { budget, ring_bytes: usual });
                };
                let origin = format!(", half of the {all} that this machine or control group has");
                (all / SHARE, origin)
            }
        };
        let ring_bytes = ring.beside(Some(bytes));
        if bytes > ring_bytes {
            return Ok(ResolvedBudget { budget: Some(bytes), ring_bytes });
        }
        let least = ring.least(MIN_RING);
        let instead = match (ring_bytes > least, least > MIN_RING) {
            (true, _) => ", or a smaller ring",
            // The transactions that each worker may run concurrently require this size.
            (false, true) => ", or fewer workers",
            (false, false) => "",
        };
        Err(format!(
            "memory_budget is {bytes} bytes{origin}, but the log ring alone takes {ring_bytes} \
             (log_ring_bytes): set a larger budget{instead}"
        ))
    }
}

/// The requirements for the size of the log's ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSize {
    /// The value of [`Tuning::log_ring_bytes`](crate::Tuning::log_ring_bytes).
    pub(super) asked: Option<u64>,
    /// The ring size that the concurrent transactions of all workers may need, in bytes.
    pub(super) under_way: u64,
}

/// The resolved budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResolvedBudget {
    /// The budget in bytes; `None` without a limit.
    pub(super) budget: Option<u64>,
    /// The size of the log's ring in bytes.
    pub(super) ring_bytes: u64,
}

impl RingSize {
    /// Returns the size of the ring for a budget.
    fn beside(self, budget: Option<u64>) -> u64 {
        let small = budget.is_some_and(|bytes| bytes / RING_SHARE < DEFAULT_RING);
        self.least(self.asked.unwrap_or(if small { MIN_RING } else { DEFAULT_RING }))
    }

    /// Returns a ring size of `bytes`, or more if the workers need it.
    fn least(self, bytes: u64) -> u64 {
        bytes.max(self.under_way).next_power_of_two()
    }
}

/// Returns the memory available to this process in bytes, according to the files below `root`: the
/// memory of the machine, or the limit of a control group if that is lower.
fn available(root: &Path) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok();
    let machine = machine.as_deref().and_then(total_of_machine);
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = root.join("sys/fs/cgroup");
    let of_groups = groups.lines().flat_map(|line| {
        // Each line has the form "hierarchy:controllers:path". Version 2 has hierarchy 0 and no
        // controllers.
        let mut parts = line.splitn(3, ':');
        let (number, controllers) = (parts.next(), parts.next().unwrap_or_default());
        let path = parts.next().unwrap_or_default();
        if number == Some("0") && controllers.is_empty() {
            let found = ["", "unified"].map(|mount| least(&mounts.join(mount), path, "memory.max"));
            return found.into_iter().flatten().min();
        }
        let of_memory = controllers.split(',').any(|controller| controller == "memory");
        of_memory.then(|| least(&mounts.join("memory"), path, "memory.limit_in_bytes")).flatten()
    });
    machine.into_iter().chain(of_groups).min()
}

/// Returns the memory of the machine in bytes, from the text of `/proc/meminfo`.
fn total_of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the lowest number in the files `name` of a group and of the groups above it.
fn least(mount: &Path, group: &str, name: &str) -> Option<u64> {
    let group = Path::new(group.trim_start_matches('/'));
    // "max" does not parse, and means no limit.
    let bound =
        |group: &Path| fs::read_to_string(mount.join(group).join(name)).ok()?.trim().parse().ok();
    group.ancestors().filter_map(bound).min()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    /// Returns the memory available according to these files.
    fn available_by(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available(root.path())
    }

    const MACHINE: (&str, &str) =
        ("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:          123456 kB\n");

    #[test]
    fn the_machines_memory_counts_where_no_group_bounds_it() {
        assert_eq!(available_by(&[MACHINE]), Some(8 * GIB));
        let unbounded = [
            MACHINE,
            ("proc/self/cgroup", "0::/user.slice/a\n"),
            ("sys/fs/cgroup/user.slice/a/memory.max", "max\n"),
        ];
        assert_eq!(available_by(&unbounded), Some(8 * GIB));
        assert_eq!(available_by(&[]), None);
        assert_eq!(available_by(&[("proc/meminfo", "nothing of the kind")]), None);
    }

    #[test]
    fn the_least_bound_of_a_group_and_those_above_it_counts() {
        let version_2 = [
            MACHINE,
            ("proc/self/cgroup", "0::/system.slice/a.service\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/system.slice/a.service/memory.max", "2147483648\n"),
        ];
        assert_eq!(available_by(&version_2), Some(GIB));
        // A container, whose own group appears as the root.
        let container =
            [MACHINE, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "536870912\n")];
        assert_eq!(available_by(&container), Some(GIB / 2));
        let version_1 = [
            MACHINE,
            ("proc/self/cgroup", "11:cpu,cpuacct:/x\n4:memory:/docker/0a1b\n1:name=systemd:/x\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/docker/0a1b/memory.limit_in_bytes", "3221225472\n"),
        ];
        assert_eq!(available_by(&version_1), Some(3 * GIB));
        // A container with version 1: the path is the host's, and the files are at the root of the
        // mount.
        let hidden = [
            MACHINE,
            ("proc/self/cgroup", "4:memory:/docker/0a1b\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
        ];
        assert_eq!(available_by(&hidden), Some(GIB));
        let more_than_there_is = [
            MACHINE,
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "99999999999999\n"),
        ];
        assert_eq!(available_by(&more_than_there_is), Some(8 * GIB));
    }

    const THREE_WORKERS: u64 = 29 * MIB;

    #[test]
    fn a_budget_leaves_room_beside_the_ring() {
        let of = |budget: MemoryBudget, all| {
            let ring = RingSize { asked: Some(64 * MIB), under_way: THREE_WORKERS };
            budget.resolve_of(ring, || all).map(|resolved| {
                assert_eq!(resolved.ring_bytes, 64 * MIB);
                resolved.budget
            })
        };
        let ring = 64 * MIB;
        assert_eq!(of(MemoryBudget::Automatic, Some(8 * GIB)), Ok(Some(4 * GIB)));
        assert_eq!(of(MemoryBudget::Automatic, None), Ok(Some(320 * MIB)));
        assert_eq!(of(MemoryBudget::Unlimited, Some(1)), Ok(None));
        assert_eq!(of(MemoryBudget::Bytes(ring + 1), Some(1)), Ok(Some(ring + 1)));
        let message = of(MemoryBudget::Bytes(ring), Some(8 * GIB)).unwrap_err();
        assert!(message.contains("memory_budget is 67108864 bytes, but"), "{message}");
        assert!(message.contains("takes 67108864 (log_ring_bytes)"), "{message}");
        let message = of(MemoryBudget::Automatic, Some(100 * MIB)).unwrap_err();
        assert!(message.contains("52428800 bytes, half of the 104857600"), "{message}");
        assert!(message.contains("67108864") && message.contains("smaller ring"), "{message}");
    }

    #[test]
    fn the_ring_that_nobody_set_is_smaller_in_a_small_budget() {
        let of = |budget: MemoryBudget, under_way, all| {
            let ring = RingSize { asked: None, under_way };
            budget.resolve_of(ring, || all).map(|resolved| resolved.ring_bytes)
        };
        let by_bytes = |bytes| of(MemoryBudget::Bytes(bytes), THREE_WORKERS, None);
        assert_eq!(by_bytes(GIB), Ok(64 * MIB));
        assert_eq!(by_bytes(256 * MIB), Ok(64 * MIB));
        assert_eq!(by_bytes(256 * MIB - 1), Ok(32 * MIB));
        assert_eq!(by_bytes(32 * MIB + 1), Ok(32 * MIB));
        let message = by_bytes(32 * MIB).unwrap_err();
        assert!(message.contains("takes 33554432") && !message.contains("smaller"), "{message}");
        let automatic = |all| of(MemoryBudget::Automatic, THREE_WORKERS, all);
        assert_eq!(automatic(Some(8 * GIB)), Ok(64 * MIB));
        assert_eq!(automatic(Some(256 * MIB)), Ok(32 * MIB));
        assert_eq!(automatic(None), Ok(64 * MIB));
        assert_eq!(of(MemoryBudget::Unlimited, THREE_WORKERS, Some(1)), Ok(64 * MIB));
        // Many workers need a larger ring, so their requirement determines the size.
        assert_eq!(of(MemoryBudget::Bytes(70 * MIB), 33 * MIB, None), Ok(64 * MIB));
        let message = of(MemoryBudget::Bytes(60 * MIB), 33 * MIB, None).unwrap_err();
        assert!(message.contains("takes 67108864"), "{message}");
        assert!(message.ends_with("or fewer workers"), "{message}");
    }
}
