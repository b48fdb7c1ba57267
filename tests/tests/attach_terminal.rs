//! `avtrace attach` on a terminal: a line that says how it goes, which leaves everything else as it is.

use std::{fs::File, io::Write as _, path::Path, process::Command};

use tests::{
    c, machine,
    process::{Running, TIME_LIMIT, child_of},
    require_bpf,
    tracer::avtrace,
};

/// A running `service.c`, and the pipe of its commands.
fn service(folder: &Path) -> (Running, File) {
    let fifo = folder.join("commands");
    assert!(Command::new("mkfifo").arg(&fifo).status().is_ok_and(|status| status.success()));
    let program = c("service", &["-g", "-O2"]).path;
    let mut running = Running::start(Command::new(program).arg(&fifo), None, TIME_LIMIT);
    running.await_stdout("ready\n");
    (running, File::options().read(true).write(true).open(&fifo).expect("the fifo"))
}

/// Rows of a terminal after all of this was written to it.
fn screen(written: &str) -> Vec<String> {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut characters = written.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' => column = 0,
            '\n' => row += 1,
            '\x1b' if characters.next_if_eq(&'[').is_some() => {
                let mut number = String::new();
                while let Some(digit) = characters.next_if(|it| it.is_ascii_digit() || *it == '?') {
                    number.push(digit);
                }
                let count = number.parse().unwrap_or(1);
                match characters.next() {
                    Some('A') => row = usize::saturating_sub(row, count),
                    Some('B') => row += count,
                    Some('K') if number == "2" => rows[row].clear(),
                    Some('K') => rows[row].truncate(column),
                    // Colours, and whether the cursor is shown.
                    Some('m' | 'h' | 'l') => {}
                    other => panic!("ESC [ {number} {other:?} is not known to this test"),
                }
            }
            _ => {
                let line = &mut rows[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = character;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    rows.into_iter().map(|row| row.into_iter().collect::<String>().trim_end().to_owned()).collect()
}

#[test]
fn a_line_on_a_terminal_says_how_it_goes_and_garbles_nothing() {
    require_bpf!();
    if !machine::have("script") || !machine::have("stty") {
        machine::skip("`script` or `stty` is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (service, mut commands) = service(folder.path());
    let pid = service.pid();
    let report = folder.path().join("report");
    let command = format!(
        "stty cols 120 rows 40; exec {} attach --accesses probe --pid {pid} -o {}",
        avtrace().display(),
        report.display()
    );
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).env("TERM", "xterm-256color");
    let mut terminal = Running::start(&mut script, None, TIME_LIMIT);
    terminal.await_stdout("attached to process");
    terminal.await_stdout(" 0 lost, 0 defects so far");
    write!(commands, "t").expect("a reader");
    terminal.await_stdout("avtrace: found: ");
    terminal.await_stdout(" 0 lost, 1 defect so far");
    let tracer = child_of(terminal.pid(), avtrace()).expect("avtrace");
    assert!(Command::new("kill").args(["-INT", &tracer.to_string()]).status().is_ok());
    let ended = terminal.wait();
    assert_eq!(ended.code, Some(66), "{}", ended.stdout);
    let screen = screen(&ended.stdout);
    let text = screen.join("\n");
    assert!(!text.contains("so far"), "the line is gone: {text}");
    let rows = screen.iter().filter(|row| row.contains("found:")).collect::<Vec<_>>();
    let [row] = rows[..] else { panic!("{text}") };
    assert!(row.starts_with("avtrace: found: `transfer` at service.c:"), "{text}");
    assert!(row.ends_with("(likely)"), "{text}");
    let attached = screen.iter().filter(|row| row.starts_with("avtrace: attached to process "));
    assert_eq!(attached.count(), 1, "{text}");
    // Without a terminal, or with `--quiet`, the line is absent.
    let quiet = format!("{} attach --quiet --pid {pid} --duration 1500ms", avtrace().display());
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &quiet, "/dev/null"]).env("TERM", "xterm-256color");
    let mut piped = Command::new(avtrace());
    piped.args(["attach", "--pid", &pid.to_string(), "--duration", "1500ms"]);
    for command in [&mut script, &mut piped] {
        let ended = Running::start(command, None, TIME_LIMIT).wait();
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, Some(0), "{all}");
        assert!(!all.contains("so far"), "{all}");
    }
    write!(commands, "q").expect("a reader");
    assert_eq!(service.wait().code, Some(7));
}

#[test]
fn a_screen_is_what_a_terminal_shows() {
    assert_eq!(screen("one\r\ntwo\r\x1b[2Kthree\r\n"), ["one", "three", ""]);
    assert_eq!(screen("a\r\nb\x1b[1A\r\x1b[2Kc"), ["c", "b"]);
}
