//! Tests of the choice of patches, and of the liveness at their points.

use iced_x86::{Decoder, DecoderOptions};

use super::*;

fn patches_of(
    code: &[u8],
    points: &[u64],
    is_target: &dyn Fn(u64) -> bool,
    padding: &mut Padding,
) -> Patches {
    let parts = [Part { start: 0x1000, code }];
    let function = Function {
        parts: &parts,
        word_at: &|_| None,
        is_target,
        is_restartable: &|at| at >= 0x2000,
        reads: &|_| Live::NONE,
        convention: Convention::SystemV,
    };
    let points: Vec<u64> = points.iter().map(|point| 0x1000 + point).collect();
    function.patches(&points, padding)
}

fn patches(code: &[u8], points: &[u64]) -> Patches {
    patches_of(code, points, &|_| false, &mut Padding::default())
}

/// Ranges from the function's start on.
fn ranges(patches: &Patches) -> Vec<(u64, u64)> {
    let at = |address: u64| address - 0x1000;
    patches.patches.iter().map(|patch| (at(patch.range.start), at(patch.range.end))).collect()
}

#[test]
fn a_patch_is_as_long_as_a_jump_and_has_whole_instructions() {
    // mov eax,[rdi+16]; mov edx,eax; and edx,0x17f; ret
    let code = [0x8b, 0x47, 0x10, 0x89, 0xc2, 0x81, 0xe2, 0x7f, 1, 0, 0, 0xc3];
    assert_eq!(ranges(&patches(&code, &[0])), [(0, 5)]);
    assert_eq!(ranges(&patches(&code, &[3])), [(3, 11)]);
    assert_eq!(ranges(&patches(&code, &[11])), [(5, 12)], "what lies before makes room");
    assert_eq!(ranges(&patches(&code, &[0, 5])), [(0, 11)], "one patch for a straight line");
    assert_eq!(patches(&code, &[1]).refused, [(0x1001, Refusal::NoInstruction)]);
}

#[test]
fn what_depends_on_gs_stays_where_it_is() {
    let is_displaceable = |code: &[u8]| {
        let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
        planner::is_displaceable(&instruction)
    };
    for code in [
        // mov gs:[8], rax; rdgsbase rax; wrgsbase rdi; mov gs, eax; mov eax, gs.
        &[0x65, 0x48, 0x89, 0x04, 0x25, 8, 0, 0, 0][..],
        &[0xf3, 0x48, 0x0f, 0xae, 0xc8],
        &[0xf3, 0x48, 0x0f, 0xae, 0xdf],
        &[0x8e, 0xe8],
        &[0x8c, 0xe8],
    ] {
        assert!(!is_displaceable(code), "{code:x?}");
    }
    // mov fs:[8], rax; rdfsbase rax.
    assert!(is_displaceable(&[0x64, 0x48, 0x89, 0x04, 0x25, 8, 0, 0, 0]));
    assert!(is_displaceable(&[0xf3, 0x48, 0x0f, 0xae, 0xc0]));
}

#[test]
fn control_enters_a_patch_at_its_start_only() {
    // dec edi; (loop:) inc eax; cmp eax,edi; jne loop; ret
    let code = [0xff, 0xcf, 0xff, 0xc0, 0x39, 0xf8, 0x75, 0xfa, 0xc3];
    assert_eq!(patches(&code, &[0]).refused, [(0x1000, Refusal::NoRoom(2))]);
    assert_eq!(ranges(&patches(&code, &[4])), [(4, 9)]);
    assert_eq!(ranges(&patches(&code, &[2])), [(2, 8)]);
    let known = patches_of(&code, &[2], &|at| at == 0x1004, &mut Padding::default());
    assert_eq!(known.refused, [(0x1002, Refusal::NoRoom(2))], "a target of other code");
}

