//! Choice of the bytes to displace in a function whose control flow is known.

mod redirect;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::{
    Function, Jump, NEAR_JUMP, Padding, Patch, Patches, Point, Refusal, SHORT_JUMP, SKIPPED,
    call_as_jump, called,
    code::FunctionCode,
    liveness::{Live, Liveness},
};
use crate::instruction::is_direct;

/// Most bytes before a call that it displaces: a short jump leads over them.
const MOST_SKIPPED: u64 = 127 + SHORT_JUMP;

/// Distance that a short jump reaches, in bytes, and the longest instruction.
const NEIGHBOURHOOD: u64 = 128 + 15;

/// Returns true if an instruction can be executed elsewhere without a difference that anything sees.
pub fn is_displaceable(instruction: &Instruction) -> bool {
    let moves = match instruction.flow_control() {
        FlowControl::Next | FlowControl::Return | FlowControl::IndirectBranch => true,
        // A call is the last of its line.
        FlowControl::IndirectCall => call_as_jump(instruction).is_some(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call => {
            is_direct(instruction)
        }
        _ => false,
    };
    let is_call = matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Sysexit | Mnemonic::Sysret
    );
    let is_fixed = matches!(instruction.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Hlt);
    moves && !is_call && !is_fixed && !uses_gs(instruction)
}

