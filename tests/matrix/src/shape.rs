//! Shapes: the function that should be atomic, its helpers, and the function of the other threads.

use crate::{
    Data, Language, Lock, Program, Shape,
    data::passed,
    expand::Scope,
    lock::{Mode, Section, Step, section, slots},
    pattern::{Steps, steps},
};

/// Writer of the functions of one program.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'p> {
    pub(crate) program: &'p Program,
    /// Set for the correct twin.
    pub(crate) is_twin: bool,
    pub(crate) steps: Steps,
}

/// Function to write.
struct Function<'f> {
    name: &'f str,
    parameters: String,
    body: String,
    is_region: bool,
}

impl<'p> Writer<'p> {
    pub(crate) fn new(program: &'p Program, is_twin: bool) -> Self {
        Self { program, is_twin, steps: steps(program.pattern) }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.program.language == Language::Rust
    }

    /// Variable of a Rust program that holds the state, in the functions of this shape.
    fn here(&self) -> &'static str {
        match (self.program.shape, self.program.data) {
            (Shape::Methods, _) => "self",
            (_, Data::Global) => "SHARED",
            _ => "s",
        }
    }

    fn scope(&self, value: &'p str) -> Scope<'p> {
        Scope { program: self.program, here: self.here(), value }
    }

    /// Declaration of a local variable.
    pub(crate) fn variable(&self, name: &str, value: &str) -> String {
        if self.is_rust() {
            format!("let mut {name}: i64 = {value};\n")
        } else {
            format!("long {name} = {value};\n")
        }
    }

    /// Parameters of a function: the state, and integers.
    pub(crate) fn parameters(&self, names: &[&str], is_locked: bool) -> String {
        if !self.is_rust() {
            let names: Vec<_> = names.iter().map(|name| format!("long {name}")).collect();
            return format!("{}{}", passed(self.program).0, names.join(", "));
        }
        let names: Vec<_> = names.iter().map(|name| format!("{name}: i64")).collect();
        let state = match (self.program.shape, is_locked) {
            (Shape::Methods, false) => "&self, ",
            (Shape::Methods, true) => "&self, g: &mut State, ",
            (_, true) => "g: &mut State, ",
            (_, false) if self.program.data == Data::Global => "",
            (_, false) => "s: &Shared, ",
        };
        let two = self.program.lock == Lock::TwoLocks && is_locked;
        let state = if two {
            state.replace("g: &mut State", "a: &mut i64, b: &mut i64")
        } else {
            state.into()
        };
        format!("{state}{}", names.join(", "))
    }

    /// Call from another function of the shape.
    fn call(&self, name: &str, arguments: &str, is_locked: bool) -> String {
        if !self.is_rust() {
            return format!("{name}({}{arguments})", passed(self.program).1);
        }
        let state = match is_locked {
            true if self.program.lock == Lock::TwoLocks => "&mut a, &mut b, ",
            true => "&mut g, ",
            false if matches!(self.here(), "self" | "SHARED") => "",
            false => "s, ",
        };
        let object = if self.program.shape == Shape::Methods { "self." } else { "" };
        format!("{object}{name}({state}{arguments})")
    }

    fn function(&self, function: &Function<'_>) -> String {
        let Function { name, parameters, body, is_region } = function;
        let is_fallible = self.program.shape == Shape::Fallible && *name == self.steps.names[0];
        let head = if self.is_rust() && is_fallible {
            format!("fn {name}({parameters}) -> Result<i64, String> {{")
        } else if self.is_rust() {
            format!("fn {name}({parameters}) -> i64 {{")
        } else {
            format!("static long {name}({parameters}) {{")
        };
        let text = format!("{head}\n{body}}}\n");
        if *is_region { region(name, &text) } else { text }
    }

    pub(crate) fn returned(&self, value: &str) -> String {
        format!("return {value};\n")
    }

    fn under_lock(&self, step: Step, mode: Mode, body: &str) -> String {
        let slots = slots(self.program, step);
        section(self.program, &Section { mode, slots, here: self.here(), body })
    }

    fn first_mode(&self) -> Mode {
        if self.steps.first_reads { Mode::Read } else { Mode::Write }
    }

    fn gap(&self) -> String {
        self.scope("v").statements("$gap")
    }

    /// Statements after the first step: the condition or the loop, the gap, and the second step.
    fn rest(&self, second: impl Fn(&'p str) -> String) -> String {
        if self.steps.repeats {
            let head =
                if self.is_rust() { "for k in 0..v {" } else { "for (long k = 0; k < v; k++) {" };
            return format!("{head}\n{}{}}}\n", self.gap(), second("k"));
        }
        let both = format!("{}{}", self.gap(), second("v"));
        match self.steps.condition {
            Some(condition) => format!("if ({condition}) {{\n{both}}}\n"),
            None => both,
        }
    }

    /// Statements of the function with all in one, which set `r`.
    pub(crate) fn inline(&self) -> String {
        let steps = &self.steps;
        let first = self.scope("v").statements(steps.first);
        let second = |value| self.scope(value).statements(steps.second);
        if let (true, Lock::Atomics, Some(twin)) =
            (self.is_twin, self.program.lock, steps.atomic_twin)
        {
            return self.scope("v").statements(twin);
        }
        if let Some(refusal) = self.refusal() {
            let first = format!("{first}{refusal}");
            if self.is_twin {
                let all = format!("{first}{}{}", self.gap(), second("v"));
                return self.under_lock(Step::Both, Mode::Write, &all);
            }
            let first = self.under_lock(Step::First, self.first_mode(), &first);
            let second = self.under_lock(Step::Second, Mode::Write, &second("v"));
            return format!("{first}{}{second}", self.gap());
        }
        if self.is_twin {
            let all = format!("{first}{}", self.rest(second));
            return self.under_lock(Step::Both, Mode::Write, &all);
        }
        let first = self.under_lock(Step::First, self.first_mode(), &first);
        let rest = self.rest(|value| self.under_lock(Step::Second, Mode::Write, &second(value)));
        format!("{first}{rest}")
    }

    /// Statement that leaves the function where the condition of its second step does not hold, in some shapes.
    fn refusal(&self) -> Option<String> {
        let condition = self.steps.condition?;
        match self.program.shape {
            Shape::EarlyReturn => Some(format!("if (!({condition})) {{\n@leave\nreturn 0;\n}}\n")),
            Shape::Fallible if self.is_rust() => Some(format!("ensure({condition})?;\n")),
            Shape::Fallible => Some(format!(
                "if (!({condition})) {{\nthrow std::runtime_error(\"refused\");\n}}\n"
            )),
            _ => None,
        }
    }

    /// Function that says that it failed: by an exception, or by its result.
    fn fallible(&self) -> String {
        let (variables, inline) = (self.variables(), self.inline());
        if self.is_rust() {
            let ensure = "fn ensure(holds: bool) -> Result<(), String> {\nif holds {\nOk(())\n} \
                          else {\nErr(\"refused\".to_string())\n}\n}\n";
            return format!("{ensure}{}", self.operation(format!("{variables}{inline}Ok(r)\n")));
        }
        let body = format!(
            "{variables}try {{\n{inline}}} catch (const std::exception &) {{\nr = 0;\n}}\nreturn r;\n"
        );
        self.operation(body)
    }

    /// Variables of the function.
    pub(crate) fn variables(&self) -> String {
        format!("{}{}", self.variable("v", "0"), self.variable("r", "0"))
    }

    /// All functions of the shape but the thread's body.
    pub(crate) fn functions(&self) -> String {
        // The twin has one atomic step instead of helpers for two.
        let is_one_step = self.is_twin && self.program.lock == Lock::Atomics;
        let text = match self.program.shape {
            Shape::ThreadBody => String::new(),
            Shape::Helpers if is_one_step => {
                let body = format!("{}{}{}", self.variables(), self.inline(), self.returned("r"));
                self.operation(body)
            }
            Shape::Helpers | Shape::Methods | Shape::Generic => {
                format!("{}{}", self.helpers(), self.caller("", self.keeps_locks()))
            }
            Shape::HelperTwice => self.helper_twice(),
            Shape::Virtual => self.with_virtual_calls(),
            Shape::Closures => self.closures(),
            Shape::Callback => self.callbacks(),
            Shape::Fallible => self.fallible(),
            _ => {
                let body = format!("{}{}{}", self.variables(), self.inline(), self.returned("r"));
                let text = self.operation(body);
                if self.program.shape == Shape::OneLine { on_one_line(&text) } else { text }
            }
        };
        format!("{text}{}", self.others())
    }

    /// Function that should be atomic.
    fn operation(&self, body: String) -> String {
        let parameters = self.parameters(&["i", "me"], false);
        let name = self.steps.names[0];
        self.function(&Function { name, parameters, body, is_region: true })
    }

    /// Returns whether the helpers of the twin take the lock although their caller holds it.
    fn keeps_locks(&self) -> bool {
        !self.is_twin || self.program.lock == Lock::Recursive
    }

    /// Bodies of the helpers for both steps.
    fn helper_bodies(&self, takes_locks: bool) -> [String; 2] {
        let first = self.scope("v").statements(self.steps.first);
        let second = self.scope("v").statements(self.steps.second);
        let [first, second] = if takes_locks {
            [
                self.under_lock(Step::First, self.first_mode(), &first),
                self.under_lock(Step::Second, Mode::Write, &second),
            ]
        } else {
            [first, second]
        };
        [
            format!("{}{first}{}", self.variable("v", "0"), self.returned("v")),
            format!("{}{second}{}", self.variable("r", "0"), self.returned("r")),
        ]
    }

    fn helpers(&self) -> String {
        let takes_locks = self.keeps_locks();
        let [first, second] = self.helper_bodies(takes_locks);
        let mut text = String::new();
        let each = [
            (self.steps.names[1], first, &["i", "me"][..]),
            (self.steps.names[2], second, &["i", "me", "v"][..]),
        ];
        for (name, body, names) in each {
            let parameters = self.parameters(names, !takes_locks && self.is_rust());
            let helper = self.function(&Function { name, parameters, body, is_region: true });
            text.push_str(&if self.program.shape == Shape::Generic {
                self.generic(&helper)
            } else {
                helper
            });
        }
        text
    }

    /// The function with a type parameter for its round.
    fn generic(&self, text: &str) -> String {
        if self.is_rust() {
            let text = text.replacen('(', "<T: Into<i64>>(", 1).replacen("i: i64", "round: T", 1);
            return text.replacen("{\n", "{\nlet i: i64 = round.into();\n", 1);
        }
        let text = text.replacen("static long", "template <class T> static long", 1);
        text.replacen("long i,", "T i,", 1)
    }

    /// The function as a caller of helpers, of the object `object`.
    fn caller(&self, object: &str, take_locks: bool) -> String {
        let [_, look, act, _] = self.steps.names;
        let is_locked = !take_locks && self.is_rust();
        let first = format!("v = {object}{};\n", self.call(look, "i, me", is_locked));
        let rest = self.rest(|value| {
            let call = self.call(act, &format!("i, me, {value}"), is_locked);
            self.result_of(&format!("{object}{call}"))
        });
        self.whole(&format!("{first}{rest}"))
    }

    /// Statement that notes the result of a second step.
    fn result_of(&self, call: &str) -> String {
        if self.steps.repeats { format!("r = r + {call};\n") } else { format!("r = {call};\n") }
    }

    /// The function with this body, under the lock in the twin.
    fn whole(&self, body: &str) -> String {
        let body = if self.is_twin {
            self.under_lock(Step::Both, Mode::Write, body)
        } else {
            body.to_owned()
        };
        self.operation(format!("{}{body}{}", self.variables(), self.returned("r")))
    }

    fn helper_twice(&self) -> String {
        let takes_locks = self.keeps_locks();
        let first = self.scope("v").statements(self.steps.first);
        let second = self.scope("v").statements(self.steps.second);
        let both = format!("if (which == 0) {{\n{first}r = v;\n}} else {{\n{second}}}\n");
        let both = if takes_locks { self.under_lock(Step::Both, Mode::Write, &both) } else { both };
        let again = if self.is_rust() { "let mut v = v;\n" } else { "" };
        let body = format!("{again}{}{both}{}", self.variable("r", "0"), self.returned("r"));
        let is_locked = !takes_locks && self.is_rust();
        let parameters = self.parameters(&["which", "i", "me", "v"], is_locked);
        let helper = Function { name: "access_state", parameters, body, is_region: true };
        let call = |arguments: &str| self.call("access_state", arguments, is_locked);
        let first = format!("v = {};\n", call("0, i, me, 0"));
        let rest = self.rest(|value| self.result_of(&call(&format!("1, i, me, {value}"))));
        format!("{}{}", self.function(&helper), self.whole(&format!("{first}{rest}")))
    }

    fn with_virtual_calls(&self) -> String {
        let takes_locks = self.keeps_locks();
        let is_locked = !takes_locks && self.is_rust();
        let [first, second] = self.helper_bodies(takes_locks);
        let [_, look, act, _] = self.steps.names;
        let (one, two) = (
            self.parameters(&["i", "me"], is_locked),
            self.parameters(&["i", "me", "v"], is_locked),
        );
        if self.is_rust() {
            let look_in = region(look, &format!("fn {look}(&self, {one}) -> i64 {{\n{first}}}\n"));
            let act_in = region(act, &format!("fn {act}(&self, {two}) -> i64 {{\n{second}}}\n"));
            let types = format!(
                "trait Backend {{\nfn {look}(&self, {one}) -> i64;\nfn {act}(&self, {two}) -> i64;\n}}\n\
                 struct Plain;\nimpl Backend for Plain {{\n{look_in}{act_in}}}\n\
                 fn backend() -> &'static dyn Backend {{\nstd::hint::black_box(&Plain)\n}}\n"
            );
            return format!("{types}{}", self.caller("backend().", takes_locks));
        }
        let look_in = region(look, &format!("long {look}({one}) override {{\n{first}}}\n"));
        let act_in = region(act, &format!("long {act}({two}) override {{\n{second}}}\n"));
        let types = format!(
            "struct Backend {{\nvirtual ~Backend() = default;\nvirtual long {look}({one}) = 0;\n\
             virtual long {act}({two}) = 0;\n}};\n\
             struct Plain : Backend {{\n{look_in}{act_in}}};\nstatic Plain plain;\n\
             static Backend *volatile backend = &plain;\n"
        );
        format!("{types}{}", self.caller("backend->", takes_locks))
    }

    fn closures(&self) -> String {
        let section = if self.is_rust() { "r = body(&mut g);\n" } else { "r = body();\n" };
        let section = self.under_lock(Step::Both, Mode::Write, section);
        let state = self.parameters(&[], false);
        let with = if self.is_rust() {
            format!(
                "fn with_state({state}body: impl FnOnce(&mut State) -> i64) -> i64 {{\nlet r;\n\
                 {section}return r;\n}}\n"
            )
        } else {
            format!(
                "template <class F> static long with_state(F body) {{\nlong r = 0;\n{section}return r;\n}}\n"
            )
        };
        let closure = |body: &str, result: &str| {
            let (is_rust, variable) = (self.is_rust(), self.variable(result, "0"));
            let head = match (is_rust, self.here()) {
                (true, "SHARED") => "with_state(|g| {",
                (true, _) => "with_state(s, |g| {",
                (false, _) => "with_state([&] {",
            };
            format!("{head}\n{variable}{body}return {result};\n}})")
        };
        let first = self.scope("v").statements(self.steps.first);
        let second = |value| self.scope(value).statements(self.steps.second);
        let body = if self.is_twin {
            let all = format!("{}{first}{}", self.variable("v", "0"), self.rest(second));
            format!("r = {};\n", closure(&all, "r"))
        } else {
            let rest = self.rest(|value| self.result_of(&closure(&second(value), "r")));
            format!("v = {};\n{rest}", closure(&first, "v"))
        };
        let body = format!("{}{body}{}", self.variables(), self.returned("r"));
        format!("{with}{}", self.operation(body))
    }

    fn callbacks(&self) -> String {
        let [first, second] = self.helper_bodies(false);
        let first = first.replacen("long v = 0;\n", "", 1);
        let [_, look, act, _] = self.steps.names;
        let parameters = self.parameters(&["i", "me", "v"], false);
        let given = |name: &str, body: String| {
            let parameters = parameters.clone();
            self.function(&Function { name, parameters, body, is_region: true })
        };
        let (state, passed) = passed(self.program);
        let call = format!("r = body({passed}i, me, v);\n");
        let section = self.under_lock(Step::Both, Mode::Write, &call);
        let locked = format!(
            "static long with_lock(long (*body)({state}long, long, long), {parameters}) {{\n\
             long r;\n{section}return r;\n}}\n"
        );
        let helpers = format!("{}{}{locked}", given(look, first), given(act, second));
        let text = if self.is_twin {
            let inner = format!(
                "{}v = {look}({passed}i, me, 0);\n{}return r;\n",
                self.variable("r", "0"),
                self.rest(|value| self.result_of(&format!("{act}({passed}i, me, {value})")))
            );
            let outer = format!("return with_lock(whole, {passed}i, me, 0);\n");
            format!("{}{}", given("whole", inner), self.operation(outer))
        } else {
            let first = format!("v = with_lock({look}, {passed}i, me, 0);\n");
            let rest = self
                .rest(|value| self.result_of(&format!("with_lock({act}, {passed}i, me, {value})")));
            self.whole(&format!("{first}{rest}"))
        };
        format!("{helpers}{text}")
    }

    /// Function of the other threads, or of the step after an execution.
    fn others(&self) -> String {
        let text = self.steps.after.unwrap_or(self.steps.other);
        if text.is_empty() {
            return String::new();
        }
        let body = self.scope("v").statements(text);
        let mode = if self.steps.other_reads { Mode::Read } else { Mode::Write };
        let body = self.under_lock(Step::Both, mode, &body);
        let body = format!("{}{body}{}", self.variables(), self.returned("r"));
        let parameters = self.parameters(&["i", "me"], false);
        let name = self.steps.names[3];
        self.function(&Function { name, parameters, body, is_region: false })
    }

    /// Functions that make the initial state, and return the final values.
    pub(crate) fn state_functions(&self) -> String {
        let scope = self.scope("v");
        let is_plain = !self.steps.has_items;
        let mut prepare = scope.statements(self.steps.prepare);
        if !is_plain {
            prepare.insert_str(0, &scope.statements("$clear"));
        }
        let mut values = if is_plain {
            scope.statements("if (which == 0) {\nr = $x;\n} else {\nr = $y;\n}")
        } else {
            String::new()
        };
        if self.is_rust() {
            prepare = self.under_lock(Step::Both, Mode::Write, &prepare);
            values = self.under_lock(Step::Both, Mode::Write, &values);
        } else {
            prepare.insert_str(0, crate::data::creation(self.program));
            if self.program.lock == Lock::Spin {
                prepare.insert_str(0, "pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);\n");
            }
        }
        let prepare = Function {
            name: "prepare",
            parameters: self.parameters(&["group"], false),
            body: format!("{prepare}return group;\n"),
            is_region: false,
        };
        let values = Function {
            name: "value_of",
            parameters: self.parameters(&["which"], false),
            body: format!("{}{values}return r;\n", self.variable("r", "0")),
            is_region: false,
        };
        format!("{}{}", self.function(&prepare), self.function(&values))
    }
}

/// Text with the marks of a region around it.
pub(crate) fn region(name: &str, text: &str) -> String {
    format!("/* region {name} */\n{text}/* end of {name} */\n")
}

/// The function between two marks, on one line.
fn on_one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    match &lines[..] {
        [begin, inner @ .., end] => format!("{begin}\n{}\n{end}\n", inner.join(" ")),
        _ => text.to_owned(),
    }
}
