//! `fio`, if it is installed: the disk's rate for writes like the log's, and for reads like those
//! of cold records.

use std::path::Path;
use std::process::Command;

/// The results of fio.
pub(crate) struct Fio {
    pub(crate) bytes_a_second: f64,
    pub(crate) operations_a_second: f64,
}

impl Fio {
    /// Runs direct, synced, sequential writes at depth two, like the log, to a new file or over an
    /// existing one. Returns `None` without fio.
    pub(crate) fn write(file: &Path, bytes: u64, new: bool, quick: bool) -> Option<Self> {
        let overwrite = if new { "--overwrite=0" } else { "--overwrite=1" };
        let size = if quick { "--size=2m" } else { "--size=2g" };
        let block = format!("--bs={bytes}");
        Self::run(file, "write", "write", &["--sync=dsync", "--iodepth=2", overwrite, size, &block])
    }

    /// Runs direct reads of random sectors in a file of `bytes` at this depth. Returns `None`
    /// without fio.
    pub(crate) fn read(file: &Path, bytes: u64, depth: usize, quick: bool) -> Option<Self> {
        let (depth, size) = (format!("--iodepth={depth}"), format!("--size={bytes}"));
        let period = if quick { "--runtime=100ms" } else { "--runtime=2" };
        Self::run(file, "randread", "read", &["--bs=4096", "--time_based", &depth, &size, period])
    }

    /// Runs one job with a pattern; `kind` is the name of its section in fio's output.
    fn run(file: &Path, pattern: &str, kind: &str, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new("fio");
        command
            .arg("--name=braid")
            .arg(format!("--rw={pattern}"))
            .args(["--direct=1", "--ioengine=io_uring", "--randrepeat=0"])
            .args(arguments)
            .arg(format!("--filename={}", file.display()))
            .arg("--output-format=json");
        let output = command.output().ok()?;
        // The file may be missing.
        let _ = std::fs::remove_file(file);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let figure = |name: &str| told["jobs"][0][kind][name].as_f64();
        let (bytes_a_second, operations_a_second) = (figure("bw_bytes")?, figure("iops")?);
        output.status.success().then_some(Self { bytes_a_second, operations_a_second })
    }
}
