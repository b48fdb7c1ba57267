//! Plan of the perturbation of a run (`run --perturb PLAN.json`): delays at instructions, starvation of threads, and
//! random sets of processors. Parsing and limits only; `perturbing` carries them out.

use std::{fs::File, io::Read as _, path::Path};

use abi::{ALL_THREADS, DELAY_PLACES, DelayPlace, FIRST_THREAD, OTHER_THREADS};
use serde::{Deserialize, Serialize};

/// Version of the plan that this avtrace reads.
pub const VERSION: u32 = 1;

/// Most places of delays in one plan.
pub const MOST_PLACES: usize = DELAY_PLACES as usize;

/// Longest delay, and longest starvation of a thread, in nanoseconds.
pub const LONGEST_NANOSECONDS: u64 = 10_000_000_000;

/// Largest size of a plan, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Perturbation of a run, as its plan has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Perturbation {
    /// Version of the plan, [`VERSION`].
    pub version: u32,
    /// Set if the gaps of regions are observed and reported.
    #[serde(default)]
    pub observe_gaps: bool,
    /// Share of the run's time that delays, and starvation by itself, take at most: of each thread, and altogether.
    pub share: f64,
    /// Delays at instructions.
    #[serde(default)]
    pub delays: Vec<Delay>,
    /// Starvation of random threads.
    #[serde(default)]
    pub starvation: Option<Starvation>,
    /// Random sets of processors for threads.
    #[serde(default)]
    pub affinity: Option<Affinity>,
    /// Seed of whatever is random in delays.
    pub seed: u64,
}

/// Delay before an instruction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// Name in the report.
    pub id: String,
    /// Path of the file, as `/proc/PID/maps` has it.
    pub module: String,
    /// Link-time address of the instruction before which the delay takes place; before the next one where an access
    /// that comes first needs the place for its probe.
    pub address: u64,
    /// Duration.
    pub nanoseconds: u64,
    /// Most delays at this place in one program.
    pub hits: u32,
    /// Probability of a delay each time that a thread comes to the place.
    #[serde(default = "always")]
    pub probability: f64,
    /// Threads that are delayed.
    #[serde(default)]
    pub threads: DelayedThreads,
}

/// Threads that are delayed at the places of a plan. Where all are, they may keep their distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelayedThreads {
    /// Each that comes there.
    #[default]
    All,
    /// The thread that reached any of the places first.
    First,
    /// All but that one.
    Others,
}

/// Starvation: a random thread gets no processor for a while.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starvation {
    /// Seed of the choices.
    pub seed: u64,
    /// Longest starvation of a thread, in milliseconds.
    pub longest_ms: u32,
    /// Share of the run's time in which a thread is starved.
    pub share: f64,
}

/// Random sets of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Affinity {
    /// Seed of the choices.
    pub seed: u64,
}

const fn always() -> f64 {
    1.0
}

/// Reason for which a plan cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file cannot be read.
    #[error("cannot read the plan `{path}`: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// Reason.
        error: std::io::Error,
    },
    /// The file is no plan.
    #[error("the plan `{path}` is wrong: {error}; `avtrace hunt` writes plans")]
    Form {
        /// The file.
        path: String,
        /// Error, with its position.
        error: serde_json::Error,
    },
    /// A value is out of its limits.
    #[error("the plan `{path}` is wrong: {limit}")]
    Limit {
        /// The file.
        path: String,
        /// The limit.
        limit: LimitError,
    },
}

