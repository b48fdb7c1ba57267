//! Probes in the program's own code. Interpreters of languages are left out (`interpreters`), as are programs that
//! map their own code anew, recognised by the names of the functions that do so. A breakpoint is
//! then copied with the code, to memory where the kernel knows of no probe, and kills the program (`SIGTRAP`):
//! such code gets none. Programs that copy or compare their code in other ways cannot be recognised before they
//! do.

use std::fs;

use serde::{Deserialize, Serialize};
use symbolize::{Module, Symbolizer};

use super::skipped::SkipReason;
use crate::{
    interpreters,
    memory::options::Accesses,
    regions::patterns::Rule,
    static_text::{self, StaticText},
    sync::lock_rule::LockRule,
};

/// Decision about probes in the program's own code. Libraries always get probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnCode {
    /// Probes, unless the code is known to be mapped anew, or an interpreter's, and the user names none of the
    /// program's functions.
    #[default]
    Auto,
    /// Always probes.
    Probe,
    /// Never probes.
    Leave,
}

/// A function that maps the program's code anew.
#[derive(Clone, Copy, Debug)]
struct Remapper {
    symbol: &'static str,
    /// Program or library that it belongs to, for people.
    what: &'static str,
    when: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// If an argument or an environment variable of the program has this text.
    Switched(&'static str),
    /// If a setting says so that cannot be seen from outside.
    Configured(&'static str),
}

/// The functions that are known: exported ones, since others are often inlined.
const REMAPPERS: &[Remapper] = &[
    // intel/iodlr, large_page-c/large_page.c; the last two names are of versions in C++.
    Remapper::new(
        "MapStaticCodeToLargePages",
        "Intel's large pages for code (iodlr)",
        When::Always,
    ),
    Remapper::new(
        "MapStaticCodeRangeToLargePages",
        "Intel's large pages for code (iodlr)",
        When::Always,
    ),
    Remapper::new(
        "MoveStaticCodeToLargePages",
        "Intel's large pages for code (iodlr)",
        When::Always,
    ),
    Remapper::new("MoveRegionToLargePages", "Intel's large pages for code (iodlr)", When::Always),
    // llvm-project, bolt/runtime/hugify.cpp: it takes the place of the entry point.
    Remapper::new("__bolt_hugify_self", "BOLT's option -hugify", When::Always),
    // nodejs/node, src/large_pages/node_large_page.cc.
    Remapper::new(
        "_ZN4node25MapStaticCodeToLargePagesEv",
        "Node's large pages for code",
        When::Switched("--use-largepages"),
    ),
    // facebook/hhvm, hphp/runtime/base/program-functions.cpp.
    Remapper::new(
        "_ZN4HPHP10hugifyTextEPcS0_",
        "HHVM's large pages for code",
        When::Configured("Eval.MaxHotTextHugePages"),
    ),
    // ClickHouse, src/Common/remapExecutable.cpp.
    Remapper::new(
        "_ZN2DB15remapExecutableEv",
        "ClickHouse's large pages for code",
        When::Configured("remap_executable"),
    ),
    // php/php-src, ext/opcache/ZendAccelerator.c.
    Remapper::new(
        "accel_move_code_to_huge_pages",
        "large pages for the code of PHP",
        When::Configured("opcache.huge_code_pages"),
    ),
];

impl Remapper {
    const fn new(symbol: &'static str, what: &'static str, when: When) -> Self {
        Self { symbol, what, when }
    }
}

/// Function that maps the program's own code anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemappedCode {
    /// Symbol of the function.
    #[serde(deserialize_with = "static_text::deserialize")]
    pub function: StaticText,
    /// Product that the function belongs to, for people.
    #[serde(deserialize_with = "static_text::deserialize")]
    pub product: StaticText,
    /// Setting that decides whether the function runs, where there is one.
    #[serde(deserialize_with = "static_text::deserialize_option")]
    pub setting: Option<StaticText>,
}

/// Outcome for the program's own code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Probes are safe as far as is known.
    Probe,
    /// Probes, which may kill the program.
    Risk(RemappedCode),
    /// No probes, for this reason.
    Leave(SkipReason),
}

