//! Plans for short pieces of machine code.

mod random;
mod real;

use super::*;

const START: u64 = 0x1000;
const NONE: u8 = 31;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RSP: u8 = 4;
const RBP: u8 = 5;
const RSI: u8 = 6;
const RDI: u8 = 7;

const CHEAP: AccessOptions<'_> = AccessOptions {
    place_rules: PlaceRules::Kernel,
    single_step: false,
    word_at: &|_| None,
    is_constant: &|_| false,
    is_restartable: &|_| false,
};
const ANY: AccessOptions<'_> = AccessOptions { single_step: true, ..CHEAP };

fn plan(code: &[u8], options: AccessOptions<'_>) -> (Vec<AccessProbe>, Coverage) {
    let planned = access_probes(&[Part { start: START, code }], &|_| false, options);
    (planned.points, planned.coverage)
}

/// An access in short: the offset of the point, that of the instruction, and what is done.
fn planned(code: &[u8], options: AccessOptions<'_>) -> Vec<(u64, u64, AccessDescriptor)> {
    short(&plan(code, options).0)
}

fn short(points: &[AccessProbe]) -> Vec<(u64, u64, AccessDescriptor)> {
    let accesses = |point: &AccessProbe| {
        let at = point.at - START;
        let plans = point.accesses.clone();
        plans.into_iter().map(move |plan| (at, plan.instruction - START, plan.descriptor))
    };
    points.iter().flat_map(accesses).collect()
}

fn left_out(code: &[u8], options: AccessOptions<'_>) -> Vec<(UnprobedReason, u64)> {
    plan(code, options).1.left_out.into_iter().collect()
}

/// `size` bytes at `base + displacement`.
fn at(flags: u8, size: u16, base: u8, displacement: i64) -> AccessDescriptor {
    let none = AccessDescriptor { index: NONE, rounds: NONE, ..AccessDescriptor::default() };
    AccessDescriptor { flags, size, base, displacement, ..none }
}

const R: u8 = AccessDescriptor::READ;
const W: u8 = AccessDescriptor::WRITE;

const IN_PROCESS: AccessOptions<'_> = AccessOptions { place_rules: PlaceRules::InProcess, ..ANY };

#[test]
fn in_the_process_all_instructions_are_as_good() {
    // mov eax,[rdi]; vmovups [rsi],xmm0; mov [rdx],eax; ret
    let code = [0x8b, 7, 0xc5, 0xf8, 0x11, 6, 0x89, 2, 0xc3];
    let all = [(6, 0, at(R, 4, RDI, 0)), (6, 2, at(W, 16, RSI, 0)), (6, 6, at(W, 4, RDX, 0))];
    let (points, coverage) = plan(&code, IN_PROCESS);
    assert_eq!(short(&points), all);
    assert_eq!((points[0].cost, coverage.single_stepped), (Cost::Displaced, 0));
    // lock inc dword [rdi]; vmovaps xmm1,xmm0; ret: the kernel takes no probe behind it.
    let code = [0xf0, 0xff, 7, 0xc5, 0xf8, 0x28, 0xc8, 0xc3];
    let counted = at(R | W | AccessDescriptor::ATOMIC, 4, RDI, 0);
    assert_eq!(left_out(&code, ANY), [(UnprobedReason::Locked, 1)]);
    assert_eq!(planned(&code, IN_PROCESS), [(3, 0, counted)]);
    // lock inc dword [rdi]; ret: the result is unused.
    assert_eq!(left_out(&[0xf0, 0xff, 7, 0xc3], ANY), [(UnprobedReason::Locked, 1)]);
    assert_eq!(planned(&[0xf0, 0xff, 7, 0xc3], IN_PROCESS), [(0, 0, counted)]);
    // lock xadd [rdi],eax; ret: it returns the result, and no probe goes before what others see as one.
    assert_eq!(left_out(&[0xf0, 0x0f, 0xc1, 7, 0xc3], IN_PROCESS), [(UnprobedReason::Locked, 1)]);
    // cmp dword [rdi],0; je +0; ret
    let code = [0x83, 0x3f, 0, 0x74, 0, 0xc3];
    assert_eq!(planned(&code, IN_PROCESS), [(3, 0, at(R, 4, RDI, 0))]);
}

