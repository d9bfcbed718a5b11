//! Maintenance by the process that has the database open, through its local socket
//! (`docs/command.md`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use braiddb::{Error, LogError};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::store::StoreArguments;

/// The first words of a request, and the first line of an answer.
const PROTOCOL: &str = "braid 1";
const SOCKET: &str = "braid.socket";
/// Time in which the service must begin to answer.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before a request is repeated that another operation excludes.
const BUSY_DELAY: Duration = Duration::from_millis(100);

/// Lets the process that has the database open run `verb`. If no process listens, runs `here`, which
/// opens the database in this process.
pub fn run<T: DeserializeOwned>(
    store: &StoreArguments,
    verb: &str,
    here: impl FnOnce() -> Result<T>,
) -> Result<T> {
    loop {
        let service = match connect(&store.db) {
            Ok(service) => service,
            Err(error) => return here().map_err(|failed| explain(failed, &error)),
        };
        let answer = request(service, verb).with_context(|| {
            format!("cannot {verb} in the process that has {} open", store.db.display())
        });
        match answer? {
            Some(result) => return Ok(result),
            None => thread::sleep(BUSY_DELAY),
        }
    }
}

/// Asks the process that has the database in a directory open for its statistics.
#[cfg(feature = "top")]
pub fn statistics<T: DeserializeOwned>(directory: &Path) -> Result<T> {
    let service = connect(directory).with_context(|| {
        format!("cannot connect to the process that has {} open", directory.display())
    })?;
    let answer = request(service, "stats")?;
    answer.context("it closed the database before it answered")
}

/// Connects to the socket in the directory of a database.
fn connect(directory: &Path) -> io::Result<UnixStream> {
    match UnixStream::connect(directory.join(SOCKET)) {
        // The path is too long for the address of a socket.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let directory = File::open(directory)?;
            UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))
        }
        connected => connected,
    }
}

/// Sends a request. Returns its result, or `None` if another operation excludes it, or the process
/// closed the database before.
fn request<T: DeserializeOwned>(mut service: UnixStream, verb: &str) -> Result<Option<T>> {
    const ENDED: &str = "it closed the database before it answered; run the command again";
    service.set_read_timeout(Some(SERVICE_TIMEOUT))?;
    service.set_write_timeout(Some(SERVICE_TIMEOUT))?;
    if service.write_all(format!("{PROTOCOL} {verb}\n").as_bytes()).is_err() {
        return Ok(None);
    }
    let mut lines = BufReader::new(service.try_clone()?).lines();
    match lines.next() {
        Some(Ok(first)) if first == PROTOCOL => {}
        Some(Ok(other)) => bail!("it refuses the request: {other}; use the command of its version"),
        Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            let seconds = SERVICE_TIMEOUT.as_secs();
            bail!("it did not answer for {seconds} seconds; check whether it is stopped")
        }
        // It closed the database before it took the request.
        _ => return Ok(None),
    }
    service.set_read_timeout(None)?;
    let (mut fields, mut problems) = (Map::new(), Vec::new());
    loop {
        let line = lines.next().and_then(Result::ok).context(ENDED)?;
        let (name, value) = line.split_once(' ').unwrap_or((&line, ""));
        match name {
            "done" => break,
            "busy" => return Ok(None),
            "failed" => bail!("{}", unescaped(value)),
            "problem" => problems.push(Value::from(unescaped(value))),
            _ => {
                let number = value.parse::<u64>().map(Value::from);
                fields.insert(name.to_owned(), number.unwrap_or_else(|_| unescaped(value).into()));
            }
        }
    }
    fields.insert("problems".to_owned(), problems.into());
    Ok(Some(serde_json::from_value(fields.into())?))
}

/// Removes the escapes of backslashes and line feeds.
fn unescaped(value: &str) -> String {
    let mut characters = value.chars();
    let next = || {
        Some(match characters.next()? {
            '\\' if characters.next()? == 'n' => '\n',
            character => character,
        })
    };
    std::iter::from_fn(next).collect()
}

/// Adds to the error for a database that another process has open the reason why that process could
/// not be asked.
fn explain(error: anyhow::Error, unreachable: &io::Error) -> anyhow::Error {
    let log = error.downcast_ref().and_then(Error::log_error);
    let Some(LogError::Locked { path }) = log else { return error };
    let socket = path.join(SOCKET);
    anyhow!(
        "a process has the database in {} open, and cannot be asked, because {} cannot be connected \
         to: {unreachable}; repeat the command when that process has opened the database, let it open \
         the database with Options::socket, or close it there first",
        path.display(),
        socket.display()
    )
}
