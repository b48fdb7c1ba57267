//! Rules for every text file: length, white space, leftovers, and no names of the author's machine or mirror.

use super::{Problem, Source};

/// The most lines a file may have that people read.
const LINES: usize = 800;
/// Files that people read and write.
const WRITTEN: [&str; 10] = ["rs", "c", "h", "cc", "cpp", "hpp", "md", "sh", "toml", "py"];
/// Recorded output, which is as it is.
const RECORDED: [&str; 2] = ["snap", "expected"];

/// Notes to self, which are done or put into words instead.
const LEFTOVERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Directories that exist on one machine only.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];
/// Names of nobody, for home directories in examples.
const NOBODIES: [&str; 3] = ["me", "u", "user"];
/// Hosts that packages are fetched from: a choice of each machine.
const HOSTS: [&str; 6] = [
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("static.", "rust-lang.org"),
    concat!("deb.", "debian.org"),
    concat!("security.", "debian.org"),
    concat!("archive.", "ubuntu.com"),
];
/// Source of every package in the lock file.
const LOCK_SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn check(source: &Source<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let is_lock = source.path.file_name().is_some_and(|name| name == "Cargo.lock");
    let lines = source.text.lines().count();
    if source.is(&WRITTEN) && lines > LINES {
        problems.push(source.whole(format!("{lines} lines are more than {LINES}")));
    }
    let recorded = source.is(&RECORDED);
    if !recorded && !source.text.is_empty() && !source.text.ends_with('\n') {
        problems.push(source.at(lines, "the last line does not end"));
    }
    for (number, line) in (1..).zip(source.text.split('\n')) {
        if !recorded && line.ends_with([' ', '\t', '\r']) {
            problems.push(source.at(number, "white space at the end of the line"));
        }
        if let Some(word) = LEFTOVERS.iter().find(|word| has_word(line, word)) {
            problems.push(source.at(number, format!("{word} is left over")));
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| has_path(line, path)) {
            problems.push(source.at(number, format!("{path} is a path of some machine")));
        }
        if let Some(host) = HOSTS.iter().find(|host| line.contains(**host)) {
            problems.push(source.at(number, format!("{host} is a choice of the machine")));
        }
        if is_lock && line.starts_with("source = ") && !line.contains(LOCK_SOURCE) {
            problems.push(source.at(number, "a package from elsewhere than crates.io"));
        }
    }
    problems
}

/// Returns whether `word` is in `line` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// Returns whether an absolute path in `line` starts with `path`: what goes before it is not part of a
/// longer path, as it is in `/proc/PID/root/…`. The homes of nobody are not meant.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let longer = before.is_some_and(|c| c.is_alphanumeric() || "_-.}>)~*".contains(c));
        let below = &line[at + path.len()..];
        let end = below.find(|c: char| !c.is_alphanumeric()).unwrap_or(below.len());
        let invented = path == MACHINE_PATHS[0] && NOBODIES.contains(&&below[..end]);
        !longer && !invented
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let source = Source { path: Path::new(path), text };
        check(&source).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_file_passes() {
        assert!(problems("a.rs", "//! Fine.\n\nfn f() {}\n").is_empty());
        assert!(problems("a.rs", "").is_empty());
    }

    #[test]
    fn white_space_at_the_end_is_found() {
        assert_eq!(problems("a.md", "a \nb\n"), ["a.md:1: white space at the end of the line"]);
        assert_eq!(problems("a.c", "a\r\n"), ["a.c:1: white space at the end of the line"]);
        assert_eq!(problems("a.c", "a\nb"), ["a.c:2: the last line does not end"]);
        assert!(problems("a.snap", "a \nb").is_empty());
    }

    #[test]
    fn long_files_are_found() {
        let text = "//\n".repeat(LINES);
        assert!(problems("a.rs", &text).is_empty());
        assert_eq!(
            problems("a.rs", &(text.clone() + "//\n")),
            ["a.rs: 801 lines are more than 800"]
        );
        assert!(problems("trace.std", &(text + "//\n")).is_empty());
    }

    #[test]
    fn leftovers_are_found_as_words() {
        for word in LEFTOVERS {
            assert_eq!(problems("a.rs", &format!("// {word}: later\n")).len(), 1);
            assert!(problems("a.rs", &format!("// a{word}s\n")).is_empty());
        }
    }

    #[test]
    fn machine_paths_are_found_and_paths_below_others_are_not() {
        for path in MACHINE_PATHS {
            assert_eq!(problems("a.md", &format!("see {path}x\n")).len(), 1, "{path}");
            assert_eq!(problems("a.md", &format!("\"{path}x\"\n")).len(), 1, "{path}");
            assert!(problems("a.md", &format!("/proc/PID{path}x\n")).is_empty(), "{path}");
            assert!(problems("a.rs", &format!("/proc/{{pid}}{path}x\n")).is_empty(), "{path}");
        }
    }

    #[test]
    fn homes_of_nobody_are_examples() {
        let home = MACHINE_PATHS[0];
        assert!(problems("a.rs", &format!("\"{home}user/bank.c\"\n")).is_empty());
        assert_eq!(problems("a.rs", &format!("\"{home}userland/bank.c\"\n")).len(), 1);
        assert_eq!(problems("a.rs", &format!("\"{home}\"\n")).len(), 1);
        assert_eq!(problems("a.rs", &format!("\"{}user\"\n", MACHINE_PATHS[1])).len(), 1);
    }

    #[test]
    fn hosts_are_found_and_the_name_of_the_registry_is_not() {
        for host in HOSTS {
            assert_eq!(problems("a.md", &format!("https://{host}/x\n")).len(), 1, "{host}");
        }
        assert!(problems("a.md", "on crates.io\n").is_empty());
    }

    #[test]
    fn the_lock_file_names_one_registry() {
        let good = format!("source = \"{LOCK_SOURCE}\"\n");
        assert!(problems("Cargo.lock", &good).is_empty());
        assert_eq!(problems("Cargo.lock", "source = \"sparse+https://mirror/\"\n").len(), 1);
    }
}
