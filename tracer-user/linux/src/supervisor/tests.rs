//! Programs of the system under the supervisor: their events, their ends, and stops of them.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::*;
use crate::{proc, status};

mod creators;
mod victim;

fn start(script: &str) -> (Supervisor, u32) {
    start_program(PathBuf::from("/bin/sh"), &["-c", script])
}

fn start_program(program: PathBuf, arguments: &[&str]) -> (Supervisor, u32) {
    let launch = || Launch {
        program: program.clone(),
        arg0: program.clone().into_os_string(),
        arguments: arguments.iter().map(OsString::from).collect(),
        user: None,
        streams: None,
    };
    loop {
        match Supervisor::launch(launch()) {
            Ok(Started::Held(supervisor, process)) => return (*supervisor, process),
            Ok(Started::Ended { ending, .. }) => panic!("{ending:?}"),
            // A process that another test has forked still has the file open that this one has written.
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::yield_now();
            }
            Err(error) => panic!("it does not start: {error}"),
        }
    }
}

/// Runs a program to its end; returns the events, without ends of threads and signals.
fn follow(mut supervisor: Supervisor, process: u32, detach_children: bool) -> (Vec<Event>, Ending) {
    let mut events = Vec::new();
    loop {
        match supervisor.next_event().expect("an event") {
            Event::End { process: ended, ending } if ended == process => return (events, ending),
            Event::End { .. } | Event::Exit { .. } | Event::Signal { .. } => {}
            event => {
                if let Event::Process { child, .. } = event
                    && detach_children
                {
                    supervisor.detach(child).expect("detached");
                }
                events.push(event);
            }
        }
    }
}

#[test]
fn a_program_comes_to_its_entry_and_ends_with_its_status() {
    let (mut supervisor, process) = start("exit 7");
    supervisor.stop_at_entry(process).unwrap();
    assert_eq!(supervisor.next_event().unwrap(), Event::AtEntry { process });
    assert_eq!(supervisor.place(process).unwrap().0, proc::entry_point(process).unwrap());
    supervisor.release(process).unwrap();
    assert_eq!(follow(supervisor, process, true), (Vec::new(), Ending::Exited(7)));
}

#[test]
fn system_calls_are_made_for_a_program_and_nothing_is_left_of_them() {
    let (mut supervisor, process) = start("exit 3");
    supervisor.stop_at_entry(process).unwrap();
    supervisor.next_event().unwrap();
    let before = request::registers(process as i32).unwrap();
    let own = supervisor
        .with_calls(process, |calls| {
            let failed = calls.call(libc::SYS_close, [u64::from(u32::MAX), 0, 0, 0, 0, 0]);
            assert_eq!(failed.unwrap_err().raw_os_error(), Some(libc::EBADF));
            calls.call(libc::SYS_getpid, [0; 6])
        })
        .unwrap();
    assert_eq!(own, u64::from(process));
    assert_eq!(request::registers(process as i32).unwrap(), before);
    assert_eq!(follow(supervisor, process, true).1, Ending::Exited(3));
}

/// Exits with status 7: `mov edi, 7; mov eax, 60; syscall`.
const EXIT: &[u8] = b"\xbf\x07\0\0\0\xb8\x3c\0\0\0\x0f\x05";

