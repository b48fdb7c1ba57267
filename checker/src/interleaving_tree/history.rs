//! Linearizability of a history of operations, by searching for an order (Wing and Gong, "Testing and Verifying
//! Concurrent Objects"). Executions that make histories are elsewhere.

/// Operation of a history, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<O> {
    /// Time of the call: any numbers that order calls and returns.
    pub call: u64,
    /// Time of the return, not before the call.
    pub ret: u64,
    /// Operation with its arguments and its result.
    pub operation: O,
}

/// Returns whether the operations can be put into an order that respects returns before calls, and in which each does
/// what a sequential object does: `apply` returns the state after an operation, or `None` if that cannot have the
/// result it had. `is_final` decides on the state after all of them.
///
/// Time: exponential in the number of operations at one time, and at most 2⁶⁴ orders of 64 operations; more are not
/// searched, and the result is false.
///
/// ```
/// use checker::interleaving_tree::{Operation, is_linearizable};
///
/// // A register that holds 0: a write of 1, and a read of 1 meanwhile.
/// let history = [
///     Operation { call: 0, ret: 3, operation: (true, 1) },
///     Operation { call: 1, ret: 2, operation: (false, 1) },
/// ];
/// let apply = |state: &i32, &(writes, value): &(bool, i32)| {
///     if writes { Some(value) } else { (*state == value).then_some(value) }
/// };
/// assert!(is_linearizable(&history, &0, &apply, &|_| true));
/// let read_first = [history[1].clone(), Operation { call: 3, ret: 4, operation: (true, 1) }];
/// assert!(!is_linearizable(&read_first, &0, &apply, &|_| true));
/// ```
pub fn is_linearizable<O, S>(
    history: &[Operation<O>],
    initial: &S,
    apply: &impl Fn(&S, &O) -> Option<S>,
    is_final: &impl Fn(&S) -> bool,
) -> bool {
    history.len() <= 64 && search(history, 0, initial, apply, is_final)
}

fn search<O, S>(
    history: &[Operation<O>],
    done: u64,
    state: &S,
    apply: &impl Fn(&S, &O) -> Option<S>,
    is_final: &impl Fn(&S) -> bool,
) -> bool {
    let left = || (0..history.len()).filter(|index| done & (1 << index) == 0);
    // The next one in the order was called before any other returned.
    let Some(end) = left().map(|index| history[index].ret).min() else { return is_final(state) };
    left().filter(|&index| history[index].call <= end).any(|index| {
        apply(state, &history[index].operation)
            .is_some_and(|next| search(history, done | 1 << index, &next, apply, is_final))
    })
}
