//! Options from environment variables: each option has one. They become words of the command line, before those that
//! are there, so that all that is true of options is true of them.

use std::ffi::{OsStr, OsString};

use clap::{ArgAction, ArgMatches, Command, error::ErrorKind, parser::ValueSource};

/// Names of options that mean something else as variables: the output of a run for `hunt --fail-if`, and the runs of
/// avtrace's own tests. Such an option has its variable with the command's name only, such as `AVTRACE_HUNT_RUNS`.
const TAKEN: [&str; 2] = ["output", "runs"];

/// Separator of the values of an option that may be given several times.
const SEPARATOR: char = ';';

/// An option that a variable sets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    variable: String,
    words: Vec<OsString>,
}

/// Returns the variables of an option of a command, the one for this command alone first.
pub(super) fn variables(command: &str, long: &str) -> Vec<String> {
    let upper = |name: &str| name.replace('-', "_").to_ascii_uppercase();
    let mut variables = vec![format!("AVTRACE_{}_{}", upper(command), upper(long))];
    if !TAKEN.contains(&long) {
        variables.push(format!("AVTRACE_{}", upper(long)));
    }
    variables
}

/// Returns the words of a command line with those that the environment adds. An option that is on the command line
/// counts, and not its variable; neither does a variable that contradicts the command line.
///
/// # Errors
/// When a variable has a value that its option cannot have, as an error of a command line.
pub(super) fn with_environment<T>(
    words: Vec<OsString>,
    command: &Command,
    get: impl Fn(&str) -> Option<OsString>,
    parse: impl Fn(&[OsString]) -> Result<T, clap::Error>,
) -> Result<T, clap::Error> {
    // Errors of the command line are for the parser.
    let Some(matches) = matches(&words, command) else { return parse(&words) };
    let settings = settings(&matches, command, get)?;
    if settings.is_empty() {
        return parse(&words);
    }
    let place = place(&words, matches.subcommand_name());
    let spliced = |settings: &[Setting]| -> Vec<OsString> {
        let added = settings.iter().flat_map(|setting| setting.words.iter().cloned());
        words[..place].iter().cloned().chain(added).chain(words[place..].iter().cloned()).collect()
    };
    let error = match parse(&spliced(&settings)) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Err(error);
    }
    // Finds the variable that is at fault, or else the fault of the command line itself.
    let without = parse(&words).err().map(|error| error.kind());
    let mut used: Vec<Setting> = Vec::new();
    for setting in settings {
        used.push(setting);
        let Err(error) = parse(&spliced(&used)) else { continue };
        if Some(error.kind()) == without {
            continue;
        }
        let Some(setting) = used.pop() else { continue };
        let alone = parse(&spliced(std::slice::from_ref(&setting))).err();
        if alone.is_none_or(|alone| alone.kind() != ErrorKind::ArgumentConflict) {
            return Err(at_fault(&setting.variable, &first_line(&error)));
        }
    }
    parse(&spliced(&used))
}

/// Names of variables that are no options: of avtrace-test, of the fixture of pytest, of `hunt --fail-if`, of the
/// recipe for CI, and of avtrace's own build and tests.
const OTHERS: [&str; 12] = [
    "AVTRACE",
    "AVTRACE_AS_NOBODY",
    "AVTRACE_BUILD_COMMIT",
    "AVTRACE_FAILURE",
    "AVTRACE_OUTPUT",
    "AVTRACE_REAL_CODE",
    "AVTRACE_RENEW",
    "AVTRACE_REPOSITORY",
    "AVTRACE_RUN",
    "AVTRACE_RUNS",
    "AVTRACE_SOAK_SECONDS",
    "AVTRACE_VERSION",
];

/// Beginning of the names of all variables.
const PREFIX: &str = "AVTRACE_";

/// Beginnings of the names of further such variables.
const OTHER_PREFIXES: [&str; 4] =
    ["AVTRACE_BPF_", "AVTRACE_DETAIL_", "AVTRACE_FUZZ_", "AVTRACE_TEST_"];

