//! The embedded BPF object: its bytes, its ABI version, and its programs with references to loaded maps filled
//! in. Nothing is given to the kernel here.

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    os::fd::{AsFd as _, AsRawFd as _},
};

use abi::{ABI_VERSION, symbols};
use aya::{
    Ebpf,
    maps::{Map, MapData},
};
use aya_obj::{Object, generated::bpf_insn};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use super::KernelError;

/// Gives the bytes the alignment that reading them as an ELF file wants.
#[repr(align(8))]
struct Aligned<Bytes: ?Sized>(Bytes);

static EMBEDDED: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/avtrace-bpf.o")));

/// The object as it was built.
pub static BYTES: &[u8] = &EMBEDDED.0;

/// Checks that the object speaks the ABI of this build.
///
/// # Errors
///
/// When it does not, or is damaged.
pub fn check_abi(object: &[u8]) -> Result<(), KernelError> {
    let found = abi_version(object)
        .ok_or_else(|| KernelError::Object(format!("no symbol `{}`", symbols::ABI)))?;
    if found != ABI_VERSION {
        return Err(KernelError::Abi { found, expected: ABI_VERSION });
    }
    Ok(())
}

fn abi_version(object: &[u8]) -> Option<u32> {
    let object = object::File::parse(object).ok()?;
    let symbol = object.symbols().find(|symbol| symbol.name() == Ok(symbols::ABI))?;
    let section = object.section_by_index(symbol.section_index()?).ok()?;
    let data = section.data().ok()?;
    let bytes = data.get(usize::try_from(symbol.address()).ok()?..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// A program, ready to be loaded.
#[derive(Debug)]
pub struct Relocated {
    /// Instructions.
    pub instructions: Vec<bpf_insn>,
    /// Licence, in the kernel's form.
    pub license: CString,
}

/// All programs of the object, with references to the maps that aya has created filled in.
///
/// # Errors
///
/// When the object is damaged.
pub fn relocated(loaded: &Ebpf) -> Result<HashMap<String, Relocated>, Box<dyn std::error::Error>> {
    let mut object = Object::parse(BYTES)?;
    let sections: HashSet<usize> =
        object.functions.keys().map(|(section, _address)| *section).collect();
    let maps = object.maps.clone();
    let descriptors = maps.iter().filter_map(|(name, map)| {
        let data = loaded.map(name).and_then(map_data)?;
        Some((name.as_str(), data.fd().as_fd().as_raw_fd(), map))
    });
    object.relocate_maps(descriptors, &sections)?;
    object.relocate_calls(&sections)?;
    let mut programs = HashMap::new();
    for (name, program) in &object.programs {
        if let Some(function) = object.functions.get(&program.function_key()) {
            let instructions = function.instructions.clone();
            programs
                .insert(name.clone(), Relocated { instructions, license: program.license.clone() });
        }
    }
    Ok(programs)
}

/// The data of the kinds of maps that the programs have.
const fn map_data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerfEventArray(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_object_speaks_this_abi() {
        check_abi(BYTES).unwrap();
    }

    #[test]
    fn damaged_objects_are_refused() {
        assert!(matches!(check_abi(b""), Err(KernelError::Object(_))));
        assert!(matches!(check_abi(&BYTES[..BYTES.len() / 2]), Err(KernelError::Object(_))));
    }

    /// Returns the most bytes of stack that a function of the program uses, rounded as the kernel does it.
    fn stack_bytes(program: &str) -> i32 {
        let mut object = Object::parse(BYTES).unwrap();
        let sections = object.functions.keys().map(|(section, _address)| *section).collect();
        object.relocate_calls(&sections).unwrap();
        let program = object.programs.get(program).unwrap();
        let instructions = &object.functions[&program.function_key()].instructions;
        let frame = 10;
        let mut copies: Vec<u8> = Vec::new();
        let mut most = 0;
        for instruction in instructions {
            let (to, from) = (instruction.dst_reg(), instruction.src_reg());
            // Class 2 is a store of a number, 1 a load, 3 a store of a register; 7 is arithmetics with 64 bits.
            let below = match instruction.code {
                // A copy of the frame pointer, to which a number is added.
                0xbf if from == frame => {
                    copies.push(to);
                    0
                }
                0x07 if copies.contains(&to) => {
                    copies.retain(|copy| *copy != to);
                    -instruction.imm
                }
                code if code & 7 == 1 && from == frame => -i32::from(instruction.off),
                code if matches!(code & 7, 2 | 3) && to == frame => -i32::from(instruction.off),
                _ => 0,
            };
            most = most.max(below);
        }
        assert!(copies.is_empty(), "addresses on the stack that are not understood");
        (most + 15) / 16 * 16
    }

    /// Programs that sleep have no stack that is the processor's: other threads, which run there meanwhile, would
    /// overwrite it, and the kernel would kill the threads of the traced program.
    #[test]
    fn programs_that_sleep_have_their_stack_to_themselves() {
        // `BPF_PRIV_STACK_MIN_SIZE` in `kernel/bpf/verifier.c`.
        let least_of_processor = 64;
        for program in ["delay", "delay_long"] {
            let bytes = stack_bytes(program);
            assert!((1..least_of_processor).contains(&bytes), "{program}: {bytes}");
        }
        // Others are not interrupted by threads, and need more.
        assert!(stack_bytes("access") >= least_of_processor);
    }
}
