//! Numbers by which tests change what a debug build does, in its environment: slowness and failures that nothing else
//! can force.

/// Returns the number of a variable; `None` in a release build.
pub fn get(variable: &str) -> Option<u64> {
    let wanted = cfg!(debug_assertions).then(|| std::env::var(variable).ok()).flatten();
    wanted?.parse().ok()
}
