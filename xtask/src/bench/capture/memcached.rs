//! A client of memcached that makes a fixed number of operations: it sends the same in every run.

use std::{
    io::{self, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    thread,
};

/// Clients that work at the same time.
const CLIENTS: u64 = 4;

/// Requests that a client sends before it waits for their answers.
const BATCH: u64 = 16;

/// Different keys, and the size of a value.
const KEYS: u64 = 1000;
const VALUE: usize = 100;

/// Makes `operations` operations, every tenth a `set` and the others a `get`.
///
/// # Errors
/// When the server goes away, or answers what it must not.
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
    let mut to = UnixStream::connect(socket)?;
    let mut from = BufReader::new(to.try_clone()?);
    let mut random = number + 1;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    let value = "v".repeat(VALUE);
    let mut left = operations;
    while left > 0 {
        let batch = left.min(BATCH);
        let mut requests = String::new();
        for _ in 0..batch {
            let key = next() % KEYS;
            requests += &if next().is_multiple_of(10) {
                format!("set key{key} 0 0 {VALUE}\r\n{value}\r\n")
            } else {
                format!("get key{key}\r\n")
            };
        }
        to.write_all(requests.as_bytes())?;
        for _ in 0..batch {
            answer(&mut from)?;
        }
        left -= batch;
    }
    Ok(())
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
