//! Steps between two sections: a statement, and the declarations that it needs.

use crate::{Gap, Language, Program};

/// Declarations and statement of a gap.
pub(crate) struct Code {
    pub(crate) declarations: &'static str,
    pub(crate) statement: &'static str,
}

/// Code of the gap of a program.
pub(crate) fn code(program: &Program) -> Code {
    // A thread that computes once must still be at it when the next one has started.
    let is_long = program.is_once();
    let (declarations, statement) = match program.language {
        Language::C => c(program.gap, is_long),
        Language::Cpp => cpp(program.gap, is_long),
        Language::Rust => rust(program.gap, is_long),
    };
    Code { declarations, statement }
}

fn c(gap: Gap, is_long: bool) -> (&'static str, &'static str) {
    match gap {
        Gap::Nothing => ("", ""),
        Gap::Compute if is_long => ("", "for (volatile int n = 0; n < 3000000; n++) {\n}"),
        Gap::Compute => ("", "for (volatile int n = 0; n < 1000; n++) {\n}"),
        Gap::Sleep if is_long => ("", "usleep(5000);"),
        Gap::Sleep => ("", "usleep(1000);"),
        Gap::Yield => ("", "sched_yield();"),
        Gap::File => (
            "static void note(long i) {\n    FILE *file = fopen(\"/dev/null\", \"a\");\n    \
             if (file) {\n        fprintf(file, \"%ld\\n\", i);\n        fclose(file);\n    }\n}\n",
            "note(i);",
        ),
        Gap::Log => ("", "fprintf(stderr, \"thread %ld: round %ld\\n\", me, i);"),
        Gap::Alloc => (
            "static void *volatile last;\n",
            "char *copy = malloc(200);\nmemset(copy, (int)i, 200);\nlast = copy;\nfree(copy);",
        ),
        Gap::OtherLock => (
            "static pthread_mutex_t stats_lock = PTHREAD_MUTEX_INITIALIZER;\nstatic long stats;\n",
            "pthread_mutex_lock(&stats_lock);\nstats++;\npthread_mutex_unlock(&stats_lock);",
        ),
        Gap::RareSleep => (
            "static void check_quota(long i) {\n    if (i % 64 == 63) {\n        usleep(1000);\n    \
             }\n}\n",
            "check_quota(i);",
        ),
    }
}

fn cpp(gap: Gap, is_long: bool) -> (&'static str, &'static str) {
    match gap {
        Gap::Sleep if is_long => ("", "std::this_thread::sleep_for(std::chrono::milliseconds(5));"),
        Gap::Sleep => ("", "std::this_thread::sleep_for(std::chrono::microseconds(1000));"),
        Gap::Yield => ("", "std::this_thread::yield();"),
        Gap::File => ("", "{\nstd::ofstream file(\"/dev/null\");\nfile << i << '\\n';\n}"),
        Gap::Log => ("", "std::cerr << \"thread \" << me << \": round \" << i << '\\n';"),
        Gap::Alloc => (
            "static void *volatile last;\n",
            "{\nauto copy = std::make_unique<std::string>(200, 'a');\nlast = copy.get();\n}",
        ),
        Gap::OtherLock => (
            "static std::mutex stats_lock;\nstatic long stats;\n",
            "{\nstd::lock_guard<std::mutex> hold_stats(stats_lock);\nstats++;\n}",
        ),
        Gap::RareSleep => (
            "static void check_quota(long i) {\n    if (i % 64 == 63) {\n        \
             std::this_thread::sleep_for(std::chrono::microseconds(1000));\n    }\n}\n",
            "check_quota(i);",
        ),
        Gap::Nothing | Gap::Compute => c(gap, is_long),
    }
}

fn rust(gap: Gap, is_long: bool) -> (&'static str, &'static str) {
    match gap {
        Gap::Nothing => ("", ""),
        Gap::Compute if is_long => ("", "for n in 0..1000000 {\nstd::hint::black_box(n);\n}"),
        Gap::Compute => ("", "for n in 0..1000 {\nstd::hint::black_box(n);\n}"),
        Gap::Sleep if is_long => ("", "thread::sleep(Duration::from_millis(5));"),
        Gap::Sleep => ("", "thread::sleep(Duration::from_micros(1000));"),
        Gap::Yield => ("", "thread::yield_now();"),
        Gap::File => ("", "std::fs::write(\"/dev/null\", i.to_string()).unwrap();"),
        Gap::Log => ("", "eprintln!(\"thread {me}: round {i}\");"),
        Gap::Alloc => ("", "drop(std::hint::black_box(vec![i; 25]));"),
        Gap::OtherLock => {
            ("static STATS: Mutex<i64> = Mutex::new(0);\n", "*STATS.lock().unwrap() += 1;")
        }
        Gap::RareSleep => (
            "fn check_quota(i: i64) {\n    if i % 64 == 63 {\n        \
             thread::sleep(Duration::from_micros(1000));\n    }\n}\n",
            "check_quota(i);",
        ),
    }
}
