//! A small interpreter executes random code; the accesses that it makes are compared with the planned ones.

use std::collections::HashMap;

use iced_x86::{Code as Opcode, Instruction, Mnemonic, OpKind};

use super::*;

/// A generator of numbers that are the same in each run (xorshift64*).
struct CodeRandom(u64);

impl CodeRandom {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Memory whose initial contents follow from the address.
#[derive(Clone, Default)]
struct FakeMemory(HashMap<u64, u8>);

impl FakeMemory {
    fn byte(&self, address: u64) -> u8 {
        let mixed = (address ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0.get(&address).copied().unwrap_or((mixed >> 40) as u8)
    }

    fn read(&self, address: u64, size: u64) -> u64 {
        (0..size)
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(self.byte(address.wrapping_add(byte))))
    }

    fn write(&mut self, address: u64, size: u64, value: u64) {
        for byte in 0..size {
            self.0.insert(address.wrapping_add(byte), (value >> (8 * byte)) as u8);
        }
    }
}

/// Registers and memory before an instruction.
#[derive(Clone)]
struct Interpreter {
    registers: [u64; 16],
    memory: FakeMemory,
    accessed: Vec<(u64, u64, u64, u8)>,
}

fn number(register: Register) -> usize {
    register.full_register().number()
}

impl Interpreter {
    fn address(&self, instruction: &Instruction) -> u64 {
        if instruction.memory_base() == Register::RIP {
            return instruction.memory_displacement64();
        }
        let value = |register: Register, factor: u64| match register {
            Register::None => 0,
            register => self.registers[number(register)].wrapping_mul(factor),
        };
        instruction
            .memory_displacement64()
            .wrapping_add(value(instruction.memory_base(), 1))
            .wrapping_add(value(
                instruction.memory_index(),
                instruction.memory_index_scale().into(),
            ))
    }

    fn access(&mut self, instruction: &Instruction, address: u64, size: u64, flags: u8) {
        self.accessed.push((instruction.ip(), address, size, flags));
    }

    fn read(&mut self, instruction: &Instruction, operand: u32, size: u64) -> u64 {
        let mask = u64::MAX >> (64 - 8 * size);
        match instruction.op_kind(operand) {
            OpKind::Register => self.registers[number(instruction.op_register(operand))] & mask,
            OpKind::Memory => {
                let address = self.address(instruction);
                self.memory.read(address, size)
            }
            _ => instruction.immediate(operand) & mask,
        }
    }

    fn write(&mut self, instruction: &Instruction, size: u64, value: u64) {
        match instruction.op0_kind() {
            OpKind::Register => {
                let register = &mut self.registers[number(instruction.op0_register())];
                *register = match size {
                    8 => value,
                    4 => value & 0xffff_ffff,
                    2 => *register & !0xffff | value & 0xffff,
                    _ => *register & !0xff | value & 0xff,
                };
            }
            _ => {
                let address = self.address(instruction);
                self.memory.write(address, size, value);
            }
        }
    }

