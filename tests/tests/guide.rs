//! The commands of the guide: each `console` block of `docs/guide/` is run, page by page, in a folder with the files
//! that `avtrace demo` writes, by an executable away from the sources, and prints the output on the page.
//!
//! A line that begins with `$ ` is a command; it ends with status 0, or 66 where a defect is found. The lines after it
//! are in its output, in this order, with others in between; `...` in a line stands for any text.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::process::{Running, TIME_LIMIT};
use tests::tracer::avtrace;
use tests::{require_bpf, root};

/// A command of a page, and its output.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    command: String,
    output: Vec<String>,
}

/// Returns the commands of a page.
///
/// # Panics
/// When a block of code is of another kind: its commands would not be run.
fn commands(page: &str) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    let mut fence: Option<usize> = None;
    for line in page.lines() {
        let text = line.trim_start();
        match (fence, text.strip_prefix("```")) {
            (None, Some(kind)) => {
                assert_eq!(kind, "console", "only `console` blocks are tested");
                fence = Some(line.len() - text.len());
            }
            (Some(_), Some(_)) => fence = None,
            (Some(indent), None) => {
                let line = line.get(indent..).unwrap_or_default();
                match (line.strip_prefix("$ "), shown.last_mut()) {
                    (Some(command), _) => {
                        shown.push(Shown { command: command.to_owned(), output: Vec::new() });
                    }
                    (None, Some(last)) => last.output.push(line.to_owned()),
                    (None, None) => panic!("output without a command: {line}"),
                }
            }
            (None, None) => {}
        }
    }
    shown
}

/// Returns whether a line is as a pattern, in which `...` stands for any text.
fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("...");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut ends_at_pattern = true;
    for part in parts {
        let Some(at) = (if part.is_empty() { Some(rest.len()) } else { rest.find(part) }) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        ends_at_pattern = part.is_empty() || rest.is_empty();
    }
    ends_at_pattern && rest.is_empty()
}

/// Returns the first line of a pattern that is missing in an output.
fn missing<'p>(pattern: &'p [String], output: &str) -> Option<&'p String> {
    let mut lines = output.lines();
    pattern.iter().find(|wanted| *wanted != "..." && !lines.any(|line| matches(wanted, line)))
}

fn check(page: &Path) -> usize {
    let text = fs::read_to_string(page).expect("a page");
    let (folder, installed) = (tests::folder(), tests::folder());
    symlink(avtrace(), installed.path().join("avtrace")).expect("a link");
    let binaries = installed.path().to_owned();
    let old = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(binaries).chain(std::env::split_paths(&old)));
    let path = path.expect("a search path");
    let shown = commands(&text);
    let demo = Shown { command: "avtrace demo .".to_owned(), output: Vec::new() };
    for Shown { command, output } in [demo].iter().chain(&shown) {
        let line = format!("exec 2>&1\n{command}");
        let mut shell = Command::new("bash");
        shell.args(["-c", &line]).current_dir(folder.path()).env("PATH", &path);
        // Where results of hunts are.
        shell.env("XDG_CACHE_HOME", installed.path());
        shell.env("COLUMNS", "100").env_remove("SUDO_UID").env_remove("SUDO_GID");
        shell.env_remove("SUDO_USER").env_remove("SUDO_COMMAND");
        let ended = Running::start(&mut shell, None, TIME_LIMIT).wait();
        let page = page.display();
        assert!(matches!(ended.code, Some(0 | 66)), "{page}: {command}: {ended:#?}");
        if let Some(missing) = missing(output, &ended.stdout) {
            panic!("{page}: {command}: nothing like\n{missing}\nin\n{}", ended.stdout);
        }
    }
    shown.len()
}

/// All pages in one test: each takes a second or two, and they would compete for processors.
#[test]
fn each_command_of_the_guide_prints_what_its_page_shows() {
    require_bpf!();
    let entries = fs::read_dir(root().join("docs/guide")).expect("the guide");
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    pages.sort();
    assert!(pages.len() >= 8, "{pages:?}");
    let commands: usize = pages.iter().map(|page| check(page)).sum();
    assert!(commands > 30, "{commands}");
}

#[test]
fn what_a_page_shows_is_compared_with_what_is_printed() {
    let page = "Text.\n\n   ```console\n   $ a b\n   one ...\n   ...\n   $ c\n   ```\n";
    let shown = commands(page);
    assert_eq!(shown.len(), 2);
    assert_eq!((&*shown[0].command, shown[0].output.len()), ("a b", 2));
    assert_eq!(missing(&shown[0].output, "x\none two\n"), None);
    assert_eq!(missing(&shown[0].output, "two one\n"), Some(&"one ...".to_owned()));
    assert!(matches("a...b...", "a 1 b 2") && matches("a", "a") && matches("...b", "a b"));
    assert!(!matches("a", "ab") && !matches("a...b", "a b c") && !matches("...a", "b"));
}
