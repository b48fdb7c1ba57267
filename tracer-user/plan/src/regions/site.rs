//! Sites of regions: markers, places of functions that are regions, and non-local exits.

use checker::defect::RegionRole;
use serde::{Deserialize, Serialize};
use symbolize::ProcessAddr;
use x86::exits::Leaves;

use super::{
    markers::{Meaning, SharedVariable},
    non_local_exits::NonLocalExit,
};

/// Site of a region, or of a variable that a marker names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegionSite {
    /// A marker.
    Marker(Meaning),
    /// A marker of a region outside the focus, or one that ends the innermost region, which may be outside: begins and
    /// ends belong together.
    Outside(Meaning),
    /// The entry or an exit of a function that is a region.
    Function(FunctionPlace),
    /// Begins and ends of functions that were inlined.
    Inlined(InlinedRegions),
    /// A function by which control leaves frames without their returns.
    NonLocalExit(NonLocalExit),
}

impl RegionSite {
    /// Returns whether the function around the site is followed for cuts.
    #[must_use]
    pub fn is_in_followed(&self) -> bool {
        match self {
            Self::Function(FunctionPlace::Entry { followed, .. }) => *followed,
            Self::Inlined(inlined) => inlined.begins.iter().any(|begin| begin.followed),
            _ => false,
        }
    }

    /// Returns whether the function around the site is a region that makes transactions, or has one in it, of a name
    /// that is wanted.
    #[must_use]
    pub fn is_in_region(&self, is_wanted: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Self::Marker(Meaning::Begin(name) | Meaning::End(name)) => is_wanted(name),
            Self::Marker(Meaning::EndInnermost) => true,
            Self::Function(FunctionPlace::Entry { name, followed, .. }) => {
                !followed && is_wanted(name)
            }
            Self::Inlined(inlined) => {
                inlined.begins.iter().any(|begin| !begin.followed && is_wanted(&begin.name))
            }
            _ => false,
        }
    }

    /// Returns the variable that a marker names as shared.
    #[must_use]
    pub const fn shared_variable(&self) -> Option<&SharedVariable> {
        match self {
            Self::Marker(Meaning::Shared(variable)) => Some(variable),
            _ => None,
        }
    }
}

/// A place in a function that is a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FunctionPlace {
    /// Entry of the function.
    Entry {
        /// The function's number.
        function: u32,
        /// The region's name.
        name: String,
        /// Role of the function in the program.
        role: RegionRole,
        /// Set if it is only followed for cuts.
        followed: bool,
        /// Distance in bytes of the stack pointer below its value at the function's first instruction.
        lowered: u64,
    },
    /// Place where control may leave the function.
    Exit {
        /// The function's number.
        function: u32,
        /// Condition for leaving.
        leaves: Leaves,
        /// Number of the function that it jumps to the start of, if that is a region.
        into: Option<u32>,
    },
}

/// A place where functions end that were inlined, and then others begin: one may follow another at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlinedRegions {
    /// Numbers of the functions that have ended when control comes here, or end by the jump here.
    pub ends: Vec<(u32, Leaves)>,
    /// The functions that begin here, the outermost first.
    pub begins: Vec<InlinedBegin>,
}

/// Begin of a function that was inlined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlinedBegin {
    /// The function's number.
    pub function: u32,
    /// The region's name.
    pub name: String,
    /// Role of the function in the program.
    pub role: RegionRole,
    /// Set if it is only followed for cuts.
    pub followed: bool,
    /// Instructions before which it has ended, though its end comes behind them.
    pub ends_before: Vec<ProcessAddr>,
}