#[test]
fn a_direct_call_is_the_last_that_is_displaced() {
    // push rbx; mov ebx,edi; mov edi,esi; call; mov eax,ebx; pop rbx; nopl 0; ret
    let code =
        [0x53, 0x89, 0xfb, 0x89, 0xf7, 0xe8, 0, 0, 0, 0, 0x89, 0xd8, 0x5b, 0xf, 0x1f, 0, 0xc3];
    let all = patches(&code, &[0, 3, 5, 10, 16]);
    assert_eq!(ranges(&all), [(0, 10), (10, 17)]);
    let before: Vec<u64> = all.patches[0].points.iter().map(|point| point.before).collect();
    assert_eq!(before, [0x1000, 0x1003, 0x1005], "the call ends the displaced bytes");
    assert_eq!(ranges(&patches(&code, &[3])), [(3, 10)], "where there is no room before it");
    assert!(all.patches.iter().flat_map(|patch| &patch.points).all(|point| !point.red_zone));
    // call; syscall; ret
    let calls = [0xe8, 0, 0, 0, 0, 0xf, 5, 0xc3];
    let of_calls = patches(&calls, &[0, 5]);
    assert_eq!(ranges(&of_calls), [(0, 5)]);
    assert_eq!(of_calls.refused, [(0x1005, Refusal::NoRoom(0))]);
}

#[test]
fn a_call_leads_to_the_trampoline_itself() {
    // push rbx; call; mov rdi,rax; call rax; pop rbx; ret
    let code = [0x53, 0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xc7, 0xff, 0xd0, 0x5b, 0xc3];
    let found = patches(&code, &[0, 6, 9]);
    assert_eq!(ranges(&found), [(0, 6), (6, 11)]);
    assert!(found.patches.iter().all(|patch| patch.jump == Jump::Call), "{found:?}");
    // and rsp,-16; call; ret
    let aligned = [0x48, 0x83, 0xe4, 0xf0, 0xe8, 0, 0, 0, 0, 0xc3];
    let found = patches(&aligned, &[0]);
    assert_eq!(ranges(&found), [(0, 9)]);
    assert_eq!(found.patches[0].jump, Jump::Near, "with its return address pushed");
    assert_eq!(patches(&aligned, &[4]).patches[0].jump, Jump::Call);
    let both = patches(&aligned, &[0, 4]);
    assert_eq!(ranges(&both), [(0, 9)], "four bytes are too few for the first one alone");
}

#[test]
fn a_longer_line_makes_room_for_a_short_one() {
    // push rbp; mov rbp,rsp; mov eax,1; mov ecx,2; call; nop; leave; ret
    let mut code = vec![0x55, 0x48, 0x89, 0xe5, 0xb8, 1, 0, 0, 0, 0xb9, 2, 0, 0, 0];
    code.extend([0xe8, 0, 0, 0, 0, 0x90, 0xc9, 0xc3]);
    let found = patches(&code, &[20]);
    assert_eq!(ranges(&found), [(0, 14), (20, 22)]);
    assert!(found.patches[0].points.is_empty(), "{found:?}");
    assert_eq!(found.patches[1].jump, Jump::Short(0x1005));
    let found = patches(&code, &[0, 20]);
    assert_eq!(ranges(&found), [(0, 14), (20, 22)], "a patch becomes longer");
    assert_eq!(found.patches[0].points.len(), 1);
}

#[test]
fn a_patch_before_a_call_makes_room_by_the_call() {
    // push rbx; mov rbx,rdi; call; mov rsi,rax; add dword [rax],10; mov rdi,rbx; call; pop rbx; ret
    let mut code = vec![0x53, 0x48, 0x89, 0xfb, 0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xc6];
    code.extend([0x83, 0, 10, 0x48, 0x89, 0xdf, 0xe8, 0, 0, 0, 0, 0x5b, 0xc3]);
    let found = patches(&code, &[0, 12, 23]);
    assert_eq!(found.refused, []);
    assert_eq!(ranges(&found), [(0, 9), (9, 23), (23, 25)]);
    let [_, with_room, exit] = &found.patches[..] else { unreachable!() };
    assert_eq!((with_room.jump, exit.jump), (Jump::Call, Jump::Short(0x100b)));
    assert_eq!(with_room.points.len(), 1, "{with_room:?}");
}

