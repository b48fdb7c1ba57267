//! Help of the command line as a whole: the commands in groups, and what holds for all of them. What options do is with
//! the options.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _, builder::StyledStr};

use super::Cli;

/// Both forms of a command line. Options of `run` before a command are refused by [`misplaced`](super::misplaced) and
/// not by clap, which would take the name of the command for that of the program.
pub(super) const USAGE: &str = "avtrace [OPTIONS] <PROGRAM [ARGS]>...
       avtrace [-v] <COMMAND> ...";

/// Commands in groups, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Commands that trace", &["run", "attach", "record", "hunt", "explore", "refine"]),
    ("Commands for recordings and reports", &["check", "convert", "report", "diff", "merge"]),
    ("Commands that explain", &["doctor", "probes", "explain", "cache", "help"]),
    ("Commands that set up", &["init", "demo", "man", "completions"]),
];

/// End of the short help.
pub(super) const BRIEF: &str = "\
Examples:
  avtrace ./prog                          run ./prog: what was not atomic?
  avtrace --watch account.balance ./prog  and see every access to a variable
  avtrace hunt ./test                     run it again and again, with delays
  avtrace doctor                          say what works on this machine

`avtrace --help` has all options at length, `avtrace COMMAND --help` those of a command.";

/// End of the long help.
pub(super) const FULL: &str = "\
Examples:
  avtrace ./prog                          run ./prog: what was not atomic?
  sudo avtrace --capture kernel ./prog    the same with probes of the kernel
  avtrace --watch account.balance ./prog  and see every access to a variable
  avtrace --format json -o report.json ./prog --its-own-option
  avtrace hunt ./test                     run it again and again, with delays
  avtrace explore ./small_test            run all interleavings of its threads
  avtrace record -o t.avt ./prog          record now, and
  avtrace check t.avt                     check later, as often as wanted
  avtrace check --format html=report.html t.avt
                                          a page for browsers; also sarif, dot
  avtrace diff old.json new.json          say which defects are new or gone
  sudo avtrace attach --pid 1234          trace a process until Ctrl-C
  avtrace refine --runs 10 ./prog         note what runs that go well show
  avtrace explain AV1                     what a defect means, and its repair
  avtrace doctor                          say what works on this machine
  avtrace init cargo                      trace the tests of this project

Options before a program are those of `run`; those of another command follow its name. A program with the \
name of a command is run by `avtrace run NAME`.

Environment:
Each option has a variable: AVTRACE_FORMAT=json is --format json for all commands, AVTRACE_CHECK_FORMAT for `check` \
alone. What is on the command line comes first. Flags take 1 or 0; several values of one option are separated by `;`. \
--output and --runs have the names with the command only. The program gets the environment as it is. RUST_LOG prints \
decisions of single parts, as RUST_LOG=plan=debug,capture=trace. NO_COLOR, CLICOLOR and CLICOLOR_FORCE decide on colour.

Files:
avtrace.toml, in the current directory or the nearest one above, has regions, watches, locks and suppressions; see \
--spec. --no-config leaves it out.

The analysis of a program and its libraries is stored, so that the next start is quick: `avtrace cache` has the place, \
and --no-cache does without.

