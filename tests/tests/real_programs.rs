//! Programs of the system, under inline probes, as a user without privileges: they behave as they do alone. Each takes
//! seconds to minutes and needs further packages, so these run by `cargo xtask test --long` only.
//!
//! A program is a shell script under `programs/real/`, whose first line names the tools it needs. `$T` in it starts a
//! command under avtrace, or alone; `$IN` is a folder of input; what it writes to standard output is compared.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::tracer::avtrace;
use tests::{Ended, Running, machine, root};

/// User and group of the runs.
const NOBODY: u32 = 65534;

/// Limit of a run's duration. Under `avtrace` of a debug build a start takes half a minute.
const LIMIT: Duration = Duration::from_secs(400);

/// Share of probes, one in so many, that may be refused for want of room.
const REFUSED: u64 = 50;

/// Declares a test of each script.
macro_rules! programs {
    ($($name:ident: $script:literal,)*) => {
        $(
            #[test]
            #[ignore = "long: run by `cargo xtask test --long`"]
            fn $name() {
                runs_as_alone($script);
            }
        )*
    };
}

programs! {
    bash: "bash",
    bzip2: "bzip2",
    curl: "curl",
    ffmpeg: "ffmpeg",
    flac: "flac",
    g_plus_plus: "g++",
    gcc: "gcc",
    gdb: "gdb",
    git: "git",
    git_pack: "git-pack",
    go: "go",
    gzip: "gzip",
    java: "java",
    ld_gold: "ld.gold",
    ld_lld: "ld.lld",
    lighttpd: "lighttpd",
    luajit: "luajit",
    lz4: "lz4",
    make: "make",
    memcached: "memcached",
    nginx: "nginx",
    node: "node",
    openssl: "openssl",
    pbzip2: "pbzip2",
    perl: "perl",
    pigz: "pigz",
    python3: "python3",
    redis: "redis",
    rsync: "rsync",
    sort: "sort",
    sqlite3: "sqlite3",
    ssh_keygen: "ssh-keygen",
    tar: "tar",
    text_tools: "text-tools",
    tools: "tools",
    xz: "xz",
    zstd: "zstd",
}

/// Runs a script alone and under avtrace, and compares.
fn runs_as_alone(name: &str) {
    // These are traced by a separate user, whatever user runs the suite.
    if !machine::can_drop_privileges() {
        return machine::skip("not root: it cannot become a user without privileges");
    }
    let path = root().join("tests/programs/real").join(name).with_added_extension("sh");
    let script = fs::read_to_string(path).expect("the script");
    let tools = script.lines().next().and_then(|line| line.strip_prefix("# Needs: "));
    let missing = tools.expect("the tools").split(' ').find(|tool| !machine::have(tool));
    if let Some(missing) = missing {
        return machine::skip(&format!("no {missing}"));
    }
    let place = Place::new();
    let alone = place.run("alone", &script, "");
    let traced = place.run("traced", &script, &place.wrapper());
    let reports = place.reports();
    let what = format!("{name}: {}\n{reports:#?}", traced.1.stderr);
    let shown = |ended: &Ended| (ended.code, ended.signal, ended.stdout.clone());
    assert_eq!(shown(&traced.1), shown(&alone.1), "{what}");
    let (probes, refused) =
        (reports.probes, reports.refused.iter().map(|(_, count)| count).sum::<u64>());
    assert!(!reports.files.is_empty(), "{what}");
    assert!(refused <= 10 + probes / REFUSED, "{what}");
    println!(
        "| {name} | same | {probes} | {} | {:.1} s | {:.1} s |",
        reports.refusals(),
        alone.0.as_secs_f64(),
        traced.0.as_secs_f64(),
    );
}

/// Folder of a program's two runs, which any user may use.
struct Place(tempfile::TempDir);

/// Summary of the reports of a run.
#[derive(Debug)]
struct Reports {
    files: Vec<PathBuf>,
    probes: u64,
    /// Refused probes, by reason.
    refused: Vec<(String, u64)>,
}