#[test]
fn one_jump_reports_all_that_its_registers_still_tell() {
    // mov eax,[rdi+4]; mov [rsi],al; add qword [rdx],1; jne +0; ret
    let code = [0x8b, 0x47, 4, 0x88, 6, 0x48, 0x83, 2, 1, 0x75, 0, 0xc3];
    assert_eq!(
        planned(&code, CHEAP),
        [(9, 0, at(R, 4, RDI, 4)), (9, 3, at(W, 1, RSI, 0)), (9, 5, at(R | W, 8, RDX, 0)),]
    );
    let coverage = plan(&code, CHEAP).1;
    assert_eq!((coverage.emulated, coverage.accesses(), coverage.stack), (3, 3, 1));
}

#[test]
fn a_value_is_seen_where_nothing_in_between_writes_to_its_place() {
    let seen = |code: &[u8]| -> Vec<bool> {
        let (points, _) = plan(code, CHEAP);
        let all = points.iter().flat_map(|point| &point.accesses);
        all.map(|access| access.sees_value).collect()
    };
    // mov rax, [rdi]; mov [rdi+8], rcx; je +0
    assert_eq!(seen(&[0x48, 0x8b, 0x07, 0x48, 0x89, 0x4f, 8, 0x74, 0]), [true, true]);
    // mov rax, [rdi]; mov [rdi+4], rcx; je +0: they overlap
    assert_eq!(seen(&[0x48, 0x8b, 0x07, 0x48, 0x89, 0x4f, 4, 0x74, 0]), [false, true]);
    // mov rax, [rdi]; mov [rsi], rcx; je +0: pointers may be equal
    assert_eq!(seen(&[0x48, 0x8b, 0x07, 0x48, 0x89, 0x0e, 0x74, 0]), [false, true]);
    // mov rax, [rdi]; mov rcx, [rdi]; je +0
    assert_eq!(seen(&[0x48, 0x8b, 0x07, 0x48, 0x8b, 0x0f, 0x74, 0]), [true, true]);
}

#[test]
fn a_changed_register_is_not_used() {
    // mov rdi,[rdi]; jne +0; ret
    let code = [0x48, 0x8b, 0x3f, 0x75, 0, 0xc3];
    assert_eq!(planned(&code, CHEAP), []);
    assert_eq!(left_out(&code, CHEAP), [(UnprobedReason::NoCheapPoint, 1)]);
    assert_eq!(planned(&code, ANY), [(0, 0, at(R, 8, RDI, 0))]);
    // push rbx; mov rdi,[rdi]; ret: before it, while the register is what it will be
    assert_eq!(planned(&[0x53, 0x48, 0x8b, 0x3f, 0xc3], CHEAP), [(0, 1, at(R, 8, RDI, 0))]);
    // push rbx; mov rdi,rsi; mov rax,[rdi]; ret: computed from the other
    let code = [0x53, 0x48, 0x89, 0xf7, 0x48, 0x8b, 7, 0xc3];
    assert_eq!(planned(&code, CHEAP), [(0, 4, at(R, 8, RSI, 0))]);
}

