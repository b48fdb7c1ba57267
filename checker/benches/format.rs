//! Benchmark of reading traces, against passes that do almost nothing with the same bytes: `cargo bench -p
//! checker --bench format [EVENTS]`. It prints a table; checking is measured elsewhere.
//!
//! Every row is the fastest of several paired rounds. Files are read from the cache of the system.

use checker::event::Op;
use checker::format::{AvtWriter, Item, ReadOptions, TraceReader, convert};
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;

struct Shape {
    threads: u64,
    variables: u64,
    /// Set if locations are labels such as `Account.java:17` instead of numbers.
    labels: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let events = arguments.iter().find_map(|argument| argument.parse().ok());
    // `cargo test --benches` only checks that it runs.
    let few = !arguments.iter().any(|argument| argument == "--bench");
    let events: u64 = events.unwrap_or(if few { 10_000 } else { 4_000_000 });
    for shape in [
        Shape { threads: 4, variables: 100, labels: false },
        Shape { threads: 16, variables: 100, labels: true },
        Shape { threads: 16, variables: 1_000_000, labels: false },
    ] {
        run(events, &shape);
    }
}

/// A step of a pass, and its duration.
struct Row {
    what: &'static str,
    fastest: Duration,
    pass: Box<dyn FnMut() -> u64>,
}

fn run(events: u64, shape: &Shape) {
    let text = generate(events, shape);
    let avt = to_avt(&text);
    let directory = scratch();
    let (text_path, avt_path) = (directory.join("trace.std"), directory.join("trace.avt"));
    write(&text_path, &text);
    write(&avt_path, &avt);
    let Shape { threads, variables, labels } = *shape;
    let kind = if labels { "labels" } else { "numbers" };
    println!("\n{events} events, {threads} threads, {variables} variables, locations are {kind}");
    println!("text: {} bytes, .avt: {} bytes", text.len(), avt.len());

    let (from_text, from_avt) = (text.clone(), avt.clone());
    let (line_text, raw_avt) = (text, avt);
    let (path, lines_path, avt_file) = (text_path.clone(), text_path, avt_path);
    let mut rows = [
        row("count lines: line by line, in memory", move || lines(&line_text)),
        row("count lines: read the file, line by line", move || lines_of_file(&lines_path)),
        row("read text: in memory", move || {
            read(TraceReader::from_bytes(&from_text, ReadOptions::new("text")))
        }),
        row("read text: the file", move || {
            read(TraceReader::from_reader(open(&path), ReadOptions::new("text")))
        }),
        row("null pass over .avt: records, in memory", move || null(&raw_avt)),
        row("read .avt: in memory", move || {
            read(TraceReader::from_bytes(&from_avt, ReadOptions::new("avt")))
        }),
        row("read .avt: the file", move || {
            read(TraceReader::from_reader(open(&avt_file), ReadOptions::new("avt")))
        }),
    ];
    for _ in 0..ROUNDS {
        for Row { fastest, pass, .. } in &mut rows {
            let start = Instant::now();
            black_box(pass());
            *fastest = start.elapsed().min(*fastest);
        }
    }
    let base = |index: usize| rows[index].fastest.as_secs_f64();
    let bases = [base(0), base(1), base(0), base(1), base(4), base(4), base(4)];
    for (Row { what, fastest, .. }, base) in rows.iter().zip(bases) {
        let seconds = fastest.as_secs_f64();
        let each = seconds * 1e9 / events as f64;
        println!("{what:44} {:7.1} ms {each:6.1} ns/event {:5.2}x", seconds * 1e3, seconds / base);
    }
    std::fs::remove_dir_all(&directory).expect("the directory is there");
}

fn row(what: &'static str, pass: impl FnMut() -> u64 + 'static) -> Row {
    Row { what, fastest: Duration::MAX, pass: Box::new(pass) }
}

/// Reads all events, and looks at each.
fn read(reader: Result<TraceReader<'_>, checker::format::ReadError>) -> u64 {
    let mut reader = reader.expect("a trace");
    let mut sum = 0;
    while let Some(item) = reader.next_item().expect("a well-formed trace") {
        if let Item::Events(batch) = item {
            for event in batch.events {
                sum += u64::from(matches!(event.op, Op::Write(_)));
            }
        }
    }
    sum
}

/// Counts the lines of a text, one by one.
fn lines(text: &[u8]) -> u64 {
    let (mut rest, mut count) = (text, 0);
    while let Some(end) = memchr::memchr(b'\n', rest) {
        rest = &rest[end + 1..];
        count += 1;
    }
    count
}

/// Counts the lines of a file, read naively.
fn lines_of_file(path: &Path) -> u64 {
    let mut reader = BufReader::with_capacity(256 * 1024, open(path));
    let (mut line, mut count) = (Vec::new(), 0);
    while reader.read_until(b'\n', &mut line).expect("the file can be read") > 0 {
        line.clear();
        count += 1;
    }
    count
}

/// Only looks at every record of sixteen bytes.
fn null(avt: &[u8]) -> u64 {
    avt.as_chunks::<16>().0.iter().map(|record| u64::from(record[0] == 5)).sum()
}

fn to_avt(text: &[u8]) -> Vec<u8> {
    let mut writer = AvtWriter::new(Vec::new()).expect("memory takes everything");
    let mut reader = TraceReader::from_bytes(text, ReadOptions::new("text")).expect("text");
    convert(&mut reader, &mut writer).expect("a well-formed trace");
    writer.into_inner()
}

/// Transactions of ten events, thread by thread in turn.
fn generate(events: u64, shape: &Shape) -> Vec<u8> {
    let mut text = Vec::new();
    let mut random = 0x1234_5678_9abc_def0_u64;
    for event in 0..events {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let thread = event / 10 % shape.threads;
        let variable = random % shape.variables;
        let op = match event % 10 {
            0 => format!("begin(m{})", random % 20),
            9 => "end".to_owned(),
            1 => "acq(L0)".to_owned(),
            8 => "rel(L0)".to_owned(),
            step if step % 3 == 0 => format!("w(V{variable})"),
            _ => format!("r(V{variable})"),
        };
        let place = random >> 40 & 0xfff;
        let written = if shape.labels {
            writeln!(text, "T{thread}|{op}|Account.java:{place}")
        } else {
            writeln!(text, "T{thread}|{op}|{place}")
        };
        written.expect("memory takes everything");
    }
    text
}

fn scratch() -> PathBuf {
    let name = format!("avtrace-bench-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).expect("there is room for files");
    directory
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("there is room for files");
    // Once through, so that it is cached.
    let mut read = Vec::new();
    open(path).read_to_end(&mut read).expect("the file can be read");
    assert_eq!(read.len(), bytes.len());
}

fn open(path: &Path) -> File {
    File::open(path).expect("the file was just written")
}
