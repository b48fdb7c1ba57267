//! Dataflow through registers and the stack in short pieces of machine code.

use super::*;

fn values(code: &[u8]) -> Dataflow {
    Dataflow::analyze(&[Part { start: 0x1000, code }], &|_| false, &|_| None).unwrap()
}

fn before(values: &Dataflow, offset: u64) -> DataState {
    values.before(values.at(0x1000 + offset).unwrap(), &|_| false).unwrap()
}

#[test]
fn copies_and_sums_are_followed() {
    // lea rbx,[rdi+rsi*8+16]; mov r12,rbx; add r12,8; call …; ret
    let code =
        [0x48, 0x8d, 0x5c, 0xf7, 16, 0x49, 0x89, 0xdc, 0x49, 0x83, 0xc4, 8, 0xe8, 0, 0, 0, 0, 0xc3];
    let values = values(&code);
    let state = before(&values, 17);
    assert_eq!(state.register(12).distance_from(state.register(3)), Some(8));
    let sum = Value {
        base: Some(ValueOrigin::Entry(7)),
        index: Some((ValueOrigin::Entry(6), 8)),
        plus: 16,
    };
    assert_eq!(state.register(3), sum, "it outlives the call");
    assert_ne!(state.register(7), Value::origin(ValueOrigin::Entry(7)), "this does not");
}

#[test]
fn the_stack_keeps_values() {
    // push rdi; sub rsp,16; mov [rsp+8],rsi; call …; mov rcx,[rsp+8]; add rsp,16; pop rdx; ret
    let code = [
        0x57, 0x48, 0x83, 0xec, 16, 0x48, 0x89, 0x74, 0x24, 8, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x4c,
        0x24, 8, 0x48, 0x83, 0xc4, 16, 0x5a, 0xc3,
    ];
    let values = values(&code);
    let state = before(&values, 25);
    assert_eq!(state.register(1), Value::origin(ValueOrigin::Entry(6)));
    assert_eq!(state.register(2), Value::origin(ValueOrigin::Entry(7)));
    assert_eq!(state.register(4), Value::origin(ValueOrigin::Entry(4)));
    let inside = before(&values, 15);
    assert!(inside.stack().any(|place| place == (8, Value::origin(ValueOrigin::Entry(6)))));
}

#[test]
fn paths_that_disagree_are_merged() {
    // mov ecx,1; test edi,edi; je +5; mov ecx,2; (label:) ret
    let code = [0xb9, 1, 0, 0, 0, 0x85, 0xff, 0x74, 5, 0xb9, 2, 0, 0, 0, 0xc3];
    let values = values(&code);
    let state = before(&values, 14);
    let merged = ValueOrigin::Merged(0x100e, DataPlace::Register(1));
    assert_eq!(state.register(1), Value::origin(merged));
    assert_eq!(before(&values, 9).register(1).as_constant(), Some(1));
    assert_eq!(
        values.merged_at(state.register(1), values.at(0x100e).unwrap()),
        Some(DataPlace::Register(1))
    );
}

#[test]
fn tables_are_followed() {
    // lea rcx,[rip+0x100]; movsxd rax,[rcx+rdi*4]; add rax,rcx; jmp rax; ud2; (case:) ret; (case:) ret
    let code = [
        0x48, 0x8d, 0x0d, 0, 1, 0, 0, 0x48, 0x63, 4, 0xb9, 0x48, 1, 0xc8, 0xff, 0xe0, 0x0f, 0x0b,
        0xc3, 0xc3,
    ];
    let table = 0x1107_u64;
    let word_at = |address: u64| {
        let offsets = [0x1012 - 0x1107, 0x1013 - 0x1107, 0x7000];
        let index = usize::try_from((address - table) / 4).ok()?;
        offsets.get(index).map(|offset: &i32| offset.cast_unsigned())
    };
    let values =
        Dataflow::analyze(&[Part { start: 0x1000, code: &code }], &|_| false, &word_at).unwrap();
    let jump = values.at(0x100e).unwrap();
    let targets = [0x1012, 0x1013].map(|address| values.at(address).unwrap());
    assert_eq!(values.successors(jump), targets);
    assert_eq!(before(&values, 0x13).register(7), Value::origin(ValueOrigin::Entry(7)));
    assert!(
        Dataflow::analyze(&[Part { start: 0x1000, code: &code }], &|_| false, &|_| None).is_none()
    );
}

#[test]
fn what_a_loop_makes_anew_is_not_what_it_made_before() {
    // (loop:) mov rcx,rax; mov rax,[rdi]; test rax,rax; jne loop; ret
    let code = [0x48, 0x89, 0xc1, 0x48, 0x8b, 7, 0x48, 0x85, 0xc0, 0x75, 0xf5, 0xc3];
    let values = values(&code);
    let state = before(&values, 11);
    assert_ne!(state.register(0), state.register(1));
}