/// Decides about a process that stands at its entry point. `is_named` where the user names functions of the program.
pub(crate) fn decide(
    symbolizer: &Symbolizer,
    pid: u32,
    choice: OwnCode,
    is_named: bool,
) -> Decision {
    if choice == OwnCode::Leave {
        return Decision::Leave(SkipReason::OwnCodeLeft);
    }
    let language = symbolizer.modules().find_map(interpreters::language);
    if let Some(language) = language.filter(|_| interpreters::is_program(symbolizer))
        && choice == OwnCode::Auto
        && !is_named
    {
        return Decision::Leave(SkipReason::Interpreter { language });
    }
    // A library may do it as well: it is the program's code all the same.
    let is_there = |remapper: &&Remapper| {
        let has = |module: &Module| {
            module.file().is_ok_and(|file| file.symbols_named(remapper.symbol).len() > 0)
        };
        symbolizer.modules().any(has)
    };
    REMAPPERS
        .iter()
        .filter(is_there)
        .map(|remapper| judge(remapper, &texts(pid), choice == OwnCode::Probe || is_named))
        .max_by_key(|decision| match decision {
            Decision::Probe => 0,
            Decision::Risk(_) => 1,
            Decision::Leave(_) => 2,
        })
        .unwrap_or(Decision::Probe)
}

/// Returns the switches on which [`decide`] depends that are on in a process.
pub(crate) fn switches(pid: u32) -> Vec<StaticText> {
    let texts = texts(pid);
    let switch = |remapper: &Remapper| match remapper.when {
        When::Switched(text) if is_switched(&texts, text) => Some(text),
        _ => None,
    };
    REMAPPERS.iter().filter_map(switch).collect()
}

/// Returns the arguments and the environment of a process, each text ended by a zero.
fn texts(pid: u32) -> Vec<u8> {
    let read = |what| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    [read("cmdline"), read("environ")].concat()
}

/// Returns true if the user names functions of the program itself, and so wants probes there.
#[must_use]
pub fn names_own(rules: &[Rule], locks: &[LockRule], accesses: &Accesses) -> bool {
    let rules = rules.iter().filter(|rule| rule.atomic).map(|rule| &rule.pattern);
    let locks = locks.iter().flat_map(|lock| &lock.functions).map(|(pattern, _)| pattern);
    rules.chain(locks).chain(&accesses.also).any(|pattern| pattern.library().is_none())
}

/// `texts` are the arguments and the environment, each text ended by a zero.
fn judge(&Remapper { symbol, what, when }: &Remapper, texts: &[u8], is_wanted: bool) -> Decision {
    let remapped = RemappedCode { function: symbol, product: what, setting: None };
    match when {
        When::Switched(text) if !is_switched(texts, text) => Decision::Probe,
        When::Configured(setting) => {
            Decision::Risk(RemappedCode { setting: Some(setting), ..remapped })
        }
        _ if is_wanted => Decision::Risk(remapped),
        _ => Decision::Leave(SkipReason::RemappedCode { function: symbol, product: what }),
    }
}

/// Returns true if a text is among the arguments or in the environment, and not turned off.
fn is_switched(texts: &[u8], text: &str) -> bool {
    let text = text.as_bytes();
    let is_on = |at: usize| {
        let rest = &texts[at + text.len()..];
        !rest.starts_with(b"=off") && !rest.starts_with(b"=0")
    };
    let here = |(at, window): (usize, &[u8])| window == text && is_on(at);
    texts.windows(text.len()).enumerate().any(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remapper(symbol: &str) -> &'static Remapper {
        REMAPPERS.iter().find(|remapper| remapper.symbol == symbol).unwrap()
    }

    #[test]
    fn code_that_is_moved_for_sure_is_left_alone_unless_it_is_wanted() {
        let always = remapper("MapStaticCodeToLargePages");
        assert!(
            matches!(judge(always, b"", false), Decision::Leave(why) if why.to_string().contains("iodlr"))
        );
        assert!(matches!(judge(always, b"", true), Decision::Risk(_)));
    }

    #[test]
    fn a_switch_counts_where_it_is_on() {
        let node = remapper("_ZN4node25MapStaticCodeToLargePagesEv");
        for (texts, is_on) in [
            ("node\0server.js\0", false),
            ("node\0--use-largepages=on\0", true),
            ("node\0--use-largepages=off\0", false),
            ("node\0PATH=/bin\0NODE_OPTIONS=--use-largepages=silent\0", true),
            ("", false),
        ] {
            let decision = judge(node, texts.as_bytes(), false);
            assert_eq!(matches!(decision, Decision::Leave(_)), is_on, "{texts}");
            assert_eq!(decision == Decision::Probe, !is_on, "{texts}");
        }
    }

    #[test]
    fn a_setting_that_is_not_seen_is_a_risk_that_is_told() {
        let decision = judge(remapper("_ZN2DB15remapExecutableEv"), b"", false);
        let Decision::Risk(risk) = decision else { panic!("{decision:?}") };
        assert_eq!(risk.setting, Some("remap_executable"));
    }
}
