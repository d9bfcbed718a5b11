//! Faults of a real disk: a small ext4 file system on a loop device, which runs full, stops taking
//! writes, or fails them. Needs root.
//!
//! Under a running child the fault is brought about; the child must end by itself, with an error that
//! says what happened. Then the disk is mended, and everything acknowledged must be there. A disk that
//! ran full is not mended at first: deletions and compaction must lead out of it (`full`).

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::listen;

const MIB: u64 = 1 << 20;
/// The file system the database is in.
const DISK_BYTES: u64 = 96 * MIB;
/// A file in it that makes room when it is removed.
const BALLAST_BYTES: u64 = 24 * MIB;
/// Longest time until a child meets its fault.
const PATIENCE: Duration = Duration::from_secs(120);

/// What becomes of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Disk {
    /// It runs full.
    Full,
    /// The file system stops taking writes.
    ReadOnly,
    /// The device fails writes.
    Errors,
}

/// What rounds of faults found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Faults {
    /// Children that met a fault.
    pub(super) rounds: u32,
    /// Transactions acknowledged before it, all found after it.
    pub(super) acknowledged: u64,
    /// Transactions found that had not been acknowledged.
    pub(super) unacknowledged_found: u64,
    /// On disks that ran full and stayed as large: bytes that were written after all was deleted and
    /// written several times.
    pub(super) refilled_bytes: u64,
    /// Commits that were refused meanwhile.
    pub(super) refused: u64,
    /// What the children said, each line once.
    pub(super) messages: Vec<String>,
}

impl Faults {
    /// Takes down what a child said, without numbers and places, which differ from round to round.
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

/// A file system on a loop device; for [`Disk::Errors`] its image is sparse, and in another one,
/// which runs full.
pub(super) struct Faulty {
    fault: Disk,
    /// Where the images and mount points are.
    root: PathBuf,
}

impl Faulty {
    /// Makes and mounts it.
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

    /// Where the database is.
    pub(super) fn database(&self) -> PathBuf {
        self.root.join("disk/database")
    }

    /// Brings the fault about; a full disk comes by itself.
    pub(super) fn inject(&self) -> Result<()> {
        match self.fault {
            Disk::Full => Ok(()),
            Disk::ReadOnly => {
                run("mount", &["-o", "remount,abort", text(&self.root.join("disk"))?])
            }
            Disk::Errors => fill(&self.root.join("outer/ballast"), u64::MAX),
        }
    }

    /// Mends the disk.
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
        // Exit code 1: it had something to mend.
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
                // Not mounted, or not any more: either is fine.
                let unmounting = Process::new("umount").arg(&place).stderr(Stdio::null()).status();
                _ = unmounting;
            }
        }
    }
}

/// What a child said before it ended by itself.
pub(super) struct Ended {
    /// Its lines on standard output.
    pub(super) lines: Vec<String>,
    pub(super) error: String,
}

/// Waits until a child ends by itself; `ready` is called once its database is open.
pub(super) fn outlive(
    mut child: Child,
    fault: Disk,
    ready: impl FnOnce() -> Result<()>,
) -> Result<Ended> {
    let mut stderr = child.stderr.take().expect("piped by the caller");
    let (opened, reader) = listen(&mut child);
    let error = std::thread::spawn(move || {
        let mut said = String::new();
        // What cannot be read is missing in what is checked.
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
    // A child that is killed by a signal has no code; one that panics in a thread says so.
    let failed = status.code().is_some_and(|code| code != 0);
    ensure!(failed && !error.contains("panicked"), "the child ended with {status}: {error}");
    // What hits a new segment is refused, and is no failure of the log.
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

/// Writes a file of `most` bytes, or until there is no room.
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
