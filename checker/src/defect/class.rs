//! The table that decides how likely a defect is a bug. Read it from top to bottom: each rule has a fact and its
//! effect, and the facts that apply are the reasons that a report gives. To argue with a class, argue with a line of
//! it.
//!
//! Weights of facts for a bug are positive, of those against one negative. The sum decides: likely from 3, possible
//! from 1, by design below. Bounds then hold whatever the sum: first the upper, then the lower ones.

use super::dependence::Certainty;
use super::fact::{Origin, Pattern, Reason, RegionRole};
use super::guard::Guard;
use crate::finding::{Evidence, GapKind, Order};

/// Likelihood of a bug, the most likely first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Class {
    /// Only facts that speak for a bug.
    Likely,
    /// Facts of both kinds, or too few.
    Possible,
    /// The region is not meant to be atomic there.
    ByDesign,
}

/// Sum from which on a defect is likely a bug.
const LIKELY: i32 = 3;

/// Sum from which on it is possibly one.
const POSSIBLE: i32 = 1;

/// Executions from which on their share that was cut says something; cut executions from which on they are many.
const ENOUGH_RUNS: u64 = 20;

/// Facts about a defect.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) pattern: Pattern,
    pub(super) evidence: Evidence,
    pub(super) order: Order,
    pub(super) kind: GapKind,
    pub(super) role: RegionRole,
    pub(super) origin: Origin,
    /// Effect of the remote writes on the value, as far as that is known.
    pub(super) changed: Option<bool>,
    /// The region acts after the gap on the value that it read before.
    pub(super) acts: Certainty,
    /// After the gap it writes into the same variable a value computed from that one.
    pub(super) computes: bool,
    /// Others act on the value of the second variable when they access the first one, if they did so afterwards.
    pub(super) others_act: Option<Certainty>,
    /// A second read of the variable, after the gap, decides whether the region acts.
    pub(super) checked_again: bool,
    /// A branch on the value that was read before decides whether the region acts.
    pub(super) decides: Certainty,
    /// A second read of the variable, after the gap, is only compared with the first one.
    pub(super) validated: bool,
    /// The region only reads the variable again, whatever it had read before, and writes nothing by it.
    pub(super) reads_anew: bool,
    /// The region looks again at what others left, and decides by that whether it changes anything.
    pub(super) decides_anew: bool,
    /// Others held a lock from their access to the first variable to their access to the second.
    pub(super) seen_whole: bool,
    /// By their code, others who read both variables under one hold compare the values, or compute something from both.
    pub(super) used_together: Certainty,
    /// The first end read a value of others: the value of the second end's read, or of the write before it.
    pub(super) same_value: bool,
    /// The region waits at one of the ends: a loop makes the read until others have written.
    pub(super) waits_for: bool,
    /// Threads poll the variable of an end; of an update, by the read at the first end.
    pub(super) polled: bool,
    /// At an end one write overwrites another, and no thread reads the variable in the whole run.
    pub(super) unread: bool,
    /// The first end only reads its variable, and is no part of an update.
    pub(super) left_reads: bool,
    /// Before the gap the region drew a number, or took an element out of a container, or changed it otherwise.
    pub(super) takes_out: bool,
    /// The first end is one atomic update.
    pub(super) left_draws: bool,
    /// The section of the first end wrote the variable of the second end as well.
    pub(super) left_writes_both: bool,
    /// The function of the first end changed something before the gap.
    pub(super) left_changes: bool,
    /// The second end only reads its variable.
    pub(super) returned_reads: bool,
    /// The variable was read again within the gap.
    pub(super) read_again: bool,
    /// A part of the region's accesses was left out within the gap.
    pub(super) partly_seen: bool,
    /// The second end updates its variable: in one step, or by a read and a write of one statement.
    pub(super) returned_updates: bool,
    /// Protection of both steps by locks.
    pub(super) guard: Guard,
    /// Name of the lock that guards both.
    pub(super) guarding: Option<String>,
    /// All dependencies pass on values.
    pub(super) flows: bool,
    /// Lock held at the second end and not at the first, if that reads the variable again.
    pub(super) new_lock: Option<String>,
    /// Lock that was released and acquired again.
    pub(super) split: Option<Split>,
    /// Lock held from one end to the other.
    pub(super) held: Option<String>,
    /// The calls at the first step are forgotten, because too many calls followed.
    pub(super) far_apart: bool,
    pub(super) waited: bool,
    pub(super) notified: bool,
    pub(super) atomic: bool,
    /// The subjects of both ends have one name.
    pub(super) one_class: bool,
    /// Both variables are fields of one object, or of one type.
    pub(super) one_owner: bool,
    pub(super) lock_word: bool,
    /// An end is on the set of a condition variable's waiters.
    pub(super) on_waiters: bool,
    /// Others freed what the region had accessed before, and did not access again.
    pub(super) freed_unused: bool,
    /// The second step frees the memory.
    pub(super) frees: bool,
    pub(super) sees_data: bool,
    /// No execution of a region in the cycle accessed anything that was seen.
    pub(super) out_of_sight: bool,
    /// Callees at both ends.
    pub(super) callees: [Option<String>; 2],
    pub(super) cut: u64,
    pub(super) runs: u64,
}