#[test]
fn a_sum_is_told_by_what_is_left_of_it() {
    // lea rax,[rdi+rsi*8+16]; mov rax,[rax+8]; jne +0; ret
    let code = [0x48, 0x8d, 0x44, 0xf7, 16, 0x48, 0x8b, 0x40, 8, 0x75, 0, 0xc3];
    let descriptor = AccessDescriptor { index: RSI, scale: 3, ..at(R, 8, RDI, 24) };
    assert_eq!(planned(&code, CHEAP), [(9, 5, descriptor)]);
    // mov rcx,rdi; add rdi,64; mov rax,[rcx]; mov rcx,rax; jne +0; ret
    let code =
        [0x48, 0x89, 0xf9, 0x48, 0x83, 0xc7, 64, 0x48, 0x8b, 1, 0x48, 0x89, 0xc1, 0x75, 0, 0xc3];
    assert_eq!(planned(&code, CHEAP), [(13, 7, at(R, 8, RDI, -64))]);
}

#[test]
fn an_index_counts_in_64_bits() {
    // movsxd rax,esi; mov eax,[rdi+rax*4]; jne +0; ret: nothing holds the extended index any more
    let code = [0x48, 0x63, 0xc6, 0x8b, 4, 0x87, 0x75, 0, 0xc3];
    assert_eq!(planned(&code, CHEAP), []);
    // movsxd rax,esi; movsxd rdx,esi; mov eax,[rdi+rax*4]; jne +0; ret
    let code = [0x48, 0x63, 0xc6, 0x48, 0x63, 0xd6, 0x8b, 4, 0x87, 0x75, 0, 0xc3];
    let descriptor = AccessDescriptor { index: RDX, scale: 2, ..at(R, 4, RDI, 0) };
    assert_eq!(planned(&code, CHEAP), [(9, 6, descriptor)]);
    // mov edx,esi; movsxd rax,esi; mov eax,[rdi+rax*4]; jne +0; ret: another extension
    let code = [0x89, 0xf2, 0x48, 0x63, 0xc6, 0x8b, 4, 0x87, 0x75, 0, 0xc3];
    assert_eq!(planned(&code, CHEAP), []);
}

#[test]
fn a_pointer_on_the_stack_tells_an_address() {
    // push rbp; mov rbp,rsp; mov [rbp-8],rdi; call …;
    // mov rax,[rbp-8]; mov eax,[rax+12]; jmp +0; pop rbp; ret
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0xf8, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x45, 0xf8,
        0x8b, 0x40, 12, 0xeb, 0, 0x5d, 0xc3,
    ];
    let descriptor =
        AccessDescriptor { slot: -8, ..at(R | AccessDescriptor::INDIRECT, 4, RSP, 12) };
    let (points, coverage) = plan(&code, CHEAP);
    // The stack pointer and the frame pointer are the same here; either will do.
    assert_eq!(short(&points), [(20, 17, descriptor)]);
    assert_eq!((coverage.stack, coverage.accesses()), (6, 1));
    // The slot is written again in between: mov [rbp-8],rax; or a part of it: mov byte [rbp-1],0
    for write in [[0x48, 0x89, 0x45, 0xf8], [0xc6, 0x45, 0xff, 0]] {
        let changed = [&code[..20], &write[..], &code[20..]].concat();
        assert_eq!(planned(&changed, CHEAP), []);
    }
    // The place is not preserved before the stack is lowered: push rbx; sub rsp,0x200; mov rax,[rsp+8]; mov
    // eax,[rax]; ret
    let code = [0x53, 0x48, 0x81, 0xec, 0, 2, 0, 0, 0x48, 0x8b, 0x44, 0x24, 8, 0x8b, 0, 0xc3];
    assert_eq!(planned(&code, CHEAP), []);
}

#[test]
fn what_others_may_point_to_on_the_stack_may_change_with_any_write() {
    // mov rax,[rsp+8]; mov rax,[rax]; mov [rcx],rcx; jne +0; ret
    let code = [0x48, 0x8b, 0x44, 0x24, 8, 0x48, 0x8b, 0, 0x48, 0x89, 9, 0x75, 0, 0xc3];
    let through = AccessDescriptor { slot: 8, ..at(R | AccessDescriptor::INDIRECT, 8, RSP, 0) };
    let write = (11, 8, at(W, 8, RCX, 0));
    assert_eq!(planned(&code, CHEAP), [(11, 5, through), write]);
    // The same after: lea rcx,[rsp+8]; call …
    let mut escaping = vec![0x48, 0x8d, 0x4c, 0x24, 8, 0xe8, 0, 0, 0, 0];
    escaping.extend(code);
    assert_eq!(planned(&escaping, CHEAP), [(21, 18, at(W, 8, RCX, 0))]);
}

