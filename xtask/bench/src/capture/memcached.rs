//! Clients of memcached: they send the same operations in every run.

use std::{
    io::{self, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
};

/// Clients that work at the same time.
pub const CLIENTS: u64 = 4;

/// Requests that a client sends before it waits for their answers.
pub const BATCH: u64 = 16;

/// Different keys, and the size of a value.
const KEYS: u64 = 1000;
const VALUE: usize = 100;

/// Makes `operations` operations, every tenth a `set` and the others a `get`.
///
/// # Errors
/// When the server goes away or gives a wrong answer.
pub fn exercise(socket: &Path, operations: u64) -> io::Result<()> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || client(socket, number, operations / CLIENTS)))
            .collect();
        clients.into_iter().try_for_each(|client| match client.join() {
            Ok(result) => result,
            Err(_) => Err(io::Error::other("a client has panicked")),
        })
    })
}

/// Asks the server to end.
///
/// # Errors
/// When it is not there.
pub fn shut_down(socket: &Path) -> io::Result<()> {
    UnixStream::connect(socket)?.write_all(b"shutdown\r\n")
}

fn client(socket: &Path, number: u64, operations: u64) -> io::Result<()> {
    let to = UnixStream::connect(socket)?;
    let mut client = Client::new(to.try_clone()?, to, number);
    let mut left = operations;
    while left > 0 {
        let batch = left.min(BATCH);
        client.batch(batch)?;
        left -= batch;
    }
    Ok(())
}

/// A client, by its connection.
pub struct Client<Connection: Read> {
    from: BufReader<Connection>,
    to: Connection,
    random: u64,
    value: String,
}

impl<Connection: Read + Write> Client<Connection> {
    /// Creates one with both ends of a connection. Its number decides which operations it makes.
    pub fn new(from: Connection, to: Connection, number: u64) -> Self {
        Self { from: BufReader::new(from), to, random: number + 1, value: "v".repeat(VALUE) }
    }

    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 33
    }

    /// Sends this number of operations at once.
    ///
    /// # Errors
    /// When the server goes away or gives a wrong answer.
    pub fn batch(&mut self, operations: u64) -> io::Result<()> {
        let mut requests = String::new();
        for _ in 0..operations {
            let key = self.next() % KEYS;
            requests += &if self.next().is_multiple_of(10) {
                format!("set key{key} 0 0 {VALUE}\r\n{}\r\n", self.value)
            } else {
                format!("get key{key}\r\n")
            };
        }
        self.to.write_all(requests.as_bytes())?;
        (0..operations).try_for_each(|_| answer(&mut self.from))
    }
}

/// Reads the answer to one request.
fn answer(from: &mut impl io::BufRead) -> io::Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        from.read_line(&mut line)?;
        match line.trim_end() {
            "STORED" | "END" => return Ok(()),
            value if value.starts_with("VALUE ") => {
                let mut skipped = String::new();
                from.read_line(&mut skipped)?;
            }
            other => return Err(io::Error::other(format!("memcached has answered `{other}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_failures() {
        let mut answers = &b"STORED\r\nVALUE key1 0 3\r\nvvv\r\nEND\r\nEND\r\nERROR\r\n"[..];
        assert!((0..3).all(|_| answer(&mut answers).is_ok()));
        assert!(answer(&mut answers).unwrap_err().to_string().contains("`ERROR`"));
        assert!(answer(&mut answers).is_err(), "nothing more comes");
    }
}
