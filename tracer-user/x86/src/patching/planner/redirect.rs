//! Lines that are too short for any jump: all instructions from which control comes to one are displaced, so that their
//! trampolines can lead to its trampoline.

use std::collections::BTreeSet;

use iced_x86::FlowControl;

use super::{Chosen, Jump, Line, PatchPlace, Planner, is_call};

impl Planner<'_> {
    /// Displaces all ways to a line. Returns false, without a change, where that is impossible.
    pub(super) fn redirect(&mut self, line: Line, places: &[PatchPlace]) -> bool {
        let (_, end) = Self::needed(line, places);
        if (line.first..end).any(|at| self.is_displaced(at)) {
            return self.is_added(places);
        }
        let padding = self.padding.clone();
        let chosen = self.chosen.clone();
        let (redirected, renewed) = (self.redirected.len(), self.renewed.len());
        let is_done = self.redirect_line(Line { end, ..line }, places, &mut Vec::new());
        if !is_done {
            *self.padding = padding;
            self.chosen = chosen;
            self.redirected.truncate(redirected);
            self.renewed.truncate(renewed);
        }
        is_done
    }

    /// Adds points to a patch that has displaced their instructions as the way to another line.
    fn is_added(&mut self, places: &[PatchPlace]) -> bool {
        let has_all = |chosen: &&mut Chosen| {
            places.iter().all(|place| (chosen.first..chosen.end).contains(&place.0))
        };
        let found = self.chosen.iter_mut().chain(&mut self.redirected).find(has_all);
        let Some(found) = found else { return false };
        found.places.extend(places);
        found.places.sort_unstable();
        true
    }

    /// Displaces all ways to a line from its start. `open` has the lines for which this is being done.
    fn redirect_line(&mut self, line: Line, places: &[PatchPlace], open: &mut Vec<usize>) -> bool {
        // Each trampoline needs the addresses of those that it leads to.
        if open.contains(&line.first) || !self.is_entered_from_inside(line.first) {
            return false;
        }
        open.push(line.first);
        let flow = self.flow;
        let are_displaced =
            flow.predecessors(line.first).iter().all(|&from| self.displace_exit(from, open));
        open.pop();
        if are_displaced {
            let Line { first, end } = line;
            let jump = Jump::Redirected;
            let chosen = Chosen { first, end, padded: 0, jump, places: places.to_vec() };
            self.padding.displace(&self.range(&chosen));
            self.redirected.push(chosen);
        }
        are_displaced
    }

    /// Returns whether all ways to an instruction are known, and lead there from other instructions of the function.
    fn is_entered_from_inside(&self, at: usize) -> bool {
        let address = self.start(at);
        let is_entry = self.function.parts.iter().any(|part| part.start == address);
        !is_entry
            && !self.flow.is_named(at)
            && !(self.function.is_target)(address)
            && !self.flow.predecessors(at).is_empty()
    }

    /// Has an instruction displaced, with as much around it as that needs.
    fn displace_exit(&mut self, from: usize, open: &mut Vec<usize>) -> bool {
        let leads_on = matches!(
            self.flow.instructions()[from].flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        let is_inside = |chosen: &Chosen| (chosen.first..chosen.end).contains(&from);
        if self.chosen.iter().chain(&self.redirected).any(is_inside) {
            return leads_on;
        }
        if let Some(known) = self.padding.patch_around(self.start(from)).filter(|_| leads_on) {
            let known = known.clone();
            self.renewed.push(known);
            return true;
        }
        if !leads_on || !self.is_displaceable(from) || is_call(&self.flow.instructions()[from]) {
            return false;
        }
        let line = self.line(from);
        let place = [(from, self.start(from))];
        if let Some(chosen) = self.straight(line, &place) {
            for one in chosen {
                self.padding.displace(&self.range(&one));
                self.left(&one).into_iter().for_each(|left| self.padding.add_left(left));
                self.chosen.push(Chosen { places: Vec::new(), ..one });
            }
            return true;
        }
        if self.lengthen_to(from) {
            return true;
        }
        // No other patch becomes longer by these bytes.
        let own = self.start(line.first)..self.stop(line.end);
        self.padding.displace(&own);
        let short = self.through(line, &place, &BTreeSet::new());
        self.padding.restore(&own);
        if let Some(chosen) = short {
            self.padding.displace(&self.range(&chosen));
            self.chosen.push(Chosen { places: Vec::new(), ..chosen });
            return true;
        }
        self.redirect_line(Line { end: from + 1, ..line }, &[], open)
    }

    /// Makes a patch of the same line long enough for another instruction.
    fn lengthen_to(&mut self, at: usize) -> bool {
        let longer = |chosen: &Chosen| {
            let line = self.line_without(chosen);
            let is_in_line = (line.first..line.end).contains(&at) && chosen.padded == 0;
            let can_grow = match chosen.jump {
                Jump::Near => chosen.end <= at || self.left(chosen).is_none(),
                Jump::Short(_) => chosen.end <= at,
                Jump::Call | Jump::Redirected => false,
            };
            let (first, end) = (chosen.first.min(at), chosen.end.max(at + 1));
            (is_in_line && can_grow).then(|| Chosen { first, end, ..chosen.clone() })
        };
        let found = self.chosen.iter().position(|chosen| longer(chosen).is_some());
        let Some((index, longer)) =
            found.and_then(|index| Some((index, longer(&self.chosen[index])?)))
        else {
            return false;
        };
        self.padding.replace(&self.range(&self.chosen[index]), &self.range(&longer));
        self.chosen[index] = longer;
        true
    }
}