    /// Carries out one of the instructions that [`Generator`] makes.
    fn step(&mut self, instruction: &Instruction) {
        let size = match instruction.op0_kind() {
            OpKind::Register => instruction.op0_register().size() as u64,
            OpKind::Memory => instruction.memory_size().size() as u64,
            _ => 8,
        };
        let on_memory = |operand: u32| {
            instruction.op_count() > operand && instruction.op_kind(operand) == OpKind::Memory
        };
        if instruction.mnemonic() != Mnemonic::Lea && (on_memory(0) || on_memory(1)) {
            let flags = match (instruction.mnemonic(), on_memory(0)) {
                (Mnemonic::Mov, true) => W,
                (Mnemonic::Add, true) => R | W,
                (Mnemonic::Xadd | Mnemonic::Xchg, _) => R | W | AccessDescriptor::ATOMIC,
                _ => R,
            };
            let address = self.address(instruction);
            let bytes = instruction.memory_size().size() as u64;
            self.access(instruction, address, bytes, flags);
        }
        match instruction.mnemonic() {
            Mnemonic::Nop | Mnemonic::Jne | Mnemonic::Ret => {}
            Mnemonic::Mov => {
                let value = self.read(instruction, 1, size);
                self.write(instruction, size, value);
            }
            Mnemonic::Lea => {
                let address = self.address(instruction);
                self.write(instruction, size, address);
            }
            Mnemonic::Add | Mnemonic::Sub => {
                let (first, second) =
                    (self.read(instruction, 0, size), self.read(instruction, 1, size));
                let sum = match instruction.mnemonic() {
                    Mnemonic::Add => first.wrapping_add(second),
                    _ => first.wrapping_sub(second),
                };
                self.write(instruction, size, sum);
            }
            Mnemonic::Imul => {
                let product =
                    self.read(instruction, 1, size).wrapping_mul(instruction.immediate(2));
                self.write(instruction, size, product);
            }
            Mnemonic::Shl => {
                let value = self.read(instruction, 0, size);
                self.write(instruction, size, value << instruction.immediate(1));
            }
            Mnemonic::Neg => {
                let value = self.read(instruction, 0, size);
                self.write(instruction, size, value.wrapping_neg());
            }
            Mnemonic::Movsxd => {
                let value = self.read(instruction, 1, 4) as u32;
                self.write(instruction, 8, i64::from(value.cast_signed()).cast_unsigned());
            }
            Mnemonic::Movzx => {
                let value = self.read(instruction, 1, 1);
                self.write(instruction, size, value);
            }
            Mnemonic::Cdqe => {
                let value = self.registers[0] as u32;
                self.registers[0] = i64::from(value.cast_signed()).cast_unsigned();
            }
            Mnemonic::Push => {
                let value = self.read(instruction, 0, 8);
                self.registers[4] = self.registers[4].wrapping_sub(8);
                self.memory.write(self.registers[4], 8, value);
            }
            Mnemonic::Pop => {
                let value = self.memory.read(self.registers[4], 8);
                self.registers[4] = self.registers[4].wrapping_add(8);
                self.write(instruction, 8, value);
            }
            Mnemonic::Xchg | Mnemonic::Xadd => {
                let (first, second) =
                    (self.read(instruction, 0, size), self.read(instruction, 1, size));
                let other = number(instruction.op1_register());
                self.registers[other] = first;
                let new = match instruction.mnemonic() {
                    Mnemonic::Xchg => second,
                    _ => first.wrapping_add(second),
                };
                self.write(instruction, size, new);
            }
            other => panic!("{other:?} at {:#x}", instruction.ip()),
        }
    }

    /// The address that a probe would report.
    fn evaluate(&self, descriptor: &AccessDescriptor) -> u64 {
        let register = |number: u8| match number {
            NONE => 0,
            number => self.registers[usize::from(number)],
        };
        let base = if descriptor.flags & AccessDescriptor::INDIRECT == 0 {
            register(descriptor.base)
        } else {
            let place = register(descriptor.base).wrapping_add_signed(descriptor.slot.into());
            self.memory.read(place, 8)
        };
        base.wrapping_add(register(descriptor.index) << descriptor.scale)
            .wrapping_add_signed(descriptor.displacement)
    }
}

/// Makes code in which registers are copied, added, stored on the stack and used as addresses.
struct Generator {
    random: CodeRandom,
    code: Vec<u8>,
}

/// All but the stack pointer, and the frame pointer, which is set at the start.
const GENERAL: [u8; 14] = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

impl Generator {
    fn register(&mut self) -> u8 {
        self.random.pick(&GENERAL)
    }

    /// An instruction with a register or memory operand.
    fn encode(&mut self, wide: bool, opcode: &[u8], register: u8, operand: &Form) {
        let (reg, rest) = (register & 7, register >> 3 << 2);
        let w = u8::from(wide) << 3;
        match *operand {
            Form::Register(rm) => {
                self.code.push(0x40 | w | rest | rm >> 3);
                self.code.extend(opcode);
                self.code.push(0xc0 | reg << 3 | rm & 7);
            }
            Form::Memory { base, index, scale, displacement } => {
                let index = index.unwrap_or(4);
                self.code.push(0x40 | w | rest | index >> 3 << 1 | base >> 3);
                self.code.extend(opcode);
                self.code.extend([0x84 | reg << 3, scale << 6 | (index & 7) << 3 | base & 7]);
                self.code.extend(displacement.to_le_bytes());
            }
            Form::Static(displacement) => {
                self.code.push(0x40 | w | rest);
                self.code.extend(opcode);
                self.code.push(0x05 | reg << 3);
                self.code.extend(displacement.to_le_bytes());
            }
        }
    }

