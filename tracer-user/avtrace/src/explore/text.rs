//! Text of an exploration's result.

use std::fmt::Write as _;

use super::result::{Access, Fault, FaultKind, Mode, RaceReport, Result, Sequence};
use report::{count, printable};

/// Limit of output lines that are shown.
const MOST_LINES: usize = 12;

/// Characters of a line of source that are shown.
const MOST_SOURCE: usize = 60;

/// Sequences that are shown in full.
const MOST_SHOWN: usize = 1;

impl Result {
    /// Writes the result for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}", self.headline())?;
        for name in &self.inlined {
            writeln!(
                text,
                "note: `{}` is inlined in places, where it is no operation: mark it `noinline`, or use markers",
                printable(name)
            )?;
        }
        if self.operations.is_empty() && self.own_failure().is_none() {
            writeln!(
                text,
                "note: no operations are named (--atomic, or markers): only the program's exit status decides"
            )?;
        }
        if self.serial.as_ref().is_some_and(|serial| serial.orders == 0) {
            writeln!(
                text,
                "note: the operations never ran one after the other to a good end, as where each waits for another: only the exit status decides"
            )?;
        }
        if let Some(fault) = &self.fault {
            text.push('\n');
            self.write_fault(text, fault)?;
        }
        let shown = self.sequences.iter().take(MOST_SHOWN);
        for sequence in shown {
            text.push('\n');
            write_sequence(text, sequence)?;
        }
        let others: Vec<&str> =
            self.sequences.iter().skip(MOST_SHOWN).map(|of| of.pattern.as_str()).collect();
        if !others.is_empty() {
            writeln!(
                text,
                "\nother critical sequences, in full with --format json: {}",
                folded(&others)
            )?;
        }
        if let Some(fault) = self
            .fault
            .as_ref()
            .filter(|fault| !matches!(self.mode, Mode::Replay { .. }) && !fault.schedule.is_empty())
        {
            writeln!(text, "\nagain: {}", self.replay(&fault.schedule))?;
        }
        Ok(())
    }

    fn headline(&self) -> String {
        let search = &self.search;
        let interleavings = count(search.interleavings, "interleaving");
        let time = format!("{}, {:.1} s", count(self.runs, "run"), self.seconds);
        let faults = match (search.faults, search.deadlocks) {
            (0, _) => "no fault".to_owned(),
            (faults, 0) => count(faults, "fault"),
            (faults, deadlocks) if faults == deadlocks => count(deadlocks, "deadlock"),
            (faults, deadlocks) => {
                format!("{}, of them {}", count(faults, "fault"), count(deadlocks, "deadlock"))
            }
        };
        if let Some(status) = self.own_failure() {
            return format!(
                "the program fails without any interleaving: status {status}. Its own defect comes first ({time})"
            );
        }
        match &self.mode {
            Mode::Replay { .. } => format!("replay: {faults}"),
            Mode::Random { seed } => {
                let first = search.first_fault.map(|run| format!(", the first in run {run}"));
                format!(
                    "{faults} in {interleavings} at random, seed {seed}{}{} ({time})",
                    first.unwrap_or_default(),
                    if search.interrupted { ", interrupted" } else { "" }
                )
            }
            Mode::Systematic => {
                let preemptions = search.preemptions.unwrap_or_default() as u64;
                let bound = match preemptions {
                    0 => "without preemption".to_owned(),
                    some => format!("with at most {}", count(some, "preemption")),
                };
                let scope = if search.all {
                    "all there are".to_owned()
                } else if search.within_bound {
                    format!("all {bound}")
                } else {
                    let more = if search.interrupted { "interrupted" } else { "more with --runs" };
                    format!("some of those {bound}: {more}")
                };
                let cut = match search.cut {
                    0 => "",
                    1 => "; 1 of them is longer than --depth and not judged",
                    _ => "; some of them are longer than --depth and not judged",
                };
                format!("{faults} in {interleavings}, {scope}{cut} ({time})")
            }
        }
    }

    fn write_fault(&self, text: &mut String, fault: &Fault) -> std::fmt::Result {
        let what = match fault.kind {
            FaultKind::Deadlock => "DEADLOCK: all threads wait".to_owned(),
            FaultKind::NotLinearizable => {
                "NOT LINEARIZABLE: no order of the operations, one after the other, prints this"
                    .to_owned()
            }
            FaultKind::Failure => match fault.status.unwrap_or_default() {
                status @ 129.. => format!("FAILURE: signal {} killed the program", status - 128),
                status => format!("FAILURE: the program exited with status {status}"),
            },
        };
        writeln!(text, "{what}")?;
        write_block(text, "it prints", &fault.output)?;
        write_block(text, "on standard error", &fault.errors)?;
        if let Some(serial) =
            self.serial.as_ref().filter(|_| fault.kind == FaultKind::NotLinearizable)
        {
            writeln!(
                text,
                "  one after the other it prints, in {}:",
                count(serial.orders as u64, "order")
            )?;
            for output in serial.outputs.iter().take(MOST_LINES) {
                let lines: Vec<String> = output.lines().map(printable_line).collect();
                writeln!(text, "    {}", lines.join(" | "))?;
            }
            if serial.outputs.len() > MOST_LINES {
                writeln!(text, "    ... {} more", serial.outputs.len() - MOST_LINES)?;
            }
        }
        if !fault.steps.is_empty() {
            writeln!(text, "  where threads meet, in this order:")?;
            write_accesses(text, &fault.steps)?;
        }
        Ok(())
    }

    /// Returns the command that shows a schedule again.
    fn replay(&self, schedule: &str) -> String {
        let mut command = format!("avtrace explore --replay {schedule}");
        for name in &self.atomic {
            let _ = write!(command, " --atomic {}", quoted(name));
        }
        command.push_str(" --");
        for word in &self.command {
            let _ = write!(command, " {}", quoted(word));
        }
        command
    }
}

