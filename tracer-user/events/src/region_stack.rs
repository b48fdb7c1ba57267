//! Open regions of each thread, and the stack-pointer rule that ends them. Works on stack pointers and numbers; their
//! meaning is decided in `source`.
//!
//! A region that is a function ends at the latest when its frame is gone. The frame's entry stack pointer is the
//! address of its return address: an event at a higher stack pointer is of a caller, and a function that is entered
//! there has written over the return address.
//!
//! Where control leaves frames without their returns, ending a region too early is harmless, since it only hides
//! violations. So a throw suspends all of them, and the catch begins those again whose frames are still there.

use std::collections::VecDeque;

use checker::event::{LocationId, RegionId, ThreadId};
use x86::exits::Leaves;

/// A change of a thread's open regions, for the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A region begins.
    Begin(RegionId, LocationId),
    /// The innermost region ends.
    End(LocationId),
    /// From here on this region is followed; `None` if none is.
    Follow(Option<RegionId>, LocationId),
}

/// A function's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The function's number in the plan.
    pub function: u32,
    /// The stack pointer at its first instruction.
    pub sp: u64,
}

/// Function that a thread enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnteredFunction {
    /// Its region.
    pub region: RegionId,
    /// Set for a region that is only followed, and makes no transaction.
    pub is_followed: bool,
    /// Location of its begin.
    pub location: LocationId,
    /// Its frame; of an inlined function, the frame of the function around it.
    pub frame: Frame,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    region: RegionId,
    location: LocationId,
    /// A function's; `None` for a region by markers, which ends by its own.
    frame: Option<Frame>,
    /// The stack pointer where it began.
    sp: u64,
    /// Set for an inlined function, which uses the frame of the function around it.
    inlined: bool,
    /// Set after its jump to a function that releases a lock: it ends with that release.
    leaving: bool,
    /// Set after its jump to the start of this function: it ends with that one.
    tail: Option<u32>,
    /// Role in the check.
    scope: Scope,
}

/// Role of an open region in the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// It makes a transaction.
    Transaction,
    /// It is only followed.
    Followed,
    /// It is outside the focus. It stays on the stack so that its end is not taken for the end of another region.
    Outside,
}

impl Open {
    const fn of(entered: &EnteredFunction) -> Self {
        let EnteredFunction { region, is_followed, location, frame } = *entered;
        let sp = frame.sp;
        let frame = Some(frame);
        let scope = if is_followed { Scope::Followed } else { Scope::Transaction };
        Self { region, location, frame, sp, inlined: false, leaving: false, tail: None, scope }
    }

    const fn marked(region: RegionId, location: LocationId, sp: u64, scope: Scope) -> Self {
        let (frame, inlined, leaving, tail) = (None, false, false, None);
        Self { region, location, frame, sp, inlined, leaving, tail, scope }
    }
}

#[derive(Debug, Default)]
struct Stack {
    /// The outermost first.
    open: Vec<Open>,
    /// Number of functions among them.
    functions: usize,
    /// For each exception in flight the regions that were open at its throw.
    suspended: Vec<Vec<Open>>,
    throwing: bool,
}

/// The open regions of all threads.
#[derive(Debug, Default)]
pub struct RegionStacks {
    threads: Vec<Stack>,
    changes: VecDeque<Change>,
    left_markers: u64,
}

impl RegionStacks {
    /// Returns the number of regions by markers that ended because control left the functions in which they began.
    #[must_use]
    pub const fn left_markers(&self) -> u64 {
        self.left_markers
    }

    /// Returns whether a function is open.
    #[inline]
    fn has_functions(&self, thread: ThreadId) -> bool {
        self.threads.get(thread.index()).is_some_and(|stack| stack.functions > 0)
    }

    fn stack(&mut self, thread: ThreadId) -> &mut Stack {
        if self.threads.len() <= thread.index() {
            self.threads.resize_with(thread.index() + 1, Stack::default);
        }
        &mut self.threads[thread.index()]
    }

    /// Returns whether there are changes.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Takes the first of the changes that were not taken.
    #[inline]
    pub fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Forgets everything, as the checker does after a gap.
    pub fn clear(&mut self) {
        self.threads.clear();
    }

    /// Forgets a thread that has ended.
    pub fn end_thread(&mut self, thread: ThreadId) {
        *self.stack(thread) = Stack::default();
    }

