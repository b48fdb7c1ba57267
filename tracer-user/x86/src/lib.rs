//! Machine code of x86-64: functions of a file, control flow, dataflow, and the operands of instructions. Independent
//! of plans, processes and the kernel side.

pub mod activity;
pub mod affine;
pub mod after_step;
pub mod basic_blocks;
pub mod call_graph;
pub mod commuting;
pub mod constants;
pub mod control_flow;
pub mod data_paths;
pub mod dataflow;
mod dead_ends;
pub mod dependence;
pub mod exits;
pub mod filled_slots;
pub mod functions;
mod indirect_jump;
pub mod inlined_extent;
pub mod instruction;
mod jump_tables;
pub mod loops;
pub mod no_return;
pub mod operands;
pub mod optimized_nops;
pub mod patching;
pub mod placement;
pub mod restartable;
pub mod shared_places;
pub mod symbolic;
pub mod tail_calls;
mod unnamed;
pub mod unused;
pub mod wait_loops;
