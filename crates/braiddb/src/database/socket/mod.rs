//! Local socket of an open database: other processes of the machine request maintenance, which this
//! process performs (`docs/command.md`).
//!
//! Two threads wait for clients, so that one can answer while the other runs a long request. A
//! request that another one excludes is refused as busy, and the client repeats it.
//!
//! Invariants:
//!
//! - The socket's file is created and removed only while this process has locked the directory. So
//!   a file that exists when the database is opened is left from a killed process.
//! - The threads hold no handle of the database, so they do not keep it open.
//! - Closing the database ends all connections, so it waits for no client. It does wait for a
//!   request that is running, as closing does for a check.

mod request;

use std::fs::{self, File, Permissions};
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::maintenance::Maintenance;
use crate::log::{LogError, SOCKET_NAME, UNFINISHED_SUFFIX};
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Mutex, OnceLock};

/// Maximum number of connections at the same time. Others wait in the operating system's queue.
const THREADS: usize = 2;
/// Pause after a connection could not be accepted, for example without a free descriptor.
const ACCEPT_RETRY_MILLISECONDS: libc::c_int = 1000;

/// The socket of a database, or the reason why it has none.
#[derive(Default)]
pub(super) struct Socket {
    state: Mutex<SocketState>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Description of a layer above, with its name, for requests of statistics.
    layer: Mutex<Option<(String, DescriptionSource)>>,
    /// Returns the statistics as JSON; set while the socket listens, in builds with JSON.
    stats: OnceLock<DescriptionSource>,
}

/// Describes the database or the layer above it. Holds no handle of the database.
pub(super) type DescriptionSource = Arc<dyn Fn() -> String + Send + Sync>;

#[derive(Default)]
enum SocketState {
    /// The options switch it off, or the database is not open for writing.
    #[default]
    Off,
    Failed(LogError),
    Listening(Listening),
    Closed,
}

struct Listening {
    listener: Arc<UnixListener>,
    /// The directory, in which the file is removed even if the directory was moved.
    directory: File,
    path: PathBuf,
    /// The connection of each thread.
    clients: [Option<Arc<UnixStream>>; THREADS],
}

impl Socket {
    /// Listens in the directory of an open database, which is locked. A failure is kept for
    /// [`Socket::path`], because the database is usable without a socket.
    pub(super) fn listen(
        self: &Arc<Self>,
        directory: &Path,
        maintenance: &Maintenance,
        stats: Option<DescriptionSource>,
    ) {
        if let Some(stats) = stats {
            self.stats.get_or_init(|| stats);
        }
        // Held, because the directory is locked until the socket is closed.
        let mut state = self.state.lock();
        if matches!(*state, SocketState::Closed) {
            return;
        }
        let listening = Listening::new(directory);
        let started = listening.and_then(|listening| self.start(listening, maintenance));
        let started = started
            .map_err(|error| LogError::io("listen on", &directory.join(SOCKET_NAME), 0, error));
        let failed = started.as_ref().err().cloned();
        *state = started.map_or_else(SocketState::Failed, SocketState::Listening);
        drop(state);
        if let Some(error) = failed {
            tracing::warn!("the command braid cannot reach this database: {error}");
        }
    }

    /// Removes the file that a killed process left, if this database does not listen.
    pub(super) fn remove_left(directory: &Path) {
        _ = fs::remove_file(directory.join(SOCKET_NAME));
    }

    fn start(
        self: &Arc<Self>,
        listening: Listening,
        maintenance: &Maintenance,
    ) -> io::Result<Listening> {
        for number in 0..THREADS {
            let (socket, maintenance) = (self.clone(), maintenance.clone());
            let listener = listening.listener.clone();
            let thread = Builder::new().name(format!("braid-socket-{number}"));
            match thread.spawn(move || socket.serve(number, &listener, &maintenance)) {
                Ok(thread) => self.threads.lock().push(thread),
                Err(error) => {
                    listening.end();
                    return Err(error);
                }
            }
        }
        Ok(listening)
    }