    /// Returns the stack pointer above which an open region of the thread is known to have ended, or `u64::MAX`.
    #[must_use]
    pub fn lowest(&self, thread: ThreadId) -> u64 {
        let open = self.threads.get(thread.index()).map_or(&[][..], |stack| &stack.open);
        let transactions = open.iter().filter(|open| open.scope == Scope::Transaction);
        let known = transactions.filter_map(|open| Some((open.frame?, open.leaving)));
        known.map(|(frame, leaving)| if leaving { 0 } else { frame.sp }).min().unwrap_or(u64::MAX)
    }

    /// Ends the functions whose frames are below the thread's stack pointer `sp`; 0 ends no function.
    #[inline]
    pub fn at(&mut self, thread: ThreadId, sp: u64) {
        if self.has_functions(thread) {
            self.remove_while(thread, |open, frame| open.leaving || frame.sp < sp);
        }
    }

    /// Handles the release of a lock, by a call with the caller's stack pointer at `sp`. To be followed by
    /// [`released`](Self::released): the call may be the last thing that a function did.
    #[inline]
    pub fn release(&mut self, thread: ThreadId, sp: u64) {
        if self.has_functions(thread) {
            // The jump left the return address where it was, and so the caller's stack pointer is above it.
            let last = |open: &Open, frame: Frame| open.leaving && frame.sp + 8 == sp;
            self.remove_while(thread, |open, frame| {
                !last(open, frame) && (open.leaving || frame.sp < sp)
            });
        }
    }

    /// Completes the release that [`release`](Self::release) announced.
    #[inline]
    pub fn released(&mut self, thread: ThreadId) {
        if self.has_functions(thread) {
            self.remove_while(thread, |open, _| open.leaving);
        }
    }

    /// Begins a region by a marker.
    pub fn begin(&mut self, thread: ThreadId, region: RegionId, location: LocationId, sp: u64) {
        self.push(thread, Open::marked(region, location, sp, Scope::Transaction));
    }

    /// Begins a region by a marker that is outside the focus, and no transaction.
    pub fn begin_outside(
        &mut self,
        thread: ThreadId,
        region: RegionId,
        location: LocationId,
        sp: u64,
    ) {
        self.push(thread, Open::marked(region, location, sp, Scope::Outside));
    }

    /// Ends a region by a marker: the innermost one, or the innermost of that name. Markers inside it end with it.
    /// Returns `false` if no such region is open.
    pub fn end(
        &mut self,
        thread: ThreadId,
        region: Option<RegionId>,
        location: LocationId,
    ) -> bool {
        let stack = self.stack(thread);
        let matching =
            |open: &Open| open.frame.is_none() && region.is_none_or(|region| open.region == region);
        let Some(index) = stack.open.iter().rposition(matching) else { return false };
        self.remove(thread, index, location, |open| open.frame.is_some());
        true
    }

    /// Begins a function that a thread enters.
    pub fn enter(&mut self, thread: ThreadId, entered: &EnteredFunction) {
        let frame = entered.frame;
        let jumped_here =
            |open: &Open, old: Frame| old.sp == frame.sp && open.tail == Some(frame.function);
        self.remove_while(thread, |open, old| {
            open.leaving || old.sp <= frame.sp && !jumped_here(open, old)
        });
        self.push(thread, Open::of(entered));
    }

    /// Begins a function that was inlined.
    pub fn enter_inlined(&mut self, thread: ThreadId, entered: &EnteredFunction) {
        let frame = entered.frame;
        let again = |old: Frame| old.function == frame.function && old.sp <= frame.sp;
        self.remove_while(thread, |open, old| open.leaving || old.sp < frame.sp || again(old));
        self.push(thread, Open { inlined: true, ..Open::of(entered) });
    }

    /// Ends a function at its exit, with these flags. After a jump to the start of another function that is a region,
    /// `into`, it ends with that one.
    pub fn exit(
        &mut self,
        thread: ThreadId,
        frame: Frame,
        leaves: Leaves,
        flags: u32,
        into: Option<u32>,
    ) {
        if into.is_some() || !self.return_from_innermost(thread, frame, leaves) {
            self.leave(thread, frame, leaves, flags, into);
        }
    }

