//! Defects: findings grouped into what a person would fix, classed and ordered (`docs/semantics.md#defects`). Names come
//! from the caller; the table of classes is in `class`.

mod class;
mod fact;

use std::collections::HashMap;

use crate::event::{EventNumber, LocationId, LockId, RegionId};
use crate::finding::{Evidence, Findings, Object, Order, Point, ReleasedLock, Violation};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

pub use crate::finding::GapKind;
pub use class::Class;
pub use fact::{Origin, Pattern, Reason, RegionRole};

/// What a person would fix: the violations of one region across one gap, on one subject.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Defect {
    /// Hash of the region's name, the text of both lines of the gap and the subject's name. It stays the same in
    /// another run, after a rebuild and when lines have moved.
    pub fingerprint: u64,
    /// Likelihood of a bug.
    pub class: Class,
    /// Innermost violated region that spans the gap.
    pub region: RegionId,
    /// Regions around it that span the gap as well, innermost first.
    pub outer_regions: Vec<RegionId>,
    /// Pattern of the accesses at the gap and in between.
    pub pattern: Pattern,
    /// Objects of the first and of the closing dependency; one if they are of the same class.
    pub objects: Vec<Object>,
    /// Objects at the ends of other violations of the defect, one of each class, at most a handful.
    pub other_objects: Vec<Object>,
    /// Strongest evidence of the violations.
    pub evidence: Evidence,
    /// Order of the violation that is shown.
    pub order: Order,
    /// Place between whose ends others came in.
    pub gap: Gap,
    /// Facts for and against a bug, in the order of the report.
    pub reasons: Vec<Reason>,
    /// Executions of the region.
    pub runs: u64,
    /// Executions in which others came in at this gap.
    pub cut_runs: u64,
    /// Violation instances.
    pub occurrences: u64,
    /// Number of distinct cycles: who came in, and through which lines; saturates for a gap at
    /// [`Cut::MAX_WAYS`](crate::finding::Cut::MAX_WAYS).
    pub ways: u64,
    /// Transactions in the cycle that is shown, the region's included.
    pub transactions: usize,
    /// Numbers of the violations, for [`Findings::violation`]; the first is the one to show, which may be one of
    /// [`Findings::exemplars`]. Each violation with a witness belongs to one defect.
    pub violations: Vec<usize>,
}

/// Where a region was left and returned to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Gap {
    /// Last step of the region before the first dependency of the cycle.
    pub left: Point,
    /// Step at the closing dependency.
    pub returned: Point,
    /// Relation of both in the control flow of the region.
    pub kind: GapKind,
    /// Regions nested in the defect's that were open at the first step, outermost first: the calls that led there.
    /// `None` if that is not known.
    pub left_chain: Option<Vec<RegionId>>,
    /// Regions nested in the defect's that were open at the second step. `None` if that is not known.
    pub returned_chain: Option<Vec<RegionId>>,
    /// Lock that the region gave up between the two, if one explains the gap: the defect stands for all cuts of the
    /// region between this release and this acquisition.
    pub lock: Option<ReleasedLock>,
    /// Locks held from one step to the other.
    pub held_throughout: Vec<LockId>,
}

/// Names and facts that findings do not contain. All text must be the same in another run of the same program:
/// without addresses, thread numbers and process ids.
pub trait Describe {
    /// Describes a region.
    fn region(&mut self, region: RegionId) -> RegionInfo;
    /// Describes a code location.
    fn place(&mut self, location: LocationId) -> PlaceInfo;
    /// Describes the class of an object.
    fn subject(&mut self, object: Object) -> SubjectInfo;
    /// Returns whether the write of that event changed the value of the variable; `None` if that is not known.
    fn changed_value(&mut self, _event: EventNumber) -> Option<bool> {
        None
    }
    /// Returns whether accesses to memory were captured: without them, locks are the best evidence there is.
    fn sees_data(&self) -> bool {
        true
    }
}

/// Region, as far as classes depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionInfo {
    /// Name.
    pub name: String,
    /// Author of its code.
    pub origin: Origin,
    /// Role in the program.
    pub role: RegionRole,
}

/// Code location, as far as classes and fingerprints depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceInfo {
    /// Source file.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// Text of the source line without indentation; without one, a label such as `deposit+0x1c`.
    pub text: String,
    /// Function that a user would name.
    pub function: Option<String>,
    /// Author of the code.
    pub origin: Origin,
    /// Number of the line among those of the same text in its function, from 0. Without it, lines of the same text are
    /// numbered in the order of the lines that are known.
    pub ordinal: u32,
}

/// Class of an object: a variable or field, without the address of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectInfo {
    /// Name, such as `account.balance`, `Queue.head` or `block of 64 bytes from malloc at queue.c:31, byte 8`.
    pub name: String,
    /// Set if the variable is the word of a lock: only compare-and-swap, exchange and the stores that follow touched it.
    pub is_lock_word: bool,
}

/// Groups findings into defects, in the order of the report: by class, then by strength of the reasons.
pub fn defects(findings: &Findings, names: &mut dyn Describe) -> Vec<Defect> {
    let mut defects: Vec<Defect> = Vec::new();
    let mut by_key = HashMap::new();
    for (index, violation) in findings.violations.iter().enumerate() {
        let Some(mut defect) = of(violation, names) else { continue };
        match by_key.get(&defect.fingerprint) {
            Some(&known) => {
                let known: &mut Defect = &mut defects[known];
                known.occurrences += defect.occurrences;
                known.ways += 1;
                known.violations.push(index);
            }
            None => {
                by_key.insert(defect.fingerprint, defects.len());
                defect.violations.push(index);
                defects.push(defect);
            }
        }
    }
    defects
}

fn of(violation: &Violation, names: &mut dyn Describe) -> Option<Defect> {
    let (first, closing) = (violation.edges.first()?, violation.edges.last()?);
    let mut hash = FxHasher::default();
    names.region(violation.region).name.hash(&mut hash);
    for point in [&first.source, &closing.sink] {
        names.place(point.location).text.hash(&mut hash);
    }
    for object in [first.object, closing.object] {
        names.subject(object).name.hash(&mut hash);
    }
    Some(Defect {
        fingerprint: hash.finish(),
        class: Class::Possible,
        region: violation.region,
        outer_regions: Vec::new(),
        pattern: Pattern::SplitSection,
        objects: vec![first.object],
        other_objects: Vec::new(),
        evidence: violation.evidence,
        order: violation.order,
        gap: Gap {
            left: first.source,
            returned: closing.sink,
            kind: GapKind::Unknown,
            left_chain: None,
            returned_chain: None,
            lock: None,
            held_throughout: Vec::new(),
        },
        reasons: Vec::new(),
        runs: 0,
        cut_runs: 0,
        occurrences: violation.occurrences,
        ways: 1,
        transactions: violation.witness.len().saturating_sub(1),
        violations: Vec::new(),
    })
}
