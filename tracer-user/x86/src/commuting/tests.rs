//! Classes of updates by their bytes, and by those that follow them.

use super::*;

const START: u64 = 0x1000;

/// Returns the class of the first instruction of some code.
fn class(code: &[&[u8]]) -> Option<CommutingUpdate> {
    let code = code.concat();
    let code_at = |at: u64| code.get(usize::try_from(at.checked_sub(START)?).ok()?..);
    let instruction = decode_first(&code, START);
    commuting_update(&instruction, &code_at)
}

#[track_caller]
fn check(code: &[&[u8]], change: CommutingChange, is_atomic: bool) {
    assert_eq!(class(code), Some(CommutingUpdate { change, is_atomic }), "{code:x?}");
}

const LOCK_ADD: &[u8] = &[0xf0, 0x48, 0x83, 0x07, 0x01];
const LOCK_INC: &[u8] = &[0xf0, 0x48, 0xff, 0x07];
const LOCK_DEC: &[u8] = &[0xf0, 0x48, 0xff, 0x0f];
const LOCK_OR: &[u8] = &[0xf0, 0x48, 0x83, 0x0f, 0x02];
const LOCK_AND: &[u8] = &[0xf0, 0x48, 0x83, 0x27, 0x02];
const ADD: &[u8] = &[0x48, 0x83, 0x07, 0x01];
const INC: &[u8] = &[0x48, 0xff, 0x07];
/// `lock xadd [rdi], rax`
const LOCK_XADD: &[u8] = &[0xf0, 0x48, 0x0f, 0xc1, 0x07];
const XADD: &[u8] = &[0x48, 0x0f, 0xc1, 0x07];
const RET: &[u8] = &[0xc3];
/// Jumps over the next instruction, if that has one byte.
const JE: &[u8] = &[0x74, 0x01];
const JLE: &[u8] = &[0x7e, 0x01];
const JB: &[u8] = &[0x72, 0x01];
const JP: &[u8] = &[0x7a, 0x01];
const SETE_AL: &[u8] = &[0x0f, 0x94, 0xc0];
const CMP_EAX_1: &[u8] = &[0x83, 0xf8, 0x01];
const CMP_EAX_9: &[u8] = &[0x83, 0xf8, 0x09];
const TEST_EAX: &[u8] = &[0x85, 0xc0];
const XOR_EAX: &[u8] = &[0x31, 0xc0];
const MOV_AL_0: &[u8] = &[0xb0, 0x00];
/// `mov [rbx], rax`
const STORE_RAX: &[u8] = &[0x48, 0x89, 0x03];
const MOV_ECX_EAX: &[u8] = &[0x89, 0xc1];
const CALL: &[u8] = &[0xe8, 0x00, 0x00, 0x00, 0x00];
const UD2: &[u8] = &[0x0f, 0x0b];
/// `jmp [rax]`
const JMP_RAX: &[u8] = &[0xff, 0x20];
/// To itself.
const JMP: &[u8] = &[0xeb, 0xfe];

#[test]
fn an_unused_result_commutes() {
    check(&[LOCK_ADD, RET], CommutingChange::Adds, true);
    check(&[LOCK_INC, CALL], CommutingChange::Adds, true);
    check(&[LOCK_OR, RET], CommutingChange::Bits, true);
    check(&[LOCK_AND, TEST_EAX, JB, RET, RET], CommutingChange::Bits, true);
    check(&[ADD, RET], CommutingChange::Adds, false);
    check(&[INC, JMP], CommutingChange::Adds, false);
    check(&[INC, JMP_RAX], CommutingChange::Adds, false);
}

#[test]
fn so_does_one_that_is_compared_with_zero() {
    check(&[LOCK_DEC, JE, RET, RET], CommutingChange::Adds, true);
    check(&[LOCK_INC, JLE, RET, UD2], CommutingChange::Adds, true);
    check(&[LOCK_DEC, SETE_AL, RET], CommutingChange::Adds, true);
    check(&[INC, JE, RET, RET], CommutingChange::Adds, false);
}

