//! The shell at a terminal: pasted lines, the history, completion.

mod common;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Braid, LIMIT, ended};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A shell in a pseudo-terminal.
struct Shell {
    child: Child,
    terminal: File,
    /// Everything that the shell has printed.
    shown: Arc<Mutex<Vec<u8>>>,
    /// The part of it that earlier calls waited for.
    read: usize,
}

impl Shell {
    /// Starts a shell and waits for its prompt.
    fn start(braid: &Braid, home: &Path) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let end = || OpenOptions::new().read(true).write(true).open(&name).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.arg("shell").arg("--db").arg(braid.directory()).args(["--threads", "1"]);
        command.env("HOME", home).env("TERM", "xterm");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let terminal = File::from(terminal);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut output, collected) = (terminal.try_clone().unwrap(), shown.clone());
        // Ends with an error when the shell has closed its end.
        std::thread::spawn(move || {
            let mut page = [0; 4096];
            while let Ok(bytes) = output.read(&mut page) {
                collected.lock().unwrap().extend_from_slice(&page[..bytes]);
            }
        });
        let mut shell = Self { child, terminal, shown, read: 0 };
        shell.wait_for("braid> ");
        shell
    }

    fn enter(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the shell has printed a text after those of earlier calls.
    fn wait_for(&mut self, text: &str) {
        let begin = Instant::now();
        loop {
            let shown = self.shown.lock().unwrap().clone();
            let after = &shown[self.read..];
            if let Some(at) = after.windows(text.len()).position(|part| part == text.as_bytes()) {
                self.read += at + text.len();
                return;
            }
            let all = String::from_utf8_lossy(&shown);
            assert!(begin.elapsed() < LIMIT, "{text:?} was not printed: {all:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn quit(mut self) {
        self.enter("quit\r");
        assert!(ended(&mut self.child).success());
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Fails if the shell has ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

const ALL: &str = "a\t1\nb\t2\nc\t3\nd\t4\ne\t5\n";

/// Six lines, as a terminal sends them: the fifth commits, the sixth prints.
const SIX: &str = "put t a 1\rput t b 2\rput t c 3\rput t d 4\rput t e 5\rscan t\r";

#[test]
fn all_pasted_lines_run() {
    // With and without the marks around pasted text.
    for [before, after] in [["", ""], ["\u{1b}[200~", "\u{1b}[201~\r"]] {
        let (braid, home) = (Braid::new(), tempfile::tempdir().unwrap());
        let mut shell = Shell::start(&braid, home.path());
        shell.enter(&format!("{before}{SIX}{after}"));
        // Only the output of the last line has a tab.
        for record in ["a\t1\r\n", "b\t2\r\n", "c\t3\r\n", "d\t4\r\n", "e\t5\r\n", "braid> "] {
            shell.wait_for(record);
        }
        shell.quit();
        assert_eq!(braid.run(&["scan", "t"], 0).0, ALL, "{before:?}");
    }
}

#[test]
fn the_history_persists_to_the_next_session() {
    let (braid, home) = (Braid::new(), tempfile::tempdir().unwrap());
    let mut shell = Shell::start(&braid, home.path());
    shell.enter("put t a 1\r");
    shell.wait_for("braid> ");
    shell.quit();
    assert!(home.path().join(".braid_history").is_file());
    let mut shell = Shell::start(&braid, home.path());
    recall(&mut shell, "quit");
    recall(&mut shell, "put t a 1");
    // Changes the last letter.
    shell.enter("\u{7f}2\r");
    shell.wait_for("braid> ");
    shell.enter("get t a\r");
    shell.wait_for("\n2\r\n");
    shell.quit();
    assert_eq!(braid.run(&["get", "t", "a"], 0).0, "2\n");
}

/// Presses the key for the previous line, and waits for that line.
fn recall(shell: &mut Shell, line: &str) {
    shell.enter("\u{1b}[A");
    shell.wait_for(line);
}

#[test]
fn a_space_follows_a_completed_word() {
    let (braid, home) = (Braid::new(), tempfile::tempdir().unwrap());
    braid.run(&["put", "table", "key", "value"], 0);
    let mut shell = Shell::start(&braid, home.path());
    shell.enter("sc\tta\t--lim\t1\r");
    shell.wait_for("key\tvalue\r\n");
    shell.quit();
}
