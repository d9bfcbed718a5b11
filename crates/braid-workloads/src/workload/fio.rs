//! `fio`, if it is installed: what the disk itself does with writes like the log's.

use std::path::Path;
use std::process::Command;

use crate::error::Error;

/// What fio measured.
pub(crate) struct Fio {
    pub(crate) bytes_a_second: f64,
}

impl Fio {
    /// Direct, synced writes in order, two under way as the log has them, over space that was
    /// written before; `None` without fio.
    pub(crate) fn write(file: &Path, bytes: u64, seconds: f64) -> Result<Option<Self>, Error> {
        let mut command = Command::new("fio");
        command
            .args(["--name=log", "--rw=write", "--direct=1", "--sync=dsync", "--iodepth=2"])
            .args(["--ioengine=io_uring", "--overwrite=1", "--size=1g", "--time_based"])
            .arg(format!("--bs={bytes}"))
            .arg(format!("--runtime={}ms", (seconds * 1e3) as u64))
            .arg(format!("--filename={}", file.display()))
            .arg("--output-format=json");
        let Ok(output) = command.output() else { return Ok(None) };
        // Gone or never made: either is fine.
        let _ = std::fs::remove_file(file);
        let told: serde_json::Value = match serde_json::from_slice(&output.stdout) {
            Ok(told) if output.status.success() => told,
            _ => return Ok(None),
        };
        let rate = told["jobs"][0]["write"]["bw_bytes"].as_f64();
        Ok(rate.map(|bytes_a_second| Self { bytes_a_second }))
    }
}
