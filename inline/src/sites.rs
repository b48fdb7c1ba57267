//! Table of the sites whose records are in the rings.

use abi::{PlanNumber, SiteId};

use crate::encoding::RecordSite;

/// Sites of the plan of one process, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct SiteTable {
    plan: PlanNumber,
    sites: Vec<Option<RecordSite>>,
}

impl SiteTable {
    /// Table of a plan, without sites.
    #[must_use]
    pub const fn new(plan: PlanNumber) -> Self {
        Self { plan, sites: Vec::new() }
    }

    /// Adds a site, before a probe of it can record anything. One site has one probe point, or several of a kind whose
    /// records have no [`RecordSite::point`].
    pub fn add(&mut self, number: u32, site: RecordSite) {
        let index = number as usize;
        if self.sites.len() <= index {
            self.sites.resize(index + 1, None);
        }
        self.sites[index] = Some(site);
    }

    /// Returns the site with this id.
    #[must_use]
    #[inline]
    pub fn get(&self, id: SiteId) -> Option<&RecordSite> {
        if id.plan() != self.plan {
            return None;
        }
        self.sites.get(id.number() as usize)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use abi::Kind;

    use super::*;

    #[test]
    fn a_site_of_another_plan_is_unknown() {
        let mut table = SiteTable::new(PlanNumber(2));
        let site = RecordSite { kind: Kind::Begin, point: 0x1000 };
        table.add(5, site);
        assert_eq!(table.get(SiteId::new(PlanNumber(2), 5)), Some(&site));
        assert_eq!(table.get(SiteId::new(PlanNumber(2), 4)), None);
        assert_eq!(table.get(SiteId::new(PlanNumber(2), 6)), None);
        assert_eq!(table.get(SiteId::new(PlanNumber(1), 5)), None);
        assert_eq!(table.get(crate::encoding::CONTINUATION), None);
    }
}
