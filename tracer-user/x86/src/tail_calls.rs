//! Functions that call by jumping, as their last step: they leave no return address, and are missing from a
//! call stack. Finds them between a call and the function that it got to, from machine code; names are looked
//! up elsewhere.

use iced_x86::FlowControl;
use symbolize::{ElfFile, LinkAddr};

use super::instruction::{decode, decode_first};
use super::{call_graph::Imports, exits};

/// Maximum number of tail calls in a row that are followed.
const MAX_TAIL_CALLS: usize = 4;

/// Returns the jumps between the call that returns to `after` and a function that synchronizes, the last one first.
///
/// If more than one jump of a function may have been taken, the function's first instruction stands for it. Empty
/// when the call is of a function that synchronizes, or is indirect. `is_sync_import` is asked for the symbol of a
/// library's function, `synchronises` for an address of this file.
#[must_use]
pub fn tail_calls(
    file: &ElfFile,
    imports: &Imports,
    after: LinkAddr,
    synchronises: &dyn Fn(LinkAddr) -> bool,
    is_sync_import: &dyn Fn(&str) -> bool,
) -> Vec<LinkAddr> {
    let mut jumps = Vec::new();
    let Some(mut called) = called_before(file, after) else { return jumps };
    while jumps.len() < MAX_TAIL_CALLS && !synchronises(called) {
        let Some(targets) = jumps_of(file, called) else { break };
        let to_library = |target: LinkAddr| {
            let import = imports.behind(file, target);
            import.is_some_and(|import| is_sync_import(&import.symbol))
        };
        let ends = |target: LinkAddr| synchronises(target) || to_library(target);
        let last: Vec<LinkAddr> = targets
            .iter()
            .filter(|jump| jump.target.is_some_and(ends))
            .map(|jump| jump.at)
            .collect();
        match (&last[..], &targets[..]) {
            (_, []) => break,
            ([jump], _) => {
                jumps.push(*jump);
                break;
            }
            ([], [Jump { at, target: Some(next) }]) => {
                jumps.push(*at);
                called = *next;
            }
            _ => {
                jumps.push(called);
                break;
            }
        }
    }
    jumps.reverse();
    jumps
}

/// A jump out of a function.
struct Jump {
    at: LinkAddr,
    target: Option<LinkAddr>,
}

/// Returns the target of the call before an address, if the instruction has it.
fn called_before(file: &ElfFile, after: LinkAddr) -> Option<LinkAddr> {
    let caller = file.function_containing(LinkAddr(after.0.checked_sub(1)?))?;
    let length = usize::try_from(after.0.checked_sub(caller.start.0)?).ok()?;
    let code = file.bytes_at(caller.start, length)?;
    let last = decode(code, caller.start.0).last()?;
    let is_call = last.flow_control() == FlowControl::Call && last.next_ip() == after.0;
    is_call.then(|| LinkAddr(last.near_branch_target()))
}

/// The jumps out of the function that starts at an address.
fn jumps_of(file: &ElfFile, start: LinkAddr) -> Option<Vec<Jump>> {
    let extent = file.function_containing(start).filter(|extent| extent.start == start)?;
    let length = usize::try_from(extent.end.0.checked_sub(start.0)?).ok()?;
    let code = file.bytes_at(start, length)?;
    let exits = exits::exits(&[exits::Part { start: start.0, code }], start.0).ok()?;
    let is_return = |address: u64| {
        let at = code.get((address - start.0) as usize..).unwrap_or_default();
        let first = decode_first(at, 0);
        first.flow_control() == FlowControl::Return
    };
    // A part that was split off as seldom executed still belongs to the function.
    let is_cold = |target: u64| {
        let part = file.function_containing(LinkAddr(target)).and_then(|extent| extent.name);
        part.is_some_and(|name| name.contains(".cold"))
    };
    let jumps = exits
        .into_iter()
        .filter(|exit| !is_return(exit.address) && !exit.target.is_some_and(is_cold))
        .map(|exit| Jump { at: LinkAddr(exit.address), target: exit.target.map(LinkAddr) });
    Some(jumps.collect())
}
