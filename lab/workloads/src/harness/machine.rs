//! The machine of a measurement, which every report includes.

use serde::Serialize;

use super::process;

/// The properties of a machine that matter for comparing figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Size of the last-level cache as the kernel writes it, for example `32768K`.
    pub last_level_cache: Option<String>,
    /// Physical memory.
    pub memory_bytes: Option<u64>,
    /// The operating system.
    pub kernel: String,
    /// The kernel's setting for transparent huge pages.
    pub huge_pages: Option<String>,
    /// True if this program was built with optimisations.
    pub optimised: bool,
    /// Version of the workspace.
    pub version: &'static str,
}

impl Machine {
    /// Returns the description of this machine.
    pub fn here() -> Self {
        Self {
            processor: processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            last_level_cache: last_level_cache(),
            memory_bytes: process::meminfo("MemTotal:"),
            kernel: kernel(),
            huge_pages: huge_pages(),
            optimised: !cfg!(debug_assertions),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field("model name")?;
    // Virtual machines often name only the vendor; family and model then identify the generation.
    match (field("cpu family"), field("model\t")) {
        (Some(family), Some(number)) => Some(format!("{model} (family {family}, model {number})")),
        _ => Some(model),
    }
}

fn last_level_cache() -> Option<String> {
    let index = |i: usize| format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size");
    let sizes = (0..8).map_while(|i| std::fs::read_to_string(index(i)).ok());
    sizes.last().map(|size| size.trim().to_owned())
}

fn kernel() -> String {
    match std::fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => format!("{} {}", std::env::consts::OS, release.trim()),
        Err(_) => std::env::consts::OS.to_owned(),
    }
}

fn huge_pages() -> Option<String> {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}
