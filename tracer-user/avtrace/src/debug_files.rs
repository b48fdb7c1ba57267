//! Search for separate debug files: in the system's folders, and where `DEBUGINFOD_URLS` is set, on servers.

use std::sync::OnceLock;

use symbolize::{CacheOwner, DebugSearch, DebugServers, Opener, ServerProblem, open_regular};

use linux::{rights::Rights, user};

static SEARCH: OnceLock<DebugSearch> = OnceLock::new();

/// Returns the search of this process. Under sudo, files are opened with the rights of the user who called it, whose is
/// the cache of fetched ones, too: traces and programs of this user name them.
#[must_use]
pub fn search() -> &'static DebugSearch {
    SEARCH.get_or_init(|| {
        let owner = user::sudo_user().map(|user| {
            let (uid, gid) = user.ids();
            CacheOwner { uid, gid, home: user.home().map(ToOwned::to_owned) }
        });
        DebugSearch {
            servers: DebugServers::from_environment(owner),
            opener: opener(Rights::of_caller()),
            ..DebugSearch::default()
        }
    })
}

/// Returns the search for a traced process. Files that it names, of debug information and sources, are opened with the
/// rights that it has itself.
#[must_use]
pub fn search_for(process: u32) -> DebugSearch {
    DebugSearch { opener: opener(Rights::of_process(process)), ..search().clone() }
}

fn opener(rights: Rights) -> Opener {
    Opener::new(move |path| rights.with(|| open_regular(path)))
}

/// Returns the reason for which files were not fetched from the servers, if that failed.
#[must_use]
pub fn problem() -> Option<ServerProblem> {
    SEARCH.get()?.servers.as_ref()?.problem()
}