    fn leave(
        &mut self,
        thread: ThreadId,
        frame: Frame,
        leaves: Leaves,
        flags: u32,
        into: Option<u32>,
    ) {
        self.at(thread, frame.sp);
        let here = |open: &Open| match (open.frame, leaves) {
            (Some(open), Leaves::WithoutFrame) => open == frame,
            (Some(open), Leaves::Always | Leaves::IntoRelease) => open.function == frame.function,
            (Some(open), Leaves::If(condition)) => {
                open.function == frame.function && condition.holds(flags.into())
            }
            (None, _) => false,
        };
        if let Some(index) = self.stack(thread).open.iter().rposition(here) {
            let open = &mut self.stack(thread).open[index];
            if leaves == Leaves::IntoRelease && open.frame == Some(frame) {
                open.leaving = true;
                return;
            }
            let Open { location, frame: left, .. } = *open;
            if let Some(into) = into.filter(|_| left == Some(frame))
                && self.jump_into(thread, frame, into)
            {
                return;
            }
            self.remove(thread, index, location, |_| true);
            let sp = left.map_or(frame.sp, |left| left.sp);
            self.remove_while(thread, |open, old| open.tail.is_some() && old.sp == sp);
        }
    }

    /// Ends the innermost region if it is the function that returns, and no other region ends with it: the fast path of
    /// [`exit`](Self::exit). Returns `false`, and does nothing, otherwise.
    fn return_from_innermost(&mut self, thread: ThreadId, frame: Frame, leaves: Leaves) -> bool {
        let Some(stack) = self.threads.get_mut(thread.index()) else { return false };
        let Some((innermost, outer)) = stack.open.split_last() else { return false };
        let goes_on = |open: &Open| {
            let is_above = open.frame.is_none_or(|other| frame.sp < other.sp);
            is_above && !(open.frame.is_some() && open.leaving)
        };
        let is_alone = innermost.frame == Some(frame)
            && !innermost.leaving
            && innermost.scope == Scope::Transaction
            && matches!(leaves, Leaves::WithoutFrame | Leaves::Always)
            && outer.iter().all(goes_on);
        if is_alone {
            self.changes.push_back(Change::End(innermost.location));
            stack.open.pop();
            stack.functions -= 1;
        }
        is_alone
    }

    /// Notes that a function jumps to the start of another one; functions that have jumped to its own start end with
    /// that one too. Returns `false` for a circle of such jumps: its functions end.
    fn jump_into(&mut self, thread: ThreadId, frame: Frame, into: u32) -> bool {
        let open = &mut self.stack(thread).open;
        let here = |open: &Open| open.frame.is_some_and(|other| other.sp == frame.sp);
        let again = Frame { function: into, ..frame };
        if open.iter().any(|open| open.frame == Some(again)) {
            return false;
        }
        for open in open.iter_mut().filter(|open| here(open)) {
            if open.frame == Some(frame) || open.tail == Some(frame.function) {
                open.tail = Some(into);
            }
        }
        true
    }

    /// Ends the executions of a function whose exits are not seen any more, and of functions that jumped to its start.
    pub fn give_up(&mut self, thread: ThreadId, function: u32) {
        let is_it = |open: &Open| {
            open.tail == Some(function)
                || open.frame.is_some_and(|frame| frame.function == function)
        };
        for suspended in &mut self.stack(thread).suspended {
            suspended.retain(|open| !is_it(open));
        }
        while let Some(index) = self.stack(thread).open.iter().rposition(is_it) {
            let location = self.stack(thread).open[index].location;
            self.remove(thread, index, location, |_| true);
        }
    }

    /// Ends all functions: control leaves an unknown number of frames.
    pub fn leave_all(&mut self, thread: ThreadId) {
        self.stack(thread).suspended.clear();
        self.remove_while(thread, |_, _| true);
    }

    /// Ends the regions left by a long jump to where the stack pointer is `to`, 0 if unknown. A region by markers ends
    /// if it may have been left, even if it began in the very function that continues.
    pub fn jump(&mut self, thread: ThreadId, to: u64) {
        let to = if to == 0 { u64::MAX } else { to };
        self.stack(thread).suspended.clear();
        self.at(thread, to);
        self.leave_markers(thread, |sp| sp <= to);
    }

