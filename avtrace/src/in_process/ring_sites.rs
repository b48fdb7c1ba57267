//! Sites in the rings. There the site says of which kind a record is, while in a plan the probes of a function may have
//! one site and make records of two kinds.

use abi::{Cookie, Kind, SiteId};
use inline::{encoding::RecordSite, sites::SiteTable};

/// Bit of a site's number that distinguishes the second kind of records of a site from the first one.
const SECOND_KIND: u32 = 1 << 19;

/// Returns the site of the plan that a site in the rings stands for.
pub(super) const fn site_of_plan(site: SiteId) -> SiteId {
    if site.0 == SiteId::NONE.0 {
        return site;
    }
    SiteId::new(site.plan(), site.number() & !SECOND_KIND)
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
    sites.add(number, RecordSite { kind, point });
    let upper = cookie.0 >> 32 << 32;
    Some(Cookie(upper | u64::from(SiteId::new(plan, number).0)))
}

#[cfg(test)]
mod tests {
    use abi::PlanNumber;

    use super::*;

    #[test]
    fn two_kinds_of_a_site_are_distinguished_in_the_rings() {
        let mut sites = SiteTable::new(PlanNumber(3));
        let cookie = |kind| Cookie::new(kind, 7).with_plan(PlanNumber(3));
        let arrive = add(&mut sites, cookie(Kind::Arrive), 1).expect("room");
        let depart = add(&mut sites, cookie(Kind::Depart), 2).expect("room");
        assert_eq!(add(&mut sites, cookie(Kind::Depart), 3), Some(depart));
        assert_eq!(add(&mut sites, cookie(Kind::Signal), 4), None);
        assert_ne!(arrive.site(), depart.site());
        for (cookie, kind) in [(arrive, Kind::Arrive), (depart, Kind::Depart)] {
            assert_eq!(site_of_plan(cookie.site()), SiteId::new(PlanNumber(3), 7));
            assert_eq!(sites.get(cookie.site()).map(|site| site.kind), Some(kind));
            assert_eq!(cookie.kind(), kind as u32);
        }
    }
}