#[test]
fn an_indirect_jump_leads_to_what_the_file_names() {
    // mov rax,[rdi]; jmp rax; (a case:) mov eax,1; mov ecx,2; ret
    let code = [0x48, 0x8b, 7, 0xff, 0xe0, 0xb8, 1, 0, 0, 0, 0xb9, 2, 0, 0, 0, 0xc3];
    let none = Padding::default;
    let found = patches_of(&code, &[15], &|at| at == 0x1005, &mut none());
    assert_eq!(ranges(&found), [(10, 16)]);
    let found = patches_of(&code, &[15], &|at| at >= 0x100a, &mut none());
    assert_eq!(found.refused, [(0x100f, Refusal::NoRoom(1))], "its return is named");
    // lea rdx,[rip-7]; lea rdx,[rdx+rcx*8]; jmp rdx; ret
    let computed =
        [0x48, 0x8d, 0x15, 0xf9, 0xff, 0xff, 0xff, 0x48, 0x8d, 0x14, 0xca, 0xff, 0xe2, 0xc3];
    let found = patches(&computed, &[7]);
    assert_eq!(found.refused, [(0x1007, Refusal::UnknownControlFlow)]);
}

#[test]
fn an_entry_keeps_its_mark_for_indirect_calls() {
    // endbr64; mov eax,1; ret
    let code = [0xf3, 0xf, 0x1e, 0xfa, 0xb8, 1, 0, 0, 0, 0xc3];
    let found = patches(&code, &[0]);
    assert_eq!(ranges(&found), [(4, 9)]);
    assert_eq!(
        (found.patches[0].points[0].address, found.patches[0].points[0].before),
        (0x1000, 0x1004)
    );
    // endbr64; (loop:) dec dword [rdi]; jne loop; ret
    let spin = [0xf3, 0xf, 0x1e, 0xfa, 0xff, 0xf, 0x75, 0xfc, 0xc3];
    assert_eq!(patches(&spin, &[0]).refused, [(0x1000, Refusal::NoRoom(0))]);
}

#[test]
fn all_ways_to_a_line_are_displaced_where_it_has_no_room() {
    let redirected = |patches: &Patches| -> Vec<(u64, u64)> {
        assert!(patches.redirected.iter().all(|patch| patch.jump == Jump::Redirected));
        let ranges = patches.redirected.iter().map(|patch| &patch.range);
        ranges.map(|range| (range.start - 0x1000, range.end - 0x1000)).collect()
    };
    // test edi,edi; je end; mov eax,5; pop rbx; (end:) ret
    let code = [0x85, 0xff, 0x74, 6, 0xb8, 5, 0, 0, 0, 0x5b, 0xc3];
    let found = patches(&code, &[10]);
    assert_eq!((ranges(&found), redirected(&found)), (vec![(2, 10)], vec![(10, 11)]));
    assert!(found.patches[0].points.is_empty());
    assert_eq!(found.redirected[0].points[0].before, 0x100a);
    assert_eq!(ranges(&patches(&code, &[9, 10])), [(2, 10)], "the way by `je` is too short alone");
    let mut earlier = Padding::default();
    let first = patches_of(&code, &[2], &|_| false, &mut earlier);
    let later = patches_of(&code, &[10], &|_| false, &mut earlier);
    assert_eq!((ranges(&later), redirected(&later)), (vec![], vec![(10, 11), (9, 10)]));
    assert_eq!(later.extended, first.patches, "its trampoline leads to the new one");
    let known = patches_of(&code, &[10], &|at| at == 0x100a, &mut Padding::default());
    assert_eq!(known.refused, [(0x100a, Refusal::NoRoom(1))], "a target of other code");
    assert!(known.patches.is_empty() && known.redirected.is_empty());
    // test edi,edi; je pop; cmp esi,5; je end; mov eax,1; (pop:) pop rbx; (end:) ret
    let mut two = vec![0x85, 0xff, 0x74, 10, 0x83, 0xfe, 5, 0x74, 6, 0xb8, 1, 0, 0, 0, 0x5b, 0xc3];
    let found = patches(&two, &[15]);
    assert_eq!(ranges(&found), [(2, 7), (7, 14)]);
    assert_eq!(redirected(&found), [(15, 16), (14, 15)], "the last one's trampoline comes first");
    let found = patches(&two, &[14, 15]);
    assert_eq!((found.refused.len(), redirected(&found).len()), (0, 2));
    assert!(found.redirected.iter().all(|patch| patch.points.len() == 1));
    // test edi,edi; je end; call; (end:) ret
    two = vec![0x85, 0xff, 0x74, 5, 0xe8, 0, 0, 0, 0, 0xc3];
    let found = patches(&two, &[9]);
    assert_eq!(found.refused, [(0x1009, Refusal::NoRoom(1))], "the call returns there");
}

