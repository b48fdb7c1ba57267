//! Symbols, lines and variables of small programs that are compiled by the tests, and of processes
//! that run them.

mod damage;
mod elf;
mod held;
mod lines;
mod process;
mod restartable;
mod returned;
mod support;
mod variables;
