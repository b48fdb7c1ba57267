//! Interface between a report and the provider of names and source lines, and the report's context. No lookup is done
//! here.

use std::time::Duration;

use checker::{
    Regions, Relation,
    deadlock::Deadlocks,
    defect::{Dependence, Origin, RegionRole, Steps, SubjectInfo},
    event::{EventNumber, LocationId, RegionId, ThreadId},
    finding::{self, Findings},
    gap::Gap,
    predict::Prediction,
};

use super::model::{
    Capture, CodePlace, MemorySeen, NotSeen, Object, Perturbation, SourceFrame, Subject, Summary,
    TrapDeath, Value,
};

/// Puts names on ids. Asked for what the findings mention only, and possibly more than once for one id.
///
/// Text may hold anything: the report escapes control characters when it prints.
pub trait Names {
    /// Takes in the findings before anything is asked about them: what accessed an object says more of it.
    fn learn(&mut self, _findings: &Findings) {}

    /// Takes in the gaps before anything is asked about them.
    fn learn_gaps(&mut self, _gaps: &[Gap]) {}

    /// Returns where a thread is once it has made the step at a location; for a release of a lock once its waiters
    /// have been woken.
    fn after(&mut self, _location: LocationId, _is_release: bool) -> Option<CodePlace> {
        None
    }

    /// Returns the first instruction of a region, where code is known.
    fn begin(&self, _region: RegionId) -> Option<CodePlace> {
        None
    }

    /// Returns the first instructions of the functions that threads start with, where code is known.
    fn thread_starts(&self) -> Vec<CodePlace> {
        Vec::new()
    }

    /// The region's name, and the frames of the place where it begins (empty when unknown).
    fn region(&mut self, region: RegionId) -> RegionName;

    /// The frames of a place, innermost inlined call first; empty for an unknown place.
    fn frames(&mut self, location: LocationId) -> Vec<SourceFrame>;

    /// The frames of a place in an execution of a region. Where only code of libraries was recorded, the program's code
    /// may say where the region called it.
    fn frames_in(&mut self, _region: RegionId, location: LocationId) -> Vec<SourceFrame> {
        self.frames(location)
    }

    /// The object's kind, name and process address.
    fn object(&mut self, object: finding::Object) -> Object;

    /// The thread's name and the operating system's id for it.
    fn thread(&mut self, thread: ThreadId) -> ThreadName;

    /// The text of a source line, counted from 1; `None` when the file cannot be read or is shorter.
    fn source_line(&mut self, file: &str, line: u32) -> Option<String>;

    /// The value that an access was seen to read or write.
    fn value(&mut self, _event: EventNumber) -> Option<Value> {
        None
    }

    /// Author of the code at a place.
    fn origin(&mut self, _location: LocationId) -> Origin {
        Origin::default()
    }

    /// Class of an object: a name that is the same in another run of the program, without addresses, thread numbers
    /// and process ids.
    fn subject(&mut self, object: finding::Object) -> SubjectInfo {
        let Object { kind, name, .. } = self.object(object);
        SubjectInfo::of(object, kind, name.unwrap_or_else(|| format!("a {kind}")))
    }

    /// Returns whether the write of an event changed the value of the variable; `None` if that is not known.
    fn changed_value(&mut self, _event: EventNumber) -> Option<bool> {
        None
    }

    /// Returns how a later step of a region depends on the value that an earlier one has read, by the program's code.
    fn dependence(&mut self, _steps: Steps) -> Dependence {
        Dependence::default()
    }

    /// Returns whether accesses to memory were captured: without them, locks are the best evidence there is.
    fn sees_data(&self) -> bool {
        true
    }

    /// All regions that were seen, for the report's table; those of the findings are added in any case.
    fn regions(&mut self) -> Vec<RegionId> {
        Vec::new()
    }

    /// All threads that were seen, for the report's table; those of the findings are added in any case.
    fn threads(&mut self) -> Vec<ThreadId> {
        Vec::new()
    }
}

/// Limit of lines of a function in which others of the same text are looked for.
const MAX_LINES: u32 = 10_000;

/// Returns the lines of the same text as a frame's that come before it in its function, as far as is known.
/// Fingerprints count them.
pub fn lines_alike(names: &mut dyn Names, frame: &SourceFrame) -> Vec<u32> {
    let (Some(file), Some(line), Some(declared)) = (&frame.file, frame.line, frame.declared) else {
        return Vec::new();
    };
    let mut text_of = |line: u32| {
        let text = names.source_line(file, line)?;
        Some(text.trim().to_owned())
    };
    let Some(text) = text_of(line) else { return Vec::new() };
    let first = declared.max(line.saturating_sub(MAX_LINES));
    (first..line).filter(|&before| text_of(before).as_ref() == Some(&text)).collect()
}

/// The name of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionName {
    /// Name given by the user.
    pub name: String,
    /// Place of its begin; empty when unknown.
    pub frames: Vec<SourceFrame>,
    /// Role in the program.
    pub role: RegionRole,
    /// Author of its code.
    pub origin: Origin,
}