/// Starts a program without a dynamic linker, which has no code but this.
fn start_static(folder: &Path, code: &[u8]) -> (Supervisor, u32) {
    const START: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let length = HEADERS + code.len() as u64;
    // 64 bits, little endian, of this version; an executable for x86-64; the entry point; one program header.
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    file.extend([START + HEADERS, 64, 0].map(u64::to_le_bytes).concat());
    file.extend([0, 0, 64, 56, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    // To be loaded, readable and executable.
    file.extend([1, 5].map(u32::to_le_bytes).concat());
    file.extend([0, START, START, length, length, 4096].map(u64::to_le_bytes).concat());
    file.extend(code);
    let path = folder.join("static");
    fs::write(&path, file).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    start_program(path, &[])
}

#[test]
fn a_program_without_a_dynamic_linker_stands_at_its_entry() {
    let folder = tempfile::tempdir().unwrap();
    let (mut supervisor, process) = start_static(folder.path(), EXIT);
    supervisor.stop_at_entry(process).unwrap();
    assert_eq!(supervisor.next_event().unwrap(), Event::AtEntry { process });
    let before = request::registers(process as i32).unwrap();
    assert_eq!(before.rip, proc::entry_point(process).unwrap());
    let call = |calls: &mut RemoteCalls<'_>| calls.call(libc::SYS_getpid, [0; 6]);
    assert_eq!(supervisor.with_calls(process, call).unwrap(), u64::from(process));
    assert_eq!(request::registers(process as i32).unwrap(), before);
    assert_eq!(follow(supervisor, process, true), (Vec::new(), Ending::Exited(7)));
}

#[test]
fn a_frozen_thread_has_received_the_signal_of_its_fault() {
    const TIMES: u64 = 20_000;
    /// Longest time for which it runs, in nanoseconds.
    const LONGEST: u64 = 30_000;
    let folder = tempfile::tempdir().unwrap();
    // `nop; ud2`
    let (mut supervisor, process) = start_static(folder.path(), b"\x90\x0f\x0b");
    let id = process as i32;
    let mut faults = 0;
    supervisor.stop_at_entry(process).unwrap();
    assert_eq!(supervisor.next_event().unwrap(), Event::AtEntry { process });
    supervisor.release(process).unwrap();
    for time in 0..TIMES {
        let until = Instant::now() + Duration::from_nanos(time * 10 % LONGEST);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        supervisor.freeze(process).unwrap();
        let stands = request::is_in_stop(id).unwrap();
        assert!(!stands || !request::awaits_fault(id).unwrap(), "after {faults} faults");
        while let Some(event) = supervisor.pending_event().unwrap() {
            assert!(matches!(event, Event::Signal { .. }), "{event:?}");
            faults += 1;
            supervisor.replace_signal(process, 0);
        }
        // The events have been dealt with.
        supervisor.held.clear();
        supervisor.thaw(process).unwrap();
    }
    assert!(faults > 0);
}

#[test]
fn a_program_that_loses_its_tracer_before_its_entry_goes_on() {
    for steps in 0..3 {
        let (mut supervisor, process) = start("exit 7");
        supervisor.stop_at_entry(process).unwrap();
        assert!(supervisor.reports_calls(process as i32), "no breakpoint");
        for _ in 0..steps {
            request::resume(process as i32, Resume::ToCall(0)).unwrap();
            status::wait(process as i32).unwrap();
        }
        assert!(request::detach(process as i32, 0).unwrap());
        let ended = status::wait(process as i32).unwrap();
        assert_eq!(ended, Status::Ended(Ending::Exited(7)));
    }
}

#[test]
fn a_program_that_loses_its_tracer_within_a_system_call_goes_on() {
    for calls_before in 0..3 {
        let (mut supervisor, process) = start("kill -0 $$ && exit 3");
        supervisor.stop_at_entry(process).unwrap();
        assert_eq!(supervisor.next_event().unwrap(), Event::AtEntry { process });
        let result = supervisor.with_calls(process, |calls| {
            for _ in 0..calls_before {
                calls.call(libc::SYS_getpid, [0; 6])?;
            }
            assert!(request::detach(process as i32, 0)?);
            calls.call(libc::SYS_getpid, [0; 6])
        });
        result.unwrap_err();
        let ended = status::wait(process as i32).unwrap();
        assert_eq!(ended, Status::Ended(Ending::Exited(3)), "{calls_before}");
    }
}

#[test]
fn children_are_announced_and_detached() {
    let (supervisor, process) = start("(exit 4); echo x | cat > /dev/null; exit $?");
    let (events, ending) = follow(supervisor, process, true);
    assert_eq!((events.len(), ending), (3, Ending::Exited(0)), "{events:?}");
    assert!(
        events.iter().all(|event| matches!(event, Event::Process { shares_memory: false, .. }))
    );
}

#[test]
fn children_that_stay_are_reported_to_their_ends() {
    let (supervisor, process) = start("(exit 4); exit $?");
    let (events, ending) = follow(supervisor, process, false);
    assert_eq!((events.len(), ending), (1, Ending::Exited(4)), "{events:?}");
}

#[test]
fn programs_that_replace_one_another_are_announced() {
    let (supervisor, process) = start("exec sh -c 'exit 5'");
    let (events, ending) = follow(supervisor, process, true);
    assert_eq!((events, ending), (vec![Event::Exec { process }], Ending::Exited(5)));
}

#[test]
fn signals_and_stops_have_their_effects() {
    let (supervisor, process) = start("trap 'exit 9' USR1; kill -USR1 $$; exit 1");
    assert_eq!(follow(supervisor, process, true).1, Ending::Exited(9));
    let (supervisor, process) = start("kill -SEGV $$");
    assert_eq!(follow(supervisor, process, true).1, Ending::Killed(libc::SIGSEGV));
    let (supervisor, process) = start("(sleep 0.1; kill -CONT $$) & kill -STOP $$; exit 6");
    assert_eq!(follow(supervisor, process, true).1, Ending::Exited(6));
}

/// Starts a program whose main thread creates another one, which sleeps, and replaces the program then.
fn start_that_replaces_its_program(folder: &Path) -> (Supervisor, u32) {
    let replaces: &[&[u8]] = &[
        // `clone` of a thread: `mov eax, 56; mov edi, 0x50f00; xor esi, esi; syscall; test eax, eax; jne +9`.
        b"\xb8\x38\0\0\0\xbf\x00\x0f\x05\0\x31\xf6\x0f\x05\x85\xc0\x75\x09",
        // The thread sleeps: `mov eax, 34; syscall; jmp -9`.
        b"\xb8\x22\0\0\0\x0f\x05\xeb\xf7",
        // `execve`: `lea rdi, [rip + 23]; xor esi, esi; xor edx, edx; mov eax, 59; syscall`.
        b"\x48\x8d\x3d\x17\0\0\0\x31\xf6\x31\xd2\xb8\x3b\0\0\0\x0f\x05",
        // If that fails: `mov edi, 1; mov eax, 60; syscall`.
        b"\xbf\x01\0\0\0\xb8\x3c\0\0\0\x0f\x05",
        b"/bin/true\0",
    ];
    start_static(folder, &replaces.concat())
}

/// Starts that program up to the event of its new thread, and stops both threads.
fn start_with_two_threads(folder: &Path) -> (Supervisor, u32) {
    let (mut supervisor, process) = start_that_replaces_its_program(folder);
    supervisor.release(process).unwrap();
    while !matches!(supervisor.next_event().unwrap(), Event::Thread { .. }) {}
    supervisor.freeze(process).unwrap();
    (supervisor, process)
}

/// Kills a process of which no thread runs, and waits until its main thread stands at its end.
fn kill_held(process: u32) {
    let id = process as i32;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::SIGKILL).unwrap();
    while !request::is_at_end(id) {
        std::thread::yield_now();
    }
}

/// A main thread that is let run from its end is not reported before the others have ended, which are held.
#[test]
fn a_process_that_is_killed_while_its_main_thread_is_moved_is_not_waited_for() {
    for is_killed_first in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (mut supervisor, process) = start_with_two_threads(folder.path());
        let is_there = |_: &mut Supervisor, _| {
            // It is known to be alive here.
            kill_held(process);
            Ok(false)
        };
        if is_killed_first {
            kill_held(process);
            assert!(supervisor.run_until(process, |_, _| Ok(false), |_| Ok(true)).unwrap());
        } else {
            assert!(supervisor.run_until(process, is_there, |_| Ok(true)).unwrap());
        }
        supervisor.thaw(process).unwrap();
        assert_eq!(follow(supervisor, process, true).1, Ending::Killed(libc::SIGKILL));
    }
}

