//! A step of building a plan, and the state that lasts from step to step.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};
use symbolize::{Module, Symbolizer};
use x86::placement::PlaceRules;

use super::Wanted;
use crate::{focus::Focus, sync::lock_code::LockCode};

/// State of the builder that lasts from the first step to later ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BuilderState {
    /// Regions and functions that the plan is limited to.
    #[serde(skip)]
    pub(crate) focus: Option<Arc<Focus>>,
    /// Set if functions are regions by default.
    pub(crate) by_default: bool,
    /// Set if the program's own code gets no probes.
    pub(crate) leaves_program: bool,
    /// Rules of the back end for the places of probes.
    #[serde(skip)]
    pub(crate) place_rules: PlaceRules,
    /// Set if there are regions, so that non-local exits matter.
    pub(crate) has_regions: bool,
    /// Set if memory accesses are seen.
    pub(crate) sees_memory: bool,
    /// Locks that the program makes itself, by the file names of its modules. A step uses the locks of its modules.
    #[serde(skip)]
    pub(crate) lock_code: Arc<HashMap<String, LockCode>>,
}

/// A step of building a plan: modules that are planned together.
#[derive(Clone, Copy)]
pub(crate) struct PlanStep<'step> {
    pub(crate) symbolizer: &'step Symbolizer,
    pub(crate) pid: u32,
    pub(crate) wanted: Wanted<'step>,
    /// Indices of the modules.
    pub(crate) which: &'step [usize],
    /// Set if these are all modules, with the program; unset for modules that were loaded later.
    pub(crate) first: bool,
}

impl<'step> PlanStep<'step> {
    pub(crate) fn modules(self) -> impl Iterator<Item = &'step Module> {
        self.which.iter().filter_map(move |&index| self.symbolizer.modules().nth(index))
    }
}