#[test]
fn a_later_plan_adds_points_to_a_patch() {
    // mov eax,[rdi+16]; mov edx,eax; and edx,0x17f; ret
    let code = [0x8b, 0x47, 0x10, 0x89, 0xc2, 0x81, 0xe2, 0x7f, 1, 0, 0, 0xc3];
    let mut padding = Padding::default();
    let plan =
        |points: &[u64], padding: &mut Padding| patches_of(&code, points, &|_| false, padding);
    assert_eq!(ranges(&plan(&[0], &mut padding)), [(0, 5)]);
    let second = plan(&[3, 5], &mut padding);
    assert_eq!(ranges(&second), [(5, 11)]);
    let points = |patch: &Patch| -> Vec<u64> {
        patch.points.iter().map(|point| point.address - 0x1000).collect()
    };
    let extended: Vec<(u64, Vec<u64>)> =
        second.extended.iter().map(|patch| (patch.range.start - 0x1000, points(patch))).collect();
    assert_eq!(extended, [(0, vec![0, 3])]);
    let third = plan(&[0, 3], &mut padding);
    assert_eq!(third.extended, second.extended, "no point is there twice");
    assert!(third.patches.is_empty() && third.refused.is_empty());
}

#[test]
fn padding_makes_room() {
    let mut padding = Padding::default();
    padding.add(0x1003, &[0x90, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xc3]);
    // test edi,edi; ret
    let code = [0x85, 0xff, 0xc3];
    let found = patches_of(&code, &[2], &|at| at == 0x1002, &mut padding.clone());
    assert_eq!(ranges(&found), [(2, 7)], "a return and the padding behind it");
    let found = patches_of(&code, &[0], &|at| at == 0x1002, &mut padding);
    assert_eq!(found.patches[0].jump, Jump::Short(0x1003));
    assert_eq!(padding.take_near(0x1002), None, "four bytes are left");
    let second = patches_of(&code, &[0], &|at| at == 0x1002, &mut padding);
    assert_eq!(second.extended, found.patches, "it is there already");
    // jmp +5; int3 …; ret
    let inside = [0xeb, 5, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xc3];
    let found = patches(&inside, &[0]);
    assert_eq!(ranges(&found), [(0, 5)], "padding inside");
}

/// Code of a neighbour, from 0x1010 on: mov eax,1; mov ecx,2; ret.
const NEIGHBOUR: [u8; 11] = [0xb8, 1, 0, 0, 0, 0xb9, 2, 0, 0, 0, 0xc3];