    /// Ends the regions by markers that began at such stack pointers.
    fn leave_markers(&mut self, thread: ThreadId, left: impl Fn(u64) -> bool) {
        let is_left = |open: &Open| open.frame.is_none() && left(open.sp);
        while let Some(index) = self.stack(thread).open.iter().rposition(is_left) {
            let location = self.stack(thread).open[index].location;
            self.left_markers += 1;
            self.remove(thread, index, location, |_| true);
        }
    }

    /// Notes that a C++ exception is about to be raised, whose catch will be recorded.
    pub fn throw(&mut self, thread: ThreadId) {
        self.stack(thread).throwing = true;
    }

    /// Handles the raise of an exception.
    pub fn raise(&mut self, thread: ThreadId) {
        let stack = self.stack(thread);
        if !std::mem::take(&mut stack.throwing) {
            return self.leave_all(thread);
        }
        // The place of the catch does not show which code was inlined into the function that catches.
        let stays = |open: &&Open| open.frame.is_some() && !open.inlined;
        let functions = stack.open.iter().filter(stays).copied().collect();
        stack.suspended.push(functions);
        self.remove_while(thread, |_, _| true);
    }

    /// Handles the catch of a C++ exception, in a frame with this stack pointer.
    pub fn catch(&mut self, thread: ThreadId, sp: u64) {
        self.at(thread, sp);
        // A guard's region has ended on the way here. One by hand that began in a frame that is gone has no end.
        self.leave_markers(thread, |begin| begin < sp);
        let Some(suspended) = self.stack(thread).suspended.pop() else { return };
        for open in suspended.into_iter().filter(|open| !open.leaving) {
            if open.frame.is_some_and(|frame| frame.sp >= sp) {
                self.push(thread, open);
            }
        }
    }

    fn push(&mut self, thread: ThreadId, open: Open) {
        let stack = self.stack(thread);
        stack.functions += usize::from(open.frame.is_some());
        stack.open.push(open);
        match open.scope {
            Scope::Transaction => {
                self.changes.push_back(Change::Begin(open.region, open.location));
            }
            Scope::Followed => {
                self.changes.push_back(Change::Follow(Some(open.region), open.location));
            }
            Scope::Outside => {}
        }
    }

    fn remove_while(&mut self, thread: ThreadId, gone: impl Fn(&Open, Frame) -> bool) {
        let of_gone = |open: &Open| open.frame.is_some_and(|frame| gone(open, frame));
        while let Some(index) = self.stack(thread).open.iter().rposition(of_gone) {
            let location = self.stack(thread).open[index].location;
            self.remove(thread, index, location, |_| true);
        }
    }

