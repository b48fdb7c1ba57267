//! Sends log events to a collector of OpenTelemetry by HTTP (OTLP/HTTP with JSON). The events are laid out by
//! `report::otlp`.

use super::Failure;

/// Returns the address of a collector, if the destination of a report is one.
pub(super) fn address(file: &str) -> Option<&str> {
    let is_address = file.starts_with("http://") || file.starts_with("https://");
    is_address.then_some(file)
}

/// Refuses an address that nothing can be sent to, before any work is done in vain.
#[cfg(not(feature = "otel"))]
pub(super) fn check(address: &str) -> Result<(), Failure> {
    Err(Failure::usage(format!(
        "this avtrace cannot send to `{address}`: build it with `--features otel`, or name a file and send that"
    )))
}

/// Sends documents, one a line.
#[cfg(not(feature = "otel"))]
pub(super) fn send(address: &str, _lines: &[u8]) -> Result<(), Failure> {
    check(address)
}

#[cfg(feature = "otel")]
pub(super) use with_http::{check, send};

#[cfg(feature = "otel")]
mod with_http {
    use std::time::Duration;

    use ureq::Agent;

    use super::Failure;

    /// Time that a collector has for each document.
    const LIMIT: Duration = Duration::from_secs(10);

    /// Refuses an address that nothing can be sent to, before any work is done in vain.
    pub(in crate::commands) fn check(address: &str) -> Result<(), Failure> {
        if address.starts_with("https://") {
            return Err(Failure::usage(format!(
                "`{address}` needs encryption, which avtrace leaves to a collector on this machine: send to that, such \
                 as http://localhost:4318/v1/logs"
            )));
        }
        Ok(())
    }

    /// Sends documents, one a line.
    pub(in crate::commands) fn send(address: &str, lines: &[u8]) -> Result<(), Failure> {
        let config = Agent::config_builder().timeout_global(Some(LIMIT)).build();
        let agent: Agent = config.into();
        let documents = lines.split_inclusive(|&byte| byte == b'\n');
        for document in documents.filter(|document| document.len() > 1) {
            let sent = agent.post(address).content_type("application/json").send(document);
            sent.map_err(|error| {
                Failure::internal(format!(
                    "failed to send the report to `{address}`: {error}; is a collector there, with its receiver for \
                     OTLP/HTTP?"
                ))
            })?;
        }
        Ok(())
    }

    #[cfg(test)]
    mod tests {
        use std::{
            io::{BufRead as _, BufReader, Read as _, Write as _},
            net::TcpListener,
            thread,
        };

        use super::*;

        /// Answers so many requests with a status. Returns the address, and the path and the body of each request.
        fn collector(
            requests: usize,
            status: &'static str,
        ) -> (String, thread::JoinHandle<Vec<(String, String)>>) {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = format!("http://{}/v1/logs", listener.local_addr().expect("a port"));
            let server = thread::spawn(move || {
                let mut received = Vec::new();
                for _ in 0..requests {
                    let (stream, _) = listener.accept().expect("a connection");
                    let mut reader = BufReader::new(stream);
                    let mut first = String::new();
                    reader.read_line(&mut first).expect("a request");
                    let mut length = 0;
                    let mut is_json = false;
                    loop {
                        let mut line = String::new();
                        reader.read_line(&mut line).expect("a header");
                        let line = line.trim_end().to_ascii_lowercase();
                        if line.is_empty() {
                            break;
                        }
                        if let Some(value) = line.strip_prefix("content-length: ") {
                            length = value.parse().expect("a length");
                        }
                        is_json |= line == "content-type: application/json";
                    }
                    assert!(is_json, "{first}");
                    let mut body = vec![0; length];
                    reader.read_exact(&mut body).expect("a body");
                    let answer = format!(
                        "HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
                    );
                    reader.get_mut().write_all(answer.as_bytes()).expect("an answer");
                    received.push((first, String::from_utf8(body).expect("text")));
                }
                received
            });
            (address, server)
        }

        #[test]
        fn each_line_is_a_request() {
            let (address, server) = collector(2, "200 OK");
            assert!(check(&address).is_ok());
            send(&address, b"{\"one\":1}\n{\"two\":2}\n").expect("it is sent");
            let received = server.join().expect("the collector ends");
            let bodies: Vec<&str> = received.iter().map(|(_, body)| body.trim_end()).collect();
            assert_eq!(bodies, ["{\"one\":1}", "{\"two\":2}"]);
            assert!(received.iter().all(|(first, _)| first.starts_with("POST /v1/logs HTTP/1.1")));
        }

        #[test]
        fn a_refusal_is_an_error_with_the_address() {
            let (address, server) = collector(1, "503 Service Unavailable");
            let failure = send(&address, b"{}\n").expect_err("it is refused");
            server.join().expect("the collector ends");
            assert!(
                failure.message.contains(&address) && failure.message.contains("503"),
                "{failure:?}"
            );
            assert!(check("https://example.org/v1/logs").is_err());
        }
    }
}
