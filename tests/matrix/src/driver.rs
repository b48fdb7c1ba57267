//! Threads of a program: their body, and the main function, which starts them, counts the anomalies from their results
//! and the final values when all have ended, and prints the number.

use crate::{
    Data, Language, Runs, Shape,
    data::passed,
    pattern::{Harm, Role},
    shape::{Writer, region},
};

/// Statements that take some time, between executions.
const C_PAUSE: &str = "for (volatile int n = 0; n < 20000; n++) {\n}\n";
const RUST_PAUSE: &str = "for n in 0..20000 {\nstd::hint::black_box(n);\n}\n";

fn condition(role: Role) -> &'static str {
    match role {
        Role::All => "me >= 0",
        Role::First => "me == 0",
        Role::ButSecond => "me != 1",
        Role::Pair => "me < 2",
    }
}

/// Constants of a program.
pub(crate) fn constants(writer: &Writer<'_>) -> String {
    let program = writer.program;
    let (threads, rounds) = (program.threads.count(), program.rounds());
    let running = match writer.steps.role {
        Role::All => threads,
        Role::First => 1,
        Role::ButSecond => threads - 1,
        Role::Pair => 2,
    };
    let all = [
        ("THREADS", threads),
        ("ROUNDS", rounds),
        ("GROUPS", program.groups()),
        ("OPS", rounds * running),
    ];
    let is_rust = writer.is_rust();
    let line = |(name, value)| {
        if is_rust {
            format!("const {name}: i64 = {value};\n")
        } else {
            format!("#define {name} {value}L\n")
        }
    };
    all.into_iter().map(line).collect()
}

