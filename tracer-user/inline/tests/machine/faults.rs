//! Values of accesses to memory that cannot be read, or only up to the end of a page.

use std::ptr;

use super::{
    signals::handled_faults,
    support::{Machine, registers},
};
use abi::{AccessDescriptor, AccessRecord, Cookie, Kind, Operand, ProbeProgram};
use inline::{
    layout::{Clock, Mode},
    trampoline::{Point, Probe},
};
use x86::patching::Live;

const PAGE: usize = 4096;

#[test]
fn a_value_that_cannot_be_read_is_left_out() {
    let mut machine = Machine::new(16, Clock::Tsc);
    // SAFETY: a new mapping, of which the second page may not be accessed.
    let memory = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(at.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
        std::slice::from_raw_parts_mut(at.cast::<u8>(), PAGE).fill(0x5a);
        at as u64
    };
    let end = memory + PAGE as u64;
    let value = |machine: &mut Machine, address: u64, size: u16| {
        let none = Operand::NONE as u8;
        let descriptor = AccessDescriptor {
            size,
            flags: AccessDescriptor::WRITE,
            base: 3,
            index: none,
            rounds: none,
            ..AccessDescriptor::default()
        };
        let cookie = Cookie::new(Kind::Access, 3);
        let probe =
            Probe { program: ProbeProgram::Access, cookie, access: Some(descriptor), group: None };
        machine.reset();
        let before = machine.program();
        let exit = machine.exit().wrapping_sub(before + 11) as i32;
        machine
            .load(&[&[0x4d, 0x89, 0xc8, 0x4d, 0x89, 0xc1, 0xe9], &exit.to_le_bytes()[..]].concat());
        let probes = vec![probe];
        machine.patch(0, 6, &[Point { before, live: Live::ALL, red_zone: true, probes }]);
        let mut start = registers(machine, 5);
        start.general[3] = address;
        machine.block().epoch += 1;
        let faults = handled_faults();
        assert_eq!(machine.run(&start).general[3], address);
        let slots = machine.take();
        assert_eq!((slots.len(), slots[0].argument), (1, address));
        let has_value = slots[0].frames[0] as u32 & AccessRecord::HAS_VALUE != 0;
        let unused = 64 - 8 * u32::from(size.min(8));
        let value = has_value.then_some(slots[0].extra << unused >> unused);
        (value, handled_faults() - faults)
    };
    assert_eq!(value(&mut machine, end - 4, 4), (Some(0x5a5a_5a5a), 0));
    assert_eq!(value(&mut machine, end - 12, 8), (Some(0x5a5a_5a5a_5a5a_5a5a), 0));
    assert_eq!(value(&mut machine, end - 3, 2), (Some(0x5a5a), 0));
    assert_eq!(value(&mut machine, end - 4, 8), (None, 0), "it may be on the next page");
    assert_eq!(value(&mut machine, end + 8, 4), (None, 1));
    assert_eq!(value(&mut machine, end + 4, 8), (None, 1));
    assert_eq!(value(&mut machine, memory, 16), (None, 0), "too large");
    machine.block().mode = Mode::Muted as u64;
    assert_eq!(value(&mut machine, end + 16, 4), (None, 0), "nobody handles the fault");
}