#[test]
fn a_process_that_is_killed_within_system_calls_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (mut supervisor, process) = start_with_two_threads(folder.path());
    // The main thread makes them.
    supervisor.settle(process as i32).unwrap();
    assert_eq!(supervisor.caller(process), process as i32);
    let result = supervisor.with_calls(process, |calls| {
        kill_held(process);
        calls.call(libc::SYS_getpid, [0; 6])
    });
    assert!(proc::is_gone(&result.unwrap_err()));
    let again = supervisor.with_calls(process, |calls| calls.call(libc::SYS_getpid, [0; 6]));
    assert!(proc::is_gone(&again.unwrap_err()));
    supervisor.thaw(process).unwrap();
    assert_eq!(follow(supervisor, process, true).1, Ending::Killed(libc::SIGKILL));
}

#[test]
fn a_thread_that_is_moved_and_replaces_the_program_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (mut supervisor, process) = start_with_two_threads(folder.path());
    assert!(supervisor.run_until(process, |_, _| Ok(false), |_| Ok(true)).unwrap());
    supervisor.thaw(process).unwrap();
    let (events, ending) = follow(supervisor, process, true);
    assert_eq!((events, ending), (vec![Event::Exec { process }], Ending::Exited(0)));
}

/// A thread that waits for a child in its memory stops when that has ended, which is held before its first instruction.
#[test]
fn a_thread_that_is_moved_and_waits_for_a_child_is_not_waited_for() {
    // `vfork`: `mov eax, 58; syscall`. Then both exit.
    let forks = [b"\xb8\x3a\0\0\0\x0f\x05", EXIT].concat();
    let folder = tempfile::tempdir().unwrap();
    let (mut supervisor, process) = start_static(folder.path(), &forks);
    supervisor.release(process).unwrap();
    supervisor.freeze(process).unwrap();
    assert!(supervisor.run_until(process, |_, _| Ok(false), |_| Ok(true)).unwrap());
    assert!(supervisor.is_in_vfork(process) && !supervisor.is_quiet());
    supervisor.thaw(process).unwrap();
    let (events, ending) = follow(supervisor, process, true);
    let is_child = |event: &Event| matches!(event, Event::Process { shares_memory: true, .. });
    assert!(events.len() == 1 && events.iter().all(is_child), "{events:?}");
    assert_eq!(ending, Ending::Exited(7));
}

