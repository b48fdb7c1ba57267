//! Sites in the rings. There the site says of which kind a record is, while in a plan the probes of a function may have
//! one site and make records of two kinds.

use abi::{Cookie, Kind, PlanNumber, SiteId};
use inline::{encoding::RecordSite, sites::SiteTable};

/// Bit of a site's number that distinguishes the second kind of records of a site from the first one.
const SECOND_KIND: u32 = 1 << 19;

/// Returns the site of a plan that a site in the rings stands for. A child that was forked has the probes of its
/// parent's plan, and a plan of its own.
pub(super) const fn site_of_plan(site: SiteId, plan: PlanNumber) -> SiteId {
    SiteId::new(plan, site.number() & !SECOND_KIND)
}

/// Adds the site of a probe, by the probe's cookie and place. Returns the cookie with the site as it is in the rings;
/// `None` where there are too many sites, or kinds of one.
pub(super) fn add(sites: &mut SiteTable, cookie: Cookie, point: u64) -> Option<Cookie> {
    let (plan, number) = (cookie.site().plan(), cookie.site().number());
    let kind = Kind::from_number(cookie.kind())?;
    let is_free = |number: &u32| {
        let known = sites.get(SiteId::new(plan, *number));
        known.is_none_or(|known| known.kind == kind)
    };
    let number = [number, number | SECOND_KIND].into_iter().find(is_free)?;
    if cookie.site().number() >= SECOND_KIND {
        return None;
    }
    let id = SiteId::new(plan, number);
    sites.add(id, RecordSite { kind, point });
    let upper = cookie.0 >> 32 << 32;
    Some(Cookie(upper | u64::from(id.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kinds_of_a_site_are_distinguished_in_the_rings() {
        let mut sites = SiteTable::default();
        let cookie = |kind| Cookie::new(kind, 7).with_plan(PlanNumber(3));
        let arrive = add(&mut sites, cookie(Kind::Arrive), 1).expect("room");
        let depart = add(&mut sites, cookie(Kind::Depart), 2).expect("room");
        assert_eq!(add(&mut sites, cookie(Kind::Depart), 3), Some(depart));
        assert_eq!(add(&mut sites, cookie(Kind::Signal), 4), None);
        assert_ne!(arrive.site(), depart.site());
        for (cookie, kind) in [(arrive, Kind::Arrive), (depart, Kind::Depart)] {
            let of_plan = |plan| site_of_plan(cookie.site(), PlanNumber(plan));
            assert_eq!(of_plan(3), SiteId::new(PlanNumber(3), 7));
            assert_eq!(of_plan(4), SiteId::new(PlanNumber(4), 7), "of a child");
            assert_eq!(sites.get(cookie.site()).map(|site| site.kind), Some(kind));
            assert_eq!(cookie.kind(), kind as u32);
        }
    }
}
