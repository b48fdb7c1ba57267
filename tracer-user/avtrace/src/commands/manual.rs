//! `avtrace man` and `avtrace completions`: manual pages and completions, from the definition of the command line.

use std::{env, fs, io, time::SystemTime};

use chrono::{DateTime, Utc};
use clap::{Command, CommandFactory as _};
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

use super::Failure;
use crate::cli::{Cli, CompletionsArgs, ManArgs};
use linux::output::{Destination, write_output};

/// Variable with the time of all that is built, in seconds since 1970.
const TIME: &str = "SOURCE_DATE_EPOCH";

pub(super) fn man(arguments: &ManArgs) -> Result<u8, Failure> {
    let seconds = env::var(TIME).ok().and_then(|seconds| seconds.parse().ok());
    let named = seconds.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    let time: DateTime<Utc> = named.unwrap_or_else(|| SystemTime::now().into());
    let date = time.format("%Y-%m-%d").to_string();
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    let Some(folder) = &arguments.dir else {
        let command = match &arguments.command {
            None => Some(&cli),
            Some(name) => cli.find_subcommand(name),
        };
        let Some(command) = command else {
            let name = arguments.command.as_deref().unwrap_or_default();
            return Err(Failure::usage(format!(
                "avtrace has no command `{name}`: see `avtrace --help`"
            )));
        };
        let (_, page) = page(command, &date).map_err(Failure::internal)?;
        return print(&page);
    };
    let write = || {
        fs::create_dir_all(folder)?;
        for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
            let (name, page) = page(command, &date)?;
            fs::write(folder.join(format!("{name}.1")), page)?;
        }
        Ok::<(), io::Error>(())
    };
    write().map_err(|error| {
        Failure::internal(format!("cannot write to `{}`: {error}", folder.display()))
    })?;
    Ok(0)
}

pub(super) fn completions(arguments: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "avtrace", &mut script);
    print(&script)
}

fn print(text: &[u8]) -> Result<u8, Failure> {
    match write_output(&Destination::Stdout, text) {
        Err(error) if error.source.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::internal(error))
        }
        _ => Ok(0),
    }
}

/// Returns the name and the text of the manual page of a command.
fn page(command: &Command, date: &str) -> io::Result<(String, Vec<u8>)> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let end = command.get_after_long_help().or_else(|| command.get_after_help());
    let end = end.map(ToString::to_string).unwrap_or_default();
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let command = command.clone().override_usage(usage).subcommand_help_heading("COMMANDS");
    let has_commands = command.has_subcommands();
    let man = Man::new(command)
        .date(date)
        .source(concat!("avtrace ", env!("CARGO_PKG_VERSION")))
        .manual("avtrace");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    let mut roff = Roff::default();
    // Names of options and commands are not to be divided.
    roff.control("nh", []).control("ad", ["l"]);
    roff.to_writer(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    let mut roff = Roff::default();
    sections(&end, &mut roff);
    roff.control("SH", ["SEE ALSO"]);
    let others = match name.as_str() {
        "avtrace" => "avtrace-run(1), avtrace-attach(1), avtrace-hunt(1), avtrace-check(1)",
        _ => "avtrace(1)",
    };
    roff.text([roman(others)]);
    roff.to_writer(&mut page)?;
    Ok((name, page))
}

/// Headings in the ends of help texts, in the order of manual pages; the last is for paragraphs without one.
const HEADINGS: [&str; 6] = ["Examples", "Environment", "Files", "Signals", "Exit status", "Notes"];

/// Writes the end of a help text as sections of a manual page. It has paragraphs, of which some begin with a heading
/// and a colon, and lines that are indented, which stay as they are.
fn sections(text: &str, roff: &mut Roff) {
    let headed = |paragraph: &str| {
        let found = HEADINGS.iter().find_map(|heading| {
            let body = paragraph.strip_prefix(heading)?.strip_prefix(':')?;
            Some((*heading, body.strip_prefix(['\n', ' ']).unwrap_or(body).to_owned()))
        });
        found.unwrap_or(("Notes", paragraph.to_owned()))
    };
    let paragraphs: Vec<(&str, String)> = text.split("\n\n").map(headed).collect();
    for heading in HEADINGS {
        let mut own = paragraphs.iter().filter(|(of, _)| *of == heading).peekable();
        if own.peek().is_some_and(|(_, body)| !body.is_empty()) {
            roff.control("SH", [heading.to_uppercase().as_str()]);
        }
        for (_, body) in own {
            roff.control("PP", []);
            paragraph(body, roff);
        }
    }
}

/// Writes a paragraph, with its indented lines as they are.
fn paragraph(body: &str, roff: &mut Roff) {
    let mut is_literal = false;
    for line in body.lines() {
        let is_indented = line.starts_with("  ");
        if is_indented != is_literal {
            roff.control(if is_indented { "nf" } else { "fi" }, []);
            is_literal = is_indented;
        }
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    if is_literal {
        roff.control("fi", []);
    }
}