#[test]
fn a_neighbour_makes_room() {
    let parts = [Part { start: 0x1010, code: &NEIGHBOUR }];
    let neighbour = Function {
        parts: &parts,
        word_at: &|_| None,
        is_target: &|_| false,
        is_restartable: &|_| false,
        reads: &|_| Live::NONE,
        convention: Convention::SystemV,
    };
    // pop rbx; ret
    let exit = [0x5b, 0xc3];
    let mut padding = Padding::default();
    assert_eq!(
        patches_of(&exit, &[0], &|_| false, &mut padding).refused,
        [(0x1000, Refusal::NoRoom(2))]
    );
    let room = neighbour.room_near(0x1000, &mut padding).expect("a patch without points");
    assert_eq!((room.range.clone(), room.points.len()), (0x1010..0x101a, 0));
    let found = patches_of(&exit, &[0], &|_| false, &mut padding);
    assert_eq!(found.refused, []);
    assert_eq!(found.patches[0].jump, Jump::Short(0x1015));
    // Points that the neighbour gets later join the patch.
    let later = neighbour.patches(&[0x1010], &mut padding);
    assert_eq!((later.patches.len(), later.extended.len()), (0, 1));
    // It has no more room, or is out of reach, or its code is entered there.
    assert_eq!(neighbour.room_near(0x1000, &mut padding), None);
    assert_eq!(neighbour.room_near(0x1200, &mut Padding::default()), None);
    let entered = Function { is_target: &|at| at == 0x1015, ..neighbour };
    assert_eq!(entered.room_near(0x1000, &mut Padding::default()), None);
}

#[test]
fn restartable_sequences_and_hidden_jumps_are_refused() {
    let parts = [Part { start: 0x1ffc, code: &[0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3] }];
    let mut function = Function {
        parts: &parts,
        word_at: &|_| None,
        is_target: &|_| false,
        is_restartable: &|at| at >= 0x2000,
        reads: &|_| Live::NONE,
        convention: Convention::SystemV,
    };
    let refused = |function: &Function<'_>, point: u64| {
        function.patches(&[point], &mut Padding::default()).refused[0].1
    };
    assert_eq!(refused(&function, 0x2001), Refusal::Restartable);
    assert_eq!(refused(&function, 0x1ffc), Refusal::NoRoom(4));
    // movsxd rax,[rdx+rax*4]; add rax,rdx; mov ecx,1; jmp rax
    let hidden = [0x48, 0x63, 4, 0x82, 0x48, 1, 0xd0, 0xb9, 1, 0, 0, 0, 0xff, 0xe0];
    let parts = [Part { start: 0x1000, code: &hidden }];
    function.parts = &parts;
    assert_eq!(refused(&function, 0x1000), Refusal::UnknownControlFlow);
    let found = function.patches(&[0x1007], &mut Padding::default());
    assert_eq!(ranges(&found), [(7, 12)], "one instruction has no inside");
    assert_eq!(found.patches[0].points[0].live, Live::ALL);
    // mov rax,[rax*8+0x402010]; jmp rax; mov ecx,1; ret
    let absolute = [0x48, 0x8b, 4, 0xc5, 0x10, 0x20, 0x40, 0, 0xff, 0xe0, 0xb9, 1, 0, 0, 0, 0xc3];
    let parts = [Part { start: 0x1000, code: &absolute }];
    function.parts = &parts;
    assert_eq!(refused(&function, 0x1008), Refusal::UnknownControlFlow);
}

#[test]
fn liveness_of_flags_and_registers_is_known() {
    let live = |code: &[u8], point: u64| {
        let found = patches(code, &[point]);
        found.patches.first().unwrap_or_else(|| panic!("{found:?}")).points[0].live
    };
    // cmp edi,esi; mov r10d,7; jne +1; nop; add eax,r10d; nop; ret
    let code = [0x39, 0xf7, 0x41, 0xba, 7, 0, 0, 0, 0x75, 1, 0x90, 0x44, 1, 0xd0, 0x90, 0xc3];
    let (entry, compared, target) = (live(&code, 0), live(&code, 2), live(&code, 11));
    assert!(!entry.flags() && compared.flags() && !target.flags());
    assert!(!entry.register(10) && !compared.register(10) && target.register(10));
    assert!(entry.register(7) && entry.register(3), "an argument, and the caller's");
    assert!(entry.register(11), "a caller may know that it stays");
    // mov r10d,7; mov r11d,r10d; pop r11; ret
    let restores = [0x41, 0xba, 7, 0, 0, 0, 0x45, 0x89, 0xd3, 0x41, 0x5b, 0xc3];
    let back = live(&restores, 11);
    assert!(!back.register(10) && back.register(11), "what is restored is the caller's");
    // shl eax,cl; nop; jne +0; mov eax,1; ret
    let shift = [0xd3, 0xe0, 0x90, 0x75, 0, 0xb8, 1, 0, 0, 0, 0xc3];
    assert!(live(&shift, 0).flags(), "a shift by 0 leaves the flags alone");
}

