//! Writes the manual pages and the shell completions of `avtrace` to a directory: `man1/` and `completions/`. `cargo
//! xtask man` and `cargo xtask dist` run it; the command itself needs neither.

use std::{env, error::Error, fs, path::PathBuf};

use avtrace::cli::Cli;
use chrono::DateTime;
use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate_to};
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

/// Shells that get a file.
const SHELLS: [Shell; 4] = [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [directory, seconds] = &arguments[..] else {
        return Err("usage: manual DIRECTORY SECONDS, the time of the pages since 1970".into());
    };
    let directory = PathBuf::from(directory);
    let time =
        DateTime::from_timestamp(seconds.parse()?, 0).ok_or("a time that is too far away")?;
    let date = time.format("%Y-%m-%d").to_string();
    let (pages, completions) = (directory.join("man1"), directory.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
        let (name, page) = page(command, &date)?;
        fs::write(pages.join(format!("{name}.1")), page)?;
    }
    for shell in SHELLS {
        generate_to(shell, &mut Cli::command(), "avtrace", &completions)?;
    }
    Ok(())
}

/// Returns the name and the text of the manual page of a command.
fn page(command: &Command, date: &str) -> Result<(String, Vec<u8>), Box<dyn Error>> {
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