/// A thread that is moved and gets a signal that kills its process has come to its end, which is no error.
#[test]
fn a_signal_that_kills_a_thread_that_is_moved_is_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (mut supervisor, process) = start_with_two_threads(folder.path());
    let pid = nix::unistd::Pid::from_raw(process as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).unwrap();
    let mut received = 0;
    let receives = |_: &mut Supervisor| {
        received += 1;
        Ok(true)
    };
    assert!(supervisor.run_until(process, |_, _| Ok(false), receives).unwrap());
    assert_eq!(received, 1);
    supervisor.thaw(process).unwrap();
    assert_eq!(follow(supervisor, process, true).1, Ending::Killed(libc::SIGTERM));
}

/// A thread that ends because another one replaces the program is held at its end, and the other one waits for that
/// in the kernel: it does not stop before.
#[test]
fn a_process_that_replaces_its_program_while_a_thread_is_held_is_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let (mut supervisor, process) = start_that_replaces_its_program(folder.path());
    let (mut frozen, mut replaced) = (0, false);
    loop {
        match supervisor.next_event().unwrap() {
            Event::Exit { thread, .. } if thread != process => {
                supervisor.freeze(process).unwrap();
                supervisor.thaw(process).unwrap();
                frozen += 1;
            }
            Event::Exec { .. } => replaced = true,
            Event::End { ending, .. } => {
                assert_eq!((frozen, replaced, ending), (1, true, Ending::Exited(0)));
                return;
            }
            _ => {}
        }
    }
}

#[test]
fn a_frozen_process_does_nothing() {
    let (mut supervisor, process) = start("while :; do :; done");
    supervisor.release(process).unwrap();
    // Its first instructions, and then in the middle of them.
    for _ in 0..3 {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(process as i32),
            nix::sys::signal::SIGWINCH,
        )
        .unwrap();
        supervisor.freeze(process).unwrap();
        let place = supervisor.place(process).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(supervisor.place(process).unwrap(), place);
        supervisor.thaw(process).unwrap();
        supervisor.go_on(process as i32).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process as i32), nix::sys::signal::SIGKILL)
        .unwrap();
    assert_eq!(follow(supervisor, process, true).1, Ending::Killed(libc::SIGKILL));
}

/// A thread that is moved on before it receives a signal learns of it what its sender has said.
#[test]
fn a_signal_of_a_thread_that_is_moved_keeps_its_sender() {
    /// `SI_TKILL`, as an exit status.
    const SENT_TO_A_THREAD: i32 = -6 & 0xff;
    let signals_itself: &[&[u8]] = &[
        // A handler that learns of the signal: `push 0; push 0; push 0x4000004; lea rax, [rip + 55]; push rax`.
        b"\x6a\0\x6a\0\x68\x04\0\0\x04\x48\x8d\x05\x37\0\0\0\x50",
        // `rt_sigaction` for SIGUSR1: `mov edi, 10; mov rsi, rsp; xor edx, edx; mov r10d, 8; mov eax, 13; syscall`.
        b"\xbf\x0a\0\0\0\x48\x89\xe6\x31\xd2\x41\xba\x08\0\0\0\xb8\x0d\0\0\0\x0f\x05",
        // `tgkill` of itself: `mov eax, 39; syscall; mov edi, eax; mov esi, eax; mov edx, 10; mov eax, 234; syscall`.
        b"\xb8\x27\0\0\0\x0f\x05\x89\xc7\x89\xc6\xba\x0a\0\0\0\xb8\xea\0\0\0\x0f\x05",
        // Six times `nop`, and `jmp -2`.
        b"\x90\x90\x90\x90\x90\x90\xeb\xfe",
        // The handler exits with the cause: `mov edi, [rsi + 8]; mov eax, 60; syscall`.
        b"\x8b\x7e\x08\xb8\x3c\0\0\0\x0f\x05",
    ];
    let folder = tempfile::tempdir().unwrap();
    let (mut supervisor, _) = start_static(folder.path(), &signals_itself.concat());
    let mut moved = false;
    loop {
        match supervisor.next_event().unwrap() {
            Event::Signal { thread, .. } => {
                let (place, _) = supervisor.place(thread).unwrap();
                let is_there = |_: &mut Supervisor, at| Ok(at != place);
                moved = supervisor.run_until(thread, is_there, |_| Ok(true)).unwrap();
            }
            Event::End { ending, .. } => {
                assert_eq!((moved, ending), (true, Ending::Exited(SENT_TO_A_THREAD)));
                return;
            }
            _ => {}
        }
    }
}