Regions are marked in the source, at the cost of a nop:
  C, C++  AVTRACE_REGION(\"transfer\");                   with avtrace.h
  Rust    let _region = avtrace_markers::region!(\"transfer\");

Signals:
INT, QUIT, TERM, HUP, USR1 and USR2 that a process sends to avtrace are passed on to the program. What is typed on the \
terminal reaches the program by itself, once. A signal to the whole process group, as by `kill -- -PGID`, reaches it \
twice.

Exit status: 66 when a likely defect was found (see --fail-on), else the program's own, and avtrace dies by the signal \
that killed it; 1 when avtrace failed, 2 for bad usage, 3 when the program cannot be traced, 126 when it cannot be \
executed, 127 when there is none.

`avtrace -h` is a summary, `avtrace COMMAND --help` describes a command.";

/// End of the help of `run`.
pub(super) const RUN: &str = "\
Examples:
  avtrace run ./prog --its-own-option     run ./prog: what was not atomic?
  avtrace run --list-regions ./prog       what would be watched: no run
  avtrace run --atomic 'bank::*' ./prog   functions that are meant to be atomic
  avtrace run --format json -o report.json ./prog
  avtrace run --record t.avt ./prog       also record, for `avtrace check`
  avtrace run --baseline old.json ./prog  only what old.json has not counts
  avtrace run --first-pass -o first.json ./prog
  avtrace run --focus first.json ./prog   what that run has named, and only that
  avtrace run --report-dir reports -- make test
  avtrace report reports                  all of them, each defect once

`avtrace ./prog` is `avtrace run ./prog`.

Exit status: 66 when a likely defect was found (see --fail-on), else the program's own, and avtrace dies by the signal \
that killed it; 1 when avtrace failed, 2 for bad usage, 3 when the program cannot be traced, 126 when it cannot be \
executed, 127 when there is none.";

/// End of the help of `probes`.
pub(super) const PROBES: &str = "\
Examples:
  avtrace probes ./prog                   each place of a probe, and its cost
  avtrace probes --format json ./prog     the same as a document
  avtrace probes --atomic transfer ./prog with another region

The program is not run, and no privileges are needed. The options are those of `avtrace run`; those of its report count \
only as far as a list has them: --format (text or json) and --output.

Exit status: 0, 1 when avtrace failed, 2 for bad usage, 3 when the program cannot be read.";

/// Returns the command line as users meet it. Its commands stand in groups, and are hidden from the list that clap
/// makes.
pub(super) fn command() -> Command {
    let command = Cli::command();
    let mut template = StyledStr::new();
    let header = *command.get_styles().get_header();
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in GROUPS {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{header}{heading}:{header:#}");
        for name in names {
            let about = match command.find_subcommand(name).and_then(Command::get_about) {
                Some(about) => about.to_string(),
                None => "Print this help, or that of a command".to_owned(),
            };
            let literal = *command.get_styles().get_literal();
            let _ = writeln!(text, "  {literal}{name:<11}{literal:#} {about}");
        }
    }
    text.push_str("\n{all-args}{after-help}");
    template.push_str(&text);
    command.help_template(template).mut_subcommands(|subcommand| subcommand.hide(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group_and_has_an_example() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        grouped.sort_unstable();
        let cli = Cli::command();
        let mut all: Vec<&str> = cli.get_subcommands().map(Command::get_name).collect();
        all.push("help");
        all.sort_unstable();
        assert_eq!(grouped, all);
        for command in cli.get_subcommands() {
            let end = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let own = format!("avtrace {}", command.get_name());
            let has_example = end.contains("Examples:\n") && end.contains(&own);
            assert!(has_example, "`{}` has no example", command.get_name());
        }
    }

    #[test]
    fn lines_of_commands_fit_in_80_columns() {
        let mut command = command().term_width(80);
        let help = command.render_help().to_string();
        let lines = help.lines().skip_while(|line| !line.starts_with("Commands"));
        for line in lines.take_while(|line| !line.starts_with("Arguments")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn examples_fit_in_80_columns() {
        let cli = Cli::command();
        for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
            let ends = [command.get_after_help(), command.get_after_long_help()];
            for end in ends.into_iter().flatten().map(ToString::to_string) {
                let indented = end.lines().filter(|line| line.starts_with("  "));
                let long: Vec<&str> = indented.filter(|line| line.chars().count() > 80).collect();
                assert!(long.is_empty(), "`{}`: {long:#?}", command.get_name());
            }
        }
    }

    #[test]
    fn command_lines_in_the_help_are_valid() {
        let cli = Cli::command();
        let mut count = 0;
        for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
            let ends = [command.get_after_help(), command.get_after_long_help()];
            for end in ends.into_iter().flatten() {
                for line in examples(&end.to_string()) {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    let parsed = Cli::parsed(words.iter().copied());
                    assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                    count += 1;
                }
            }
        }
        assert!(count > 50, "{count}");
    }

    /// Returns the command lines of avtrace below `Examples:`, without comments, pipes and redirections.
    fn examples(text: &str) -> Vec<String> {
        let lines = text.lines().skip_while(|line| *line != "Examples:").skip(1);
        let lines = lines.take_while(|line| line.starts_with("  "));
        let comment = |line: &str| line.trim().split("   ").next().unwrap_or_default().to_owned();
        let commands = lines.map(comment).flat_map(|line| {
            let parts = line.split([';', '|', '>']).map(|part| part.trim().to_owned());
            parts.collect::<Vec<_>>()
        });
        let commands = commands
            .map(|command| command.strip_prefix("sudo ").map(ToOwned::to_owned).unwrap_or(command));
        commands
            .filter(|command| command.starts_with("avtrace "))
            .map(|command| command.replace("$(pgrep -n memcached)", "1234"))
            .collect()
    }
}