#[test]
fn nothing_is_reported_across_what_may_be_jumped_to() {
    // mov eax,[rdi]; (label:) nop; jne -3; ret
    let code = [0x8b, 7, 0x90, 0x75, 0xfd, 0xc3];
    assert_eq!(planned(&code, CHEAP), []);
    assert_eq!(planned(&code, ANY), [(0, 0, at(R, 4, RDI, 0))]);
    // mov eax,[rdi]; call …; nop; ret: before the call, not after it
    let code = [0x8b, 7, 0xe8, 0, 0, 0, 0, 0x90, 0xc3];
    assert_eq!(planned(&code, CHEAP), [(2, 0, at(R, 4, RDI, 0))]);
    // mov eax,[rdi]; ret
    assert_eq!(planned(&[0x8b, 7, 0xc3], CHEAP), []);
}

#[test]
fn an_atomic_instruction_is_reported_after_it_and_divides() {
    // mov eax,[rdi]; lock xadd [rsi],ecx; mov edx,[r8]; jne +0; ret
    let code = [0x8b, 7, 0xf0, 0x0f, 0xc1, 0x0e, 0x41, 0x8b, 0x10, 0x75, 0, 0xc3];
    let atomic = at(R | W | AccessDescriptor::ATOMIC, 4, RSI, 0);
    let after = [(9, 2, atomic), (9, 6, at(R, 4, 8, 0))];
    assert_eq!(planned(&code, CHEAP), after);
    assert_eq!(planned(&code, ANY), [&[(0, 0, at(R, 4, RDI, 0))], &after[..]].concat());
    // xchg [rdi],eax; test eax,eax; jne +0; ret
    let code = [0x87, 7, 0x85, 0xc0, 0x75, 0, 0xc3];
    assert_eq!(planned(&code, CHEAP), [(4, 0, at(R | W | AccessDescriptor::ATOMIC, 4, RDI, 0))]);
    // lock xadd [rdi],rdi; ret
    let code = [0xf0, 0x48, 0x0f, 0xc1, 0x3f, 0xc3];
    assert_eq!(left_out(&code, ANY), [(UnprobedReason::Locked, 1)]);
    // mov eax,[rdi]; mfence; jne +0; ret
    assert_eq!(planned(&[0x8b, 7, 0x0f, 0xae, 0xf0, 0x75, 0, 0xc3], CHEAP), []);
    // mfence; mov eax,[rdi]; ret: not before it
    assert_eq!(planned(&[0x0f, 0xae, 0xf0, 0x8b, 7, 0xc3], ANY), [(3, 3, at(R, 4, RDI, 0))]);
}

