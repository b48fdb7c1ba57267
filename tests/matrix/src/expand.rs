//! Expansion of the small language in which [patterns](crate::pattern) are written: line by line.

use crate::{
    Language, Program,
    data::{Slot, State},
    gap,
};

/// Meaning of names at some place of a program.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'s> {
    pub(crate) program: &'s Program,
    /// Variable of a Rust program that holds the state.
    pub(crate) here: &'s str,
    /// Meaning of `$w`.
    pub(crate) value: &'s str,
}

impl Scope<'_> {
    fn state(&self) -> State<'_> {
        State { program: self.program, here: self.here }
    }

    /// Statements in the language of the program.
    pub(crate) fn statements(&self, text: &str) -> String {
        text.lines().map(|line| self.line(line.trim()) + "\n").collect()
    }

    fn line(&self, line: &str) -> String {
        let state = self.state();
        match line {
            "$gap" => return gap::code(self.program).statement.to_owned(),
            "$pop" => return state.pop(),
            "$clear" => return state.clear(),
            "$wait" => return self.wait(),
            "$signal" => return self.signal(),
            _ => {}
        }
        if let Some(value) = line.strip_prefix("$push(").and_then(|rest| rest.strip_suffix(')')) {
            return state.push(&self.expression(value));
        }
        for (slot, letter) in [(Slot::X, "x"), (Slot::Y, "y")] {
            let change = |sign: &str| {
                let rest = line.strip_prefix(&format!("${letter} {sign} "))?;
                Some(self.expression(rest.trim_end_matches(';')))
            };
            if let Some(value) = change("<-") {
                return state.put(slot, &value);
            }
            if let Some(value) = change("+=") {
                return state.add(slot, &value);
            }
        }
        self.expression(line)
    }

    /// Expression in the language of the program.
    pub(crate) fn expression(&self, text: &str) -> String {
        let state = self.state();
        let mut text = text.replace("$w", self.value).replace("$len", &state.length());
        while let Some((before, index, after)) = call(&text, "$at(") {
            text = format!("{before}{}{after}", state.at(index));
        }
        while let Some((before, arguments, after)) = call(&text, "$cas(") {
            let mut parts = arguments.splitn(3, ", ").skip(1);
            let (old, new) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            text = format!("{before}{}{after}", state.exchange(Slot::X, old, new));
        }
        let now = match self.program.language {
            Language::Rust => "unsafe { std::arch::x86_64::_rdtsc() as i64 }",
            _ => "(long)__builtin_ia32_rdtsc()",
        };
        text.replace("$now", now)
            .replace("$x", &state.get(Slot::X))
            .replace("$y", &state.get(Slot::Y))
    }

    fn wait(&self) -> String {
        match self.program.language {
            Language::C => "bool late = wait_briefly();".to_owned(),
            Language::Cpp => "bool late = changed.wait_for(guard, std::chrono::milliseconds(50)) \
                              == std::cv_status::timeout;"
                .to_owned(),
            Language::Rust => format!(
                "let (back, state) = {}.changed.wait_timeout(g, Duration::from_millis(50)).unwrap();\n\
                 g = back;\nlet late = state.timed_out();",
                self.here
            ),
        }
    }

    fn signal(&self) -> String {
        match self.program.language {
            Language::C => "pthread_cond_signal(&changed);".to_owned(),
            Language::Cpp => "changed.notify_one();".to_owned(),
            Language::Rust => format!("{}.changed.notify_one();", self.here),
        }
    }
}

/// Splits a text at the first call of `name`: what is before, the arguments (without parentheses in them), the rest.
fn call<'t>(text: &'t str, name: &str) -> Option<(&'t str, &'t str, &'t str)> {
    let (before, rest) = text.split_once(name)?;
    let (arguments, after) = rest.split_once(')')?;
    Some((before, arguments, after))
}