#[test]
fn the_red_zone_is_in_use_where_code_reaches_below_the_stack_pointer() {
    let red_zone = |code: &[u8], point: u64| patches(code, &[point]).patches[0].points[0].red_zone;
    // mov [rsp-8],rdi; mov rax,[rsp-8]; ret
    let leaf = [0x48, 0x89, 0x7c, 0x24, 0xf8, 0x48, 0x8b, 0x44, 0x24, 0xf8, 0xc3];
    assert!(red_zone(&leaf, 5));
    assert!(!red_zone(&leaf, 0), "nothing is there at the entry");
    // push rbp; mov rbp,rsp; mov [rbp-4],edi; mov eax,[rbp-4]; pop rbp; ret
    let framed = [0x55, 0x48, 0x89, 0xe5, 0x89, 0x7d, 0xfc, 0x8b, 0x45, 0xfc, 0x5d, 0xc3];
    assert!(red_zone(&framed, 7));
    // push rbp; mov rbp,rsp; sub rsp,16; mov [rbp-4],edi; leave; ret
    let reserved = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 16, 0x89, 0x7d, 0xfc, 0xc9, 0xc3];
    assert!(!red_zone(&reserved, 8));
    // mov rax,rsp; mov [rax-8],edi; ret
    let copied = [0x48, 0x89, 0xe0, 0x89, 0x78, 0xf8, 0xc3];
    assert!(red_zone(&copied, 3));
}

#[test]
fn what_a_probe_reads_counts_at_the_points_before_it() {
    // lea rdx,[rax+8]; mov [rbx],rax; mov [rbx+8],rax; mov edx,1; ret
    let code = [0x48, 0x8d, 0x50, 8, 0x48, 0x89, 3, 0x48, 0x89, 0x43, 8, 0xba, 1, 0, 0, 0, 0xc3];
    let parts = [Part { start: 0x1000, code: &code }];
    let nothing = |_: u64| Live::NONE;
    let rdx = |at: u64| if at == 0x100b { Live::NONE.with_registers(1 << 2) } else { Live::NONE };
    let plan = |reads: &dyn Fn(u64) -> Live, points: &[u64], padding: &mut Padding| {
        let function = Function {
            parts: &parts,
            word_at: &|_| None,
            is_target: &|_| false,
            is_restartable: &|_| false,
            reads,
            convention: Convention::SystemV,
        };
        function.patches(points, padding)
    };
    let live = |reads: &dyn Fn(u64) -> Live| {
        let found = plan(reads, &[0x1004, 0x100b], &mut Padding::default());
        let points = found.patches.iter().flat_map(|patch| patch.points.clone());
        let points: Vec<bool> = points.map(|point| point.live.register(2)).collect();
        assert_eq!(points.len(), 2, "{found:?}");
        points[0]
    };
    assert!(!live(&nothing), "the program itself reads it no more");
    assert!(live(&rdx));
    // A later plan has the probe: what an earlier one has at the point before changes.
    let mut padding = Padding::default();
    let first = plan(&nothing, &[0x1004], &mut padding);
    assert_eq!((first.patches.len(), first.extended.len()), (1, 0));
    let second = plan(&rdx, &[0x100b], &mut padding);
    let renewed: Vec<u64> = second.extended.iter().map(|patch| patch.range.start).collect();
    assert_eq!((second.patches.len(), renewed), (1, vec![first.patches[0].range.start]));
    assert!(second.extended[0].points[0].live.register(2));
    let third = plan(&rdx, &[], &mut padding);
    assert!(third.extended.is_empty(), "it has it by now");
}