#[test]
fn an_exchange_that_nothing_follows_is_probed_itself() {
    let store = |base| at(R | W | AccessDescriptor::ATOMIC, 4, base, 0);
    // call +0; xchg [rdi],eax; ret
    let code = [0xe8, 0, 0, 0, 0, 0x87, 7, 0xc3];
    let (points, coverage) = plan(&code, ANY);
    assert_eq!(short(&points), [(5, 5, store(RDI))]);
    assert_eq!((points[0].cost, coverage.single_stepped), (Cost::SingleStepped, 1));
    assert_eq!(left_out(&code, CHEAP), [(UnprobedReason::NoCheapPoint, 1)]);
    // mov eax,[rsi]; xchg [rdi],eax; ret: what comes before it is not reported by its probe
    let code = [0x8b, 6, 0x87, 7, 0xc3];
    assert_eq!(planned(&code, ANY), [(0, 0, at(R, 4, RSI, 0)), (2, 2, store(RDI))]);
    // (loop:) xchg [rdi],eax; (here:) dec ecx; jne here; jmp loop
    let code = [0x87, 7, 0xff, 0xc9, 0x75, 0xfc, 0xeb, 0xf8];
    assert_eq!(planned(&code, ANY), [(0, 0, store(RDI))]);
    // xchg [rdi],rdi; mov rax,rdi; ret: nothing behind it has the old address
    let code = [0x48, 0x87, 0x3f, 0x48, 0x89, 0xf8, 0xc3];
    assert_eq!(planned(&code, ANY), [(0, 0, at(R | W | AccessDescriptor::ATOMIC, 8, RDI, 0))]);
    // xchg [rdi],eax; mov ecx,eax; ret: behind it is better
    assert_eq!(planned(&[0x87, 7, 0x89, 0xc1, 0xc3], ANY), [(2, 0, store(RDI))]);
    // Where another probe is, none goes.
    let part = Part { start: START, code: &[0x87, 7, 0xc3] };
    let planned = access_probes(&[part], &|at| at == START, ANY);
    assert_eq!(planned.coverage.left_out, [(UnprobedReason::Locked, 1)].into());
}

#[test]
fn a_compare_and_exchange_writes_if_the_flag_says_so() {
    let exchange = R | W | AccessDescriptor::ATOMIC | AccessDescriptor::WRITES_IF_ZERO;
    // lock cmpxchg [rdi],ecx; jne +0; ret
    let code = [0xf0, 0x0f, 0xb1, 0x0f, 0x75, 0, 0xc3];
    assert_eq!(planned(&code, CHEAP), [(4, 0, at(exchange, 4, RDI, 0))]);
    // lock cmpxchg [rdi],ecx; test eax,eax; jne +0; ret
    let code = [0xf0, 0x0f, 0xb1, 0x0f, 0x85, 0xc0, 0x75, 0, 0xc3];
    assert_eq!(planned(&code, CHEAP), [(6, 0, at(R, 4, RDI, 0))]);
    assert_eq!(plan(&code, CHEAP).1.without_write, 1);
    assert_eq!(planned(&code, ANY), [(4, 0, at(exchange, 4, RDI, 0))]);
}

#[test]
fn other_probes_are_neither_used_nor_crossed() {
    // mov eax,[rdi]; nop; mov eax,[rsi]; nop; jne +0; ret
    let code = [0x8b, 7, 0x90, 0x8b, 6, 0x90, 0x75, 0, 0xc3];
    let part = Part { start: START, code: &code };
    let taken = |place: u64| move |at: u64| at == START + place;
    let planned = |place: u64| short(&access_probes(&[part], &taken(place), CHEAP).points);
    let (first, second) = (at(R, 4, RDI, 0), at(R, 4, RSI, 0));
    assert_eq!(planned(0x100), [(6, 0, first), (6, 3, second)]);
    assert_eq!(planned(6), [(5, 0, first), (5, 3, second)]);
    assert_eq!(planned(5), [(2, 0, first), (2, 3, second)], "both on the same side");
    assert_eq!(planned(2), [(6, 3, second)], "the first one could only be told across it");
    assert_eq!(planned(3), [(2, 0, first), (6, 3, second)]);
}

