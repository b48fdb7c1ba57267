//! The gate in the dynamic linker: stops the thread that has changed the list of libraries until the new ones have
//! their probes.

use std::{io, mem::offset_of, os::unix::fs::FileExt as _, sync::Arc, thread, time::Duration};

use abi::{Header, Kind, LinkerCookie, Record, SiteId, StopRecord};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use inline::{
    gate::{self, GATE, Gate, NOTED, WAITERS},
    trampoline::near_jump,
};
use symbolize::ProcessAddr;
use x86::patching::NEAR_JUMP;

use super::{image::Image, records::Stream, shared::Shared};
use linux::{proc, reader_futex};
use plan::point::ProbePoint;

/// Interval at which the watching thread looks for the end.
const LOOK: Duration = Duration::from_millis(50);

/// Places of the gate's words in the file of rings, in bytes.
const ANNOUNCED: usize = GATE.0 as usize + offset_of!(Gate, announced);
const WAITING: usize = GATE.0 as usize + offset_of!(Gate, waiting);

/// Puts the gate in place of the linker's function, and watches it.
pub(super) fn attach(
    process: u32,
    image: &Arc<Image>,
    stream: &Arc<Stream>,
    shared: &Arc<Shared>,
    point: &ProbePoint,
    ProcessAddr(address): ProcessAddr,
) -> io::Result<()> {
    let memory = proc::writable_memory(process)?;
    let mut code = [0; 2 * NEAR_JUMP as usize + 6];
    memory.read_exact_at(&mut code, address)?;
    if !is_empty_function(&code, address) {
        return Err(io::Error::other("the dynamic linker's notification is no empty function"));
    }
    let list = LinkerCookie(point.cookie).list();
    let gate = gate::emit(list, image.base()).map_err(io::Error::other)?;
    let no_room = || io::Error::other("no memory for code is within reach of the dynamic linker");
    let at = image.next_near(address).ok_or_else(no_room)?;
    let jump = near_jump(address, at).ok_or_else(no_room)?;
    if !image.write(at, &gate) {
        return Err(no_room());
    }
    image.patch(&memory, address, &jump)?;
    let (image, stream, shared) = (Arc::clone(image), Arc::clone(stream), Arc::clone(shared));
    let watch = move || watch(&image, &stream, &shared);
    thread::Builder::new().name("avtrace-gate".to_owned()).spawn(watch).map(drop)
}

/// Returns whether a function is empty, and has room for a jump up to the next one.
fn is_empty_function(code: &[u8], address: u64) -> bool {
    let mut instructions =
        Decoder::with_ip(64, code, address, DecoderOptions::NONE).into_iter().peekable();
    instructions.next_if(|first| first.mnemonic() == Mnemonic::Endbr64);
    let Some(end) = instructions.next() else { return false };
    if end.flow_control() != FlowControl::Return || end.op_count() != 0 {
        return false;
    }
    let is_filler = |instruction: &Instruction| {
        matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
    };
    let fillers = instructions.take_while(is_filler);
    let room = fillers.last().map_or(end.next_ip(), |filler| filler.next_ip()) - address;
    room >= NEAR_JUMP
}

/// Places of the ids of threads that wait.
fn waiters() -> impl Iterator<Item = usize> {
    (0..WAITERS).map(|place| WAITING + place * size_of::<u32>())
}

/// Opens the gate for all threads of a process.
pub(super) fn open_gate(image: &Image, process: u32) {
    for place in waiters() {
        let thread = reader_futex::load(&image.rings, place) & !NOTED;
        if thread != 0 && proc::group_of(thread) == Some(process) {
            // The place is in the memory.
            let _ = reader_futex::store(&image.rings, place, 0);
        }
    }
}

/// Makes a record of each change, in the thread that has announced it.
fn watch(image: &Image, stream: &Stream, shared: &Shared) {
    let mut seen = 0;
    while !stream.is_closed() {
        reader_futex::wait(&image.rings, ANNOUNCED, seen, LOOK);
        let now = reader_futex::load(&image.rings, ANNOUNCED);
        if std::mem::replace(&mut seen, now) == now {
            continue;
        }
        for place in waiters() {
            let tid = reader_futex::load(&image.rings, place);
            if tid == 0 || tid & NOTED != 0 {
                continue;
            }
            // The thread waits: nobody else writes there.
            let _ = reader_futex::store(&image.rings, place, tid | NOTED);
            let Some(process) = proc::group_of(tid) else { continue };
            let kind = Kind::Libraries;
            let header = Header { kind: kind as u32, tid, site: SiteId::NONE, lost: 0, process };
            let stop = shared.next_stop();
            stream.record(Record::Stop(kind, StopRecord { header, stop, epoch: 0 }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_function_that_does_nothing_is_replaced() {
        let is_empty = |code: &[u8]| is_empty_function(code, 0x1000);
        assert!(is_empty(&[0xc3, 0x90, 0x90, 0x90, 0x90]));
        assert!(is_empty(&[0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x55]), "endbr64; ret");
        assert!(is_empty(&[0xc3, 0x66, 0x0f, 0x1f, 0x44, 0, 0]));
        assert!(!is_empty(&[0xc3, 0x90, 0x90, 0x90, 0x55]), "no room");
        assert!(!is_empty(&[0x55, 0xc3, 0x90, 0x90, 0x90, 0x90]), "push rbp");
        assert!(!is_empty(&[0xc2, 8, 0, 0x90, 0x90, 0x90]), "ret 8");
    }
}
