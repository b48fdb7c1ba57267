//! Table of the sites whose records are in the rings.

use abi::{PlanNumber, SiteId};

use crate::encoding::RecordSite;

/// Sites of the plans of processes that share one file: a child that was forked has the probes of its parent's plan,
/// and more of its own.
#[derive(Clone, Debug, Default)]
pub struct SiteTable {
    /// By the numbers of plans, then by those of sites.
    plans: Vec<Vec<Option<RecordSite>>>,
}

impl SiteTable {
    /// Adds a site, before a probe of it can record anything. One site has one probe point, or several of a kind whose
    /// records have no [`RecordSite::point`].
    pub fn add(&mut self, id: SiteId, site: RecordSite) {
        let (plan, index) = (id.plan().0 as usize, id.number() as usize);
        if self.plans.len() <= plan {
            self.plans.resize(plan + 1, Vec::new());
        }
        let sites = &mut self.plans[plan];
        if sites.len() <= index {
            sites.resize(index + 1, None);
        }
        sites[index] = Some(site);
    }

    /// Forgets the sites of a plan whose number is used anew.
    pub fn forget(&mut self, plan: PlanNumber) {
        if let Some(sites) = self.plans.get_mut(plan.0 as usize) {
            sites.clear();
        }
    }

    /// Returns the site with this id.
    #[must_use]
    #[inline]
    pub fn get(&self, id: SiteId) -> Option<&RecordSite> {
        self.plans.get(id.plan().0 as usize)?.get(id.number() as usize)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use abi::Kind;

    use super::*;

    #[test]
    fn a_site_of_another_plan_is_unknown() {
        let mut table = SiteTable::default();
        let site = RecordSite { kind: Kind::Begin, point: 0x1000 };
        table.add(SiteId::new(PlanNumber(2), 5), site);
        assert_eq!(table.get(SiteId::new(PlanNumber(2), 5)), Some(&site));
        assert_eq!(table.get(SiteId::new(PlanNumber(2), 4)), None);
        assert_eq!(table.get(SiteId::new(PlanNumber(2), 6)), None);
        assert_eq!(table.get(SiteId::new(PlanNumber(1), 5)), None);
        assert_eq!(table.get(SiteId::new(PlanNumber(3), 5)), None);
        assert_eq!(table.get(crate::encoding::CONTINUATION), None);
    }

    #[test]
    fn a_plan_that_is_forgotten_has_no_sites() {
        let mut table = SiteTable::default();
        let site = RecordSite { kind: Kind::End, point: 0x1000 };
        let [one, other] = [1, 2].map(|plan| SiteId::new(PlanNumber(plan), 0));
        table.add(one, site);
        table.add(other, site);
        table.forget(PlanNumber(1));
        assert_eq!((table.get(one), table.get(other)), (None, Some(&site)));
    }
}