#[test]
fn the_stack_and_the_threads_own_variables_are_left_alone() {
    let counted = |code: &[u8]| {
        let coverage = plan(code, ANY).1;
        (coverage.stack, coverage.thread_local, coverage.accesses())
    };
    // mov [rsp+8],rdi; ret
    assert_eq!(counted(&[0x48, 0x89, 0x7c, 0x24, 8, 0xc3]), (2, 0, 0));
    // push rbp; mov rbp,rsp; mov [rbp-8],rdi; pop rbp; ret
    let framed = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0xf8, 0x5d, 0xc3];
    assert_eq!(counted(&framed), (4, 0, 0));
    // mov [rbp-8],rdi; ret: this register is not known to be on the stack
    assert_eq!(counted(&[0x48, 0x89, 0x7d, 0xf8, 0xc3]), (1, 0, 1));
    // lea rax,[rsp-64]; mov [rax+8],rdi; ret
    let pointed = [0x48, 0x8d, 0x44, 0x24, 0xc0, 0x48, 0x89, 0x78, 8, 0xc3];
    assert_eq!(counted(&pointed), (2, 0, 0));
    // mov rax,fs:[0x28]; ret
    let guard = [0x64, 0x48, 0x8b, 4, 0x25, 0x28, 0, 0, 0, 0xc3];
    assert_eq!(counted(&guard), (1, 1, 0));
    // mov rax,fs:[0]; mov edx,[rax-8]; ret
    let own = [0x64, 0x48, 0x8b, 4, 0x25, 0, 0, 0, 0, 0x8b, 0x50, 0xf8, 0xc3];
    assert_eq!(counted(&own), (1, 2, 0));
}

#[test]
fn what_is_done_and_how_much_is_told() {
    let done = |instruction: &[u8]| {
        let code = [instruction, &[0x75, 0, 0xc3]].concat();
        let plans = plan(&code, CHEAP).0.into_iter().flat_map(|point| point.accesses);
        plans.map(|plan| (plan.descriptor.flags, plan.descriptor.size)).collect::<Vec<_>>()
    };
    assert_eq!(done(&[0x0f, 0x10, 7]), [(R, 16)], "movups xmm0,[rdi]");
    assert_eq!(done(&[0xc5, 0xfc, 0x11, 7]), [(W, 32)], "vmovups [rdi],ymm0");
    assert_eq!(done(&[0xdd, 7]), [(R, 8)], "fld qword [rdi]");
    assert_eq!(done(&[0xdb, 0x3f]), [(W, 10)], "fstp tbyte [rdi]");
    assert_eq!(done(&[0x0f, 0x44, 7]), [(R, 4)], "cmove eax,[rdi]");
    assert_eq!(done(&[0x0f, 0x94, 7]), [(W, 1)], "sete [rdi]");
    assert_eq!(done(&[0x0f, 0xba, 0x2f, 3]), [(R | W, 4)], "bts dword [rdi],3");
    assert_eq!(done(&[0x48, 0x8d, 7]), [], "lea rax,[rdi]");
    assert_eq!(done(&[0x0f, 0x1f, 7]), [], "nop [rdi]");
    assert_eq!(done(&[0x0f, 0x18, 0x0f]), [], "prefetcht0 [rdi]");
    assert_eq!(done(&[0xff, 0x37]), [(R, 8)], "push [rdi]");
    let exchange = R | W | AccessDescriptor::WRITES_IF_ZERO;
    assert_eq!(done(&[0x0f, 0xc7, 0x0f]), [(exchange, 8)], "cmpxchg8b [rdi]");
}

#[test]
fn what_cannot_be_told_is_left_out_with_a_reason() {
    let reason = |instruction: &[u8]| {
        let code = [instruction, &[0x75, 0, 0xc3]].concat();
        left_out(&code, ANY).into_iter().map(|(reason, _)| reason).collect::<Vec<_>>()
    };
    // vpgatherdd xmm0,[rdi+xmm1*4],xmm2
    assert_eq!(reason(&[0xc4, 0xe2, 0x69, 0x90, 4, 0x8f]), [UnprobedReason::Gather]);
    // vmaskmovps [rdi],xmm1,xmm0
    assert_eq!(reason(&[0xc4, 0xe2, 0x71, 0x2e, 7]), [UnprobedReason::Masked]);
    assert_eq!(reason(&[0x0f, 0xae, 0x27]), [UnprobedReason::Size], "xsave [rdi]");
    assert_eq!(reason(&[0x67, 0x8b, 7]), [UnprobedReason::AddressForm], "mov eax,[edi]");
    assert_eq!(reason(&[0x0f, 0xa3, 7]), [UnprobedReason::DataDependent], "bt [rdi],eax");
    assert_eq!(reason(&[0xf2, 0xae]), [UnprobedReason::DataDependent], "repne scasb");
}

