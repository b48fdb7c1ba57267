//! The diagnosis for people: verdicts first, then a line for each check.

use anstyle::Style;

use super::model::{Auto, CheckStatus, Diagnosis, Verdict};
use report::{
    CaptureBackend,
    text::paint::{ERROR, FAINT, HELP, PLAIN, Page, STRONG, WARNING},
};

/// Columns of the options of the verdicts.
const OPTION: usize = 18;

/// Columns of the options and of whether they work.
const VERDICT: usize = OPTION + 7;

/// Descriptions of both ways, for a reader who knows neither.
const KERNEL: &str = "BPF probes in the kernel; `avtrace attach` takes them";
const INLINE: &str = "probes in the program, set by ptrace, without root";

/// Columns of the marks of checks.
const MARK: usize = 7;

/// Lays a diagnosis out in lines of `columns` columns. Text from the machine is escaped.
#[must_use]
pub fn render(diagnosis: &Diagnosis, color: bool, width: usize) -> String {
    let mut page = Page::new(color, width);
    let Diagnosis { capture, checks, .. } = diagnosis;
    verdict(&mut page, "--capture kernel", KERNEL, &capture.kernel);
    verdict(&mut page, "--capture inline", INLINE, &capture.inline);
    let auto = in_words(&capture.auto, diagnosis);
    page.wrapped(VERDICT, &auto, |page, is_first| {
        option(page, if is_first { "--capture auto" } else { "" }, PLAIN, "");
    });
    page.end();
    let names = checks.iter().map(|check| check.id.name().len()).max().unwrap_or(0) + 2;
    for check in checks {
        let (style, mark) = match check.status {
            CheckStatus::Works => (HELP, "ok"),
            CheckStatus::Limited => (WARNING, "limited"),
            CheckStatus::Fails => (ERROR, "no"),
            CheckStatus::Untested => (FAINT, "untried"),
            CheckStatus::Unused => (FAINT, "unused"),
        };
        page.wrapped(MARK + 2 + names, &check.found, |page, is_first| {
            let (mark, name) = if is_first { (mark, check.id.name()) } else { ("", "") };
            page.put(style, &format!("{mark:MARK$}  ")).put(PLAIN, &format!("{name:names$}"));
        });
        if let Some(command) = &check.command {
            page.put(PLAIN, &" ".repeat(MARK + 2 + names));
            page.put(FAINT, "do: ").put(STRONG, command).end();
        }
    }
    page.finish()
}

/// Writes the lines of a back end: its name, the reason why it does not work, and the commands that would make it
/// work.
fn verdict(page: &mut Page, name: &str, about: &str, verdict: &Verdict) {
    let Verdict { works, reason, commands } = verdict;
    let (style, mark) = if *works { (HELP, "works") } else { (ERROR, "fails") };
    page.wrapped(VERDICT, about, |page, is_first| {
        let (name, mark) = if is_first { (name, mark) } else { ("", "") };
        option(page, name, style, mark);
    });
    if let Some(reason) = reason {
        page.wrapped(VERDICT, reason, |page, _| option(page, "", PLAIN, ""));
    }
    for (index, command) in commands.iter().enumerate() {
        // Not broken into lines: it is to be copied.
        option(page, "", PLAIN, "");
        page.put(FAINT, if index == 0 { "do: " } else { "or: " }).put(STRONG, command).end();
    }
}

/// Writes an option and whether it works, or the room that both take.
fn option(page: &mut Page, name: &str, style: Style, mark: &str) {
    page.put(STRONG, &format!("{name:OPTION$}"));
    page.put(style, &format!("{mark:width$}", width = VERDICT - OPTION));
}

/// Says what `auto` takes.
fn in_words(auto: &Auto, diagnosis: &Diagnosis) -> String {
    let (name, other, verdict) = match auto.backend {
        CaptureBackend::Kernel => ("kernel", "inline", &diagnosis.capture.kernel),
        CaptureBackend::Inline => ("inline", "kernel", &diagnosis.capture.inline),
    };
    match (verdict.works, diagnosis.is_usable()) {
        (true, _) if auto.reason_kind == "preferred" && diagnosis.capture.kernel.works => {
            format!("takes {name} for programs that it starts, kernel for `avtrace attach`")
        }
        (true, _) if auto.reason_kind == "preferred" => format!("takes {name}, which it prefers"),
        (true, _) => format!("takes {name}: {}", auto.reason),
        (false, true) => format!("takes {name}, which does not work: use `--capture {other}`"),
        (false, false) => format!("takes {name}, which does not work"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Check, CheckId, SCHEMA, Verdicts};
    use super::*;
    use report::Tool;

    fn diagnosis(kernel: Verdict, check: Check) -> Diagnosis {
        Diagnosis {
            schema: SCHEMA.to_owned(),
            tool: Tool { name: "avtrace".to_owned(), version: "0.1.0".to_owned() },
            capture: Verdicts {
                kernel,
                inline: Verdict { works: true, reason: None, commands: Vec::new() },
                auto: Auto {
                    backend: CaptureBackend::Inline,
                    reason: "it is there".to_owned(),
                    reason_kind: "preferred".to_owned(),
                },
            },
            checks: vec![check],
        }
    }

    #[test]
    fn verdicts_come_with_the_commands_that_change_them() {
        let kernel = Verdict {
            works: false,
            reason: Some("this process has no CAP_BPF".to_owned()),
            commands: vec!["sudo avtrace …".to_owned(), "setcap".to_owned()],
        };
        let check = Check::new(CheckId::PtraceScope, CheckStatus::Fails, "2: it is closed");
        let text = render(&diagnosis(kernel, check.with_command("sudo sysctl x")), false, 80);
        let room = " ".repeat(VERDICT);
        let expected = [
            "--capture kernel  fails  BPF probes in the kernel; `avtrace attach` takes them",
            &format!("{room}this process has no CAP_BPF"),
            &format!("{room}do: sudo avtrace …"),
            &format!("{room}or: setcap"),
            "--capture inline  works  probes in the program, set by ptrace, without root",
            "--capture auto           takes inline, which it prefers",
            "",
            "no       yama.ptrace_scope  2: it is closed",
            "                            do: sudo sysctl x",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn nothing_that_is_quoted_acts_on_the_terminal() {
        let works = Verdict { works: true, reason: None, commands: Vec::new() };
        let check = Check::new(CheckId::Container, CheckStatus::Works, "signs of \x1b[2Jx\u{202e}");
        let diagnosis = diagnosis(works, check.with_command("a\x07"));
        assert!(!render(&diagnosis, false, 60).contains(|c| "\x1b\x07\u{202e}".contains(c)));
        let painted = render(&diagnosis, true, 60);
        assert!(
            painted.contains("\x1b[1m") && painted.contains("signs of \\x1b[2Jx"),
            "{painted:?}"
        );
    }
}
