//! `avtrace init` and `avtrace demo`: write the set-up of a test runner, and the example of the guide.

use std::{fs, io, path::Path};

use super::Failure;
use crate::cli::{DemoArgs, InitArgs, RunnerArg};

/// Lines for a runner of tests.
struct RunnerSetup {
    /// File of the project.
    file: &'static str,
    lines: &'static str,
    /// Text that the file has where it is set up already, by other lines too.
    mark: &'static str,
    existing: Existing,
    /// Command that runs the tests.
    run: &'static str,
}

/// Treatment of a file that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    /// Add the lines at its end.
    Append,
    /// Add them, unless the file would be no valid TOML any more.
    AppendToml,
    /// Leave it.
    Leave,
}

const CARGO: RunnerSetup = RunnerSetup {
    file: ".cargo/config.toml",
    lines: "\
# Programs that Cargo runs are traced: a test with a likely defect fails. `cargo run` is traced, too.
[target.x86_64-unknown-linux-gnu]
runner = \"avtrace run --quiet --\"
",
    mark: "avtrace run",
    existing: Existing::AppendToml,
    run: "cargo test --no-fail-fast",
};

const NEXTEST: RunnerSetup = RunnerSetup {
    file: ".config/nextest.toml",
    lines: "\
# Tests of the profile `avtrace` are traced: one with a likely defect fails.
experimental = [\"wrapper-scripts\"]

[scripts.wrapper.avtrace]
command = \"avtrace run --quiet --\"

[[profile.avtrace.scripts]]
filter = \"all()\"
run-wrapper = \"avtrace\"
",
    mark: "avtrace run",
    existing: Existing::Leave,
    run: "cargo nextest run --profile avtrace",
};

const CTEST: RunnerSetup = RunnerSetup {
    file: "CMakePresets.json",
    lines: r#"{
  "version": 6,
  "configurePresets": [
    {
      "name": "avtrace",
      "displayName": "Tests are traced: one with a likely defect fails",
      "binaryDir": "${sourceDir}/build-avtrace",
      "cacheVariables": {
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "CMAKE_TEST_LAUNCHER": "avtrace;run;--"
      }
    }
  ],
  "buildPresets": [{ "name": "avtrace", "configurePreset": "avtrace" }],
  "testPresets": [
    { "name": "avtrace", "configurePreset": "avtrace", "output": { "outputOnFailure": true } }
  ]
}
"#,
    mark: "avtrace;run",
    existing: Existing::Leave,
    run: "cmake --preset avtrace && cmake --build --preset avtrace && ctest --preset avtrace",
};

const MESON: RunnerSetup = RunnerSetup {
    file: "meson.build",
    lines: "\
# `meson test --setup avtrace` traces the tests: one with a likely defect fails.
add_test_setup('avtrace', exe_wrapper: ['avtrace', 'run', '--'], timeout_multiplier: 10)
",
    mark: "add_test_setup('avtrace'",
    existing: Existing::Append,
    run: "meson setup build && meson test -C build --print-errorlogs --setup avtrace",
};

const PYTEST: RunnerSetup = RunnerSetup {
    file: "conftest.py",
    lines: include_str!("../../../../examples/pytest/conftest.py"),
    mark: "AVTRACE_RUN",
    existing: Existing::Leave,
    run: "AVTRACE_RUN=\"avtrace run --\" pytest",
};

const GITHUB: RunnerSetup = RunnerSetup {
    file: ".github/workflows/avtrace.yml",
    lines: include_str!("../../../../examples/github/avtrace.yml"),
    mark: "avtrace run",
    existing: Existing::Leave,
    run: "git push",
};

