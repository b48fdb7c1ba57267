//! Puts names on gaps of regions.

use checker::{
    event::LocationId,
    gap::{Gap, Kind, NamedGap, Remote, named},
};

use super::{
    super::model::{CodePlace, GapRegion, RegionGap},
    resolver::Resolver,
};

const MAX_GAPS: usize = 1000;

/// Limit of the places at which threads come late to one gap.
const MAX_REMOTES: usize = 8;

/// Returns the gaps, the most promising first.
pub(super) fn gaps(gaps: &[Gap], resolver: &mut Resolver<'_>) -> Vec<RegionGap> {
    resolver.names.learn_gaps(gaps);
    let found = named(gaps, resolver);
    found.iter().take(MAX_GAPS).map(|gap| resolver.gap(gap)).collect()
}

impl Resolver<'_> {
    fn gap(&mut self, NamedGap { fingerprint, gap, copies, promise, .. }: &NamedGap) -> RegionGap {
        let (left, returned) = (self.place(gap.left), self.place(gap.returned));
        let mut subjects: Vec<String> = Vec::new();
        for &object in &gap.objects {
            let name = self.names.subject(object).name;
            if !subjects.contains(&name) {
                subjects.push(name);
            }
        }
        let mut remote_regions: Vec<String> = Vec::new();
        for remote in &gap.remotes {
            let name = self.remote(remote);
            if !name.is_empty() && !remote_regions.contains(&name) {
                remote_regions.push(name);
            }
        }
        let remotes = gap.remotes.iter().filter_map(|remote| remote.region);
        let remotes_at = remotes.filter_map(|region| self.names.begin(region)).take(MAX_REMOTES);
        let remotes_at = remotes_at.collect();
        let is_call = gap.kind != Kind::Access;
        let delay_at = self.names.after(gap.left, is_call);
        let mut also_delay_at: Vec<CodePlace> = Vec::new();
        for &copy in copies {
            let place = self.names.after(copy, is_call);
            also_delay_at.extend(place.filter(|place| Some(place) != delay_at.as_ref()));
        }
        RegionGap {
            id: format!("{fingerprint:016x}"),
            kind: gap.kind,
            region: GapRegion { name: self.known_region(gap.region).name.clone() },
            left: left.location,
            left_label: left.label,
            returned: returned.location,
            returned_label: returned.label,
            delay_at,
            also_delay_at,
            subject: subjects.join(" and "),
            crossed: gap.crossed,
            cut: gap.cut,
            data: gap.data,
            other_threads: gap.other_threads as u64,
            remote_regions,
            remotes_at,
            promise: (promise * 1000.0).round() / 1000.0,
        }
    }

    /// Returns the region of a step, or else its function.
    fn remote(&mut self, &Remote { region, location }: &Remote) -> String {
        match region {
            Some(region) => self.known_region(region).name.clone(),
            None => self.function(location),
        }
    }

    fn function(&mut self, location: LocationId) -> String {
        let place = self.place(location);
        let function = place.frames.get(place.shown).and_then(|frame| frame.function.clone());
        function.unwrap_or(place.label)
    }
}
