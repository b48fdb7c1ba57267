//! The command line of `cache`.

use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  avtrace cache                           its place, its size, and its entries
  avtrace cache clear                     remove all entries

The analysis of a program and its libraries is stored in XDG_CACHE_HOME/avtrace, or else ~/.cache/avtrace, and is used \
again while the files, the options and avtrace stay the same. Under sudo, root's own folder is used. Where there is too \
much, the entry with the oldest use is removed. --no-cache runs without it.

Exit status: 0, 1 when avtrace failed or there can be no cache, 2 for bad usage.";

/// The arguments of `cache`, which by itself describes the cache.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CacheArgs {
    /// The action; by default, the cache is described.
    #[command(subcommand)]
    pub action: Option<CacheAction>,
}

/// Actions on the cache, by their names on the command line.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum CacheAction {
    /// Remove all entries.
    Clear,
}
