//! Sources of a program: its files, the commands that build it, and the regions that are marked in it.

use crate::{
    Build, Data, Language, Pattern, Program, Shape, data, driver, gap, lock, shape::Writer,
};

/// File of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Name in the folder of the program.
    pub name: String,
    /// Contents.
    pub text: String,
}

/// Function that should be atomic, or a helper that makes a step of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Name of the function.
    pub name: String,
    /// File that it is in.
    pub file: String,
    /// First and last line, from 1.
    pub lines: (u32, u32),
}

/// Sources of a program or its twin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Files to write into an empty folder.
    pub files: Vec<File>,
    /// Commands that build the program in this folder, words each.
    pub commands: Vec<Vec<String>>,
    /// Regions of the program; the first one is the function that should be atomic.
    pub regions: Vec<Region>,
}

/// Name of the executable.
pub const EXECUTABLE: &str = "prog";

/// Sources of a program, or of its correct twin.
#[must_use]
pub fn source(program: &Program, is_twin: bool) -> Source {
    let writer = Writer::new(program, is_twin);
    let files = match program.language {
        Language::Rust if program.needs_crates() => {
            let text = manifest(program, is_twin);
            vec![file("prog.rs", &rust(&writer)), File { name: "Cargo.toml".to_owned(), text }]
        }
        Language::Rust => vec![file("prog.rs", &rust(&writer))],
        Language::C if program.shape == Shape::Library => library(&writer, C_HEAD, "c"),
        Language::C => vec![file("prog.c", &[C_HEAD, &one(&writer)].concat())],
        Language::Cpp if program.shape == Shape::Library => library(&writer, CPP_HEAD, "cpp"),
        Language::Cpp => vec![file("prog.cpp", &[CPP_HEAD, &one(&writer)].concat())],
    };
    let mut regions: Vec<Region> = files.iter().flat_map(marked).collect();
    let name = if program.shape == Shape::ThreadBody { "work" } else { writer.steps.names[0] };
    regions.sort_by_key(|region| region.name != name);
    Source { commands: commands(program, is_twin), files, regions }
}

fn package(program: &Program, is_twin: bool) -> String {
    let end = if is_twin { "-twin" } else { "" };
    format!("{}{end}", program.id().replace('.', "-"))
}

/// Manifest of a program in Rust that needs crates.
fn manifest(program: &Program, is_twin: bool) -> String {
    let (level, debug) = match program.build {
        Build::Release => (3, 0),
        Build::ReleaseDebug => (3, 1),
        _ => (0, 2),
    };
    format!(
        "[package]\nname = \"{}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[[bin]]\nname = \"{0}\"\n\
         path = \"prog.rs\"\n\n[dependencies]\nparking_lot = \"0.12\"\n\n[profile.release]\n\
         opt-level = {level}\ndebug = {debug}\n\n[workspace]\n",
        package(program, is_twin)
    )
}

const C_HEAD: &str = "\
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

";

const CPP_HEAD: &str = "\
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

";

const RUST_HEAD: &str = "\
#![allow(warnings)]
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};
use std::thread;
use std::time::Duration;

";

const ITEM: &str = "\
struct item {
    long name[2];
    volatile long alive;
    long uses;
};
static struct item *new_item(void) {
    struct item *item = (struct item *)calloc(1, sizeof *item);
    item->alive = 1;
    return item;
}
";

fn file(name: &str, text: &str) -> File {
    File { name: name.to_owned(), text: indented(text) }
}

/// State, lock and functions in C and C++.
fn functions(writer: &Writer<'_>) -> String {
    let program = writer.program;
    let mut text = String::new();
    if program.pattern == Pattern::LookupFreed {
        text.push_str(ITEM);
    }
    if program.language == Language::Cpp {
        text.push_str(lock::cpp_types(program));
    }
    text.push_str(gap::code(program).declarations);
    let state = [data::declaration(program), lock::declaration(program)].concat();
    let code = [writer.functions(), writer.state_functions()].concat();
    if program.shape != Shape::Methods {
        return [text, state, code].concat();
    }
    let without_static = |text: &str| text.replace("static ", "");
    let (before, inside) = if program.data == Data::Member {
        (String::new(), without_static(&state))
    } else {
        (state, String::new())
    };
    let code = without_static(&code);
    format!("{text}{before}struct Service {{\n{inside}{code}}};\nstatic Service service;\n")
}

fn one(writer: &Writer<'_>) -> String {
    let driver = match writer.program.language {
        Language::C => driver::c(writer),
        _ => driver::cpp(writer),
    };
    [driver::constants(writer), pool(writer).to_owned(), functions(writer), driver].concat()
}

/// Files of a program whose functions are in a shared library.
fn library(writer: &Writer<'_>, head: &str, ending: &str) -> Vec<File> {
    let names = writer.steps.names;
    let other = writer.steps.after.unwrap_or(writer.steps.other);
    let mut exported = vec![(names[0], "i, long me"), ("prepare", "group"), ("value_of", "which")];
    if !other.is_empty() {
        exported.push((names[3], "i, long me"));
    }
    let (mut text, mut declarations) = (functions(writer), String::new());
    for (name, parameters) in exported {
        text = text.replace(&format!("static long {name}("), &format!("long {name}("));
        declarations.push_str(&format!("long {name}(long {parameters});\n"));
    }
    let constants = driver::constants(writer);
    let driver = match writer.program.language {
        Language::C => driver::c(writer),
        _ => driver::cpp(writer),
    };
    vec![
        file(&format!("work.{ending}"), &[head, &constants, &text].concat()),
        file(&format!("prog.{ending}"), &[head, &constants, &declarations, &driver].concat()),
    ]
}