/// Writes the set-up of a runner into the project of the current folder.
pub(super) fn init(arguments: &InitArgs) -> Result<u8, Failure> {
    let setup = match arguments.runner {
        RunnerArg::Cargo => CARGO,
        RunnerArg::Nextest => NEXTEST,
        RunnerArg::Ctest => CTEST,
        RunnerArg::Meson => MESON,
        RunnerArg::Pytest => PYTEST,
        RunnerArg::Github => GITHUB,
    };
    let RunnerSetup { file, lines, mark, existing, run } = setup;
    let cannot = |what: &str, error: io::Error| {
        Failure::internal(format!("cannot {what} `{file}`: {error}"))
    };
    let current = match fs::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(cannot("read", error)),
    };
    let text = match current {
        // It is the project's description.
        None if existing == Existing::Append => {
            return Err(Failure::usage(format!(
                "there is no `{file}` here: run `avtrace init` in the folder of the project"
            )));
        }
        None => lines.to_owned(),
        Some(text) if text.contains(mark) => {
            eprintln!("avtrace: `{file}` has avtrace already; the tests run by:\n{run}");
            return Ok(0);
        }
        Some(text) => match appended(&text, lines, existing) {
            Some(text) => text,
            None => {
                eprintln!(
                    "avtrace: `{file}` exists and stays as it is: add these lines, then the tests run by `{run}`"
                );
                print!("{lines}");
                return Ok(1);
            }
        },
    };
    if let Some(folder) = Path::new(file).parent() {
        fs::create_dir_all(folder).map_err(|error| cannot("make the folder of", error))?;
    }
    fs::write(file, text).map_err(|error| cannot("write", error))?;
    println!("{lines}");
    eprintln!("avtrace: these lines are in `{file}` now; the tests run by:\n{run}");
    Ok(0)
}

/// Returns a text with lines at its end, if that is possible.
fn appended(text: &str, lines: &str, existing: Existing) -> Option<String> {
    let gap = if text.is_empty() || text.ends_with('\n') { "\n" } else { "\n\n" };
    let all = format!("{text}{gap}{lines}");
    match existing {
        Existing::Append => Some(all),
        Existing::AppendToml => all.parse::<toml::Table>().is_ok().then_some(all),
        Existing::Leave => None,
    }
}

/// Files of the example.
const BANK: [(&str, &str); 4] = [
    ("bank.c", include_str!("../../../../examples/bank/bank.c")),
    ("bank.h", include_str!("../../../../examples/bank/bank.h")),
    ("bank_test.c", include_str!("../../../../examples/bank/bank_test.c")),
    ("two_withdrawals.c", include_str!("../../../../examples/bank/two_withdrawals.c")),
];

/// Writes the example of the guide.
pub(super) fn demo(arguments: &DemoArgs) -> Result<u8, Failure> {
    let folder = &arguments.folder;
    let place = folder.display();
    let cannot =
        |error: io::Error| Failure::internal(format!("cannot write to `{place}`: {error}"));
    fs::create_dir_all(folder).map_err(cannot)?;
    for (name, text) in BANK {
        let path = folder.join(name);
        match fs::File::create_new(&path) {
            Ok(mut file) => io::Write::write_all(&mut file, text.as_bytes()).map_err(cannot)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                eprintln!("avtrace: `{}` exists and stays as it is", path.display());
            }
            Err(error) => return Err(cannot(error)),
        }
    }
    println!("cd {place}\ncc -g -O1 -pthread bank.c bank_test.c -o bank_test\navtrace ./bank_test");
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_where_the_file_stays_valid() {
        let other = "[build]\njobs = 2";
        let all = appended(other, CARGO.lines, Existing::AppendToml).expect("valid");
        assert!(all.starts_with("[build]\njobs = 2\n\n# Programs"), "{all}");
        let same = "[target.x86_64-unknown-linux-gnu]\nlinker = \"lld\"\n";
        assert_eq!(appended(same, CARGO.lines, Existing::AppendToml), None, "a table twice");
        assert_eq!(appended("", CTEST.lines, Existing::Leave), None);
        assert!(appended("project('a', 'c')\n", MESON.lines, Existing::Append).is_some());
    }

    #[test]
    fn lines_are_known_again() {
        for setup in [CARGO, NEXTEST, CTEST, MESON, PYTEST, GITHUB] {
            assert!(setup.lines.contains(setup.mark), "{}", setup.file);
        }
        CARGO.lines.parse::<toml::Table>().expect("TOML");
        NEXTEST.lines.parse::<toml::Table>().expect("TOML");
        serde_json::from_str::<serde_json::Value>(CTEST.lines).expect("JSON");
    }
}
