//! Building the programs under `programs/`, once per source and flags, and finding lines in their sources.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use crate::process::Running;
use crate::{root, target_dir};

/// A program that was built, and its source.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Main source file.
    pub source: PathBuf,
}

/// Builds `programs/c/NAME.c` with these flags for the compiler. There is debug information only with `-g`.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn c(name: &str, flags: &[&str]) -> Program {
    c_file(&sources("c").join(name).with_extension("c"), flags)
}

/// Compiles a C program as [`c`] does, with another compiler.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn c_by(compiler: &str, name: &str, flags: &[&str]) -> Program {
    compile(compiler, &sources("c").join(name).with_extension("c"), flags)
}

/// Builds a C source file outside `programs/`, as [`c`] does.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn c_file(source: &Path, flags: &[&str]) -> Program {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    compile(&compiler, source, flags)
}

/// Builds `programs/cpp/NAME.cpp` with these flags for the compiler. There is debug information only with `-g`.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn cpp(name: &str, flags: &[&str]) -> Program {
    cpp_file(&sources("cpp").join(name).with_extension("cpp"), flags)
}

/// Builds a C++ source file outside `programs/`, as [`cpp`] does.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn cpp_file(source: &Path, flags: &[&str]) -> Program {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    compile(&compiler, source, flags)
}

/// Builds the binary NAME of the package `programs/rust`, in the profile `release` or `dev`.
///
/// # Panics
/// When it does not compile.
#[must_use]
pub fn rust(name: &str, release: bool) -> Program {
    let package = sources("rust");
    let target = target_dir().join("programs/rust");
    let mut command = Command::new(cargo());
    command.args(["build", "--quiet", "--locked", "--manifest-path"]);
    command.arg(package.join("Cargo.toml")).arg("--target-dir").arg(&target);
    command.env_remove("CARGO_BUILD_TARGET");
    if release {
        command.arg("--release");
    }
    succeed(&mut command);
    let profile = if release { "release" } else { "debug" };
    let source = package.join(name).with_extension("rs");
    Program { path: target.join(profile).join(name), source }
}

impl Program {
    /// Copy of the program without its symbols, as `strip` leaves it.
    ///
    /// # Panics
    /// When `strip` fails.
    #[must_use]
    pub fn stripped(&self) -> Self {
        let folder = self.path.parent().expect("a folder").join("stripped");
        let path = folder.join(self.path.file_name().expect("a file name"));
        make(&path, |draft| {
            succeed(Command::new("strip").arg("--strip-all").arg(&self.path).arg("-o").arg(draft));
        });
        Self { path, source: self.source.clone() }
    }

    /// Copy of the program without its debug information, as `strip -g` leaves it.
    ///
    /// # Panics
    /// When `strip` fails.
    #[must_use]
    pub fn without_debug_information(&self) -> Self {
        let folder = self.path.parent().expect("a folder").join("nodebug");
        let path = folder.join(self.path.file_name().expect("a file name"));
        make(&path, |draft| {
            succeed(Command::new("strip").arg("-g").arg(&self.path).arg("-o").arg(draft));
        });
        Self { path, source: self.source.clone() }
    }

    /// Copy of the program without its symbols, and its debug information in a file beside it that it names.
    ///
    /// # Panics
    /// When `objcopy` fails.
    #[must_use]
    pub fn with_debug_link(&self) -> Self {
        let folder = self.path.parent().expect("a folder").join("debuglink");
        let path = folder.join(self.path.file_name().expect("a file name"));
        make(&path, |draft| {
            // The link holds the file's name and checksum.
            let debug = path.with_extension("debug");
            let mut separate = Command::new("objcopy");
            succeed(separate.arg("--only-keep-debug").arg(&self.path).arg(&debug));
            let link = format!("--add-gnu-debuglink={}", debug.display());
            let mut link_to = Command::new("objcopy");
            succeed(link_to.arg("--strip-all").arg(link).arg(&self.path).arg(draft));
        });
        Self { path, source: self.source.clone() }
    }