fn rust(writer: &Writer<'_>) -> String {
    let program = writer.program;
    let code = [writer.functions(), writer.state_functions()].concat();
    let code =
        if program.shape == Shape::Methods { format!("impl Shared {{\n{code}}}\n") } else { code };
    [
        RUST_HEAD,
        &driver::constants(writer),
        pool(writer),
        gap::code(program).declarations,
        &data::rust_state(program),
        &lock::rust_shared(program),
        &code,
        &driver::rust(writer),
    ]
    .concat()
}

/// Function of a pool that hands tasks out.
fn pool(writer: &Writer<'_>) -> &'static str {
    if writer.program.shape != Shape::Pool {
        return "";
    }
    match writer.program.language {
        Language::C => {
            "static pthread_mutex_t task_lock = PTHREAD_MUTEX_INITIALIZER;\nstatic long next_task;\n\
             static long take_task(void) {\npthread_mutex_lock(&task_lock);\n\
             long task = next_task < OPS ? next_task++ : -1;\n\
             pthread_mutex_unlock(&task_lock);\nreturn task;\n}\n"
        }
        Language::Cpp => {
            "static std::mutex task_lock;\nstatic long next_task;\nstatic long take_task() {\n\
             std::lock_guard<std::mutex> hold_tasks(task_lock);\n\
             return next_task < OPS ? next_task++ : -1;\n}\n"
        }
        Language::Rust => {
            "static NEXT_TASK: Mutex<i64> = Mutex::new(0);\nfn take_task() -> i64 {\n\
             let mut next = NEXT_TASK.lock().unwrap();\nif *next < OPS {\n*next += 1;\n*next - 1\n\
             } else {\n-1\n}\n}\n"
        }
    }
}

/// Regions that are marked in a file.
fn marked(file: &File) -> Vec<Region> {
    let mut regions = Vec::new();
    for (line, text) in (1..).zip(file.text.lines()) {
        if let Some(name) = mark(text, "/* region ") {
            regions.push(Region {
                name: name.to_owned(),
                file: file.name.clone(),
                lines: (line + 1, line),
            });
        } else if let Some(name) = mark(text, "/* end of ") {
            let open = regions.iter_mut().rev().find(|region| region.name == name);
            if let Some(region) = open {
                region.lines.1 = line - 1;
            }
        }
    }
    regions
}

fn mark<'t>(line: &'t str, word: &str) -> Option<&'t str> {
    line.trim().strip_prefix(word)?.strip_suffix(" */")
}

/// Text with each line as far in as the braces before it say.
fn indented(text: &str) -> String {
    let (mut depth, mut result) = (0_usize, String::new());
    for line in text.lines() {
        let line = line.trim();
        let closing = line.chars().take_while(|c| *c == '}').count();
        let opened = line.matches('{').count();
        let closed = line.matches('}').count();
        let here = depth.saturating_sub(closing);
        if !line.is_empty() && !line.starts_with('#') {
            result.push_str(&"    ".repeat(here));
        }
        result.push_str(line);
        result.push('\n');
        depth = (depth + opened).saturating_sub(closed);
    }
    result
}

fn commands(program: &Program, is_twin: bool) -> Vec<Vec<String>> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    if program.needs_crates() {
        // The crates are built once for all programs.
        let built = format!("../../crates/release/{}", package(program, is_twin));
        return vec![
            words("cargo build --quiet --release --target-dir ../../crates"),
            words(&format!("cp {built} {EXECUTABLE}")),
        ];
    }
    if program.language == Language::Rust {
        let options = match program.build {
            Build::Release => "-O",
            Build::ReleaseDebug => "-O -C debuginfo=1",
            _ => "-g",
        };
        return vec![words(&format!("rustc --edition 2021 {options} -o {EXECUTABLE} prog.rs"))];
    }
    let (is_clang, level) = match program.build {
        Build::GccO1 => (false, "-O1"),
        Build::GccO2 => (false, "-O2"),
        Build::GccO3 => (false, "-O3"),
        Build::Lto => (false, "-O2 -flto"),
        Build::ClangO0 => (true, "-O0"),
        Build::ClangO2 => (true, "-O2"),
        _ => (false, "-O0"),
    };
    let (compiler, ending) = match (program.language, is_clang) {
        (Language::C, false) => ("gcc", "c"),
        (Language::C, true) => ("clang", "c"),
        (_, false) => ("g++ -std=c++17", "cpp"),
        (_, true) => ("clang++ -std=c++17", "cpp"),
    };
    let common = format!("{compiler} -g {level} -w -pthread");
    if program.shape != Shape::Library {
        return vec![words(&format!("{common} -o {EXECUTABLE} prog.{ending}"))];
    }
    vec![
        words(&format!("{common} -fPIC -shared -o libwork.so work.{ending}")),
        words(&format!("{common} -o {EXECUTABLE} prog.{ending} -L. -lwork -Wl,-rpath,$ORIGIN")),
    ]
}