#[test]
fn a_carry_or_a_parity_is_a_use() {
    assert_eq!(class(&[LOCK_ADD, JB, RET, RET]), None);
    assert_eq!(class(&[LOCK_ADD, JP, RET, RET]), None);
    assert_eq!(class(&[LOCK_ADD, JE, RET, JB, RET, RET]), None, "after another jump");
}

#[test]
fn the_number_before_may_be_compared() {
    check(&[LOCK_XADD, XOR_EAX, RET], CommutingChange::Adds, true);
    check(&[LOCK_XADD, CMP_EAX_1, JE, RET, XOR_EAX, RET], CommutingChange::Adds, true);
    check(&[LOCK_XADD, CMP_EAX_1, SETE_AL, RET], CommutingChange::Adds, true);
    check(&[LOCK_XADD, CALL], CommutingChange::Adds, true);
}

#[test]
fn a_number_that_is_used_or_may_be_does_not_commute() {
    assert_eq!(class(&[LOCK_XADD, RET]), None, "it is returned");
    assert_eq!(class(&[LOCK_XADD, STORE_RAX, RET]), None);
    assert_eq!(class(&[LOCK_XADD, MOV_ECX_EAX, RET]), None);
    assert_eq!(class(&[LOCK_XADD, MOV_AL_0, RET]), None, "a part of it remains");
    assert_eq!(class(&[LOCK_XADD, CMP_EAX_9, JE, RET, XOR_EAX, RET]), None, "a limit");
    assert_eq!(class(&[LOCK_XADD, JMP_RAX]), None);
    assert_eq!(class(&[LOCK_XADD]), None, "what follows is unknown");
    assert_eq!(class(&[XADD, XOR_EAX, RET]), None, "neither atomic nor an addition alone");
}

#[test]
fn other_instructions_do_not_commute() {
    for code in [
        &[0x48, 0x03, 0x07][..],               // add rax, [rdi]
        &[0x48, 0x89, 0x07],                   // mov [rdi], rax
        &[0x48, 0x87, 0x07],                   // xchg [rdi], rax
        &[0xf0, 0x48, 0x0f, 0xb1, 0x17],       // lock cmpxchg [rdi], rdx
        &[0x48, 0x83, 0x17, 0x01],             // adc qword [rdi], 1
        &[0x48, 0xf7, 0x1f],                   // neg qword [rdi]
        &[0x48, 0x83, 0x3f, 0x01],             // cmp qword [rdi], 1
        &[0xf0, 0x48, 0x0f, 0xba, 0x2f, 0x01], // lock bts qword [rdi], 1
    ] {
        assert_eq!(class(&[code, RET]), None, "{code:x?}");
    }
}

#[test]
fn the_last_owner_of_a_shared_pointer_reads_both_counts() {
    let is_test = |code: &[&[u8]]| {
        let code = code.concat();
        let code_at = |at: u64| code.get(usize::try_from(at.checked_sub(START)?).ok()?..);
        let all = || crate::instruction::decode(&code, START);
        all().any(|load| is_last_owner_test(&load, &code_at, all()))
    };
    // movabs rax, 0x100000001
    let both_one: &[u8] = &[0x48, 0xb8, 1, 0, 0, 0, 1, 0, 0, 0];
    let others: &[u8] = &[0x48, 0xb8, 2, 0, 0, 0, 1, 0, 0, 0];
    // mov rdx, [rbx+8]; cmp rdx, rax
    let load: &[u8] = &[0x48, 0x8b, 0x53, 0x08];
    let compare: &[u8] = &[0x48, 0x39, 0xc2];
    // mov [rbx], rdx
    let store: &[u8] = &[0x48, 0x89, 0x13];
    assert!(is_test(&[both_one, load, compare, JE, RET, CALL]));
    assert!(!is_test(&[others, load, compare, JE, RET, CALL]));
    assert!(!is_test(&[both_one, load, compare, store, RET]), "the counts are used");
    assert!(!is_test(&[both_one, load, XOR_EAX, compare, RET]));
}