    /// Copy of the program, which was built with `-gsplit-dwarf`, with its `.dwo` files in one package beside it, and
    /// nowhere else.
    ///
    /// # Panics
    /// When `dwp` fails.
    #[must_use]
    pub fn packaged(&self) -> Self {
        let built = self.path.parent().expect("a folder");
        let path = built.join("package").join(self.path.file_name().expect("a file name"));
        make(&path, |draft| {
            let mut dwp = Command::new("dwp");
            succeed(
                dwp.arg("--exec").arg(&self.path).arg("--output").arg(path.with_extension("dwp")),
            );
            for entry in fs::read_dir(built).expect("a folder") {
                let file = entry.expect("an entry").path();
                if file.extension().is_some_and(|extension| extension == "dwo") {
                    fs::remove_file(&file).expect("a file to remove");
                }
            }
            install(&self.path, draft, 0o755);
        });
        Self { path, source: self.source.clone() }
    }

    /// The number of the source line that carries `@MARK`, from 1.
    ///
    /// # Panics
    /// When there is no such line, or more than one.
    #[must_use]
    pub fn line(&self, mark: &str) -> u32 {
        let text = fs::read_to_string(&self.source).expect("the source");
        let marked = |line: &str| {
            line.split('@').skip(1).any(|rest| {
                rest.strip_prefix(mark).is_some_and(|rest| {
                    !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric())
                })
            })
        };
        let lines: Vec<usize> =
            (1..).zip(text.lines()).filter(|l| marked(l.1)).map(|l| l.0).collect();
        match lines[..] {
            [line] => u32::try_from(line).expect("a short file"),
            _ => panic!("@{mark} is on the lines {lines:?} of {}", self.source.display()),
        }
    }

    /// The text of the source line that carries `@MARK`, without indentation.
    ///
    /// # Panics
    /// As [`line`](Self::line) does.
    #[must_use]
    pub fn line_text(&self, mark: &str) -> String {
        let text = fs::read_to_string(&self.source).expect("the source");
        let line = text.lines().nth(self.line(mark) as usize - 1).expect("the line exists");
        line.trim().to_owned()
    }
}

/// Copies a program to where it is to be executed, with this mode.
///
/// Another process does that. While a file is open for writing it cannot be executed, and what one test has open is
/// open as well in a child that another test has forked, until that executes its own program.
///
/// # Panics
/// When it cannot be copied.
pub fn install(from: &Path, to: &Path, mode: u32) {
    succeed(Command::new("install").arg(format!("--mode={mode:o}")).args([from, to]));
}

/// Writes a file that is to be executed, as [`install`] does.
///
/// # Panics
/// When it cannot be written.
pub fn install_contents(contents: impl AsRef<[u8]>, to: &Path) {
    let draft = to.with_extension("draft");
    fs::write(&draft, contents).expect("a draft");
    install(&draft, to, 0o755);
}

pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Time after which a build is given up: a slow machine builds a tree from scratch within it.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// Runs a command that builds something and has to succeed, and returns its standard output.
pub(crate) fn succeed(command: &mut Command) -> String {
    let ended = Running::start(command, None, BUILD_LIMIT).wait();
    assert_eq!(ended.code, Some(0), "{command:?} failed:\n{}{}", ended.stdout, ended.stderr);
    ended.stdout
}

fn sources(language: &str) -> PathBuf {
    root().join("tests/programs").join(language)
}

/// Compiles a source file. An earlier build of the same sources in the same way is used again.
fn compile(compiler: &str, source: &Path, flags: &[&str]) -> Program {
    let include = root().join("markers/include");
    let mut hasher = DefaultHasher::new();
    (compiler, flags, source).hash(&mut hasher);
    fs::read(source).expect("the source").hash(&mut hasher);
    for folder in [&include, source.parent().expect("a folder")] {
        hash_headers(folder, &mut hasher);
    }
    let name = source.file_stem().expect("a file name");
    let path = target_dir().join(format!("programs/{:016x}", hasher.finish())).join(name);
    make(&path, |draft| {
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(&include);
        command.args(flags).arg(source).arg("-o").arg(draft);
        succeed(&mut command);
    });
    Program { path, source: source.to_owned() }
}

fn hash_headers(folder: &Path, hasher: &mut DefaultHasher) {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut headers: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "h")).collect();
    headers.sort();
    for header in headers {
        fs::read(header).expect("a header").hash(hasher);
    }
}

/// Makes a file unless it exists. Other tests see the whole file or no file.
fn make(path: &Path, build: impl FnOnce(&Path)) {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if path.exists() {
        return;
    }
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for the program");
    let draft = path.with_extension(format!("{}.draft", std::process::id()));
    build(&draft);
    fs::rename(&draft, path).expect("the program in its place");
}
