//! Options from elsewhere than the command line: environment variables, `avtrace.toml` in a directory above; and the
//! completion of the command line by a shell.

use std::process::Command;

use avtrace::cli::Cli;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::support::Folder;

/// A lost update of `x`.
const TRACE: &str = "\
T1|begin(deposit)|bank.c:10
T1|r(x)|bank.c:11
T2|w(x)|bank.c:22
T1|w(x)|bank.c:12
T1|end(deposit)|bank.c:13
";

const CONFIG: &str = "[[suppress]]\nregion = \"deposit\"\nreason = \"a test\"\n";

fn avtrace(
    folder: &Folder,
    variables: &[(&str, &str)],
    arguments: &[&str],
) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_avtrace"));
    command.args(arguments).current_dir(folder.path()).env_clear();
    command.envs(variables.iter().copied());
    let output = command.output().expect("avtrace");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn variables_are_options() {
    let folder = Folder::new();
    folder.write("t.std", TRACE);
    let variables = [("AVTRACE_FORMAT", "json;text=report.txt"), ("AVTRACE_ERROR_EXITCODE", "9")];
    let (code, stdout, _) = avtrace(&folder, &variables, &["check", "t.std"]);
    assert_eq!(code, Some(9));
    assert!(stdout.starts_with('{'), "{stdout}");
    assert!(folder.names().contains(&"report.txt".to_owned()));
    let (code, _, stderr) = avtrace(&folder, &[("AVTRACE_FORMAT", "xml")], &["check", "t.std"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("AVTRACE_FORMAT") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn the_configuration_of_a_directory_above_counts() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path().join("a/b")).expect("folders");
    folder.write("avtrace.toml", CONFIG);
    folder.write("a/b/t.std", TRACE);
    let run = |directory: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_avtrace"));
        command.args(arguments).current_dir(folder.path().join(directory)).env_clear();
        let output = command.output().expect("avtrace");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, text) = run("a/b", &["check", "t.std"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("../../avtrace.toml"), "{text}");
    assert_eq!(run("a/b", &["check", "--no-config", "t.std"]).0, Some(66));
    // The nearest one counts alone.
    folder.write("a/avtrace.toml", "");
    assert_eq!(run("a/b", &["check", "t.std"]).0, Some(66));
}

#[test]
fn the_version_has_the_details_of_the_build() {
    let folder = Folder::new();
    let (code, stdout, _) = avtrace(&folder, &[], &["--version"]);
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with(concat!("avtrace ", env!("CARGO_PKG_VERSION"))), "{stdout}");
    for part in ["target: x86_64-", "profile: ", "kernel programs (BPF): built in"] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    let (_, short, _) = avtrace(&folder, &[], &["-V"]);
    assert_eq!(short.lines().count(), 1, "{short}");
}

#[test]
fn messages_are_printed_on_request() {
    let folder = Folder::new();
    folder.write("t.std", TRACE);
    folder.write("avtrace.toml", CONFIG);
    assert_eq!(avtrace(&folder, &[], &["check", "t.std"]).2, "");
    let says_config = |stderr: &str| {
        stderr.contains("avtrace: info: settings from a configuration path=avtrace.toml\n")
    };
    let (_, _, stderr) = avtrace(&folder, &[], &["check", "-v", "t.std"]);
    assert!(says_config(&stderr), "{stderr}");
    let (_, _, stderr) = avtrace(&folder, &[("RUST_LOG", "avtrace=info")], &["check", "t.std"]);
    assert!(says_config(&stderr), "{stderr}");
    let (_, _, stderr) = avtrace(&folder, &[("RUST_LOG", "avtrace=warn")], &["check", "t.std"]);
    assert_eq!(stderr, "");
    let (_, _, stderr) = avtrace(&folder, &[], &["check", "-v", "--log-format", "json", "t.std"]);
    let message: serde_json::Value =
        serde_json::from_str(stderr.lines().next().expect("a message")).expect("JSON");
    assert_eq!(message["level"], "INFO", "{message}");
    assert_eq!(message["path"], "avtrace.toml", "{message}");
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = Folder::new();
    let mut script = Vec::new();
    clap_complete::generate(Shell::Bash, &mut Cli::command(), "avtrace", &mut script);
    folder.write("avtrace.bash", script);
    let complete = |words: &[&str]| {
        let ask = "source ./avtrace.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                   _avtrace avtrace \"${COMP_WORDS[$COMP_CWORD]}\" \"${COMP_WORDS[$COMP_CWORD - 1]}\"; \
                   printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", ask, "bash"]).args(words).current_dir(folder.path());
        let output = bash.output().expect("bash");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["avtrace", "che"]), ["check"]);
    assert_eq!(complete(&["avtrace", "re"]), ["record", "report", "refine"]);
    let options = complete(&["avtrace", "record", "--em"]);
    assert_eq!(options, ["--embed-sources"]);
    assert_eq!(complete(&["avtrace", "diff", "--format", "j"]), ["json"]);
}
