//! Work for servers: waiting until one is there, sending it requests, and asking it to end.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{capture::memcached, process};

/// Source of a program's work.
#[derive(Clone)]
pub enum Load {
    /// The program itself: it ends when it is done.
    Itself,
    /// Clients of memcached.
    Memcached {
        /// Its socket.
        socket: PathBuf,
        /// Number of requests.
        operations: u64,
    },
    /// Two clients of memcached that increment one number at the same time, after others.
    Increments {
        /// Its socket.
        socket: PathBuf,
    },
    /// Redis's load generator.
    Redis {
        /// Its socket.
        socket: PathBuf,
        /// Number of requests of each command.
        operations: u64,
    },
}

/// Increments that meet no other one.
const QUIET_INCREMENTS: u32 = 20;

impl Load {
    /// The socket of a server.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Self::Itself => None,
            Self::Memcached { socket, .. }
            | Self::Increments { socket }
            | Self::Redis { socket, .. } => Some(socket),
        }
    }

    /// Has the server work, and returns whether the bad interleaving has happened.
    ///
    /// # Errors
    /// When the server goes away or gives a wrong answer.
    pub fn work(&self, server: &OsString) -> Result<bool> {
        match self {
            Self::Itself => Ok(false),
            Self::Memcached { socket, operations } => {
                memcached::exercise(socket, *operations)
                    .context("memcached's client has failed")?;
                Ok(false)
            }
            Self::Increments { socket } => increments(socket),
            Self::Redis { socket, operations } => {
                let mut client = beside(server, "redis-benchmark");
                client.arg("-s").arg(socket).args(["-q", "-c", "20", "-P", "4", "-r", "1000"]);
                client.args(["-t", "set,get,incr,lpush", "-n", &operations.to_string()]);
                process::answer(&mut client).context("redis-benchmark has failed")?;
                Ok(false)
            }
        }
    }

    /// Asks the server to end.
    ///
    /// # Errors
    /// When it is not there.
    pub fn shut_down(&self, server: &OsString) -> Result<()> {
        match self {
            Self::Itself => Ok(()),
            Self::Memcached { socket, .. } | Self::Increments { socket } => {
                memcached::shut_down(socket).context("memcached is gone")
            }
            Self::Redis { socket, .. } => {
                let mut client = beside(server, "redis-cli");
                client.arg("-s").arg(socket).args(["shutdown", "nosave"]);
                process::answer(&mut client).context("redis is gone")?;
                Ok(())
            }
        }
    }
}

/// The program of this name that lies beside another one.
fn beside(program: &OsString, name: &str) -> Command {
    Command::new(Path::new(program).with_file_name(name))
}

/// Increments one number by two connections at the same time; the server has each of them wait for the other.
fn increments(socket: &Path) -> Result<bool> {
    let mut clients = Vec::new();
    for _ in 0..2 {
        let stream = UnixStream::connect(socket).context("memcached is gone")?;
        clients.push((BufReader::new(stream.try_clone()?), stream));
    }
    let ask = |client: &mut (BufReader<UnixStream>, UnixStream), request: &str| -> Result<()> {
        Ok(client.1.write_all(request.as_bytes())?)
    };
    let answer = |client: &mut (BufReader<UnixStream>, UnixStream)| -> Result<String> {
        let mut line = String::new();
        client.0.read_line(&mut line)?;
        ensure!(!line.is_empty(), "memcached has closed the connection");
        Ok(line.trim_end().to_owned())
    };
    for name in ["cold", "hot"] {
        ask(&mut clients[0], &format!("set {name} 0 0 1\r\n0\r\n"))?;
        let answer = answer(&mut clients[0])?;
        ensure!(answer == "STORED", "memcached has answered `{answer}`");
    }
    for _ in 0..QUIET_INCREMENTS {
        for client in &mut clients {
            ask(client, "incr cold 1\r\n")?;
            answer(client)?;
        }
    }
    for client in &mut clients {
        ask(client, "incr hot 1\r\n")?;
    }
    let mut sums = Vec::new();
    for client in &mut clients {
        sums.push(answer(client)?);
    }
    if sums.iter().any(|sum| sum.parse::<u64>().is_err()) {
        bail!("memcached has answered `{}`", sums.join("` and `"));
    }
    Ok(sums[0] == sums[1])
}
