//! Ids of processes in other PID namespaces. In the namespace of this process an id is a plain number.

/// Process in the numbers of the initial PID namespace, as [`Header::process`](abi::Header::process).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelPid(pub u32);

/// Process in the numbers of its own PID namespace, as the programs in the kernel compare and count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NsPid(pub u32);