#[test]
fn strings_are_reported_before_they_are_gone_through() {
    let rounds = |descriptor: AccessDescriptor| AccessDescriptor { rounds: RCX, ..descriptor };
    // push rbx; rep movsq; jne +0; ret
    let code = [0x53, 0xf3, 0x48, 0xa5, 0x75, 0, 0xc3];
    let both = [(0, 1, rounds(at(W, 8, RDI, 0))), (0, 1, rounds(at(R, 8, RSI, 0)))];
    let mut found = planned(&code, CHEAP);
    found.sort_by_key(|(_, _, descriptor)| descriptor.base != RDI);
    assert_eq!(found, both);
    // mov rdx,rcx; rep stosb; jne +0; ret: where it began is lost
    let code = [0x48, 0x89, 0xca, 0xf3, 0xaa, 0x75, 0, 0xc3];
    assert_eq!(planned(&code, CHEAP), []);
    assert_eq!(planned(&code, ANY), [(0, 3, rounds(at(W, 1, RDI, 0)))], "never at itself");
    // push rbx; mov ecx,40; rep movsq; jne +0; ret: no register need hold how often
    let code = [0x53, 0xb9, 40, 0, 0, 0, 0xf3, 0x48, 0xa5, 0x75, 0, 0xc3];
    let mut found = planned(&code, CHEAP);
    found.sort_by_key(|(_, _, descriptor)| descriptor.base != RDI);
    assert_eq!(found, [(0, 6, at(W, 320, RDI, 0)), (0, 6, at(R, 320, RSI, 0))]);
    // push rbx; std; rep stosb; cld; pop rbx; ret
    let downwards = [0x53, 0xfd, 0xf3, 0xaa, 0xfc, 0x5b, 0xc3];
    assert_eq!(left_out(&downwards, ANY), [(UnprobedReason::DataDependent, 1)]);
}

#[test]
fn static_addresses_are_of_the_file() {
    // mov eax,[rip+0x100]; lea rax,[rip+0x200]; mov [rax+8],ecx; xor eax,eax; jne +0; ret
    let code =
        [0x8b, 5, 0, 1, 0, 0, 0x48, 0x8d, 5, 0, 2, 0, 0, 0x89, 0x48, 8, 0x31, 0xc0, 0x75, 0, 0xc3];
    let (points, _) = plan(&code, CHEAP);
    let read = at(R, 4, NONE, 0x1106);
    let write = at(W, 4, NONE, 0x1215);
    assert_eq!(short(&points), [(18, 0, read), (18, 13, write)]);
    assert!(points[0].accesses.iter().all(|plan| plan.is_static));
    let (points, coverage) = plan(&code, AccessOptions { is_constant: &|_| true, ..CHEAP });
    assert_eq!(short(&points), [(18, 13, write)], "what is written is no constant");
    assert_eq!((coverage.constant, coverage.accesses()), (1, 1));
    let globals =
        |options| access_probes(&[Part { start: START, code: &code }], &|_| false, options).globals;
    let global = |address, is_written| Global { address, size: 4, is_written };
    assert_eq!(globals(CHEAP), [global(0x1106, false), global(0x1215, true)]);
    let first = AccessOptions { is_constant: &|address| address == 0x1106, ..CHEAP };
    assert_eq!(globals(first), [global(0x1215, true)]);
    // mov eax,[0x404040]; jne +0; ret
    let absolute = [0x8b, 4, 0x25, 0x40, 0x40, 0x40, 0, 0x75, 0, 0xc3];
    let (points, _) = plan(&absolute, CHEAP);
    assert_eq!(short(&points), [(7, 0, at(R, 4, NONE, 0x40_4040))]);
    assert!(!points[0].accesses[0].is_static);
}

