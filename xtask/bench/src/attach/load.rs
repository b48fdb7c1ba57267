//! Load of a few clients, which goes on until it is ended, with its throughput and latency.

use std::{
    io, mem,
    net::{Ipv4Addr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::capture::memcached::{BATCH, CLIENTS, Client};

/// Clients that make operations.
pub struct Load {
    state: Arc<State>,
    clients: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    operations: AtomicU64,
    /// Times of all batches since they were taken last.
    latencies: Mutex<Vec<Duration>>,
}

/// Throughput and latency of a time.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Operations in a second.
    pub throughput: f64,
    /// 99th percentile of the times that clients waited for the answers to a batch.
    pub p99: Duration,
}

impl State {
    fn latencies(&self) -> MutexGuard<'_, Vec<Duration>> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Connects the clients with the server at a port, and has them begin.
    ///
    /// # Errors
    /// When one cannot be connected.
    pub fn start(port: u16) -> Result<Self> {
        let state = Arc::<State>::default();
        let client = |number| {
            let to = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            to.set_nodelay(true)?;
            let (client, state) = (Client::new(to.try_clone()?, to, number), Arc::clone(&state));
            Ok(thread::spawn(move || state.work(client)))
        };
        let clients = (0..CLIENTS).map(client).collect::<io::Result<_>>();
        let clients = clients.context("failed to connect a client")?;
        Ok(Self { state, clients })
    }

    /// Measures the load while `work` is done.
    ///
    /// # Errors
    /// When a client has ended, which has had an error.
    pub fn measure(&mut self, work: impl FnOnce()) -> Result<Measured> {
        self.state.latencies().clear();
        let (start, before) = (Instant::now(), self.state.operations.load(Ordering::Relaxed));
        work();
        let operations = self.state.operations.load(Ordering::Relaxed) - before;
        let elapsed = start.elapsed().as_secs_f64();
        let mut latencies = mem::take(&mut *self.state.latencies());
        if let Some(ended) = self.clients.iter().position(JoinHandle::is_finished) {
            match self.clients.swap_remove(ended).join() {
                Ok(Err(error)) => return Err(error).context("a client has had an error"),
                _ => bail!("a client has ended"),
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of a minute are below 2^52")]
        let operations = operations as f64;
        latencies.sort_unstable();
        let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
        Ok(Measured { throughput: operations / elapsed, p99 })
    }

    /// Ends it.
    ///
    /// # Errors
    /// The error of a client.
    pub fn end(mut self) -> Result<()> {
        self.state.is_over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let ended = client.join().map_err(|_| io::Error::other("it has panicked"));
            ended.flatten().context("a client has had an error")?;
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
    }
}

impl State {
    /// Makes operations until the load is over.
    fn work(&self, mut client: Client<TcpStream>) -> io::Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            let start = Instant::now();
            client.batch(BATCH)?;
            self.latencies().push(start.elapsed());
            self.operations.fetch_add(BATCH, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        net::TcpListener,
    };

    use super::*;

    /// Answers this number of requests of each client as memcached does, and further ones with an error.
    fn server(requests: usize) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut to = connection.try_clone().expect("a descriptor");
                    let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
                    let mut left = requests;
                    while let Some(line) = lines.next() {
                        let is_set = line.starts_with("set ") && lines.next().is_some();
                        let answer = match left.checked_sub(1) {
                            None => "SERVER_ERROR",
                            Some(_) if is_set => "STORED",
                            Some(_) => "END",
                        };
                        left = left.saturating_sub(1);
                        if write!(to, "{answer}\r\n").is_err() {
                            return;
                        }
                    }
                });
            }
        });
        port
    }

    #[test]
    fn operations_are_counted_until_the_end() {
        let mut load = Load::start(server(usize::MAX)).expect("clients");
        let state = Arc::clone(&load.state);
        let some = || while state.operations.load(Ordering::Relaxed) < 100 * BATCH {};
        let measured = load.measure(some).expect("no error");
        assert!(measured.throughput > 0.0 && measured.p99 > Duration::ZERO, "{measured:?}");
        load.end().expect("no error");
    }

    #[test]
    fn an_error_of_a_client_is_one() {
        let mut load = Load::start(server(1000)).expect("clients");
        let clients = &load.clients;
        while !clients.iter().any(JoinHandle::is_finished) {
            thread::yield_now();
        }
        let error = load.measure(|| ()).expect_err("an error");
        assert!(format!("{error:#}").contains("`SERVER_ERROR`"), "{error:#}");
    }
}
