//! Runs the command on a database in a temporary directory.

#[path = "../../../braiddb/tests/common/mod.rs"]
#[allow(dead_code, reason = "not every program of tests opens databases itself")]
pub mod limit;

use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use tempfile::TempDir;

/// Time limit of a command. It is far above the time on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The world's airports.
#[allow(dead_code, reason = "not every program of tests imports them")]
pub fn airports() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/airports.csv")
}

/// The command, which is killed after [`LIMIT`].
pub fn program() -> Command {
    let mut command = Command::cargo_bin("braid").unwrap();
    command.timeout(LIMIT);
    command
}

/// Waits until a process has ended. Panics after [`LIMIT`].
#[allow(dead_code, reason = "not every program of tests runs processes beside itself")]
pub fn ended(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(begin.elapsed() < LIMIT, "the process is still running");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A database in a temporary directory.
#[allow(dead_code, reason = "the tests of the demo have no database")]
pub struct Braid(pub TempDir);

#[allow(dead_code, reason = "the tests of the demo have no database")]
impl Braid {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn directory(&self) -> PathBuf {
        self.0.path().join("db")
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        let (verb, rest) = words.split_first().unwrap();
        command.arg(verb).arg("--db").arg(self.directory());
        command.args(["--threads", "2"]).args(rest);
        command
    }

    /// Runs the command and checks its exit code. Returns standard output and standard error.
    pub fn run(&self, words: &[&str], code: i32) -> (String, String) {
        let output = self.command(words).assert().code(code).get_output().clone();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Imports a file into the table `t`, with the key column `id`.
    #[allow(dead_code, reason = "not every program of tests imports files")]
    pub fn import(&self, file: &str, more: &[&str], code: i32) -> (String, String) {
        let words = [&["import", file, "--table", "t", "--key", "id"], more].concat();
        self.run(&words, code)
    }
}
