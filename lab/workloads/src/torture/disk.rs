//! Faults of a real disk: a small ext4 file system on a loop device that runs full, becomes
//! read-only, or fails writes. Needs root.
//!
//! The fault is injected while a child runs. The child must end with an error that describes the
//! fault. Then the disk is repaired, and every acknowledged transaction must be present. A full
//! disk is not repaired at first: deletions and compaction must free space on it (`full`).

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::listen;

const MIB: u64 = 1 << 20;
/// The size of the file system that holds the database.
const DISK_BYTES: u64 = 96 * MIB;
/// The size of a file on it whose removal makes room.
const BALLAST_BYTES: u64 = 24 * MIB;
/// The maximum time until a child meets its fault.
const PATIENCE: Duration = Duration::from_secs(120);

/// The fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Disk {
    /// The disk runs full.
    Full,
    /// The file system becomes read-only.
    ReadOnly,
    /// The device fails writes.
    Errors,
}

/// The results of fault rounds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Faults {
    /// Children that met a fault.
    pub(super) rounds: u32,
    /// Transactions acknowledged before the fault, all found after it.
    pub(super) acknowledged: u64,
    /// Transactions found although they were not acknowledged.
    pub(super) unacknowledged_found: u64,
    /// Bytes written to full disks of unchanged size, after all records were deleted and written
    /// again several times.
    pub(super) refilled_bytes: u64,
    /// Commits refused while the disk was full.
    pub(super) refused: u64,
    /// The distinct output lines of the children.
    pub(super) messages: Vec<String>,
}

impl Faults {
    /// Records a child's output without numbers and paths, which differ between rounds.
    pub(super) fn note(&mut self, said: &str) {
        for line in said.trim().lines() {
            let words = line.split(' ').map(|word| match word.contains("DIR") {
                true => "FILE",
                false if word.bytes().all(|byte| byte.is_ascii_digit() || byte == b':') => "N:",
                false => word,
            });
            let line = words.collect::<Vec<_>>().join(" ");
            if !self.messages.contains(&line) {
                self.messages.push(line);
            }
        }
    }
}

/// A file system on a loop device. For [`Disk::Errors`] its image is a sparse file in a second file
/// system, which runs full.
pub(super) struct Faulty {
    fault: Disk,
    /// The directory of images and mount points.
    root: PathBuf,
}

impl Faulty {
    /// Creates and mounts the file system.
    pub(super) fn make(fault: Disk, root: &Path) -> Result<Self> {
        let faulty = Self { fault, root: root.to_owned() };
        let image = match fault {
            Disk::Errors => {
                format_and_mount(
                    &root.join("outer.img"),
                    DISK_BYTES + 16 * MIB,
                    &root.join("outer"),
                )?;
                root.join("outer/disk.img")
            }
            _ => root.join("disk.img"),
        };
        format_and_mount(&image, DISK_BYTES, &root.join("disk"))?;
        if fault == Disk::Full {
            fill(&root.join("disk/ballast"), BALLAST_BYTES)?;
        }
        Ok(faulty)
    }

    /// Creates and mounts a file system of `bytes`, for a database that fills it.
    pub(super) fn of_bytes(root: &Path, bytes: u64) -> Result<Self> {
        format_and_mount(&root.join("disk.img"), bytes, &root.join("disk"))?;
        Ok(Self { fault: Disk::Full, root: root.to_owned() })
    }

    /// Returns the directory of the database.
    pub(super) fn database(&self) -> PathBuf {
        self.root.join("disk/database")
    }

    /// Injects the fault; a disk becomes full without help.
    pub(super) fn inject(&self) -> Result<()> {
        match self.fault {
            Disk::Full => Ok(()),
            Disk::ReadOnly => {
                run("mount", &["-o", "remount,abort", text(&self.root.join("disk"))?])
            }
            Disk::Errors => fill(&self.root.join("outer/ballast"), u64::MAX),
        }
    }

