//! `fio`, if it is installed: what the disk itself does with writes like the log's, and with reads
//! like those of cold records.

use std::path::Path;
use std::process::Command;

/// What fio measured.
pub(crate) struct Fio {
    pub(crate) bytes_a_second: f64,
    pub(crate) operations_a_second: f64,
}

impl Fio {
    /// Direct, synced writes in order, two under way as the log has them, into a new file, as a
    /// log's are, or over one that was written before; `None` without fio.
    pub(crate) fn write(file: &Path, bytes: u64, new: bool, quick: bool) -> Option<Self> {
        let overwrite = if new { "--overwrite=0" } else { "--overwrite=1" };
        let size = if quick { "--size=2m" } else { "--size=2g" };
        let block = format!("--bs={bytes}");
        Self::run(file, "write", "write", &["--sync=dsync", "--iodepth=2", overwrite, size, &block])
    }

    /// Direct reads of sectors anywhere in a file of `bytes`, `depth` under way at a time; `None`
    /// without fio.
    pub(crate) fn read(file: &Path, bytes: u64, depth: usize, quick: bool) -> Option<Self> {
        let (depth, size) = (format!("--iodepth={depth}"), format!("--size={bytes}"));
        let period = if quick { "--runtime=100ms" } else { "--runtime=2" };
        Self::run(file, "randread", "read", &["--bs=4096", "--time_based", &depth, &size, period])
    }

    /// Runs one job of a pattern; `kind` is what its figures stand under.
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
        // Gone or never made: either is fine.
        let _ = std::fs::remove_file(file);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let figure = |name: &str| told["jobs"][0][kind][name].as_f64();
        let (bytes_a_second, operations_a_second) = (figure("bw_bytes")?, figure("iops")?);
        output.status.success().then_some(Self { bytes_a_second, operations_a_second })
    }
}