/// Returns a warning for each of these variables that begins as avtrace's do and sets no option.
pub(super) fn warnings(command: &Command, names: impl Iterator<Item = String>) -> Vec<String> {
    let names: Vec<String> = names
        .filter(|name| name.starts_with(PREFIX) && !OTHERS.contains(&name.as_str()))
        .filter(|name| !OTHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let of_all = || command.get_arguments().filter(|argument| argument.is_global_set());
    let of_command = |name: &str, arguments: &mut dyn Iterator<Item = &clap::Arg>| {
        let longs = arguments.filter_map(clap::Arg::get_long);
        longs.flat_map(|long| variables(name, long)).collect::<Vec<String>>()
    };
    let known: Vec<String> = std::iter::once(("run", command))
        .chain(command.get_subcommands().map(|command| (command.get_name(), command)))
        .flat_map(|(name, of)| of_command(name, &mut of.get_arguments().chain(of_all())))
        .collect();
    let unknown = names.into_iter().filter(|name| !known.contains(name));
    let warning = |name: String| {
        // All names begin in the same way.
        let end = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
        let like = super::nearest(&end(&name), known.iter().map(|known| end(known)));
        let like = like.map(|like| format!(": did you mean {PREFIX}{like}?")).unwrap_or_default();
        format!("the variable {name} is for no option{like}")
    };
    unknown.map(warning).collect()
}

/// Returns what a command line holds, if it is one to which options can be added.
fn matches(words: &[OsString], command: &Command) -> Option<ArgMatches> {
    let matches = command.clone().ignore_errors(true).try_get_matches_from(words).ok()?;
    super::misplaced(&matches).is_none().then_some(matches)
}

/// Returns the place in a command line where options of its command may stand: behind its name. Before that are
/// options of all commands alone, none of which takes a value.
fn place(words: &[OsString], named: Option<&str>) -> usize {
    let at = named.and_then(|name| words.iter().skip(1).position(|word| word == name));
    at.map_or(1, |at| at + 2).min(words.len())
}

/// Returns the options that variables set and the command line does not.
fn settings(
    matches: &ArgMatches,
    command: &Command,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<Setting>, clap::Error> {
    let subcommand = matches.subcommand_name().and_then(|name| command.find_subcommand(name));
    let matches = matches.subcommand().map_or(matches, |(_, matches)| matches);
    // Runs of a hunt have the options of the hunt, and no others.
    if matches!(matches.try_contains_id("perturb"), Ok(true)) {
        return Ok(Vec::new());
    }
    let name = subcommand.map_or("run", Command::get_name);
    let mut settings = Vec::new();
    let of_all = command.get_arguments().filter(|argument| argument.is_global_set());
    let of_all = of_all.filter(|_| subcommand.is_some());
    for argument in subcommand.unwrap_or(command).get_arguments().chain(of_all) {
        let id = argument.get_id().as_str();
        let Some(long) = argument.get_long().filter(|_| !argument.is_hide_set()) else { continue };
        if matches!(matches.try_contains_id(id), Ok(true))
            && matches.value_source(id) == Some(ValueSource::CommandLine)
        {
            continue;
        }
        let value = variables(name, long).into_iter().find_map(|variable| {
            let value = get(&variable).filter(|value| !value.is_empty())?;
            Some((variable, value))
        });
        let Some((variable, value)) = value else { continue };
        let words = match argument.get_action() {
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version => {
                continue;
            }
            ArgAction::Count => match count(&value) {
                Some(times) => vec![OsString::from(format!("--{long}")); times],
                None => return Err(at_fault(&variable, "a number from 0 to 9 is needed")),
            },
            ArgAction::SetTrue => match flag(&value) {
                Some(true) => vec![OsString::from(format!("--{long}"))],
                Some(false) => continue,
                None => return Err(at_fault(&variable, "`1` or `0` is needed")),
            },
            ArgAction::Append => {
                let values = value.to_str().map(|text| text.split(SEPARATOR).collect::<Vec<_>>());
                match values {
                    Some(values) => values
                        .into_iter()
                        .filter(|value| !value.is_empty())
                        .map(|value| option(long, OsStr::new(value)))
                        .collect(),
                    None => vec![option(long, &value)],
                }
            }
            _ => vec![option(long, &value)],
        };
        settings.push(Setting { variable, words });
    }
    Ok(settings)
}

fn option(long: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{long}="));
    word.push(value);
    word
}

/// Reads the value of an option that takes none.
fn flag(value: &OsStr) -> Option<bool> {
    match value.to_str()?.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Reads how often an option is given, where that counts.
fn count(value: &OsStr) -> Option<usize> {
    let times = value.to_str()?.parse().ok();
    times.filter(|times| *times <= 9).or_else(|| flag(value).map(usize::from))
}

fn at_fault(variable: &str, problem: &str) -> clap::Error {
    let message = format!("the variable {variable}: {problem}; correct it, or unset it\n");
    clap::Error::raw(ErrorKind::ValueValidation, message)
}

/// Returns the first line of an error, without what says that it is one.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::{Cli, Command as Sub, Format};
    use super::*;

    fn parse(words: &[&str], environment: &[(&str, &str)]) -> Result<Cli, String> {
        let words: Vec<OsString> =
            ["avtrace"].iter().chain(words).map(|word| OsString::from(*word)).collect();
        let get = |variable: &str| {
            let found = environment.iter().find(|(name, _)| *name == variable);
            found.map(|(_, value)| OsString::from(*value))
        };
        let parse = |words: &[OsString]| Cli::of_words(words);
        with_environment(words, &Cli::command(), get, parse).map_err(|error| error.to_string())
    }

    fn formats(cli: &Cli) -> Vec<Format> {
        cli.run.output.formats.iter().map(|to| to.format).collect()
    }

    #[test]
    fn the_command_line_comes_before_the_environment() {
        let environment = [("AVTRACE_FORMAT", "json"), ("AVTRACE_OVERHEAD", "7")];
        let cli = parse(&["./prog", "--format", "text"], &environment).expect("valid");
        assert_eq!((formats(&cli), cli.run.capture.overhead), (vec![Format::Json], 7));
        assert_eq!(cli.run.program, ["./prog", "--format", "text"]);
        let cli = parse(&["--format", "sarif", "./prog"], &environment).expect("valid");
        assert_eq!(formats(&cli), [Format::Sarif]);
    }

    #[test]
    fn a_variable_may_be_for_one_command() {
        let environment =
            [("AVTRACE_CHECK_FORMAT", "sarif"), ("AVTRACE_FORMAT", "json;text=report.txt")];
        let check = parse(&["check", "t.avt"], &environment).expect("valid").command;
        let Some(Sub::Check(check)) = check else { panic!("`check`") };
        assert_eq!(check.output.formats.len(), 1);
        assert_eq!(check.output.formats[0].format, Format::Sarif);
        let cli = parse(&["./prog"], &environment).expect("valid");
        assert_eq!(formats(&cli), [Format::Json, Format::Text]);
    }

    #[test]
    fn required_options_may_come_from_the_environment() {
        let record = parse(&["record", "./prog"], &[("AVTRACE_RECORD_OUTPUT", "t.avt")]);
        let Some(Sub::Record(record)) = record.expect("valid").command else { panic!("`record`") };
        assert_eq!(record.output.to_str(), Some("t.avt"));
        assert!(
            parse(&["record", "./prog"], &[("AVTRACE_OUTPUT", "t.avt")]).is_err(),
            "it is taken"
        );
    }

    #[test]
    fn options_of_all_commands_may_stand_before_one() {
        let environment = [("AVTRACE_FORMAT", "json"), ("AVTRACE_VERBOSE", "2")];
        let cli = parse(&["check", "t.avt"], &environment).expect("valid");
        assert_eq!(cli.verbose, 2);
        let cli = parse(&["-v", "check", "t.avt"], &environment).expect("valid");
        assert_eq!(cli.verbose, 1);
        let Some(Sub::Check(check)) = cli.command else { panic!("`check`") };
        assert_eq!(check.output.formats[0].format, Format::Json);
        let environment = [("AVTRACE_VERBOSE", "ten")];
        assert!(parse(&["check", "t.avt"], &environment).expect_err("a number").contains("0 to 9"));
    }

    #[test]
    fn a_misplaced_option_of_the_command_line_is_the_one_that_is_named() {
        let environment = [("AVTRACE_COLOR", "never")];
        let words = ["--watch", "check", "check", "t.avt"];
        let error = parse(&words, &environment).expect_err("it is before `check`");
        assert!(error.contains("--watch stands before the command `check`"), "{error}");
    }

    #[test]
    fn flags_are_on_or_off() {
        let lossless = |value| parse(&["./prog"], &[("AVTRACE_LOSSLESS", value)]);
        assert!(lossless("1").expect("valid").run.capture.lossless);
        assert!(!lossless("off").expect("valid").run.capture.lossless);
        assert!(!lossless("").expect("valid").run.capture.lossless);
        let error = lossless("maybe").expect_err("neither");
        assert!(error.contains("AVTRACE_LOSSLESS: `1` or `0` is needed"), "{error}");
    }

    #[test]
    fn a_wrong_value_names_the_variable() {
        let error = parse(&["./prog"], &[("AVTRACE_OVERHEAD", "7"), ("AVTRACE_FORMAT", "xml")]);
        let error = error.expect_err("no format");
        assert!(error.contains("the variable AVTRACE_FORMAT: "), "{error}");
        assert!(error.contains("xml") && error.trim_end().lines().count() == 1, "{error}");
    }

    #[test]
    fn a_variable_that_contradicts_the_command_line_does_not_count() {
        let environment = [("AVTRACE_LOSSLESS", "1")];
        let cli = parse(&["--drop", "./prog"], &environment).expect("valid");
        assert!(cli.run.capture.drop && !cli.run.capture.lossless);
        let both = [("AVTRACE_LOSSLESS", "1"), ("AVTRACE_DROP", "1")];
        let error = parse(&["./prog"], &both).expect_err("a contradiction");
        assert!(error.contains("the variable AVTRACE_"), "{error}");
    }

    #[test]
    fn variables_for_no_option_are_named() {
        let warnings =
            |names: &[&str]| warnings(&Cli::command(), names.iter().map(|name| (*name).to_owned()));
        let known = ["AVTRACE_FORMAT", "AVTRACE_HUNT_RUNS", "AVTRACE_CHECK_VERBOSE", "AVTRACE_RUN"];
        assert_eq!(warnings(&known), [""; 0]);
        assert_eq!(warnings(&["AVTRACE_TEST_PANIC_AFTER", "AVTRACER", "PATH"]), [""; 0]);
        let expected = "the variable AVTRACE_FROMAT is for no option: did you mean AVTRACE_FORMAT?";
        assert_eq!(warnings(&["AVTRACE_FROMAT"]), [expected]);
        assert_eq!(warnings(&["AVTRACE_X"]), ["the variable AVTRACE_X is for no option"]);
    }

    #[test]
    fn errors_of_the_command_line_stay_what_they_are() {
        let environment = [("AVTRACE_FORMAT", "json")];
        let error = parse(&["--no-such", "./prog"], &environment).expect_err("unknown");
        assert!(error.contains("--no-such") && !error.contains("variable"), "{error}");
        assert!(parse(&["explain", "AV1"], &environment).is_ok(), "it has no such option");
        assert!(parse(&["--help"], &environment).expect_err("help").contains("Usage"));
    }
}
