//! Finding locks in machine code, byte by byte: what is found, and where it is probed.

use abi::Operand;

use x86::placement::PlaceRules;

use super::*;

const ACQUIRE: u64 = 0x2000;
const RELEASE: u64 = 0x3000;

/// Finds fast paths in code at 0x1000, which calls the two slow paths above.
fn found(code: &[u8]) -> InlinedLocks {
    found_by(PlaceRules::Kernel, code)
}

fn found_by(place_rules: PlaceRules, code: &[u8]) -> InlinedLocks {
    let surroundings = Surroundings {
        slow_path_at: &|address| match address {
            ACQUIRE => Some((0, FastPath::Acquire)),
            RELEASE => Some((1, FastPath::Release)),
            _ => None,
        },
        in_slot: &|_| None,
        word_at: &|_| None,
        helper_at: &|_| None,
        static_lock: &|_| None,
        place_rules,
    };
    inlined_locks(&[Part { start: 0x1000, code }], &surroundings).unwrap()
}

fn call(code: &mut Vec<u8>, target: u64) {
    let next = 0x1000 + code.len() as u64 + 5;
    code.push(0xe8);
    code.extend((target.wrapping_sub(next) as u32).to_le_bytes());
}

fn in_register(register: u16, plus: i64) -> LockAddress {
    let operand = Operand::new(register, Operand::NONE, 0);
    LockAddress { operand, indirect: false, plus, is_static: false }
}

/// `mov ecx,1; xor eax,eax; lock cmpxchg [rdi+8],ecx; jne slow; ret; (slow:) lea rdi,[rdi+8]; call; ret`
fn taking(argument: u8) -> Vec<u8> {
    let mut code = vec![
        0xb9, 1, 0, 0, 0, 0x31, 0xc0, 0xf0, 0x0f, 0xb1, 0x4f, 8, 0x75, 1, 0xc3, 0x48, 0x8d, 0x7f,
        argument,
    ];
    call(&mut code, ACQUIRE);
    code.push(0xc3);
    code
}

#[test]
fn a_lock_is_taken_where_the_jump_to_the_slow_path_is_not() {
    let InlinedLocks { sites, unrecognised, .. } = found(&taking(8));
    assert_eq!(unrecognised, []);
    // `jne` leads to the slow path: it is taken when the opposite, 4 (equal), holds.
    let point = InlinedPoint {
        address: 0x100c,
        lock: in_register(7, 8),
        condition: Some(FlagCondition::EQUAL),
    };
    let site =
        InlinedSite { at: 0x1007, fast: FastPath::Acquire, slow_path: 0, points: vec![point] };
    assert_eq!(sites, [site]);
}

#[test]
fn a_slow_path_alone_is_told() {
    let mut code = vec![0x90];
    call(&mut code, ACQUIRE);
    code.push(0xc3);
    let InlinedLocks { sites, unrecognised, .. } = found(&code);
    assert_eq!((sites, unrecognised.len()), (vec![], 1));
}

#[test]
fn a_release_is_seen_at_a_jump_before_it_on_each_way() {
    // test esi,esi; je rel; nop [rax]; (rel:) xor eax,eax; xchg [rdi],eax; cmp eax,2; je slow; ret; (slow:) call
    let mut code =
        vec![0x85, 0xf6, 0x74, 3, 0x0f, 0x1f, 0, 0x31, 0xc0, 0x87, 7, 0x83, 0xf8, 2, 0x74, 1, 0xc3];
    call(&mut code, RELEASE);
    code.push(0xc3);
    let InlinedLocks { sites, unrecognised, .. } = found(&code);
    assert_eq!(unrecognised, []);
    let [site] = &sites[..] else { panic!("{sites:?}") };
    assert_eq!((site.at, site.fast), (0x1009, FastPath::Release));
    // The way through the `nop` of three bytes is past the same jump: two records in one place would be two too
    // many, and so the exchange itself is probed, or what is before it.
    assert_eq!(site.points.len(), 1);
    assert_eq!(site.points[0].condition, None);
    assert_eq!(site.points[0].lock, in_register(7, 0));
}

#[test]
fn a_release_with_a_lock_prefix_is_seen_before_it() {
    // mov esi,-1; lock xadd [rbx],esi; js slow; ret; (slow:) mov rdi,rbx; call; ret
    let mut code =
        vec![0xbe, 0xff, 0xff, 0xff, 0xff, 0xf0, 0x0f, 0xc1, 0x33, 0x78, 1, 0xc3, 0x48, 0x89, 0xdf];
    call(&mut code, RELEASE);
    code.push(0xc3);
    let InlinedLocks { sites, .. } = found(&code);
    let [site] = &sites[..] else { panic!("{sites:?}") };
    let point = InlinedPoint { address: 0x1000, lock: in_register(3, 0), condition: None };
    assert_eq!((site.at, &site.points[..]), (0x1005, &[point][..]));
    let InlinedLocks { sites, .. } = found_by(PlaceRules::InProcess, &code);
    let point = InlinedPoint { address: 0x1005, ..point };
    assert_eq!(sites[0].points, [point], "in the process at the instruction itself");
}

#[test]
fn what_is_tried_once_is_known_by_its_release() {
    // mov ecx,1; xor eax,eax; lock cmpxchg [rdi],ecx; jne end; xchg [rdi],eax; cmp eax,2; je slow; (end:) ret;
    // (slow:) call; ret
    let mut code = vec![
        0xb9, 1, 0, 0, 0, 0x31, 0xc0, 0xf0, 0x0f, 0xb1, 0x0f, 0x75, 7, 0x87, 7, 0x83, 0xf8, 2,
        0x74, 1, 0xc3,
    ];
    call(&mut code, RELEASE);
    code.push(0xc3);
    let InlinedLocks { sites, .. } = found(&code);
    let [take, release] = &sites[..] else { panic!("{sites:?}") };
    assert_eq!((take.at, take.fast), (0x1007, FastPath::Acquire));
    assert_eq!(
        (take.points[0].address, take.points[0].condition),
        (0x100b, Some(FlagCondition::EQUAL))
    );
    assert_eq!((release.at, release.fast), (0x100d, FastPath::Release));
    // Not at the jump where the lock is known to be taken: the order of two probes is not known there.
    assert_eq!(release.points[0].address, 0x100d);
}
