//! Nodes in separate processes, which a parent test commands through their input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use super::LIMIT;

/// Lines that children print for their parent begin with it; the test harness prints others.
const MARK: &str = "@ ";

/// Prints a line for the parent.
pub fn say(line: &str) {
    // The parent may have ended.
    _ = writeln!(std::io::stdout().lock(), "{MARK}{line}");
}

/// Returns the commands of the parent.
pub fn commands() -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let (send, commands) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            send.send(line.unwrap()).unwrap();
        }
    });
    commands
}

/// A running child.
pub struct Process {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    /// Starts the test `child` of this program with an environment, and waits until it is ready.
    /// Lines for which `note` returns `false` are answers.
    pub fn start(
        environment: &[(&str, String)],
        note: impl Fn(&str) -> bool + Send + 'static,
    ) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--ignored", "--nocapture"])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (send, answers) = channel();
        std::thread::spawn(move || {
            // A killed process leaves a part of a line.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Some((_, line)) = line.split_once(MARK) else { continue };
                if !note(line) {
                    _ = send.send(line.to_owned());
                }
            }
        });
        let process = Self { child, input, answers };
        assert_eq!(process.answer(), "ready");
        process
    }

    pub fn command(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    pub fn answer(&self) -> String {
        self.answers.recv_timeout(LIMIT).unwrap()
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Ends the process as a power failure would, except for the page cache.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
