//! Requests of clients: one line, `braid 1 VERB`. `docs/command.md` specifies the answers.

use std::fmt::{Display, Write as _};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Socket;
use crate::database::block_on;
use crate::database::error::{Error, Result};
use crate::database::maintenance::{CheckReport, Compaction, Maintenance};
use crate::database::recovery::Checkpoint;
use crate::sched::contain;
use crate::sync::clock;

/// The first words of each request, and the first line of each answer to one.
const PROTOCOL: &str = "braid 1";
/// Maximum length of a request in bytes, including the line feed.
const MAX_REQUEST_BYTES: usize = 64;
/// Time in which a client must send its request, and take each part of the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the request of a client and answers it.
pub(super) fn answer(mut client: &UnixStream, maintenance: &Maintenance, socket: &Socket) {
    let mut try_answer = || -> io::Result<()> {
        client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let request = read_line(client)?;
        let Some(verb) = request.strip_prefix(PROTOCOL).map(str::trim) else {
            let refused = format!("failed the request does not begin with {PROTOCOL:?}\n");
            return client.write_all(refused.as_bytes());
        };
        // A client that gets this line knows that its request is being run.
        client.write_all(format!("{PROTOCOL}\n").as_bytes())?;
        let ran = contain(|| run(verb, maintenance, socket));
        let answer = match ran.unwrap_or_else(|panic| Err(Error::Panicked(panic.message))) {
            Ok(Some(fields)) => fields + "done\n",
            Ok(None) => line("failed", format!("this engine knows no request {verb:?}")),
            Err(Error::Busy(with)) => line("busy", with),
            Err(error) => line("failed", error),
        };
        client.write_all(answer.as_bytes())
    };
    // The client has gone, or the database is closing.
    _ = try_answer();
}

/// Reads a line of at most [`MAX_REQUEST_BYTES`], within [`CLIENT_TIMEOUT`].
fn read_line(mut client: &UnixStream) -> io::Result<String> {
    let (deadline, mut line) = (clock::now() + CLIENT_TIMEOUT, Vec::new());
    let mut byte = [0];
    while line.len() < MAX_REQUEST_BYTES {
        let left = deadline.saturating_duration_since(clock::now());
        // Not zero, which sets no limit.
        client.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match client.read(&mut byte)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            _ if left.is_zero() => return Err(ErrorKind::TimedOut.into()),
            _ if byte == [b'\n'] => break,
            _ => line.extend(byte),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Runs a request. Returns the lines with its result, or `None` if the request is unknown.
fn run(verb: &str, maintenance: &Maintenance, socket: &Socket) -> Result<Option<String>> {
    Ok(Some(match verb {
        "checkpoint" => {
            let Checkpoint { lsn, records, bytes } = block_on(maintenance.checkpoint(true))?;
            numbers([("lsn", lsn), ("records", records), ("bytes", bytes)])
        }
        "compact" => {
            let compacted = block_on(maintenance.compact())?;
            let Compaction { segments, moved, bytes, page_bytes_freed, page_bytes } = compacted;
            numbers([
                ("segments", segments),
                ("moved", moved),
                ("bytes", bytes),
                ("page_bytes_freed", page_bytes_freed),
                ("page_bytes", page_bytes),
            ])
        }
        "check" => {
            let CheckReport { blocks, records, pages, problems } = maintenance.check()?;
            let counts = [("blocks", blocks), ("records", records), ("pages", pages)];
            let problems = problems.iter().map(|problem| line("problem", problem));
            numbers(counts) + &problems.collect::<String>()
        }
        // Only builds with the feature `json` can encode them.
        "stats" => match socket.stats() {
            Some(stats) => {
                let layer = socket.layer().map(|(name, text)| line(&name, text));
                line("stats", stats) + &layer.unwrap_or_default()
            }
            None => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

fn numbers<const N: usize>(fields: [(&str, u64); N]) -> String {
    fields.iter().map(|(name, number)| line(name, number)).collect()
}

/// A line of an answer. Backslashes and line feeds in the value are escaped.
fn line(name: &str, value: impl Display) -> String {
    let mut text = String::new();
    _ = write!(text, "{value}");
    format!("{name} {}\n", text.replace('\\', "\\\\").replace('\n', "\\n"))
}
