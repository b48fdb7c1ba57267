//! Debug files from a server on this machine, by debuginfod.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use object::Object as _;
use tests::programs::install;
use tests::{Avtrace, Program, c, machine, require_bpf};

/// Time within which the server has read a folder with one file.
const READ: Duration = Duration::from_secs(60);

/// A server, until it is dropped.
struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Serves the debug files below a folder; `None` if debuginfod is not installed, which is said.
    fn of(folder: &Path) -> Option<Self> {
        let tools = ["debuginfod", "debuginfod-find"];
        if let Some(missing) = tools.iter().find(|tool| !machine::have(tool)) {
            machine::skip(&format!("`{missing}` is not installed: `cargo xtask setup` does that"));
            return None;
        }
        let port = free_port();
        let process = Command::new("debuginfod")
            .args(["-F", "-p", &port.to_string(), "-d", ":memory:"])
            .arg(folder)
            .env_remove("DEBUGINFOD_URLS")
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server");
        Some(Self { process, port })
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until the server has the debug file of a program.
    fn wait_for(&self, program: &Program) {
        let data = fs::read(&program.path).expect("the program");
        let file = object::File::parse(&*data).expect("an ELF file");
        let id = file.build_id().expect("readable notes").expect("a build id");
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let begun = Instant::now();
        while !self.has(&id) {
            assert!(begun.elapsed() < READ, "the server does not have {id}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn has(&self, id: &str) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else {
            return false;
        };
        let query = format!("GET /buildid/{id}/debuginfo HTTP/1.0\r\n\r\n");
        let mut answer = Vec::new();
        stream.write_all(query.as_bytes()).is_ok()
            && stream.read_to_end(&mut answer).is_ok()
            && answer.windows(4).take(16).any(|bytes| bytes == b" 200")
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Copies a program without its symbols into a folder, and its debug file into another one.
fn split(program: &Program, folder: &Path) -> (Program, PathBuf) {
    let served = folder.join("served");
    fs::create_dir(&served).expect("a folder");
    let status = Command::new("objcopy")
        .arg("--only-keep-debug")
        .args([&program.path, &served.join("bank.debug")])
        .status();
    assert!(status.expect("objcopy").success());
    let path = folder.join(program.path.file_name().expect("a name"));
    install(&program.stripped().path, &path, 0o755);
    (Program { path, source: program.source.clone() }, served)
}

#[test]
fn names_and_lines_come_from_a_server() {
    require_bpf!();
    let folder = tests::folder();
    let whole = c("unmarked", &["-g", "-O2", "-Wl,--build-id"]);
    let (program, served) = split(&whole, folder.path());
    let Some(server) = Server::of(&served) else { return };
    server.wait_for(&whole);
    let cache = folder.path().join("cache");
    let run = |address: &str| {
        Avtrace::on(&program)
            .environment("DEBUGINFOD_URLS", address)
            .environment("DEBUGINFOD_CACHE_PATH", cache.to_str().expect("text"))
            .report()
    };
    let (ended, report) = run(&server.address());
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let violation = report.only_violation();
    assert_eq!(violation.cycle(), ["transfer", "audit", "transfer"]);
    let first = violation.edges.first().and_then(|edge| edge.source.as_ref()).expect("a place");
    assert!(first.file.ends_with("unmarked.c"), "{first:?}");
    assert_eq!(first.line, Some(program.line("transfer_unlock")));
    assert!(!report.not_seen["notes"].to_string().contains("was stripped"));

    // Once fetched, it is in the cache; other files are asked for in vain.
    drop(server);
    let (_, report) = run(&format!("http://127.0.0.1:{}", free_port()));
    assert_eq!(report.only_violation().region, "transfer");
}

#[test]
fn a_server_that_does_not_answer_is_said_once_and_does_not_matter() {
    require_bpf!();
    let folder = tests::folder();
    let (program, served) = split(&c("unmarked", &["-g", "-O2"]), folder.path());
    if Server::of(&served).is_none() {
        return;
    }
    let address = format!("http://127.0.0.1:{}", free_port());
    let (ended, report) = Avtrace::on(&program)
        .environment("DEBUGINFOD_URLS", &address)
        .environment("DEBUGINFOD_CACHE_PATH", folder.path().join("cache").to_str().expect("text"))
        .report();
    assert_eq!(ended.code, Some(66), "{}", ended.stderr);
    let notes = report.not_seen["notes"].to_string();
    assert_eq!(notes.matches("DEBUGINFOD_URLS: ").count(), 1, "{notes}");
    assert!(report.only_violation().region.starts_with("unmarked+0x"));
}
