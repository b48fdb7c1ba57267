//! Effects of calls: which functions make their callers take a lock, release one, or wait. An effect comes from a name
//! and is passed on to callers by rules.

use symbolize::{LinkAddr, Name};
use x86::{
    call_graph::{CallFacts, Callee, DirectCall},
    functions::Functions,
};

use super::known_names::Property;

pub(super) struct Effect<'rules> {
    property: Property<'rules>,
    /// For each own function that passes it on to its callers, where it comes from.
    own: Vec<Option<EffectSource>>,
    /// Set if calls in seldom executed code count.
    with_cold: bool,
}

/// Origin of an effect that a function passes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EffectSource {
    /// Name of the function that has the effect of itself.
    pub(super) name: String,
    /// Number of functions that have passed it on, without library functions.
    pub(super) levels: u32,
}

/// Reach of an effect through calls.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    /// Set if calls on cold paths count.
    pub(super) with_cold: bool,
    /// Maximum number of levels through which the effect is passed on.
    pub(super) max_levels: u32,
}

/// Relation of a function to the effects of its callees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passes {
    /// Its callers have them, too.
    On,
    /// Its callers have them, too, and the function counts as a level.
    OnAsLevel,
    /// Its callers do not have them.
    Nothing,
}

impl<'rules> Effect<'rules> {
    /// Finds the functions with an effect: by name, and those in `known`. Each function passes it on as `passes` says,
    /// through at most `max_levels`.
    pub(super) fn analyze(
        property: Property<'rules>,
        functions: &Functions,
        facts: &[CallFacts],
        Reach { with_cold, max_levels }: Reach,
        known: &[(usize, String)],
        passes: impl Fn(usize, &Name) -> Passes,
    ) -> Self {
        let source = |name: &str| EffectSource { name: name.to_owned(), levels: 0 };
        let mut own: Vec<Option<EffectSource>> = functions
            .iter()
            .map(|function| property.is_of(function).then(|| source(&function.name.short)))
            .collect();
        for (function, name) in known {
            own[*function] = Some(source(name));
        }
        let mut effect = Self { property, own, with_cold };
        let passing: Vec<(usize, u32)> = functions
            .iter()
            .enumerate()
            .filter_map(|(index, function)| match passes(index, &function.name) {
                Passes::On => Some((index, 0)),
                Passes::OnAsLevel => Some((index, 1)),
                Passes::Nothing => None,
            })
            .collect();
        loop {
            let mut changed = false;
            for &(index, level) in &passing {
                if effect.own[index].is_none()
                    && let Some((source, _)) = effect.call_with(&facts[index], true)
                    && source.levels + level <= max_levels
                {
                    effect.own[index] =
                        Some(EffectSource { levels: source.levels + level, ..source });
                    changed = true;
                }
            }
            if !changed {
                return effect;
            }
        }
    }

    /// Returns true if a call of this function has the effect.
    pub(super) fn is_passed_on_by(&self, function: usize) -> bool {
        self.own.get(function).is_some_and(Option::is_some)
    }

    /// Returns true if a function has the effect, also by a tail call.
    pub(super) fn has(&self, facts: &CallFacts) -> bool {
        self.call_with(facts, true).is_some()
    }

    /// Returns a call with the effect: where the effect comes from, and where the call is.
    pub(super) fn call_with(
        &self,
        facts: &CallFacts,
        tail_calls: bool,
    ) -> Option<(EffectSource, LinkAddr)> {
        let mut calls = facts.calls.iter().filter(|call| call.returns || tail_calls);
        calls.find_map(|call| Some((self.of(call)?, call.at)))
    }

    /// Returns the origin of the effect of a call.
    pub(super) fn of(&self, call: &DirectCall) -> Option<EffectSource> {
        if call.is_cold && !self.with_cold {
            return None;
        }
        match &call.callee {
            Callee::Own(index) => self.own.get(*index)?.clone(),
            Callee::Import(callee) => self
                .property
                .is_of_import(callee)
                .then(|| EffectSource { name: callee.name.clone(), levels: 0 }),
        }
    }
}