/// Lock that was given up within the gap.
#[derive(Clone, Debug)]
pub(super) struct Split {
    pub(super) lock: String,
    pub(super) released: String,
    pub(super) acquired: String,
    /// Set if the region's function does both itself.
    pub(super) by_itself: bool,
}

impl Facts {
    fn is(&self, pattern: Pattern) -> bool {
        self.pattern == pattern
    }

    fn has_data(&self) -> bool {
        self.evidence == Evidence::Data
    }

    /// The region acts after the gap on a value that it read before, without another check: both steps belong together.
    fn acts_on_value(&self) -> bool {
        self.acts == Certainty::Yes
            && !self.checked_again
            && !self.validated
            && !self.is_hint()
            && self.changed != Some(false)
    }

    /// The region acts on the value in the same iteration, or others use both values that it leaves together.
    fn is_unit(&self) -> bool {
        (self.acts_on_value() || self.is_seen_torn()) && self.kind != GapKind::Iterations
    }

    /// Others use the values of both variables together, of which the region had written one alone.
    fn is_seen_torn(&self) -> bool {
        let used_together = self.used_together == Certainty::Yes;
        let seen = self.is_half_done() && used_together && self.changed != Some(false);
        // A number that was drawn in one step, without the lock, is complete before it is used.
        seen && (!self.left_draws || matches!(self.guard, Guard::Common(_)))
    }

    /// Others read both variables under one hold, of which the region had written one alone, and may use them together.
    fn may_be_seen_torn(&self) -> bool {
        let writes_both = !self.left_reads && !self.returned_reads;
        self.is_half_done() && writes_both && self.used_together != Certainty::No
    }

    /// The region had accessed one of two variables alone. After a section that wrote both, others see the two as that
    /// section left them, and a later change of one stands for itself.
    fn is_half_done(&self) -> bool {
        self.is(Pattern::Torn) && !self.changes_again()
    }

    fn changes_again(&self) -> bool {
        self.left_writes_both && !self.returned_reads
    }

    /// The harm was seen: its rate is no fact against a bug.
    fn is_wrong_at_any_rate(&self) -> bool {
        self.loses_update() || self.may_be_seen_torn() || self.changed == Some(true)
    }

    /// The steps belong together even in a thread's body: they lose an update or a wake-up, or use freed memory.
    fn is_one_step_anywhere(&self) -> bool {
        let is_harm = self.is(Pattern::LostWakeUp) || self.is(Pattern::UseAfterFree);
        self.loses_update() || is_harm
    }

    /// The region is all that a thread does, or waits for others.
    fn is_body(&self) -> bool {
        self.reason_body().is_some()
    }