impl Place {
    fn new() -> Self {
        let folder = tests::folder();
        open(folder.path());
        let place = Self(folder);
        let input = place.folder("in");
        let succeeded = Command::new("sh").arg("-ec").arg(INPUT).current_dir(input).status();
        assert!(succeeded.expect("a shell").success());
        place.folder("reports");
        fs::copy(avtrace(), place.path("avtrace")).expect("a copy");
        open(&place.path("avtrace"));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).expect("a folder");
        chown(&path, Some(NOBODY), Some(NOBODY)).expect("its owner");
        path
    }

    /// Command that starts another one under avtrace, and ends as that does, whatever was found.
    fn wrapper(&self) -> String {
        let text = format!(
            "#!/bin/sh\n\
             report=$(mktemp {reports}/XXXXXX)\n\
             {avtrace} run --capture inline --format json -o $report -- \"$@\"\n\
             status=$?\n\
             [ $status = 66 ] && status=$(sed -n 's/.*\"exit_code\": *\\([0-9]*\\).*/\\1/p' $report | tail -n 1)\n\
             exit $status\n",
            reports = self.path("reports").display(),
            avtrace = self.path("avtrace").display(),
        );
        let path = self.path("wrapper");
        fs::write(&path, text).expect("the wrapper");
        open(&path);
        path.display().to_string()
    }

    fn run(&self, name: &str, script: &str, tracer: &str) -> (Duration, Ended) {
        let folder = self.folder(name);
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]);
        command.current_dir(&folder).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("LANG", "C.UTF-8");
        command.env("HOME", &folder).env("TMPDIR", &folder).env("IN", self.path("in"));
        command.env("T", tracer).env("PORT", free_port().to_string());
        let start = Instant::now();
        let ended = Running::start(&mut command, None, LIMIT).wait();
        (start.elapsed(), ended)
    }

    fn reports(&self) -> Reports {
        let entries = fs::read_dir(self.path("reports")).expect("reports");
        let files = entries.map(|entry| entry.expect("an entry").path()).collect();
        let mut reports = Reports { files, probes: 0, refused: Vec::new() };
        for file in reports.files.clone() {
            let text = fs::read_to_string(&file).expect("a report");
            for document in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
                reports.add(&document.expect("a document"));
            }
        }
        reports
    }
}

impl Reports {
    fn add(&mut self, document: &Value) {
        self.probes += document["summary"]["probes_emulated"].as_u64().unwrap_or(0);
        let skipped = document["not_seen"]["skipped_probes"].as_array();
        for refusal in skipped.into_iter().flatten() {
            if refusal["reason_kind"] != "no_patch" {
                continue;
            }
            let reason = refusal["reason"].as_str().unwrap_or_default();
            let reason = reason.trim_start_matches("it cannot be an inline probe: ");
            let reason = if reason.contains("room") { "no room for a jump" } else { reason };
            let count = refusal["count"].as_u64().unwrap_or(0);
            match self.refused.iter_mut().find(|(known, _)| known == reason) {
                Some((_, known)) => *known += count,
                None => self.refused.push((reason.to_owned(), count)),
            }
        }
    }

    fn refusals(&self) -> String {
        let texts = self.refused.iter().map(|(reason, count)| format!("{count} {reason}"));
        texts.collect::<Vec<_>>().join(", ")
    }
}

/// Lets any user read and execute a file.
fn open(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("its permissions");
}

fn free_port() -> u16 {
    let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
    socket.local_addr().expect("its address").port()
}

/// Script that makes the input in the current folder.
const INPUT: &str = r#"
(cat /usr/share/common-licenses/*; i=0; while [ $i -lt 60 ]; do seq $i 7 40000; i=$((i + 1)); done) > text
head -c 300000 text > page
cat > hello.c <<'END'
#include <pthread.h>
#include <stdio.h>
static void *f(void *p) { printf("thread %d\n", *(int *)p); return 0; }
int main(void) { int i = 7; pthread_t t; pthread_create(&t, 0, f, &i); pthread_join(t, 0); puts("end"); return 3; }
END
cat > hello.cpp <<'END'
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
int main() {
    std::mutex m;
    std::map<std::string, int> k;
    std::vector<std::thread> v;
    for (int i = 0; i < 4; i++) v.emplace_back([&, i] { std::lock_guard<std::mutex> l(m); k[std::to_string(i)] = i; });
    for (auto &t : v) t.join();
    for (auto &[a, b] : k) std::cout << a << b << "\n";
}
END
cc -g -O1 -pthread hello.c -o hello
cc -g -O1 -c hello.c -o hello.o
mkdir project
for i in 1 2 3 4 5 6; do echo "int f$i(int x) { return x * $i; }" > project/f$i.c; done
printf 'all: f1.o f2.o f3.o f4.o f5.o f6.o\n\tcat $^ | cksum\n%%.o: %%.c\n\tcc -O1 -c $< -o $@\n' > project/Makefile
chmod -R a+rX .
"#;