fn write_sequence(text: &mut String, sequence: &Sequence) -> std::fmt::Result {
    writeln!(
        text,
        "decided by {}, a critical sequence of {}:",
        sequence.pattern,
        count(sequence.races.len() as u64, "race")
    )?;
    for (number, race) in (1..).zip(&sequence.races) {
        writeln!(text, "  {number}. {:<3}{}", race.label, access(&race.winner))?;
        for loser in &race.losers {
            let then = meaning(&loser.leads_to);
            writeln!(text, "        before {}; the other way round {then}", access(&loser.access))?;
        }
    }
    let last = sequence.races.last().map(RaceReport::meaning).unwrap_or_default();
    writeln!(text, "  {last}")
}

impl RaceReport {
    fn meaning(&self) -> &'static str {
        match self.label.as_str() {
            "G" => {
                "After the last of them every interleaving is a fault; the other way round none is."
            }
            _ => {
                "After the last of them every interleaving is a fault; the other way round some are."
            }
        }
    }
}

fn meaning(label: &str) -> &'static str {
    match label {
        "W" => "no interleaving is a fault",
        "B" => "every one is a fault as well",
        _ => "it is open",
    }
}

fn write_accesses(text: &mut String, accesses: &[Access]) -> std::fmt::Result {
    let mut last = None;
    let places: Vec<String> = accesses.iter().map(place).collect();
    let width = places.iter().map(|place| place.chars().count()).max().unwrap_or_default();
    for (one, place) in accesses.iter().zip(&places) {
        let name = if last == Some(one.thread) { String::new() } else { thread(one.thread) };
        last = Some(one.thread);
        let source = printable(one.place.source.as_deref().unwrap_or_default());
        let source: String = source.chars().take(MOST_SOURCE).collect();
        writeln!(text, "{}", format!("    {name:<10}{place:<width$}  {source}").trim_end())?;
    }
    Ok(())
}

fn thread(number: usize) -> String {
    if number == 0 { "main".to_owned() } else { format!("thread {number}") }
}

fn access(access: &Access) -> String {
    format!("{} {}", thread(access.thread), place(access))
}

fn place(access: &Access) -> String {
    let place = &access.place;
    let mut text = if place.woken { "is woken in ".to_owned() } else { String::new() };
    text.push_str(&place.what);
    if let Some(variable) = &place.variable {
        let _ = write!(text, " {variable}");
    }
    if let Some(function) = &place.function {
        let _ = write!(text, " in {function}");
    }
    if let (Some(file), Some(line)) = (&place.file, place.line) {
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
        let _ = write!(text, " ({name}:{line})");
    }
    printable(&text).into_owned()
}

fn write_block(text: &mut String, what: &str, output: &str) -> std::fmt::Result {
    if output.is_empty() {
        return Ok(());
    }
    writeln!(text, "  {what}:")?;
    for line in output.lines().take(MOST_LINES) {
        writeln!(text, "    {}", printable_line(line))?;
    }
    match output.lines().count().checked_sub(MOST_LINES) {
        Some(more @ 1..) => writeln!(text, "    ... {more} more lines"),
        _ => Ok(()),
    }
}

fn printable_line(line: &str) -> String {
    printable(line).into_owned()
}

/// Returns patterns with how often each is there.
fn folded(patterns: &[&str]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for pattern in patterns {
        match counts.iter_mut().find(|(known, _)| known == pattern) {
            Some((_, times)) => *times += 1,
            None => counts.push((pattern, 1)),
        }
    }
    let text = counts.iter().map(|(pattern, times)| match times {
        1 => (*pattern).to_owned(),
        times => format!("{pattern} ({times} times)"),
    });
    text.collect::<Vec<_>>().join(", ")
}

/// Quotes a word for a shell, where that is needed.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./_-+=:,@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
