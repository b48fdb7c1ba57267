//! Regions in which the program died, where it did.

use checker::finding::{Findings, OpenRegion as Found};

use super::{
    super::model::{Class, OpenRegion, Subject},
    resolver::Resolver,
};

/// Returns the regions in which a program died: by a signal, or with an exit status that is an error. At any other end
/// threads are stopped in the middle of what they do without harm.
pub(super) fn regions(
    findings: &Findings,
    subject: &Subject,
    resolver: &mut Resolver<'_>,
) -> Vec<OpenRegion> {
    let open = findings.open_at_end.iter().filter(|_| subject.has_failed());
    open.map(|open| region(open, resolver)).collect()
}

fn region(open: &Found, resolver: &mut Resolver<'_>) -> OpenRegion {
    let begin = resolver.point(&open.begin).location;
    OpenRegion {
        region: resolver.known_region(open.region).name.clone(),
        class: Class::Possible,
        thread: open.begin.thread.0,
        begin,
        edge: resolver.edge(&open.edge),
        ending: None,
        hunted: None,
    }
}
