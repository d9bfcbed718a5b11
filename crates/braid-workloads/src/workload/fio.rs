//! `fio`, if it is installed: what the disk itself does with writes like the log's.

use std::path::Path;
use std::process::Command;

/// What fio measured.
pub(crate) struct Fio {
    pub(crate) bytes_a_second: f64,
}

impl Fio {
    /// Direct, synced writes in order, two under way as the log has them, into a new file, as a
    /// log's are, or over one that was written before; `None` without fio.
    pub(crate) fn write(file: &Path, bytes: u64, new: bool, quick: bool) -> Option<Self> {
        let mut command = Command::new("fio");
        command
            .args(["--name=log", "--rw=write", "--direct=1", "--sync=dsync", "--iodepth=2"])
            .args(["--ioengine=io_uring", "--randrepeat=0"])
            .arg(if new { "--overwrite=0" } else { "--overwrite=1" })
            .arg(if quick { "--size=2m" } else { "--size=2g" })
            .arg(format!("--bs={bytes}"))
            .arg(format!("--filename={}", file.display()))
            .arg("--output-format=json");
        let output = command.output().ok()?;
        // Gone or never made: either is fine.
        let _ = std::fs::remove_file(file);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let bytes_a_second = told["jobs"][0]["write"]["bw_bytes"].as_f64()?;
        output.status.success().then_some(Self { bytes_a_second })
    }
}