    fn reason_body(&self) -> Option<Reason> {
        match self.role {
            RegionRole::ThreadBody => Some(Reason::ThreadBody),
            RegionRole::Waits => Some(Reason::Waits),
            _ => None,
        }
    }

    /// A value read before the gap was overwritten, or written back, without another read in between.
    fn loses_update(&self) -> bool {
        self.is(Pattern::LostUpdate) && !self.read_again
    }

    /// The variable was read before a lock was given up, and is then updated without another look at it.
    fn acts_unchecked(&self) -> bool {
        let updates = self.is(Pattern::StaleRead) && self.returned_updates;
        updates
            && self.left_reads
            && self.has_data()
            && self.split.is_some()
            && self.guard != Guard::Separate
            && (self.acts == Certainty::Yes || self.decides != Certainty::No)
            && !self.checks_itself()
            && !self.is_hint()
    }

    /// The region's later step does not depend on the value that it read before. Two writes need not: others see
    /// the state between them.
    fn is_independent(&self) -> bool {
        let both_write = !self.left_reads && !self.returned_reads;
        self.acts == Certainty::No && !(self.is_pair() && self.seen_whole && both_write)
    }

    /// The region itself looks again and decides anew. A check in a callee may as well be what finds the error.
    fn checks_itself(&self) -> bool {
        self.validated || self.checked_again && self.kind == GapKind::OneActivation
    }

    /// The first look was a hint: the region looks again where it acts.
    fn is_hint(&self) -> bool {
        let loses = matches!(self.pattern, Pattern::LostUpdate | Pattern::StaleRead);
        self.decides_anew && self.left_reads && !self.computes && (self.is_pair() || loses)
    }

    /// Two variables.
    fn is_pair(&self) -> bool {
        self.is(Pattern::Torn) || self.is(Pattern::Chain)
    }

    /// Sections of unrelated locks. Between two objects of a class something may be transferred.
    fn is_separate(&self) -> bool {
        self.guard == Guard::Separate
            && self.has_data()
            && !self.flows_back()
            && !(self.is_pair() && self.one_class && !self.takes_over())
    }

    /// The region changed the first variable, and then took over the result of others for the second: neither half of
    /// a transfer is seen without the other one, or overwritten.
    fn takes_over(&self) -> bool {
        !self.left_reads && (self.returned_reads || self.returned_updates)
    }

    /// The region's own value came back to it through several others. An update, as of a count, asks for no value.
    fn flows_back(&self) -> bool {
        self.is(Pattern::Chain) && self.flows && self.held.is_none() && !self.returned_updates
    }

    /// It came back though the region neither had others work on it nor waited for them.
    fn flows_back_unasked(&self) -> bool {
        self.flows_back() && !self.notified && !self.waited
    }

    /// A torn pair that belongs together, as far as locks say.
    fn tears(&self) -> bool {
        self.is(Pattern::Torn) && !self.is_hardly_guarded() && !self.is_separate()
    }

    /// Only dependence could link the two steps: a callee looks at one variable, and another callee writes another one;
    /// or no section of any thread has both. Two writes may leave a mixture nevertheless, two updates do not.
    fn is_loose(&self) -> bool {
        let asks_then_writes =
            self.kind == GapKind::Callees && self.left_reads && !self.returned_reads;
        let writes_both = !self.left_reads && !self.returned_reads && !self.returned_updates;
        let by_nobody = matches!(self.guard, Guard::Common(_)) && !self.seen_whole && !writes_both;
        let updates_both = self.takes_out && self.returned_updates;
        (asks_then_writes || by_nobody) && !self.one_class || updates_both
    }

    /// The use of an element that was taken out stands for itself, unless it is known to depend on it. So does a step
    /// after a section that wrote both variables.
    fn is_complete_call(&self) -> bool {
        let takes_out = self.takes_out && self.left_reads && self.has_data();
        let is_whole = self.is(Pattern::Torn) && self.changes_again();
        takes_out && self.kind == GapKind::Callees || is_whole
    }