/// Returns whether an instruction depends on GS, which is not the program's own in code of probes.
fn uses_gs(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::GS
        || matches!(instruction.mnemonic(), Mnemonic::Rdgsbase | Mnemonic::Wrgsbase)
        || (0..instruction.op_count()).any(|operand| {
            instruction.op_kind(operand) == OpKind::Register
                && instruction.op_register(operand) == Register::GS
        })
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// Returns whether control comes to an instruction only from the one before it.
fn continues(function: &Function<'_>, flow: &FunctionCode, at: usize) -> bool {
    let instructions = flow.instructions();
    let Some((before, here)) = at
        .checked_sub(1)
        .and_then(|before| Some((instructions.get(before)?, instructions.get(at)?)))
    else {
        return false;
    };
    flow.predecessors(at) == [at - 1]
        && matches!(before.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
        && before.next_ip() == here.ip()
        && !flow.is_named(at)
        && !(function.is_target)(here.ip())
}

/// Returns the instruction before which a probe at one acts: the one behind the mark for indirect calls, if that is
/// one.
fn marked(function: &Function<'_>, flow: &FunctionCode, at: usize) -> usize {
    let is_mark = flow.instructions()[at].mnemonic() == Mnemonic::Endbr64;
    at + usize::from(is_mark && continues(function, flow, at + 1))
}

/// Chooses the patches of a function whose control flow is known.
pub struct Planner<'a> {
    function: &'a Function<'a>,
    flow: &'a FunctionCode,
    liveness: Liveness,
    red_zone: bool,
    padding: &'a mut Padding,
    chosen: Vec<Chosen>,
    /// Lines that all ways to are displaced, each before those that its trampoline leads to.
    redirected: Vec<Chosen>,
    /// Patches of earlier plans, which lead to some of these.
    renewed: Vec<Patch>,
}

/// Straight line of instructions that can be displaced, by their numbers.
#[derive(Clone, Copy)]
struct Line {
    first: usize,
    /// Number after the last instruction.
    end: usize,
}

/// Probe point: the number of the instruction before which it acts, and its address.
type PatchPlace = (usize, u64);

/// Patch that is chosen, by the numbers of its instructions.
#[derive(Clone)]
struct Chosen {
    first: usize,
    end: usize,
    /// Bytes of padding behind the instructions.
    padded: u64,
    jump: Jump,
    places: Vec<PatchPlace>,
}

impl<'a> Planner<'a> {
    pub fn new(
        function: &'a Function<'a>,
        flow: &'a FunctionCode,
        red_zone: bool,
        padding: &'a mut Padding,
    ) -> Self {
        let mut read = vec![Live::NONE; flow.instructions().len()];
        for (at, instruction) in flow.instructions().iter().enumerate() {
            let at = marked(function, flow, at);
            read[at] = read[at].and((function.reads)(instruction.ip()));
        }
        let liveness = Liveness::analyze(flow, function.convention, &read);
        let (chosen, redirected, renewed) = (Vec::new(), Vec::new(), Vec::new());
        Self { function, flow, liveness, red_zone, padding, chosen, redirected, renewed }
    }

    pub fn plan(mut self, points: &[u64]) -> Patches {
        let mut patches = Patches::default();
        // Points by the line that is patched for them: its first instruction.
        let mut lines: BTreeMap<usize, (Line, Vec<PatchPlace>)> = BTreeMap::new();
        for &address in points {
            if let Some((known, point)) = self.place_in_patch(address) {
                patches.extend(known, point);
                continue;
            }
            match self.place(address) {
                Ok((at, line)) => {
                    lines.entry(line.first).or_insert((line, Vec::new())).1.push((at, address));
                }
                Err(refusal) => patches.refused.push((address, refusal)),
            }
        }
        self.padding.add_inside(self.flow, self.function.is_target);
        let mut short = BTreeMap::new();
        for (line, mut places) in lines.into_values() {
            places.sort_unstable();
            places.dedup();
            match self.straight(line, &places) {
                Some(chosen) => self.chosen.extend(chosen),
                None => drop(short.insert(line.first, (line, places))),
            }
        }
        for chosen in &self.chosen {
            self.padding.displace(&self.range(chosen));
            self.left(chosen).into_iter().for_each(|left| self.padding.add_left(left));
        }
        let pending: BTreeSet<usize> = short.keys().copied().collect();
        let mut without_room = Vec::new();
        for (line, places) in short.into_values() {
            let chosen = self.through(line, &places, &pending);
            match chosen.or_else(|| self.with_pushed_return(line, &places)) {
                Some(chosen) => {
                    self.padding.displace(&self.range(&chosen));
                    self.chosen.push(chosen);
                }
                None => without_room.push((line, places)),
            }
        }
        for (line, places) in without_room {
            if !self.redirect(line, &places) {
                let refusal = Refusal::NoRoom(self.stop(line.end) - self.start(line.first));
                patches.refused.extend(places.iter().map(|&(_, address)| (address, refusal)));
            }
        }
        for known in &self.renewed {
            patches.extended(known);
        }
        self.renew_points(&mut patches);
        patches.redirected =
            self.redirected.iter().rev().map(|chosen| self.patch(chosen)).collect();
        patches.patches = self.chosen.iter().map(|chosen| self.patch(chosen)).collect();
        patches.patches.sort_by_key(|patch| patch.range.start);
        patches
    }

    /// Has what counts at the points of earlier plans be what counts with the new ones. Patches for which that is more
    /// than before are among those that are extended.
    fn renew_points(&self, patches: &mut Patches) {
        for part in self.function.parts {
            let part = part.start..part.start.saturating_add(part.code.len() as u64);
            for known in self.padding.patches_in(part) {
                let counts = |point: &Point| {
                    let at = self.flow.at(point.address)?;
                    Some(self.liveness.before(marked(self.function, self.flow, at)))
                };
                let has_more = |point: &Point| {
                    counts(point).is_some_and(|live| live.and(point.live) != point.live)
                };
                if known.points.iter().any(has_more) {
                    for point in &mut patches.extended(known).points {
                        point.live = counts(point).map_or(point.live, |live| live.and(point.live));
                    }
                }
            }
        }
    }

    /// Instruction before which the probe acts, and the line to patch for it.
    fn place(&self, address: u64) -> Result<(usize, Line), Refusal> {
        let at = self.flow.at(address).ok_or(Refusal::NoInstruction)?;
        let at = marked(self.function, self.flow, at);
        if (self.function.is_restartable)(address) {
            return Err(Refusal::Restartable);
        }
        if self.is_displaced(at) {
            return Err(Refusal::Displaced);
        }
        let inside = if self.is_displaceable(at) {
            at
        } else {
            // The line before it, if control comes from nowhere else.
            let before = at.checked_sub(1).filter(|_| self.continues(at));
            before.filter(|&before| self.is_displaceable(before)).ok_or(Refusal::NoRoom(0))?
        };
        Ok((at, self.line(inside)))
    }

    /// Finds the patch of an earlier plan that has displaced the instruction before which a probe acts, or the one
    /// before that.
    fn place_in_patch(&self, address: u64) -> Option<(&Patch, Point)> {
        let at = marked(self.function, self.flow, self.flow.at(address)?);
        let ip = self.start(at);
        let around = self.padding.patch_around(ip);
        let known = around.or_else(|| {
            let before = self.padding.patch_around(self.start(at.checked_sub(1)?))?;
            let ends = before.range.end == ip && before.jump != Jump::Call;
            (ends && self.continues(at) && !self.is_displaceable(at)).then_some(before)
        });
        Some((known?, self.point(at, address)))
    }

    fn is_displaceable(&self, at: usize) -> bool {
        let instruction = &self.flow.instructions()[at];
        is_displaceable(instruction)
            && !self.flow.is_split(at)
            && !(self.function.is_restartable)(instruction.ip())
            && !self.is_displaced(at)
    }

    fn is_displaced(&self, at: usize) -> bool {
        self.padding.is_displaced(&(self.start(at)..self.stop(at + 1)))
    }

    fn continues(&self, at: usize) -> bool {
        continues(self.function, self.flow, at)
    }

    fn line(&self, at: usize) -> Line {
        let mut first = at;
        while self.continues(first) && self.is_displaceable(first - 1) {
            first -= 1;
        }
        let mut end = at + 1;
        while self.continues(end) && self.is_displaceable(end) {
            end += 1;
        }
        Line { first, end }
    }

    fn start(&self, first: usize) -> u64 {
        self.flow.instructions()[first].ip()
    }

    fn stop(&self, end: usize) -> u64 {
        self.flow.instructions()[end - 1].next_ip()
    }

    fn length(&self, first: usize, end: usize) -> u64 {
        self.stop(end) - self.start(first)
    }

    /// Number after the last instruction of a line but a call.
    fn body_end(&self, line: Line) -> usize {
        line.end - usize::from(is_call(&self.flow.instructions()[line.end - 1]))
    }

    /// Numbers of the first instruction to displace for the points of a line, and after the last one.
    fn needed(line: Line, places: &[PatchPlace]) -> (usize, usize) {
        let (lowest, highest) = (places[0].0, places[places.len() - 1].0);
        let most = (highest + 1).min(line.end);
        // A point behind the line needs an instruction before it.
        (lowest.min(most - 1), most)
    }

    /// Makes bytes to displace longer, by more of the line behind them and then before them.
    fn extend(&self, mut first: usize, mut end: usize, line: Line, room: u64) -> (usize, usize) {
        while self.length(first, end) < room && end < line.end {
            end += 1;
        }
        while self.length(first, end) < room && first > line.first {
            first -= 1;
        }
        (first, end)
    }

    /// Chooses bytes of a line that have room for the jump to the trampoline.
    fn straight(&self, line: Line, places: &[PatchPlace]) -> Option<Vec<Chosen>> {
        let needed = Self::needed(line, places);
        let body = Line { end: self.body_end(line), ..line };
        let chosen = |(first, end): (usize, usize), jump| {
            vec![Chosen { first, end, padded: 0, jump, places: places.to_vec() }]
        };
        let near = |from: usize| {
            let body = Line { first: from, ..body };
            let fits = needed.1 <= body.end && from <= needed.0;
            let found = fits.then(|| self.extend(needed.0, needed.1, body, NEAR_JUMP))?;
            (self.length(found.0, found.1) >= NEAR_JUMP).then(|| chosen(found, Jump::Near))
        };
        near(needed.0)
            .or_else(|| {
                let first = self.called(line, needed.0)?;
                Some(chosen((first, line.end), Jump::Call))
            })
            .or_else(|| near(line.first))
            .or_else(|| self.divided(line, body, places))
    }

    /// Finds the first instruction of a line from which on it can be displaced by its call, at `lowest` or before.
    fn called(&self, line: Line, lowest: usize) -> Option<usize> {
        if self.body_end(line) == line.end {
            return None;
        }
        let (first, _) = self.extend(lowest, line.end, line, NEAR_JUMP);
        let is_short = self.length(first, line.end) <= NEAR_JUMP + MOST_SKIPPED;
        let instructions = self.flow.instructions().get(first..line.end)?;
        (is_short && called(instructions, self.red_zone).is_some()).then_some(first)
    }

    /// Chooses bytes for the points before a call, and others for those at the call.
    fn divided(&self, line: Line, body: Line, places: &[PatchPlace]) -> Option<Vec<Chosen>> {
        let (before, at): (Vec<PatchPlace>, Vec<PatchPlace>) =
            places.iter().partition(|place| place.0 < body.end);
        if body.end == line.end || before.is_empty() || at.is_empty() {
            return None;
        }
        let call = Line { first: body.end, ..line };
        let mut chosen = self.straight(body, &before)?;
        chosen.extend(self.straight(call, &at)?);
        Some(chosen)
    }

    /// Chooses bytes of a short line for a jump with padding behind it, or for a short jump.
    fn through(
        &mut self,
        line: Line,
        places: &[PatchPlace],
        pending: &BTreeSet<usize>,
    ) -> Option<Chosen> {
        let body = Line { end: self.body_end(line), ..line };
        let needed = Self::needed(line, places);
        let within = if needed.1 <= body.end { body } else { line };
        let places = places.to_vec();
        let (first, end) = self.extend(needed.0, needed.1, within, NEAR_JUMP);
        let missing = NEAR_JUMP.saturating_sub(self.length(first, end));
        let last = &self.flow.instructions()[end - 1];
        let returns = matches!(
            last.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        );
        if missing > 0 && returns && self.padding.take_at(self.stop(end), missing) {
            return Some(Chosen { first, end, padded: missing, jump: Jump::Near, places });
        }
        let (first, end) = self.extend(needed.0, needed.1, within, SHORT_JUMP);
        if self.length(first, end) < SHORT_JUMP {
            return None;
        }
        let after = self.start(first) + SHORT_JUMP;
        let room = self.padding.take_near(after).or_else(|| {
            self.make_room(after, pending)?;
            self.padding.take_near(after)
        });
        Some(Chosen { first, end, padded: 0, jump: Jump::Short(room?), places })
    }

    /// Chooses bytes that end in a call, which then is displaced as a push of its return address and a jump.
    fn with_pushed_return(&self, line: Line, places: &[PatchPlace]) -> Option<Chosen> {
        let needed = Self::needed(line, places);
        let (first, end) = self.extend(needed.0, needed.1, line, NEAR_JUMP);
        let fits = self.length(first, end) >= NEAR_JUMP;
        let places = places.to_vec();
        fits.then_some(Chosen { first, end, padded: 0, jump: Jump::Near, places })
    }

    /// Makes room for a jump that a short one before an address reaches: displaces more than a patch needs, if need be
    /// by the call behind it, or a line without probe points.
    fn make_room(&mut self, after: u64, pending: &BTreeSet<usize>) -> Option<()> {
        let is_reached = |left: &Range<u64>| Padding::reaches(after, left);
        for index in 0..self.chosen.len() {
            let chosen = &self.chosen[index];
            if chosen.jump != Jump::Near || chosen.padded > 0 || self.left(chosen).is_some() {
                continue;
            }
            let has_room = |longer: &Chosen| self.left(longer).as_ref().is_some_and(is_reached);
            if let Some(longer) = self.grown(chosen, has_room) {
                let range = self.range(chosen);
                self.padding.replace(&range, &self.range(&longer));
                self.left(&longer).into_iter().for_each(|left| self.padding.add_left(left));
                self.chosen[index] = longer;
                return Some(());
            }
        }
        let chosen = self.displace_spare(after, pending)?;
        self.chosen.push(chosen);
        Some(())
    }

    /// Displaces a line without probe points that leaves room which a short jump before an address reaches.
    fn displace_spare(&mut self, after: u64, pending: &BTreeSet<usize>) -> Option<Chosen> {
        let is_reached = |left: &Range<u64>| Padding::reaches(after, left);
        let chosen = self.spare_lines(after, pending).into_iter().find_map(|line| {
            let mut candidates = self.spare(line);
            candidates.find(|chosen| self.left(chosen).as_ref().is_some_and(is_reached))
        })?;
        self.padding.displace(&self.range(&chosen));
        self.left(&chosen).into_iter().for_each(|left| self.padding.add_left(left));
        Some(chosen)
    }

    /// Chooses a patch without probe points that leaves room near an address of another function.
    pub fn room_near(mut self, address: u64) -> Option<Patch> {
        let chosen = self.displace_spare(address + SHORT_JUMP, &BTreeSet::new())?;
        Some(self.patch(&chosen))
    }

    /// Returns a patch with more of its line, so that there is room for another jump if the line has it.
    fn lengthened(&self, chosen: &Chosen) -> Chosen {
        let line = self.line_without(chosen);
        let body = Line { end: self.body_end(line), ..line };
        if body.end < chosen.end {
            return chosen.clone();
        }
        let (first, end) = self.extend(chosen.first, chosen.end, body, 2 * NEAR_JUMP);
        Chosen { first, end, ..chosen.clone() }
    }

    /// Returns a patch that displaces more of its line and fits: more instructions, or all up to the call at its end,
    /// by that call, with a rest behind the short jump over the instructions before it.
    fn grown(&self, chosen: &Chosen, fits: impl Fn(&Chosen) -> bool) -> Option<Chosen> {
        let longer = self.lengthened(chosen);
        if fits(&longer) {
            return Some(longer);
        }
        let line = self.line_without(chosen);
        let from = (line.first..=chosen.first).rev();
        let called = from.filter(|&first| self.called(line, first) == Some(first));
        let by_call = |first| Chosen { first, end: line.end, jump: Jump::Call, ..chosen.clone() };
        called.map(by_call).find(fits)
    }

    /// Line around a patch, up to others.
    fn line_without(&self, chosen: &Chosen) -> Line {
        let mut line = Line { first: chosen.first, end: chosen.end };
        while self.continues(line.first) && self.is_displaceable(line.first - 1) {
            line.first -= 1;
        }
        while self.continues(line.end) && self.is_displaceable(line.end) {
            line.end += 1;
        }
        line
    }

    /// Lines without patches in the neighbourhood of an address: those that are not in loops first.
    fn spare_lines(&self, around: u64, pending: &BTreeSet<usize>) -> Vec<Line> {
        let instructions = self.flow.instructions();
        let mut lines = Vec::new();
        let mut at = 0;
        while at < instructions.len() {
            let distance = instructions[at].ip().abs_diff(around);
            if distance > 2 * NEIGHBOURHOOD || !self.is_displaceable(at) {
                at += 1;
                continue;
            }
            let line = self.line(at);
            at = line.end.max(at + 1);
            if !pending.contains(&line.first) {
                lines.push(line);
            }
        }
        let is_in_loop = |line: &Line| {
            (line.first..instructions.len()).any(|at| {
                let ends = &self.flow.successors(at);
                ends.iter().any(|&to| to <= line.first)
            })
        };
        lines.sort_by_cached_key(is_in_loop);
        lines
    }

    /// Patches without probe points that leave room in a line.
    fn spare(&self, line: Line) -> impl Iterator<Item = Chosen> {
        let body = Line { end: self.body_end(line), ..line };
        let spare = |first: usize, end: usize, jump: Jump| Chosen {
            first,
            end,
            padded: 0,
            jump,
            places: Vec::new(),
        };
        let nears = (body.first..body.end).filter_map(move |first| {
            let (_, end) = self.extend(first, first + 1, Line { first, ..body }, 2 * NEAR_JUMP);
            (self.length(first, end) >= 2 * NEAR_JUMP).then(|| spare(first, end, Jump::Near))
        });
        let calls = (body.first..body.end).filter_map(move |first| {
            let is_long = self.length(first, line.end) >= SKIPPED + NEAR_JUMP;
            let found = is_long.then(|| self.called(line, first))??;
            (found == first).then(|| spare(first, line.end, Jump::Call))
        });
        nears.chain(calls)
    }

    /// Rest of the displaced bytes that other jumps may use, if one fits.
    fn left(&self, chosen: &Chosen) -> Option<Range<u64>> {
        let range = self.range(chosen);
        let left = match chosen.jump {
            Jump::Near => range.start + NEAR_JUMP..range.end,
            Jump::Short(_) | Jump::Redirected => return None,
            Jump::Call => {
                let call = range.end - NEAR_JUMP;
                let is_skipped = call - range.start >= SKIPPED;
                is_skipped.then(|| range.start + SHORT_JUMP..call)?
            }
        };
        (left.end.saturating_sub(left.start) >= NEAR_JUMP).then_some(left)
    }

    fn range(&self, chosen: &Chosen) -> Range<u64> {
        self.start(chosen.first)..self.stop(chosen.end) + chosen.padded
    }

    fn patch(&self, chosen: &Chosen) -> Patch {
        let points = chosen.places.iter().map(|&(at, address)| self.point(at, address)).collect();
        Patch { range: self.range(chosen), jump: chosen.jump, points }
    }

    fn point(&self, at: usize, address: u64) -> Point {
        // Nothing is below the stack pointer yet where a function begins, unless control comes back there.
        let is_entry = (0..=at).all(|before| {
            before == at || self.flow.instructions()[before].mnemonic() == Mnemonic::Endbr64
        }) && !self.flow.is_named(at)
            && self.flow.predecessors(at).iter().all(|&before| before < at);
        Point {
            address,
            before: self.flow.instructions()[at].ip(),
            live: self.liveness.before(at),
            red_zone: self.red_zone && !is_entry,
        }
    }
}