/// Value out of its limits.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LimitError {
    /// Version of another avtrace.
    #[error(
        "its version is {0}, and this avtrace reads version {VERSION}: use one avtrace for both"
    )]
    Version(u32),
    /// Larger than any plan.
    #[error("it has more than {MOST_BYTES} bytes: use fewer delays")]
    Size,
    /// Too many places.
    #[error("it has {0} delays, and at most {MOST_PLACES} are possible: use fewer")]
    Places(usize),
    /// No share.
    #[error("the share {0} of {1} is not in 0 to 1: choose one, such as 0.2")]
    Share(f64, &'static str),
    /// No probability.
    #[error("the probability {1} of the delay `{0}` is not in 0 to 1: choose one")]
    Probability(String, f64),
    /// No duration.
    #[error(
        "the delay `{0}` is of {1} ns, and 1 to {LONGEST_NANOSECONDS} are possible: choose another"
    )]
    Duration(String, u64),
    /// Two delays with one name.
    #[error("two delays have the id `{0}`: give each an id of its own")]
    SameId(String),
    /// Two delays at one place.
    #[error("the delays `{0}` and `{1}` are at the same place: leave one out")]
    SamePlace(String, String),
    /// A delay without a file.
    #[error(
        "the module `{1}` of the delay `{0}` is no absolute path: name the file as /proc/PID/maps does"
    )]
    Module(String, String),
    /// Starvation without an end.
    #[error("`longest_ms` is {0}, and 1 to 10000 are possible: choose another")]
    Longest(u32),
}

impl Perturbation {
    /// Reads a plan.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is no plan, or is out of limits.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let name = || path.display().to_string();
        let unreadable = |error| PlanError::Unreadable { path: name(), error };
        let mut text = String::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(PlanError::Limit { path: name(), limit: LimitError::Size });
        }
        let plan: Self =
            serde_json::from_str(&text).map_err(|error| PlanError::Form { path: name(), error })?;
        plan.check().map_err(|limit| PlanError::Limit { path: name(), limit })?;
        Ok(plan)
    }

    /// Returns the delays as probes have them.
    #[must_use]
    pub fn delay_table(&self) -> DelayTable {
        let place = |(number, delay): (usize, &Delay)| DelayPlace {
            nanoseconds: delay.nanoseconds,
            // The first delay is always within a share: there is to be none.
            most: if self.share > 0.0 { delay.hits.into() } else { 0 },
            chance: fraction(delay.probability),
            threads: match delay.threads {
                DelayedThreads::All => ALL_THREADS,
                DelayedThreads::First => FIRST_THREAD,
                DelayedThreads::Others => OTHER_THREADS,
            },
            seed: self.seed.wrapping_add((number as u64).wrapping_mul(abi::RANDOM[1])),
            ..DelayPlace::default()
        };
        let places = self.delays.iter().enumerate().map(place).collect();
        DelayTable { share: fraction(self.share), places }
    }

    /// Returns whether the plan is within limits.
    fn check(&self) -> Result<(), LimitError> {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        if self.version != VERSION {
            return Err(LimitError::Version(self.version));
        }
        if self.delays.len() > MOST_PLACES {
            return Err(LimitError::Places(self.delays.len()));
        }
        if !is_share(self.share) {
            return Err(LimitError::Share(self.share, "the plan"));
        }
        for (index, delay) in self.delays.iter().enumerate() {
            delay.check()?;
            for earlier in &self.delays[..index] {
                if earlier.id == delay.id {
                    return Err(LimitError::SameId(delay.id.clone()));
                }
                if (&earlier.module, earlier.address) == (&delay.module, delay.address) {
                    return Err(LimitError::SamePlace(earlier.id.clone(), delay.id.clone()));
                }
            }
        }
        if let Some(starvation) = self.starvation {
            if !is_share(starvation.share) {
                return Err(LimitError::Share(starvation.share, "`starvation`"));
            }
            let longest = starvation.longest_ms;
            if longest == 0 || u64::from(longest) * 1_000_000 > LONGEST_NANOSECONDS {
                return Err(LimitError::Longest(longest));
            }
        }
        Ok(())
    }
}

/// Delays as probes have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayTable {
    /// Share of the time that they may take, in 2⁻³².
    pub share: u64,
    /// Places, in the order of the plan.
    pub places: Vec<DelayPlace>,
}