    fn memory(&mut self) -> Form {
        let displacement = self.random.below(64) as i32 * 4 - 128;
        let base = self.register();
        match self.random.below(12) {
            0 => Form::Static(0x4000 + displacement),
            1..3 => Form::Memory {
                base,
                index: Some(self.register()),
                scale: self.random.below(4) as u8,
                displacement,
            },
            _ => Form::Memory { base, index: None, scale: 0, displacement },
        }
    }

    fn slot(&mut self) -> Form {
        let displacement = self.random.below(10) as i32 * 4;
        match self.random.below(3) {
            0 => Form::Memory { base: RSP, index: None, scale: 0, displacement },
            _ => Form::Memory { base: RBP, index: None, scale: 0, displacement: displacement - 40 },
        }
    }

    fn any(&mut self) -> Form {
        match self.random.below(5) {
            0 => Form::Register(self.register()),
            1 | 2 => self.slot(),
            _ => self.memory(),
        }
    }

    fn instruction(&mut self, escapes: bool) {
        let register = self.register();
        let wide = self.random.below(3) > 0;
        match self.random.below(23) {
            0..3 => {
                let slot = self.slot();
                self.encode(true, &[0x8b], register, &slot);
            }
            3..5 => {
                let slot = self.slot();
                self.encode(wide, &[0x89], register, &slot);
            }
            5..8 => {
                let form = self.memory();
                self.encode(wide, &[0x8b], register, &form);
            }
            8..10 => {
                let form = self.memory();
                self.encode(wide, &[0x89], register, &form);
            }
            10 => {
                let form = self.any();
                self.encode(true, &[0x63], register, &form);
            }
            11 => {
                let form = self.any();
                self.encode(wide, &[0x0f, 0xb6], register, &form);
            }
            12 => {
                let opcode = self.random.pick(&[0x01, 0x03, 0x2b]);
                let form = self.any();
                self.encode(wide, &[opcode], register, &form);
            }
            13 => {
                let form = match self.random.below(6) {
                    0 if escapes => self.slot(),
                    _ => self.memory(),
                };
                self.encode(wide, &[0x8d], register, &form);
            }
            14 => {
                let other = Form::Register(self.register());
                self.encode(wide, &[0x8b], register, &other);
            }
            15 => {
                let other = Form::Register(self.register());
                self.encode(wide, &[0x6b], register, &other);
                let factor = self.random.pick(&[2, 3, 8, 0xff]);
                self.code.push(factor);
            }
            16 => {
                self.encode(wide, &[0xc1], 4, &Form::Register(register));
                let count = self.random.below(4) as u8;
                self.code.push(count);
            }
            17 => {
                self.encode(wide, &[0x83], 0, &Form::Register(register));
                let addend = self.random.next() as u8;
                self.code.push(addend);
            }
            18 => {
                // A push and a pop, with something between them.
                self.code.extend([0x41, 0x50 | register & 7]);
                if self.random.below(2) == 0 {
                    let form = self.memory();
                    self.encode(wide, &[0x8b], register, &form);
                }
                let other = self.register();
                self.code.extend([0x40 | other >> 3, 0x58 | other & 7]);
            }
            19 => match self.random.below(4) {
                0 => self.code.extend([0x75, 0]),
                1 => self.code.extend([0x48, 0x98]),
                2 => {
                    let other = Form::Register(self.register());
                    self.encode(true, &[0x87], register, &other);
                }
                _ => self.encode(wide, &[0xf7], 3, &Form::Register(register)),
            },
            20 => {
                let form = self.memory();
                match self.random.below(3) {
                    0 => self.encode(wide, &[0x87], register, &form),
                    1 => {
                        self.code.push(0xf0);
                        self.encode(wide, &[0x0f, 0xc1], register, &form);
                    }
                    _ => self.encode(wide, &[0x01], register, &form),
                }
            }
            21 => {
                let form = self.slot();
                self.encode(true, &[0xc7], 0, &form);
                let value = self.random.next() as u32;
                self.code.extend(value.to_le_bytes());
            }
            _ => self.code.push(0x90),
        }
    }
}

enum Form {
    Register(u8),
    Memory { base: u8, index: Option<u8>, scale: u8, displacement: i32 },
    Static(i32),
}

/// Some code, and whether pointers to its stack are made.
fn generate(seed: u64) -> (Vec<u8>, bool) {
    let mut generator = Generator { random: CodeRandom(seed | 1 << 40), code: Vec::new() };
    // push rbp; mov rbp,rsp; sub rsp,40
    generator.code.extend([0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 40]);
    let escapes = generator.random.below(2) == 0;
    let length = 4 + generator.random.below(36);
    for _ in 0..length {
        generator.instruction(escapes);
    }
    // mov rsp,rbp; pop rbp; ret
    generator.code.extend([0x48, 0x89, 0xec, 0x5d, 0xc3]);
    (generator.code, escapes)
}

#[test]
fn what_is_planned_is_what_happens() {
    let mut totals = Coverage::default();
    let mut indirect = 0;
    for seed in 1..=4000_u64 {
        let (code, escapes) = generate(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let instructions: Vec<Instruction> = decode(&code, START).collect();
        let mut random = CodeRandom(seed << 20 | 5);
        let mut machine = Interpreter {
            registers: std::array::from_fn(|_| random.next() << 7),
            memory: FakeMemory::default(),
            accessed: Vec::new(),
        };
        machine.registers[4] = 0x7fff_0000_1000;
        let mut before: HashMap<u64, Interpreter> = HashMap::new();
        for instruction in &instructions {
            assert!(!instruction.is_invalid(), "seed {seed}");
            before.insert(instruction.ip(), machine.clone());
            let stack_pointer = machine.registers[4];
            machine.step(instruction);
            // Probes in the process write there, as do handlers of signals.
            for given_back in stack_pointer..machine.registers[4].max(stack_pointer) {
                machine.memory.write(given_back, 1, 0xa5);
            }
        }
        let options = AccessOptions { single_step: seed % 2 == 0, ..CHEAP };
        let AccessProbes { points, coverage, .. } =
            access_probes(&[Part { start: START, code: &code }], &|_| false, options);
        totals.add(&coverage);
        let mut reported = Vec::new();
        for point in &points {
            for plan in &point.accesses {
                let descriptor = plan.descriptor;
                let address = before[&point.at].evaluate(&descriptor);
                indirect += u64::from(descriptor.flags & AccessDescriptor::INDIRECT != 0);
                let flags = descriptor.flags & !AccessDescriptor::INDIRECT;
                reported.push((plan.instruction, address, u64::from(descriptor.size), flags));
                between(seed, &instructions, point.at, plan);
            }
        }
        let count = reported.len();
        assert_eq!(count as u64, coverage.reported());
        reported.sort_unstable();
        reported.dedup();
        assert_eq!(reported.len(), count, "seed {seed}: each is reported once");
        for access in &reported {
            assert!(machine.accessed.contains(access), "seed {seed}: {access:x?}");
        }
        // Where no sum is made of a pointer to the stack, what is counted as on the stack is there.
        let off_stack = |access: &&(u64, u64, u64, u8)| access.1.abs_diff(0x7fff_0000_1000) > 4096;
        let shared = machine.accessed.iter().filter(off_stack).count() as u64;
        assert!(escapes || shared == coverage.accesses(), "seed {seed}");
    }
    println!("{totals:?}, {indirect} indirect");
    assert!(indirect > 500 && totals.emulated > 5000 && totals.single_stepped > 2000);
}

/// Checks that an access is reported in its own line of code, and after it when it is atomic; an exchange that
/// takes a probe may have it itself.
fn between(seed: u64, instructions: &[Instruction], at: u64, plan: &PlannedAccess) {
    let position = |address: u64| {
        instructions.iter().position(|instruction| instruction.ip() == address).unwrap()
    };
    let (point, access) = (position(at), position(plan.instruction));
    let ends = |index: usize| instructions[index].mnemonic() == Mnemonic::Jne;
    let divides = |index: usize| operands::is_locked(&instructions[index]);
    let crossed = if point == access {
        instructions[access].has_lock_prefix()
    } else if point > access {
        (access..point).any(ends) || (access + 1..=point).any(divides)
    } else {
        (point..access).any(ends) || (point..=access).any(divides)
    };
    assert!(!crossed, "seed {seed}: {at:#x} for {plan:x?}");
    assert_ne!(instructions[point].code(), Opcode::Retnq);
}