    /// Threads poll the variable. One that waits is to look again after each wake-up.
    fn is_polled(&self) -> bool {
        (self.polled || self.waits_for) && !self.lock_word && !self.is(Pattern::LostWakeUp)
    }

    /// Two fields of one object that belong together, as far as locks say.
    fn tears_object(&self) -> bool {
        self.tears() && self.one_owner
    }

    /// Locks are in use, and yet others accessed one of the variables without them.
    fn is_partly_guarded(&self) -> bool {
        self.is_pair() && self.guard == Guard::Partial
    }

    /// The locks at the first step of a pair are forgotten, because too many locks followed.
    fn is_beyond_locks(&self) -> bool {
        self.is_pair() && self.guard == Guard::Unknown
    }

    /// Locks do not show that both steps belong together.
    fn is_hardly_guarded(&self) -> bool {
        self.is_partly_guarded() || self.is_beyond_locks()
    }

    /// The value changes by the pattern alone.
    fn changes_by_nature(&self) -> bool {
        let overwritten = self.is(Pattern::Overwritten) && self.kind != GapKind::OneActivation;
        let loose = self.origin == Origin::Library || self.is_hardly_guarded();
        self.is(Pattern::Chain) || overwritten || self.is_pair() && loose
    }

    /// A function that calls others was seldom run as a whole: the calls need not belong together.
    fn is_seldom_whole(&self) -> bool {
        let composed = self.kind != GapKind::OneActivation
            && (self.is_pair() || !self.has_data() && self.sees_data && !self.may_hide_data());
        composed && self.runs > 0 && self.cut.saturating_mul(2) >= self.runs
    }

    fn splits(&self, by_itself: bool) -> bool {
        self.split.as_ref().is_some_and(|split| split.by_itself == by_itself)
    }

    fn is_mostly_cut(&self) -> bool {
        self.runs >= ENOUGH_RUNS && self.cut.saturating_mul(2) >= self.runs
    }

    fn is_often_cut(&self) -> bool {
        self.cut >= ENOUGH_RUNS
    }

    /// The function itself relies on an earlier value, or writes again: it does not read anew.
    fn goes_on(&self) -> bool {
        let one_variable = self.is(Pattern::StaleRead) || self.is(Pattern::Overwritten);
        one_variable && self.kind == GapKind::OneActivation || !self.returned_reads
    }

    /// Giving up the lock is no excuse: freed memory is used, a wake-up or an update is lost, or two writes or a read
    /// and a write are torn.
    fn is_excused_by_nothing(&self) -> bool {
        if self.is(Pattern::UseAfterFree) || self.is(Pattern::LostWakeUp) {
            return true;
        }
        let tears = self.is(Pattern::Torn) && !self.returned_reads;
        !self.has_data() || self.loses_update() || self.acts_unchecked() || tears
    }

    /// The callees' sections belong together.
    fn is_composed(&self) -> bool {
        let of_one = self.is_pair() && (self.one_class || self.one_owner);
        let asks = self.left_reads && (!self.left_changes || of_one);
        !self.has_data() || asks || self.is(Pattern::IntermediateState)
    }

    /// The accesses of the cycle's transactions were not seen, and a lock was given up.
    fn may_hide_data(&self) -> bool {
        self.out_of_sight && self.split.is_some()
    }

    fn reason_split(&self) -> Reason {
        let split = self.split.as_ref();
        let text = |text: fn(&Split) -> &String| split.map(text).cloned().unwrap_or_default();
        Reason::LockReacquired {
            lock: text(|split| &split.lock),
            released: text(|split| &split.released),
            acquired: text(|split| &split.acquired),
            by_itself: self.splits(true),
        }
    }

    /// A lock was held throughout, and the accesses of others in between have another lock, or are unguarded.
    fn meets_others_while_held(&self) -> bool {
        let is_seen = self.is(Pattern::IntermediateState) && self.splits(false);
        let is_sync = !self.has_data() && self.sees_data;
        self.held.is_some() && (self.is_pair() || is_seen || is_sync)
    }

