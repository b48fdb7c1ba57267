//! Programs of the system under the supervisor: their events, their ends, and stops of them.

use std::{ffi::OsString, path::PathBuf};

use super::*;
use crate::sys::{proc, status};

fn start(script: &str) -> (Supervisor, u32) {
    let launch = Launch {
        program: PathBuf::from("/bin/sh"),
        arg0: OsString::from("sh"),
        arguments: vec![OsString::from("-c"), OsString::from(script)],
        user: None,
    };
    match Supervisor::launch(launch).expect("it starts") {
        Started::Held(supervisor, process) => (supervisor, process),
        Started::Ended { ending, .. } => panic!("{ending:?}"),
    }
}

/// Runs a program to its end; returns the events, without ends of threads.
fn follow(mut supervisor: Supervisor, process: u32, detach_children: bool) -> (Vec<Event>, Ending) {
    let mut events = Vec::new();
    loop {
        match supervisor.next_event().expect("an event") {
            Event::End { process: ended, ending } if ended == process => return (events, ending),
            Event::End { .. } | Event::Exit { .. } => {}
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
            let failed = calls.call((libc::SYS_close, [u64::from(u32::MAX), 0, 0, 0, 0, 0]));
            assert_eq!(failed.unwrap_err().raw_os_error(), Some(libc::EBADF));
            calls.call((libc::SYS_getpid, [0; 6]))
        })
        .unwrap();
    assert_eq!(own, u64::from(process));
    assert_eq!(request::registers(process as i32).unwrap(), before);
    assert_eq!(follow(supervisor, process, true).1, Ending::Exited(3));
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
                calls.call((libc::SYS_getpid, [0; 6]))?;
            }
            assert!(request::detach(process as i32, 0)?);
            calls.call((libc::SYS_getpid, [0; 6]))
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