#[test]
fn nothing_inside_a_restartable_sequence_is_reported_or_probed() {
    // mov [rdi],eax; (from here) mov [rsi],eax; mov [rdx],eax; (to here) mov [rcx],eax; jne +0; ret
    let code = [0x89, 0x07, 0x89, 0x06, 0x89, 0x02, 0x89, 0x01, 0x75, 0, 0xc3];
    let inside = |at: u64| (START + 2..START + 6).contains(&at);
    let options = AccessOptions { is_restartable: &inside, ..ANY };
    let store = |base| at(W, 4, base, 0);
    assert_eq!(planned(&code, options), [(0, 0, store(RDI)), (8, 6, store(RCX))]);
    assert_eq!(left_out(&code, options), [(UnprobedReason::Restartable, 2)]);
    assert_eq!(planned(&code, ANY).len(), 4);
}

#[test]
fn one_point_reports_eight_at_most() {
    // mov al,[rdi+n] nine times; nop; jne +0; ret
    let mut code: Vec<u8> = (0..9).flat_map(|number| [0x8a, 0x47, number]).collect();
    code.extend([0x90, 0x75, 0, 0xc3]);
    let counts: Vec<usize> =
        plan(&code, CHEAP).0.iter().map(|point| point.accesses.len()).collect();
    assert_eq!(counts, [1, 8]);
}

#[test]
fn hidden_flow_leaves_a_function_out() {
    // mov eax,[rdi]; push rbx; jmp rax; mov ecx,[rsi]; ret
    let code = [0x8b, 7, 0x53, 0xff, 0xe0, 0x8b, 0x0e, 0xc3];
    assert_eq!(plan(&code, ANY).0, []);
    assert_eq!(left_out(&code, ANY), [(UnprobedReason::HiddenFlow, 2)]);
    // mov rax,[rdi]; jmp [rax+16]: a tail call through an object
    let code = [0x48, 0x8b, 7, 0xff, 0x60, 16];
    assert_eq!(plan(&code, ANY).1.reported(), 2);
    // mov rax,[rdi]; mov rax,[rax+16]; jmp rax
    let code = [0x48, 0x8b, 7, 0x48, 0x8b, 0x40, 16, 0xff, 0xe0];
    assert_eq!(plan(&code, ANY).1.reported(), 2);
    // mov rax,[rdi+rsi*8]; jmp rax: from a table
    let code = [0x48, 0x8b, 4, 0xf7, 0xff, 0xe0];
    assert_eq!(left_out(&code, ANY), [(UnprobedReason::HiddenFlow, 1)]);
    // sub rsp,8; mov eax,[rdi]; je +0x100 into a part that is not known; add rsp,8; ret
    let code = [0x48, 0x83, 0xec, 8, 0x8b, 7, 0x0f, 0x84, 0, 1, 0, 0, 0x48, 0x83, 0xc4, 8, 0xc3];
    assert_eq!(left_out(&code, ANY), [(UnprobedReason::HiddenFlow, 1)]);
    // mov eax,[rdi]; jmp into the middle of: mov eax,0; ret
    let code = [0x8b, 7, 0xeb, 1, 0xb8, 0, 0, 0, 0, 0xc3];
    assert_eq!(left_out(&code, ANY), [(UnprobedReason::HiddenFlow, 1)]);
}

#[test]
fn callees_are_calls_and_jumps_to_elsewhere() {
    // call +0x100; je +1; nop; call rax; jmp +0x200
    let code = [0xe8, 0, 1, 0, 0, 0x74, 1, 0x90, 0xff, 0xd0, 0xe9, 0, 2, 0, 0];
    assert_eq!(callees(&[Part { start: START, code: &code }]), [0x1105, 0x120f]);
}