    fn reason_held(&self) -> Option<Reason> {
        Some(Reason::LockHeldThroughout { lock: self.held.clone()? })
    }

    fn reason_callees(&self) -> Reason {
        let [left, returned] = self.callees.clone();
        Reason::Callees { left, returned }
    }
}

/// Effect of a fact on the class.
#[derive(Clone, Copy)]
enum Effect {
    /// Adds to the sum.
    Weight(i32),
    /// Adds to the sum, and the class is at most that one.
    AtMost(Class, i32),
    /// Adds to the sum, and the class is at least that one.
    AtLeast(Class, i32),
    /// Is mentioned only.
    Note,
}

use Class::{ByDesign, Likely, Possible};
use Effect::{AtLeast, AtMost, Note, Weight};
use When::{Always, Guess, Known};

/// Condition for a rule to be looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// It is looked at for each defect.
    Always,
    /// The code does not say that both steps belong together: the rule guesses it, by locks, callees and rates.
    Guess,
    /// The code says that both steps belong together: the rule replaces the guessing ones.
    Known,
}

struct Rule {
    when: When,
    applies: fn(&Facts) -> bool,
    effect: Effect,
    /// The reason; `None` if another rule gives it already.
    reason: fn(&Facts) -> Option<Reason>,
}

macro_rules! rules {
    ($($when:ident $effect:expr, $reason:expr, if $applies:expr;)*) => {
        &[$(Rule { when: $when, applies: $applies, effect: $effect, reason: $reason },)*]
    };
}