/// Returns a number from 0 to 1 in 2⁻³².
fn fraction(number: f64) -> u64 {
    (number * 4_294_967_296.0) as u64
}

impl Delay {
    fn check(&self) -> Result<(), LimitError> {
        let id = || self.id.clone();
        if self.nanoseconds == 0 || self.nanoseconds > LONGEST_NANOSECONDS {
            return Err(LimitError::Duration(id(), self.nanoseconds));
        }
        if !(0.0..=1.0).contains(&self.probability) {
            return Err(LimitError::Probability(id(), self.probability));
        }
        if !self.module.starts_with('/') {
            return Err(LimitError::Module(id(), self.module.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn plan() -> Value {
        json!({
            "version": 1, "observe_gaps": true, "share": 0.2, "seed": 7,
            "delays": [{"id": "g3", "module": "/bin/p", "address": 4096, "nanoseconds": 2_000_000, "hits": 50,
                        "probability": 0.5}],
            "starvation": {"seed": 7, "longest_ms": 200, "share": 0.2},
            "affinity": {"seed": 7},
        })
    }

    fn parse(plan: Value) -> Result<Perturbation, String> {
        let plan: Perturbation = serde_json::from_value(plan).map_err(|error| error.to_string())?;
        plan.check().map_err(|error| error.to_string())?;
        Ok(plan)
    }

    #[test]
    fn a_plan_is_read_as_it_is_written() {
        let read = parse(plan()).unwrap();
        assert_eq!(read.delays[0].address, 4096);
        assert!((read.delays[0].probability - 0.5).abs() < 1e-9);
        assert_eq!(read.starvation.unwrap().longest_ms, 200);
        assert_eq!(read.affinity, Some(Affinity { seed: 7 }));
        let least = parse(json!({"version": 1, "share": 0.0, "seed": 1})).unwrap();
        assert!(least.delays.is_empty() && !least.observe_gaps && least.starvation.is_none());
    }

    #[test]
    fn unknown_keys_and_values_out_of_limits_are_refused() {
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut plan = plan();
            change(&mut plan);
            parse(plan).unwrap_err()
        };
        let says = |change: &dyn Fn(&mut Value), part: &str| {
            let error = changed(change);
            assert!(error.contains(part), "`{error}` has no `{part}`");
        };
        says(&|plan| plan["delay"] = json!([]), "unknown field `delay`");
        says(&|plan| plan["delays"][0]["adress"] = json!(1), "unknown field `adress`");
        says(&|plan| plan["version"] = json!(2), "version is 2");
        says(&|plan| plan["share"] = json!(1.5), "share 1.5");
        says(&|plan| plan["starvation"]["share"] = json!(-0.1), "of `starvation`");
        says(&|plan| plan["starvation"]["longest_ms"] = json!(0), "`longest_ms` is 0");
        says(
            &|plan| plan["delays"][0]["nanoseconds"] = json!(10_000_000_001_u64),
            "10000000001 ns",
        );
        says(&|plan| plan["delays"][0]["nanoseconds"] = json!(0), "of 0 ns");
        says(&|plan| plan["delays"][0]["probability"] = json!(1.01), "probability 1.01");
        says(&|plan| plan["delays"][0]["module"] = json!("p"), "no absolute path");
        says(
            &|plan| {
                let again = plan["delays"][0].clone();
                plan["delays"].as_array_mut().unwrap().push(again);
            },
            "the id `g3`",
        );
        says(
            &|plan| {
                let mut again = plan["delays"][0].clone();
                again["id"] = json!("g4");
                plan["delays"].as_array_mut().unwrap().push(again);
            },
            "the same place",
        );
        says(
            &|plan| {
                let delay = |number: usize| json!({"id": number.to_string(), "module": "/p", "address": number, "nanoseconds": 1, "hits": 1});
                plan["delays"] = (0..=MOST_PLACES).map(delay).collect();
            },
            "257 delays",
        );
    }
}