/// Object whose methods the functions are, with the dot.
fn object(writer: &Writer<'_>) -> &'static str {
    match (writer.program.shape, writer.program.language, writer.program.data) {
        (Shape::Methods, Language::Cpp, _) => "service.",
        (Shape::Methods, Language::Rust, Data::Global) => "SHARED.",
        (Shape::Methods, Language::Rust, _) => "s.",
        _ => "",
    }
}

/// Call of a function of the program from a thread's body or from the main function.
fn call(writer: &Writer<'_>, name: &str, arguments: &str) -> String {
    let state = if !writer.is_rust() {
        passed(writer.program).1
    } else if writer.program.data == Data::Global || writer.program.shape == Shape::Methods {
        ""
    } else {
        "s, "
    };
    format!("{}{name}({state}{arguments})", object(writer))
}

/// Statements for an execution by a thread, as its role is.
fn turn(writer: &Writer<'_>) -> String {
    let steps = &writer.steps;
    let result = if writer.is_rust() { "results[i as usize]" } else { "results[me][i]" };
    let back = if writer.is_rust() { "backs[i as usize]" } else { "backs[me][i]" };
    let run = if writer.program.shape == Shape::ThreadBody {
        format!("{}{}{result} = r;\n", writer.variables(), writer.inline())
    } else {
        let is_fallible = writer.is_rust() && writer.program.shape == Shape::Fallible;
        let end = if is_fallible { ".unwrap_or(0)" } else { "" };
        format!("{result} = {}{end};\n", call(writer, steps.names[0], "i, me"))
    };
    let other = call(writer, steps.names[3], "i, me");
    let role = condition(steps.role);
    match steps.role {
        Role::All => run,
        Role::Pair => {
            let pause = if writer.is_rust() { RUST_PAUSE } else { C_PAUSE };
            let pause = pause.replace("20000", "300000");
            format!(
                "if ({role}) {{\n{run}if ({result} != 0) {{\n{pause}{back} = {other};\n}}\n}}\n"
            )
        }
        _ => format!("if ({role}) {{\n{run}}} else {{\n{result} = {other};\n}}\n"),
    }
}

/// Name of the counter on which threads spin until all of them have started. No defect on it is the bug of a program.
pub(crate) const COUNTER: &str = "started";

/// Function in which threads wait until all of them have started, where they are to meet often.
fn gate(writer: &Writer<'_>) -> &'static str {
    match (writer.program.runs, writer.program.language) {
        (Runs::Loop, Language::C) => {
            "static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;\n\
             static void start_together(void) {\npthread_mutex_lock(&gate);\n\
             pthread_mutex_unlock(&gate);\n}\n"
        }
        (Runs::Loop, Language::Cpp) => {
            "static std::mutex gate;\nstatic void start_together() {\n\
             std::lock_guard<std::mutex> passed(gate);\n}\n"
        }
        (Runs::Loop, Language::Rust) => {
            "static GATE: Mutex<()> = Mutex::new(());\nfn start_together() {\n\
             drop(GATE.lock().unwrap());\n}\n"
        }
        (Runs::SpinStart, Language::C) => {
            "static atomic_long started;\nstatic void start_together(void) {\n\
             atomic_fetch_add(&started, 1);\nwhile (atomic_load(&started) < THREADS) {\n\
             sched_yield();\n}\n}\n"
        }
        (Runs::SpinStart, Language::Cpp) => {
            "static std::atomic<long> started{0};\nstatic void start_together() {\n\
             started.fetch_add(1);\nwhile (started.load() < THREADS) {\n\
             std::this_thread::yield();\n}\n}\n"
        }
        (Runs::SpinStart, Language::Rust) => {
            "static STARTED: AtomicI64 = AtomicI64::new(0);\nfn start_together() {\n\
             STARTED.fetch_add(1, Ordering::SeqCst);\n\
             while STARTED.load(Ordering::SeqCst) < THREADS {\nthread::yield_now();\n}\n}\n"
        }
        _ => "",
    }
}

/// Statements of the main function before it starts threads and after that, for the gate.
fn gate_in_main(writer: &Writer<'_>) -> (&'static str, &'static str) {
    match (writer.program.runs, writer.program.language) {
        (Runs::Loop, Language::C) => {
            ("pthread_mutex_lock(&gate);\n", "pthread_mutex_unlock(&gate);\n")
        }
        (Runs::Loop, Language::Cpp) => ("gate.lock();\n", "gate.unlock();\n"),
        (Runs::Loop, Language::Rust) => ("let held = GATE.lock().unwrap();\n", "drop(held);\n"),
        _ => ("", ""),
    }
}

/// Statements of a thread.
fn body(writer: &Writer<'_>) -> String {
    let start = if gate(writer).is_empty() { "" } else { "start_together();\n" };
    format!("{start}{}", turns(writer))
}

/// Executions of the function by a thread.
fn turns(writer: &Writer<'_>) -> String {
    let (is_rust, runs) = (writer.is_rust(), writer.program.runs);
    let pause = match (runs, is_rust) {
        (Runs::Paused, true) => RUST_PAUSE,
        (Runs::Paused, false) => C_PAUSE,
        _ => "",
    };
    if writer.program.shape == Shape::Pool {
        let run = call(writer, writer.steps.names[0], "i, me");
        return if is_rust {
            format!(
                "loop {{\nlet i = take_task();\nif i < 0 {{\nbreak;\n}}\nresults[0] += {run};\n{pause}}}\n"
            )
        } else {
            format!(
                "long i;\nwhile ((i = take_task()) >= 0) {{\nresults[me][0] += {run};\n{pause}}}\n"
            )
        };
    }
    let turn = turn(writer);
    match (runs, is_rust) {
        (Runs::Once | Runs::Again, true) => format!("let i: i64 = 0;\n{turn}"),
        (Runs::Once | Runs::Again, false) => format!("long i = 0;\n{turn}"),
        (_, true) => format!("for i in 0..ROUNDS {{\n{turn}{pause}}}\n"),
        (_, false) => format!("for (long i = 0; i < ROUNDS; i++) {{\n{turn}{pause}}}\n"),
    }
}

/// Statements that add the anomalies to `harm`; results are in `results` and `backs`.
fn count(writer: &Writer<'_>) -> String {
    let is_rust = writer.is_rust();
    let each = |name: &str, end: &str, inner: &str| {
        if is_rust {
            format!("for {name} in 0..{end} as usize {{\n{inner}}}\n")
        } else {
            format!("for (long {name} = 0; {name} < {end}; {name}++) {{\n{inner}}}\n")
        }
    };
    let wins = |wrong: &str| {
        let sum = each("me", "THREADS", "wins += results[me][i];\n");
        let one = format!(
            "{}{sum}if (wins {wrong} 1) {{\nharm += 1;\n}}\n",
            writer.variable("wins", "0")
        );
        each("i", "ROUNDS", &one)
    };
    match writer.steps.harm {
        Harm::Differs(value) => {
            let value = if is_rust { format!("({value}).abs()") } else { format!("labs({value})") };
            format!("harm += {value};\n")
        }
        Harm::Exceeds(value) => format!("if ({value} > 0) {{\nharm += {value};\n}}\n"),
        Harm::NotOneWinner => wins("!="),
        Harm::ManyWinners => wins(">"),
        Harm::BothAway => {
            let both = "if (results[0][a] != 0 && results[1][b] != 0 && results[0][a] < backs[1][b] && \
                        results[1][b] < backs[0][a]) {\nharm += 1;\n}\n";
            each("a", "ROUNDS", &each("b", "ROUNDS", both))
        }
    }
}

/// Sums of results.
fn sums(writer: &Writer<'_>) -> String {
    let role = condition(writer.steps.role);
    let (me, i) = if writer.is_rust() {
        ("for me in 0..THREADS as usize {", "for i in 0..ROUNDS as usize {")
    } else {
        ("for (long me = 0; me < THREADS; me++) {", "for (long i = 0; i < ROUNDS; i++) {")
    };
    let variables = [
        ("fx", call(writer, "value_of", "0")),
        ("fy", call(writer, "value_of", "1")),
        ("ops", "OPS".to_owned()),
        ("sum", "0".to_owned()),
        ("others", "0".to_owned()),
    ];
    let declared: String =
        variables.iter().map(|(name, value)| writer.variable(name, value)).collect();
    format!(
        "{declared}{me}\n{i}\nif ({role}) {{\nsum += results[me][i];\n}} else {{\n\
         others += results[me][i];\n}}\n}}\n}}\n{}",
        count(writer)
    )
}

/// The thread's body, with the marks of a region where the function is part of it.
fn worker(writer: &Writer<'_>, text: String) -> String {
    if writer.program.shape == Shape::ThreadBody { region("work", &text) } else { text }
}

/// Threads and main function of a program in C.
pub(crate) fn c(writer: &Writer<'_>) -> String {
    let has_state = writer.program.data == Data::Stack;
    let (field, local, local_state, given) = if has_state {
        (
            "struct state *s;\n",
            "struct state *s = job->s;\n",
            "struct state on_stack = {0};\nstruct state *s = &on_stack;\n",
            "jobs[me].s = s;\n",
        )
    } else {
        ("", "", "", "")
    };
    let gate = gate(writer);
    let (close, open) = gate_in_main(writer);
    let text = format!(
        "static void *work(void *argument) {{\nstruct job *job = argument;\nlong me = job->me;\n{local}{}\
         return NULL;\n}}\n",
        body(writer)
    );
    format!(
        "static long results[THREADS][ROUNDS];\nstatic long backs[THREADS][ROUNDS];\n\
         struct job {{\nlong me;\n{field}}};\n{gate}{}\
         int main(void) {{\nlong harm = 0;\n{local_state}\
         for (long group = 0; group < GROUPS; group++) {{\n\
         pthread_t threads[THREADS];\nstruct job jobs[THREADS];\nmemset(results, 0, sizeof results);\n\
         {};\n{close}\
         for (long me = 0; me < THREADS; me++) {{\njobs[me].me = me;\n{given}\
         pthread_create(&threads[me], NULL, work, &jobs[me]);\n}}\n{open}\
         for (long me = 0; me < THREADS; me++) {{\npthread_join(threads[me], NULL);\n}}\n{}}}\n\
         printf(\"harm %ld\\n\", harm);\nreturn 0;\n}}\n",
        worker(writer, text),
        call(writer, "prepare", "group"),
        sums(writer)
    )
}

/// Threads and main function of a program in C++.
pub(crate) fn cpp(writer: &Writer<'_>) -> String {
    let (state, argument) = passed(writer.program);
    let local = if state.is_empty() {
        ""
    } else {
        "struct state on_stack = {};\nstruct state *s = &on_stack;\n"
    };
    let gate = gate(writer);
    let (close, open) = gate_in_main(writer);
    let text = format!("static void work({state}long me) {{\n{}}}\n", body(writer));
    format!(
        "static long results[THREADS][ROUNDS];\nstatic long backs[THREADS][ROUNDS];\n{gate}{}\
         int main() {{\nlong harm = 0;\n{local}\
         for (long group = 0; group < GROUPS; group++) {{\n\
         std::vector<std::thread> threads;\nmemset(results, 0, sizeof results);\n{};\n{close}\
         for (long me = 0; me < THREADS; me++) {{\nthreads.emplace_back(work, {argument}me);\n}}\n{open}\
         for (auto &thread : threads) {{\nthread.join();\n}}\n{}}}\n\
         printf(\"harm %ld\\n\", harm);\nreturn 0;\n}}\n",
        worker(writer, text),
        call(writer, "prepare", "group"),
        sums(writer)
    )
}

/// Threads and main function of a program in Rust.
pub(crate) fn rust(writer: &Writer<'_>) -> String {
    let gate = gate(writer);
    let (close, open) = gate_in_main(writer);
    let (parameter, local, spawned) = match writer.program.data {
        Data::Global => ("", "", "thread::spawn(move || work(me))"),
        Data::Stack => (
            "s: &Shared, ",
            "let shared = Shared::new();\nlet s = &shared;\n",
            "scope.spawn(move || work(s, me))",
        ),
        _ => (
            "s: &Shared, ",
            "let shared = Arc::new(Shared::new());\nlet s = &*shared;\n",
            "{\nlet shared = Arc::clone(&shared);\nthread::spawn(move || work(&shared, me))\n}",
        ),
    };
    let ended = format!(
        "let threads: Vec<_> = (0..THREADS).map(|me| {spawned}).collect();\n{open}\
         threads.into_iter().map(|one| one.join().unwrap()).unzip()\n"
    );
    let ended = if writer.program.data == Data::Stack {
        format!("thread::scope(|scope| {{\n{ended}}})")
    } else {
        format!("{{\n{ended}}}")
    };
    let text = format!(
        "fn work({parameter}me: i64) -> (Vec<i64>, Vec<i64>) {{\n\
         let mut results = vec![0i64; ROUNDS as usize];\nlet mut backs = vec![0i64; ROUNDS as usize];\n\
         {}(results, backs)\n}}\n",
        body(writer)
    );
    format!(
        "{gate}{}fn main() {{\nlet mut harm: i64 = 0;\nfor group in 0..GROUPS {{\n{local}{};\n{close}\
         let (results, backs): (Vec<Vec<i64>>, Vec<Vec<i64>>) = {ended};\n{}}}\n\
         println!(\"harm {{harm}}\");\n}}\n",
        worker(writer, text),
        call(writer, "prepare", "group"),
        sums(writer)
    )
}