/// The rules, in the order in which reasons are given.
static RULES: &[Rule] = rules! {
    // The value. A remote write of the same value makes no difference to the region. A chain changes values by its
    // nature, and so does an overwrite of a callee's work. A change of one variable is unrelated to another variable
    // unless locks or the user's own code show that they belong together.
    Always Weight(2), |_| Some(Reason::ValueChanged), if |f| f.changed == Some(true) && !f.changes_by_nature();
    Always AtMost(ByDesign, -2), |_| Some(Reason::ValueUnchanged), if |f| f.changed == Some(false);
    // After a read of the value that it knew, a region does what it would have done anyway. An update may not: the
    // meaning of the value can have changed.
    Always AtMost(ByDesign, -2), |_| Some(Reason::SameValue), if |f| f.is(Pattern::StaleRead) && f.same_value;
    Always AtMost(Possible, -2), |_| Some(Reason::SameValue), if |f| f.loses_update() && f.same_value;

    // Memory that was freed is used, which is wrong whatever the program means. A free when everybody has done with the
    // memory is only its end.
    Always AtLeast(Likely, 6), of_pattern,
        if |f| f.is(Pattern::UseAfterFree) && f.origin == Origin::Own;
    Always Weight(4), of_pattern, if |f| f.is(Pattern::UseAfterFree) && f.origin == Origin::Library;
    Always AtMost(ByDesign, -3), |_| Some(Reason::FreedUnused), if |f| f.freed_unused;
    Guess AtMost(ByDesign, -3), |_| Some(Reason::FreesIt), if |f| f.frees;

    // Overwriting a value that is never read has no effect.
    Always AtMost(Possible, -3), |_| Some(Reason::Unread), if |f| f.unread;

    // The pattern. Only a lost update is wrong whatever the program means; the others are wrong if the two steps
    // belong together. They do if another transaction came between them on two variables, and fields of one object
    // all the more.
    Always Weight(4), of_pattern, if Facts::loses_update;
    Always Weight(3), |_| Some(Reason::ActsUnchecked), if Facts::acts_unchecked;
    Always AtMost(Possible, 1), |_| Some(Reason::ReadAgain),
        if |f| f.is(Pattern::LostUpdate) && f.read_again;
    Always Weight(1), of_pattern, if |f| f.is(Pattern::StaleRead) && !f.acts_unchecked();
    Always Weight(1), of_pattern, if |f| f.is(Pattern::IntermediateState);
    Always Weight(1), of_pattern, if |f| f.is(Pattern::Overwritten) && f.kind == GapKind::OneActivation;
    Always Weight(0), of_pattern, if |f| f.is(Pattern::Overwritten) && f.kind != GapKind::OneActivation;
    Known Weight(2), of_pattern, if |f| f.is(Pattern::Torn);
    Guess Weight(2), of_pattern, if |f| f.tears() && !f.is_loose();
    Guess AtMost(Possible, 2), of_pattern, if |f| f.tears() && f.is_loose();
    Guess Weight(0), of_pattern, if |f| f.is(Pattern::Torn) && f.is_separate();
    Guess Weight(1), of_pattern, if |f| f.is(Pattern::Torn) && f.is_partly_guarded();
    Guess AtMost(Possible, 1), of_pattern, if |f| f.is(Pattern::Torn) && f.is_beyond_locks();
    Guess Weight(2), |_| Some(Reason::OneObject),
        if |f| f.tears_object() && f.kind == GapKind::OneActivation;
    Guess Weight(1), |_| Some(Reason::OneObject),
        if |f| f.tears_object() && f.kind == GapKind::Callees;
    // A value that comes back through several others may be stale, or a result that the region asked for: then the
    // region notifies the threads that work on it, or waits for them.
    Always Weight(1), of_pattern, if Facts::flows_back;
    Always Weight(1), |_| Some(Reason::CameBack), if Facts::flows_back_unasked;
    Always Weight(0), of_pattern, if |f| f.is(Pattern::Chain) && !f.flows_back();

    // A notification that comes between the last look at the condition and the begin of the wait is lost, and the
    // thread sleeps on, if it waits for the reason that it looked.
    Always Weight(2), of_pattern, if |f| f.is(Pattern::LostWakeUp) && !f.read_again;
    Always AtMost(ByDesign, 0), |_| Some(Reason::ReadAgain), if |f| f.is(Pattern::LostWakeUp) && f.read_again;
    Always AtMost(ByDesign, 0), |_| None, if |f| f.is(Pattern::LostWakeUp) && f.is_independent();
    Always AtMost(ByDesign, -3), |_| Some(Reason::MayComeAnyTime),
        if |f| f.on_waiters && !f.is(Pattern::LostWakeUp);

    // Dependence. A step that acts on the value of an earlier step belongs to it, whatever else is known. A step that
    // does not stands for itself, unless others see both as one.
    Known Weight(3), |_| Some(Reason::UsedTogether), if Facts::is_seen_torn;
    Known Weight(3), |_| Some(Reason::ActsOnValue),
        if |f| f.acts_on_value() && !f.is_seen_torn() && !f.loses_update() && !f.acts_unchecked();
    Known Note, |_| Some(Reason::ActsOnValue), if |f| f.loses_update() || f.acts_unchecked();
    Always AtMost(Possible, -3), |_| Some(Reason::Independent), if Facts::is_independent;
    Always AtMost(ByDesign, -3), |_| Some(Reason::CheckedAgain), if Facts::checks_itself;
    Always AtMost(Possible, -1), |_| Some(Reason::CheckedAgain), if |f| f.is_hint() && !f.checks_itself();
    Always AtMost(Possible, -1), |_| Some(Reason::ReadAnew),
        if |f| f.is(Pattern::StaleRead) && f.reads_anew && !f.returned_updates;
    // Variables under different locks may have values of different times.
    Always AtMost(Possible, -2), |_| Some(Reason::SeparateLocks),
        if |f| f.is(Pattern::Chain) && f.is_unit() && f.is_separate() && !f.one_class;
    // Each relies on what the other one changes: neither order of the two is right. If others do not rely on it, their
    // two steps can stand on either side of the region.
    Always AtMost(Possible, 0), |_| None, if |f| f.others_act == Some(Certainty::Unknown);
    Always AtMost(ByDesign, -3), |_| None, if |f| f.others_act == Some(Certainty::No);

    Guess AtMost(Possible, -1), |_| Some(Reason::CompleteCall), if Facts::is_complete_call;

    // The region.
    Always AtLeast(Likely, 3), |_| Some(Reason::Named), if |f| f.role == RegionRole::Named && f.has_data();
    Always AtLeast(Possible, 3), |_| Some(Reason::Named), if |f| f.role == RegionRole::Named && !f.has_data();
    // Only a dependence makes one unit of what a thread does one after the other.
    Guess Weight(-2), Facts::reason_body, if |f| f.is_body() && f.is_one_step_anywhere();
    Guess AtMost(Possible, -2), Facts::reason_body, if |f| f.is_body() && !f.is_one_step_anywhere();
    // Only the authors of a library know which of its variables belong together.
    Always AtMost(Possible, -3), |_| Some(Reason::Library),
        if |f| f.origin == Origin::Library && f.is_pair();
    Always AtMost(Possible, -1), |_| Some(Reason::Library),
        if |f| f.origin == Origin::Library && !f.is_pair();

    // The way from one step to the other.
    Always Weight(1), |_| Some(Reason::OneActivation), if |f| f.kind == GapKind::OneActivation;
    Always Weight(1), |f| Some(f.reason_callees()), if |f| f.kind == GapKind::Callees;
    Always Weight(-4), |_| Some(Reason::Iterations), if |f| f.kind == GapKind::Iterations;
    Always AtMost(Possible, -3), |_| Some(Reason::FarApart), if |f| f.far_apart;
    Always Weight(-3), |_| Some(Reason::WaitedInBetween), if |f| f.waited;

    // Locks. A function that gives up a lock itself knows that others may come in, and reads anew afterwards. This
    // does not excuse a lost update, and hardly a check that it relies on, or a second write.
    Known Note, |f| Some(f.reason_split()), if |f| f.splits(true);
    Guess Note, |f| Some(f.reason_split()), if |f| f.splits(true) && f.is_excused_by_nothing();
    Guess Weight(-1), |f| Some(f.reason_split()),
        if |f| f.splits(true) && f.goes_on() && !f.is_excused_by_nothing();
    Guess Weight(-3), |f| Some(f.reason_split()),
        if |f| f.splits(true) && !f.goes_on() && !f.is_excused_by_nothing();
    // Locks of callees are easily forgotten: if the first callee only reads, and if others see the state that is
    // between two writes. A callee that changes something and then reads is complete.
    Known Weight(1), |f| Some(f.reason_split()), if |f| f.splits(false);
    Guess Weight(1), |f| Some(f.reason_split()), if |f| f.splits(false) && f.is_composed();
    Guess Note, |f| Some(f.reason_split()),
        if |f| f.splits(false) && !f.is_composed() && (f.loses_update() || f.is(Pattern::Torn));
    Guess Weight(-2), |f| Some(f.reason_split()),
        if |f| f.splits(false) && !f.is_composed() && !f.loses_update() && !f.is(Pattern::Torn);
    Guess AtMost(Possible, -3), |f| Some(Reason::ReadAgainUnderLock { lock: f.new_lock.clone()? }),
        if |f| f.is(Pattern::StaleRead) && f.new_lock.is_some() && f.split.is_none();
    // Variables whose only link is the functions that access them: each is complete in its own section.
    Always Note, |f| Some(Reason::CommonLock { lock: f.guarding.clone()? }),
        if |f| f.is_pair() && f.guarding.is_some() && f.has_data();
    Guess AtMost(Possible, -3), |_| Some(Reason::SeparateLocks), if Facts::is_separate;
    Always Note, |_| Some(Reason::PartlyGuarded), if Facts::is_partly_guarded;
    // A lock that is held throughout guards the data that is meant to be atomic. Data that others change without it,
    // or look at between two sections, is something else, which the region meets on its way.
    Always Weight(-2), |f| f.reason_held(), if Facts::meets_others_while_held;
    Always Note, |f| f.reason_held(), if |f| f.held.is_some() && !f.meets_others_while_held();

    // Kinds of variables and updates.
    Always Weight(-3), |_| Some(Reason::AtomicUpdates), if |f| f.atomic && !f.acts_unchecked();
    Always AtMost(Possible, -3), |_| Some(Reason::LockWord), if |f| f.lock_word;
    Always AtMost(ByDesign, -3), |_| Some(Reason::Polled), if |f| f.waits_for && f.is_polled();
    Always AtMost(Possible, -3), |_| Some(Reason::Polled), if |f| !f.waits_for && f.is_polled();

    // Evidence by locks alone counts where no data can be seen.
    Always AtMost(Possible, -1), |_| Some(Reason::SyncOnly),
        if |f| !f.has_data() && f.sees_data && !f.may_hide_data() && f.splits(false);
    Always AtMost(Possible, -3), |_| Some(Reason::SyncOnly),
        if |f| !f.has_data() && f.sees_data && !f.may_hide_data() && !f.splits(false);
    Always AtMost(Possible, 0), |_| Some(Reason::DataOutOfSight),
        if |f| !f.has_data() && f.sees_data && f.may_hide_data();
    Always AtMost(Possible, 0), |_| Some(Reason::DataNotCaptured), if |f| !f.has_data() && !f.sees_data;
    // What the region did in between, such as another look at the variable, is then no fact.
    Always AtMost(Possible, 0), |_| Some(Reason::PartlySeen), if |f| f.has_data() && f.partly_seen;
    Always Note, |_| Some(Reason::RacyOrder), if |f| f.order == Order::Racy;

    // The rate. Code that is cut in most runs works nevertheless, or was never meant to be atomic; a cut that was
    // frequent in a run that went on is less likely to be an unknown bug.
    Guess AtMost(Possible, -2), of_rate, if |f| f.is_seldom_whole() && !f.is_mostly_cut() && !f.is_wrong_at_any_rate();
    Guess AtMost(ByDesign, 0), of_rate, if |f| f.is_mostly_cut() && !f.is_wrong_at_any_rate();
    Guess Weight(-2), of_rate, if |f| f.is_often_cut() && !f.is_mostly_cut() && !f.is_wrong_at_any_rate();
    Known Note, of_rate, if |f| f.runs > 0;
    Guess Note, of_rate,
        if |f| f.runs > 0 && !f.is_often_cut() && !f.is_mostly_cut() && !f.is_seldom_whole();
    Guess Note, of_rate, if |f| f.is_often_cut() && f.is_wrong_at_any_rate();
};