/// The name of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadName {
    /// Name, where known.
    pub name: Option<String>,
    /// The operating system's id, where known.
    pub tid: Option<u32>,
}

/// Facts about a run that its findings do not contain.
#[derive(Clone, Debug)]
pub struct Context {
    /// The name of the checker, such as `davida`.
    pub algorithm: String,
    /// The relation that was checked.
    pub relation: Relation,
    /// The levels of nested regions that were checked.
    pub nesting: Regions,
    /// Subject of the check.
    pub subject: Subject,
    /// Lists every instance in the report.
    pub with_instances: bool,
    /// Limitations. `gaps` and `unresolved_locations` are added by [`assemble`](super::assemble).
    pub not_seen: NotSeen,
    /// Costs of the run.
    pub summary: Summary,
    /// Way in which the events were captured.
    pub capture: Option<Capture>,
    /// Coverage of memory accesses.
    pub memory: Option<MemorySeen>,
    /// Cause of a death by `SIGTRAP`.
    pub trap: Option<TrapDeath>,
    /// Gaps of regions, if they were observed.
    pub gaps: Option<Vec<Gap>>,
    /// Potential deadlocks, if they were looked for.
    pub deadlocks: Option<Deadlocks>,
    /// Predictions, if they were looked for.
    pub predictions: Option<Vec<Prediction>>,
    /// Delays and the like in the run, made on purpose.
    pub perturbation: Option<Perturbation>,
}

impl Context {
    /// A run of Davida on the full relation, without limitations so far.
    #[must_use]
    pub fn new(subject: Subject) -> Self {
        Self {
            algorithm: "davida".to_owned(),
            relation: Relation::default(),
            nesting: Regions::default(),
            subject,
            with_instances: false,
            not_seen: NotSeen::default(),
            summary: Summary::default(),
            capture: None,
            memory: None,
            trap: None,
            gaps: None,
            deadlocks: None,
            predictions: None,
            perturbation: None,
        }
    }
}

impl Value {
    /// The value of `length` bytes before an access, where known, and after it. Most integers in programs are
    /// signed, and small: they are shown so, and what looks like a pointer in hexadecimal.
    #[must_use]
    pub fn observed(before: Option<u64>, after: u64, length: u8, written: bool) -> Self {
        let show = |number: u64| Some(signed(number, length));
        if written {
            Self { before: before.and_then(show), after: show(after) }
        } else {
            Self { before: show(after), after: None }
        }
    }
}

fn signed(number: u64, length: u8) -> String {
    /// Addresses of programs' memory on x86-64.
    const ADDRESSES: std::ops::Range<u64> = 1 << 40..1 << 47;
    if length == 8 && ADDRESSES.contains(&number) {
        return format!("{number:#x}");
    }
    let unused = 64 - 8 * u32::from(length.clamp(1, 8));
    (((number << unused) as i64) >> unused).to_string()
}

impl Summary {
    /// Adds the wall-clock time of the run.
    #[must_use]
    pub fn with_elapsed(mut self, elapsed: Duration) -> Self {
        self.elapsed_ns = Some(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
        self
    }
}

impl SourceFrame {
    /// Reads a location of a text trace: `file:line`, `file:line:column`, or any other label.
    ///
    /// ```
    /// # use report::SourceFrame;
    /// let frame = SourceFrame::from_label("bank.c:45");
    /// assert_eq!((frame.file.as_deref(), frame.line), (Some("bank.c"), Some(45)));
    /// assert_eq!(SourceFrame::from_label("l7").function.as_deref(), Some("l7"));
    /// ```
    #[must_use]
    pub fn from_label(label: &str) -> Self {
        let number = |text: &str| text.parse::<u32>().ok().filter(|&number| number > 0);
        if let Some((head, last)) = label.rsplit_once(':')
            && let Some(last) = number(last)
        {
            if let Some((file, line)) = head.rsplit_once(':')
                && !file.is_empty()
                && let Some(line) = number(line)
            {
                return Self {
                    file: Some(file.to_owned()),
                    line: Some(line),
                    column: Some(last),
                    ..Self::default()
                };
            }
            if !head.is_empty() {
                return Self { file: Some(head.to_owned()), line: Some(last), ..Self::default() };
            }
        }
        Self { function: Some(label.to_owned()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::signed;

    #[test]
    fn values_are_shown_signed() {
        assert_eq!(signed(0xffff_ffff, 4), "-1");
        assert_eq!(signed(0xff, 2), "255");
        assert_eq!(signed(u64::MAX, 8), "-1");
        assert_eq!(signed(0x80, 1), "-128");
    }

    #[test]
    fn pointers_are_shown_in_hexadecimal() {
        assert_eq!(signed(0x7f64_a800_0d40, 8), "0x7f64a8000d40");
        assert_eq!(signed(1_000_000_000_000, 8), "1000000000000");
    }
}