    /// Repairs the disk.
    pub(super) fn mend(&self) -> Result<()> {
        let disk = self.root.join("disk");
        let image = match self.fault {
            Disk::Full => {
                return std::fs::remove_file(disk.join("ballast")).context("removing the ballast");
            }
            Disk::ReadOnly => self.root.join("disk.img"),
            Disk::Errors => {
                std::fs::remove_file(self.root.join("outer/ballast"))
                    .context("removing the ballast")?;
                self.root.join("outer/disk.img")
            }
        };
        run("umount", &[text(&disk)?])?;
        // Exit code 1: the check repaired something.
        let status =
            Process::new("e2fsck").args(["-fp"]).arg(&image).stdout(Stdio::null()).status();
        let status = status.context("running e2fsck")?;
        ensure!(status.code().is_some_and(|code| code <= 1), "e2fsck: {status}");
        mount(&image, &disk)
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        for mounted in ["disk", "outer"] {
            let place = self.root.join(mounted);
            if place.exists() {
                // Not mounted, or already unmounted: either is fine.
                let unmounting = Process::new("umount").arg(&place).stderr(Stdio::null()).status();
                _ = unmounting;
            }
        }
    }
}

/// The output of a child that ended without a kill.
pub(super) struct Ended {
    /// The lines on standard output.
    pub(super) lines: Vec<String>,
    pub(super) error: String,
}

/// Waits until a child ends without a kill. Calls `ready` when its database is open.
pub(super) fn outlive(
    mut child: Child,
    fault: Disk,
    ready: impl FnOnce() -> Result<()>,
) -> Result<Ended> {
    let mut stderr = child.stderr.take().expect("piped by the caller");
    let (opened, reader) = listen(&mut child);
    let error = std::thread::spawn(move || {
        let mut said = String::new();
        // The checks below report missing output.
        _ = stderr.read_to_string(&mut said);
        said
    });
    if opened.recv().is_ok() {
        ready()?;
    }
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().context("waiting for the child")? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().context("killing the child")?;
                bail!("the child met no fault in {PATIENCE:?}");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let lines = reader.join().expect("the reader does not panic").lines;
    let error = error.join().expect("the reader does not panic");
    // A child killed by a signal has no exit code; a child with a panicked thread reports the
    // panic.
    let failed = status.code().is_some_and(|code| code != 0);
    ensure!(failed && !error.contains("panicked"), "the child ended with {status}: {error}");
    // A new segment that cannot be allocated is refused; this is not a failure of the log.
    let refused = error.contains("the log cannot grow");
    let named = refused || (fault != Disk::Full && error.contains("the log has failed"));
    ensure!(named, "the child ended with {status}: {error}");
    Ok(Ended { lines, error })
}

fn format_and_mount(image: &Path, bytes: u64, at: &Path) -> Result<()> {
    let file =
        std::fs::File::create(image).with_context(|| format!("creating {}", image.display()))?;
    file.set_len(bytes).context("sizing an image")?;
    drop(file);
    run("mkfs.ext4", &["-q", "-m", "0", text(image)?])?;
    std::fs::create_dir_all(at).context("making a mount point")?;
    mount(image, at)
}

fn mount(image: &Path, at: &Path) -> Result<()> {
    run("mount", &["-o", "loop", text(image)?, text(at)?])
        .context("mounting a loop device; this needs root")
}

/// Writes a file of `most` bytes, or less if the disk becomes full.
fn fill(path: &Path, most: u64) -> Result<()> {
    let mut file = std::fs::File::create(path).context("creating the ballast")?;
    let copied = std::io::copy(&mut std::io::repeat(7).take(most), &mut file);
    match copied.and_then(|_| file.sync_all()) {
        Err(error) if error.kind() != std::io::ErrorKind::StorageFull => {
            Err(error).context("writing the ballast")
        }
        _ => Ok(()),
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Process::new(program).args(arguments).output();
    let output = output.with_context(|| format!("running {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {said}", arguments.join(" "));
    Ok(())
}

pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the directory's name is not text")
}