fn of_pattern(facts: &Facts) -> Option<Reason> {
    Some(Reason::Pattern { pattern: facts.pattern })
}

fn of_rate(facts: &Facts) -> Option<Reason> {
    Some(Reason::Cut { cut: facts.cut, runs: facts.runs })
}

/// Class of a defect, with its reasons.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) class: Class,
    /// Sum of the weights.
    pub(super) sum: i32,
    pub(super) reasons: Vec<Reason>,
}

/// Applies the table.
pub(super) fn judge(facts: &Facts) -> Verdict {
    let mut sum = 0;
    let (mut most, mut least) = (Likely, ByDesign);
    let mut reasons = Vec::new();
    let left_out = if facts.is_unit() { Guess } else { Known };
    let apply = |rule: &&Rule| rule.when != left_out && (rule.applies)(facts);
    for rule in RULES.iter().filter(apply) {
        match rule.effect {
            Weight(weight) => sum += weight,
            AtMost(class, weight) => {
                sum += weight;
                most = most.max(class);
            }
            AtLeast(class, weight) => {
                sum += weight;
                least = least.min(class);
            }
            Note => {}
        }
        reasons.extend((rule.reason)(facts));
    }
    let class = match sum {
        LIKELY.. => Likely,
        POSSIBLE.. => Possible,
        _ => ByDesign,
    };
    Verdict { class: class.max(most).min(least), sum, reasons }
}
