//! Search for separate debug files: in the system's folders, and where `DEBUGINFOD_URLS` is set, on servers.

use std::sync::OnceLock;

use symbolize::{CacheOwner, DebugSearch, DebugServers, ServerProblem};

use crate::sys::user;

static SEARCH: OnceLock<DebugSearch> = OnceLock::new();

/// Returns the search of this process. Under sudo, the cache of fetched files is that of the user who called it.
#[must_use]
pub fn search() -> &'static DebugSearch {
    SEARCH.get_or_init(|| {
        let owner = user::sudo_user().map(|user| {
            let (uid, gid) = user.ids();
            CacheOwner { uid, gid, home: user.home().map(ToOwned::to_owned) }
        });
        DebugSearch { servers: DebugServers::from_environment(owner), ..DebugSearch::default() }
    })
}

/// Returns the reason for which files were not fetched from the servers, if that failed.
#[must_use]
pub fn problem() -> Option<ServerProblem> {
    SEARCH.get()?.servers.as_ref()?.problem()
}
