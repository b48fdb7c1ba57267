//! Defects that the user does not want to see: suppressions, ignored variables, a baseline. Applied to finished
//! reports; files are read in `file`, entries written in `entry`.

mod entry;
mod file;
mod glob;

use std::collections::HashSet;

pub(crate) use self::file::is_fingerprint;
pub use self::{
    entry::entry,
    file::{Entries, FileError, parse, read},
    glob::Glob,
};
use crate::{Defect, Report, SetAside, SetAsideBy, Settings, UnusedSuppression};

/// Entry of a file of suppressions. A defect is suppressed if all keys that are given match it.
#[derive(Clone, Debug)]
pub struct Suppression {
    /// File and line of the entry.
    pub source: String,
    /// Name of the region.
    pub region: Option<Glob>,
    /// Name of the subject, or of one of its parts.
    pub subject: Option<Glob>,
    /// Files that the code at both ends of the gap was loaded from.
    pub module: Option<Glob>,
    /// Source files of both ends of the gap.
    pub file: Option<Glob>,
    /// Fingerprint.
    pub fingerprint: Option<String>,
    /// Reason, for readers.
    pub reason: String,
}

/// Decisions of the user, and which of them were of use.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    suppressions: Vec<(Suppression, bool)>,
    ignored: Vec<(Glob, bool)>,
    baseline: HashSet<String>,
    settings: Settings,
}

impl Filter {
    /// Adds the suppressions of a file.
    pub fn add_file(&mut self, path: &str, suppressions: Vec<Suppression>) {
        self.settings.suppressions.push(path.to_owned());
        self.suppressions.extend(suppressions.into_iter().map(|entry| (entry, false)));
    }

    /// Notes that the configuration of the current directory was read.
    pub fn set_config(&mut self, path: &str) {
        self.settings.config = Some(path.to_owned());
    }

    /// Adds a variable whose defects do not count.
    pub fn ignore(&mut self, symbol: Glob) {
        self.ignored.push((symbol, false));
    }

    /// Adds the defects of a report that was accepted earlier.
    pub fn add_baseline(&mut self, path: &str, report: &Report) {
        if self.settings.baselines.iter().all(|known| known != path) {
            self.settings.baselines.push(path.to_owned());
        }
        self.baseline.extend(report.defects.iter().map(|defect| defect.fingerprint.clone()));
    }

    /// Sets aside the defects that the user does not want to see. Defects that an earlier run has set aside stay so.
    pub fn apply(&mut self, report: &mut Report) {
        for defect in &mut report.defects {
            let decision = self.decision(defect);
            if defect.set_aside.is_none() {
                defect.set_aside = decision;
            }
        }
        if self.settings != Settings::default() {
            report.settings = Some(self.settings.clone());
        }
    }

    /// Lists the suppressions and the ignored variables that matched nothing in a report: the last one that they were
    /// applied to.
    pub fn list_unused(&self, report: &mut Report) {
        let ignored =
            (self.ignored.iter()).filter(|(_, used)| !used).map(|(symbol, _)| UnusedSuppression {
                source: format!("--ignore {symbol}"),
                keys: format!("subject = {symbol}"),
                reason: "--ignore".to_owned(),
            });
        let unused: Vec<UnusedSuppression> = (self.suppressions.iter())
            .filter(|(_, used)| !used)
            .map(|(entry, _)| UnusedSuppression {
                source: entry.source.clone(),
                keys: entry.keys(),
                reason: entry.reason.clone(),
            })
            .chain(ignored)
            .collect();
        if !unused.is_empty() {
            report.settings.get_or_insert_default().unused = unused;
        }
    }

    /// Returns the decision about a defect. All suppressions that match it are of use.
    fn decision(&mut self, defect: &Defect) -> Option<SetAside> {
        let mut decision = None;
        for (entry, used) in &mut self.suppressions {
            if entry.matches(defect) {
                *used = true;
                decision.get_or_insert_with(|| SetAside {
                    by: SetAsideBy::Suppression,
                    reason: entry.reason.clone(),
                });
            }
        }
        for (symbol, used) in &mut self.ignored {
            if is_about(defect, symbol) {
                *used = true;
                decision.get_or_insert_with(|| SetAside {
                    by: SetAsideBy::Ignore,
                    reason: format!("--ignore {symbol}"),
                });
            }
        }
        decision.or_else(|| {
            let reason = "it is in the baseline".to_owned();
            let is_known = self.baseline.contains(&defect.fingerprint);
            is_known.then_some(SetAside { by: SetAsideBy::Baseline, reason })
        })
    }
}

impl Suppression {
    /// Returns whether all keys that are given match a defect.
    fn matches(&self, defect: &Defect) -> bool {
        let gap = &defect.gap;
        let files = [&gap.left, &gap.returned].map(|end| end.as_ref().map(|end| &*end.file));
        let modules = [&gap.left_at, &gap.returned_at].map(|end| end.module.as_deref());
        let both = |glob: &Glob, ends: [Option<&str>; 2]| {
            // If one end is unknown, the other decides.
            let mut known = ends.into_iter().flatten().peekable();
            known.peek().is_some() && known.all(|path| glob.matches_path(path))
        };
        self.region.as_ref().is_none_or(|glob| glob.matches_name(&defect.region))
            && self.subject.as_ref().is_none_or(|glob| is_about(defect, glob))
            && self.module.as_ref().is_none_or(|glob| both(glob, modules))
            && self.file.as_ref().is_none_or(|glob| both(glob, files))
            && self.fingerprint.as_ref().is_none_or(|wanted| *wanted == defect.fingerprint)
    }

    /// Its keys but the reason.
    fn keys(&self) -> String {
        let Self { region, subject, module, file, fingerprint, .. } = self;
        let globs = [("region", region), ("subject", subject), ("module", module), ("file", file)];
        let mut keys: Vec<String> = Vec::new();
        for (key, glob) in globs {
            keys.extend(glob.as_ref().map(|glob| format!("{key} = {glob}")));
        }
        keys.extend(fingerprint.as_ref().map(|fingerprint| format!("fingerprint = {fingerprint}")));
        keys.join(", ")
    }
}

/// Returns whether a defect is about an object of that name: its subject as a whole, or one of its objects.
fn is_about(defect: &Defect, glob: &Glob) -> bool {
    glob.matches_name(&defect.subject)
        || defect.subject.split(" and ").any(|subject| glob.matches_name(subject))
        || defect
            .objects
            .iter()
            .filter_map(|object| object.name.as_deref())
            .any(|name| glob.matches_name(name))
}
