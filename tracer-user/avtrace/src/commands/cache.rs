//! `avtrace cache`: describes the cache of plans, or clears it.

use super::Failure;
use crate::{
    cli::{CacheAction, CacheArgs},
    plan_cache::Folder,
};
use linux::output::{Destination, write_output};
use report::count;

pub(super) fn run(arguments: &CacheArgs) -> Result<u8, Failure> {
    let no_cache =
        |error: &dyn std::fmt::Display| Failure::internal(format!("there is no cache: {error}"));
    let folder = Folder::open().map_err(|error| no_cache(&error))?;
    let (done, of) = match arguments.action {
        None => ("", folder.size()),
        Some(CacheAction::Clear) => ("removed ", folder.clear()),
    };
    let (entries, bytes) = of.map_err(|error| no_cache(&error))?;
    let [entries, place] = [count(entries as u64, "entry"), folder.path().display().to_string()];
    let text = format!("{}: {done}{entries}, {}\n", report::printable(&place), size(bytes));
    write_output(&Destination::Stdout, text.as_bytes()).map_err(Failure::internal)?;
    Ok(0)
}

/// Returns a number of bytes in a unit for people.
fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes < MIB {
        format!("{} KiB", bytes.div_ceil(1 << 10))
    } else {
        format!("{} MiB", bytes.div_ceil(MIB))
    }
}