    /// Answers clients, one after another, until the socket is closed.
    fn serve(&self, number: usize, listener: &UnixListener, maintenance: &Maintenance) {
        loop {
            let client = match listener.accept() {
                Ok((stream, _)) => Some(Arc::new(stream)),
                Err(_) => None,
            };
            match &mut *self.state.lock() {
                SocketState::Listening(listening) => listening.clients[number] = client.clone(),
                _ => return,
            }
            match client {
                Some(client) => request::answer(&client, maintenance, self),
                None => pause(listener),
            }
            if let SocketState::Listening(listening) = &mut *self.state.lock() {
                listening.clients[number] = None;
            }
        }
    }

    /// Returns the statistics of the database as JSON, if the build has it.
    fn stats(&self) -> Option<String> {
        self.stats.get().map(|describe| describe())
    }

    /// Sets the description of the layer above.
    pub(super) fn set_layer(&self, name: &str, describe: DescriptionSource) {
        *self.layer.lock() = Some((name.to_owned(), describe));
    }

    /// Returns the name and the description of the layer above, if one has registered.
    fn layer(&self) -> Option<(String, String)> {
        let (name, describe) = self.layer.lock().clone()?;
        Some((name, describe()))
    }

    /// Returns the path of the socket, `None` if it is off, or the reason why it does not exist.
    pub(super) fn path(&self) -> Result<Option<PathBuf>, LogError> {
        match &*self.state.lock() {
            SocketState::Listening(listening) => Ok(Some(listening.path.clone())),
            SocketState::Failed(error) => Err(error.clone()),
            SocketState::Off | SocketState::Closed => Ok(None),
        }
    }

    /// Removes the socket's file and ends all connections. The directory is still locked. Returns
    /// without waiting for the threads.
    pub(super) fn close(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), SocketState::Closed);
        if let SocketState::Listening(listening) = before {
            listening.end();
        }
    }

    /// Waits for the end of the threads, after the socket was closed and the workers have ended.
    pub(super) fn join(&self) {
        // Held until all are joined, so that concurrent callers wait too.
        for thread in self.threads.lock().drain(..) {
            _ = thread.join();
        }
    }
}

impl Listening {
    /// Creates the socket under an unfinished name, so that it has its permissions when it gets its
    /// final name.
    fn new(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        // To connect, a user needs the permission to write.
        let mode = ((directory.metadata()?.mode() & 0o222) * 3) | 0o600;
        let (unfinished, name) = (format!("{SOCKET_NAME}{UNFINISHED_SUFFIX}"), SOCKET_NAME);
        let [unfinished, name] = [&unfinished, name].map(|name| file_in(&directory, path, name));
        _ = fs::remove_file(&unfinished);
        let listener = UnixListener::bind(&unfinished)?;
        let named = fs::set_permissions(&unfinished, Permissions::from_mode(mode))
            .and_then(|()| fs::rename(&unfinished, name));
        if let Err(error) = named {
            _ = fs::remove_file(unfinished);
            return Err(error);
        }
        let (path, clients) = (path.join(SOCKET_NAME), Default::default());
        Ok(Self { listener: Arc::new(listener), directory, path, clients })
    }

    fn end(self) {
        let directory = self.path.parent().expect("the path of a file");
        // Fails if something else removed it.
        _ = fs::remove_file(file_in(&self.directory, directory, SOCKET_NAME));
        // SAFETY: the descriptor is open. The call ends `accept` in the threads, and all later ones.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        for client in self.clients.into_iter().flatten() {
            _ = client.shutdown(Shutdown::Both);
        }
    }
}

/// Pauses before the next attempt to accept a connection. Closing the socket ends the pause.
fn pause(listener: &UnixListener) {
    let mut wait = libc::pollfd { fd: listener.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: `wait` is one valid element during the call.
    unsafe { libc::poll(&raw mut wait, 1, ACCEPT_RETRY_MILLISECONDS) };
}

/// Returns a path of a file in an open directory. It is short, because the address of a socket has
/// at most 107 bytes, and stays correct when the directory is moved.
fn file_in(directory: &File, path: &Path, name: &str) -> PathBuf {
    let open = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    // Without /proc, the path must be short enough.
    if open.exists() { open.join(name) } else { path.join(name) }
}