    /// Ends the region at `index` and all inside it; inner regions that are to be kept begin anew. A region that is
    /// only followed ends alone.
    fn remove(
        &mut self,
        thread: ThreadId,
        index: usize,
        location: LocationId,
        keep: impl Fn(&Open) -> bool,
    ) {
        let stack = self.stack(thread);
        let scope = stack.open[index].scope;
        if index + 1 == stack.open.len() && scope == Scope::Transaction {
            let is_function = stack.open.pop().is_some_and(|open| open.frame.is_some());
            stack.functions -= usize::from(is_function);
            self.changes.push_back(Change::End(location));
            return;
        }
        let ended = match scope {
            Scope::Followed => vec![stack.open.remove(index)],
            Scope::Transaction | Scope::Outside => stack.open.split_off(index),
        };
        stack.functions -= ended.iter().filter(|open| open.frame.is_some()).count();
        let transactions = ended.iter().filter(|open| open.scope == Scope::Transaction);
        self.changes.extend(transactions.map(|_| Change::End(location)));
        let is_followed = |open: &&Open| open.scope == Scope::Followed;
        if ended.iter().any(|open| is_followed(&open)) {
            let open = &self.stack(thread).open;
            let followed = open.iter().rfind(is_followed).map(|open| open.region);
            self.changes.push_back(Change::Follow(followed, location));
        }
        for open in ended.into_iter().skip(1).filter(keep) {
            self.push(thread, open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: ThreadId = ThreadId(0);
    const L: LocationId = LocationId(0);

    fn frame(function: u32, sp: u64) -> Frame {
        Frame { function, sp }
    }

    fn entered(function: u32, is_followed: bool, frame: Frame) -> EnteredFunction {
        EnteredFunction { region: RegionId(function), is_followed, location: L, frame }
    }

    fn enter(stacks: &mut RegionStacks, function: u32, sp: u64) {
        stacks.enter(T, &entered(function, false, frame(function, sp)));
    }

    /// Formats the changes: `+1` for the begin of region 1, `-` for an end.
    fn changes(stacks: &mut RegionStacks) -> String {
        stacks
            .changes
            .drain(..)
            .map(|change| match change {
                Change::Begin(region, _) => format!("+{}", region.0),
                Change::End(_) => "-".to_owned(),
                Change::Follow(Some(region), _) => format!("f{}", region.0),
                Change::Follow(None, _) => "f".to_owned(),
            })
            .collect()
    }

    #[test]
    fn a_function_ends_at_its_return() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        stacks.at(T, 80);
        stacks.at(T, 100);
        assert_eq!(changes(&mut stacks), "+1");
        stacks.exit(T, frame(1, 100), Leaves::WithoutFrame, 0, None);
        assert_eq!(changes(&mut stacks), "-");
        stacks.exit(T, frame(1, 100), Leaves::WithoutFrame, 0, None);
        assert_eq!(changes(&mut stacks), "");
    }

    #[test]
    fn followed_functions_begin_and_end_no_others() {
        let mut stacks = RegionStacks::default();
        stacks.enter(T, &entered(1, true, frame(1, 100)));
        enter(&mut stacks, 2, 80);
        stacks.enter(T, &entered(3, true, frame(3, 60)));
        assert_eq!(changes(&mut stacks), "f1+2f3");
        assert_eq!(stacks.lowest(T), 80);
        stacks.exit(T, frame(3, 60), Leaves::WithoutFrame, 0, None);
        assert_eq!(changes(&mut stacks), "f1");
        stacks.begin(T, RegionId(4), L, 70);
        stacks.exit(T, frame(1, 100), Leaves::Always, 0, None);
        assert_eq!(changes(&mut stacks), "+4--+4f");
    }

    #[test]
    fn regions_outside_the_focus_take_their_own_ends() {
        let mut stacks = RegionStacks::default();
        stacks.begin(T, RegionId(1), L, 100);
        stacks.begin_outside(T, RegionId(9), L, 90);
        assert!(stacks.end(T, None, L));
        assert_eq!(changes(&mut stacks), "+1");
        stacks.begin_outside(T, RegionId(9), L, 90);
        stacks.begin(T, RegionId(2), L, 80);
        assert!(stacks.end(T, Some(RegionId(9)), L));
        assert_eq!(changes(&mut stacks), "+2-", "what is in it ends with it");
        assert!(stacks.end(T, None, L));
        assert_eq!(changes(&mut stacks), "-");
    }

    #[test]
    fn inlined_functions_share_the_frame_around_them() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        stacks.enter_inlined(T, &entered(2, false, frame(2, 80)));
        stacks.enter_inlined(T, &entered(3, false, frame(3, 80)));
        assert_eq!(changes(&mut stacks), "+1+2+3");
        stacks.exit(T, frame(3, 80), Leaves::Always, 0, None);
        stacks.enter_inlined(T, &entered(3, false, frame(3, 80)));
        stacks.enter_inlined(T, &entered(3, false, frame(3, 80)));
        assert_eq!(changes(&mut stacks), "-+3-+3", "its end was not seen");
        stacks.at(T, 100);
        assert_eq!(changes(&mut stacks), "--", "the frame is gone");
        stacks.enter_inlined(T, &entered(2, false, frame(2, 80)));
        stacks.throw(T);
        stacks.raise(T);
        stacks.catch(T, 60);
        assert_eq!(changes(&mut stacks), "+2--+1", "it may have been left");
    }

    #[test]
    fn a_function_that_is_given_up_ends_and_what_it_calls_begins_anew() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        enter(&mut stacks, 2, 60);
        stacks.give_up(T, 1);
        assert_eq!(changes(&mut stacks), "+1+2--+2");
        stacks.exit(T, frame(1, 100), Leaves::WithoutFrame, 0, None);
        assert_eq!(changes(&mut stacks), "-", "at a stack pointer above it");
    }

    #[test]
    fn a_function_that_has_jumped_to_one_that_is_given_up_ends() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        stacks.exit(T, frame(1, 100), Leaves::WithoutFrame, 0, Some(2));
        enter(&mut stacks, 2, 100);
        assert_eq!(changes(&mut stacks), "+1+2");
        stacks.give_up(T, 2);
        assert_eq!(changes(&mut stacks), "--");
    }

    #[test]
    fn calls_of_itself_nest() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        enter(&mut stacks, 1, 60);
        stacks.exit(T, frame(1, 60), Leaves::WithoutFrame, 0, None);
        stacks.exit(T, frame(1, 100), Leaves::WithoutFrame, 0, None);
        assert_eq!(changes(&mut stacks), "+1+1--");
    }

    #[test]
    fn a_return_of_another_frame_is_none_of_this() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        stacks.exit(T, frame(1, 60), Leaves::WithoutFrame, 0, None);
        assert_eq!(changes(&mut stacks), "+1", "a jump by a table");
        stacks.exit(T, frame(1, 60), Leaves::Always, 0, None);
        assert_eq!(changes(&mut stacks), "-", "a jump to unknown code: too early is harmless");
    }

    #[test]
    fn a_higher_stack_pointer_ends_what_was_left() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        enter(&mut stacks, 2, 60);
        stacks.at(T, 80);
        assert_eq!(changes(&mut stacks), "+1+2-");
        stacks.at(T, 108);
        assert_eq!(changes(&mut stacks), "-");
        enter(&mut stacks, 1, 100);
        enter(&mut stacks, 2, 100);
        assert_eq!(changes(&mut stacks), "+1-+2", "the return address was written over");
    }

    #[test]
    fn a_jump_to_a_release_ends_after_it() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        stacks.exit(T, frame(1, 100), Leaves::IntoRelease, 0, None);
        stacks.release(T, 108);
        assert_eq!(changes(&mut stacks), "+1");
        stacks.released(T);
        assert_eq!(changes(&mut stacks), "-");
        enter(&mut stacks, 1, 100);
        stacks.exit(T, frame(1, 100), Leaves::IntoRelease, 0, None);
        stacks.release(T, 80);
        assert_eq!(changes(&mut stacks), "+1-", "of a signal handler");
        enter(&mut stacks, 1, 100);
        stacks.exit(T, frame(1, 100), Leaves::IntoRelease, 0, None);
        stacks.at(T, 80);
        assert_eq!(changes(&mut stacks), "+1-");
    }

    #[test]
    fn a_jump_to_a_function_ends_with_it() {
        let mut stacks = RegionStacks::default();
        let jump = |stacks: &mut RegionStacks, function: u32, into: u32| {
            stacks.exit(T, frame(function, 100), Leaves::Always, 0, Some(into));
        };
        enter(&mut stacks, 1, 100);
        jump(&mut stacks, 1, 2);
        enter(&mut stacks, 2, 100);
        stacks.at(T, 60);
        jump(&mut stacks, 2, 3);
        enter(&mut stacks, 3, 100);
        assert_eq!(changes(&mut stacks), "+1+2+3");
        stacks.exit(T, frame(3, 100), Leaves::WithoutFrame, 0, None);
        assert_eq!(changes(&mut stacks), "---");
        // A call from the same place afterwards is of the caller.
        enter(&mut stacks, 1, 100);
        jump(&mut stacks, 1, 2);
        enter(&mut stacks, 4, 100);
        assert_eq!(changes(&mut stacks), "+1-+4", "it was entered by something else");
        enter(&mut stacks, 1, 100);
        jump(&mut stacks, 1, 2);
        stacks.at(T, 108);
        assert_eq!(changes(&mut stacks), "-+1-", "its frame is gone");
        // Functions that jump to one another do not pile up.
        enter(&mut stacks, 1, 100);
        jump(&mut stacks, 1, 2);
        enter(&mut stacks, 2, 100);
        jump(&mut stacks, 2, 1);
        assert_eq!(changes(&mut stacks), "+1+2--");
        enter(&mut stacks, 1, 100);
        jump(&mut stacks, 1, 1);
        assert_eq!(changes(&mut stacks), "+1-");
    }

    #[test]
    fn markers_end_by_themselves() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        stacks.begin(T, RegionId(7), L, 90);
        stacks.exit(T, frame(1, 100), Leaves::WithoutFrame, 0, None);
        assert_eq!(changes(&mut stacks), "+1+7--+7", "the marker's region goes on");
        stacks.at(T, 1000);
        assert_eq!(changes(&mut stacks), "");
        assert!(stacks.end(T, Some(RegionId(7)), L));
        assert!(!stacks.end(T, Some(RegionId(7)), L));
        assert_eq!(changes(&mut stacks), "-");
    }

    #[test]
    fn a_catch_begins_again_what_was_not_left() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        enter(&mut stacks, 2, 60);
        stacks.throw(T);
        stacks.raise(T);
        assert_eq!(changes(&mut stacks), "+1+2--");
        stacks.catch(T, 70);
        assert_eq!(changes(&mut stacks), "+1");
        // A panic says nothing about its catch.
        stacks.raise(T);
        stacks.catch(T, 70);
        assert_eq!(changes(&mut stacks), "-");
    }

    #[test]
    fn a_catch_ends_the_markers_of_frames_that_are_gone() {
        let mut stacks = RegionStacks::default();
        stacks.begin(T, RegionId(1), L, 70);
        stacks.begin(T, RegionId(2), L, 60);
        stacks.throw(T);
        stacks.raise(T);
        assert_eq!(changes(&mut stacks), "+1+2", "a guard's region ends by itself");
        stacks.catch(T, 70);
        assert_eq!(changes(&mut stacks), "-");
        assert_eq!(stacks.left_markers(), 1);
    }

    #[test]
    fn a_jump_ends_what_it_leaves() {
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        stacks.begin(T, RegionId(7), L, 90);
        enter(&mut stacks, 2, 60);
        stacks.begin(T, RegionId(8), L, 50);
        stacks.jump(T, 80);
        assert_eq!(changes(&mut stacks), "+1+7+2+8--+8-");
        stacks.jump(T, 90);
        assert_eq!(
            changes(&mut stacks),
            "-",
            "it may have begun after the place that was jumped to"
        );
        stacks.jump(T, 0);
        assert_eq!(changes(&mut stacks), "-", "to an unknown place");
    }

    /// Ends functions at exits after random begins and ends of regions, by both paths of an exit.
    #[test]
    fn a_return_from_the_innermost_function_ends_what_any_exit_would() {
        let mut state = 0x9e37_79b9_u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let mut both = [RegionStacks::default(), RegionStacks::default()];
        let mut fast = 0;
        for _ in 0..20_000 {
            let (kind, number, sp) = (random(9), random(3) as u32, 8 * (random(4) + 10));
            let entered = entered(number, kind == 1, frame(number, sp));
            let into = (random(4) == 0).then_some(random(3) as u32);
            let leaves = match random(3) {
                0 => Leaves::Always,
                1 => Leaves::WithoutFrame,
                _ => Leaves::IntoRelease,
            };
            for (index, stacks) in both.iter_mut().enumerate() {
                match kind {
                    0 | 1 => stacks.enter(T, &entered),
                    2 => stacks.enter_inlined(T, &entered),
                    3 => stacks.begin(T, RegionId(number), L, sp),
                    4 => drop(stacks.end(T, None, L)),
                    _ if index == 0 => stacks.exit(T, frame(number, sp), leaves, 0, into),
                    _ => stacks.leave(T, frame(number, sp), leaves, 0, into),
                }
            }
            let is_fast = kind > 4 && both[0].changes.len() == 1;
            fast += u32::from(is_fast && leaves != Leaves::IntoRelease);
            let [one, other] = &mut both;
            assert_eq!(changes(one), changes(other));
        }
        assert!(fast > 100, "{fast}");
    }

    #[test]
    fn a_conditional_jump_leaves_when_it_is_taken() {
        let je = x86::exits::exits(
            &[x86::exits::Part { start: 0, code: &[0x0f, 0x84, 0, 1, 0, 0, 0xc3] }],
            0,
        )
        .unwrap()[0]
            .leaves;
        let mut stacks = RegionStacks::default();
        enter(&mut stacks, 1, 100);
        stacks.exit(T, frame(1, 100), je, 0, None);
        assert_eq!(changes(&mut stacks), "+1");
        stacks.exit(T, frame(1, 100), je, 1 << 6, None);
        assert_eq!(changes(&mut stacks), "-");
    }
}
