//! The channels of Rust's standard library.
//!
//! The first argument is the channel: `unbounded` or `bounded`, with `try-` before it where the message is received
//! without waiting. With `split` as the second argument `prepare` sends a message and takes a mutex afterwards in the
//! same region; `use` receives it, and holds the mutex in between: `prepare` is not atomic. With `whole` its region
//! ends before that. With `own` both threads send to themselves through one channel after the other one has received
//! what it had sent, and nothing is to be found.
//!
//! The threads take turns through pipes, which avtrace records nothing of.

use std::hint::black_box;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

static MUTEX: Mutex<u64> = Mutex::new(0);

/// Ends of both pipes for one thread.
struct Turns {
    mine: PipeReader,
    theirs: PipeWriter,
}

impl Turns {
    fn give(&self) {
        (&self.theirs).write_all(b"!").expect("write to a pipe");
    }

    fn wait(&self) {
        (&self.mine).read_exact(&mut [0]).expect("read from a pipe");
    }
}

#[derive(Clone)]
enum Channel {
    Unbounded(Sender<u64>),
    Bounded(SyncSender<u64>),
}

fn send(channel: &Channel) {
    match channel {
        Channel::Unbounded(sender) => send_unbounded(sender),
        Channel::Bounded(sender) => send_bounded(sender),
    }
}

#[inline(never)]
fn send_unbounded(sender: &Sender<u64>) {
    let sent = sender.send(7); // @unbounded_send
    black_box(sent).expect("a receiver");
}

#[inline(never)]
fn send_bounded(sender: &SyncSender<u64>) {
    let sent = sender.send(7); // @bounded_send
    black_box(sent).expect("a receiver");
}

#[inline(never)]
fn receive(receiver: &Receiver<u64>, at_once: bool) {
    let message = if at_once {
        receiver.try_recv().ok()
    } else {
        receiver.recv().ok() // @receive
    };
    assert_eq!(message, Some(7));
}

fn prepare(channel: &Channel, turns: &Turns) {
    let _region = avtrace_markers::region!("prepare");
    send(channel);
    turns.give();
    turns.wait();
    *MUTEX.lock().expect("no panic") += 1; // @prepare_lock
}

fn prepare_whole(channel: &Channel, turns: &Turns) {
    {
        let _region = avtrace_markers::region!("prepare");
        *MUTEX.lock().expect("no panic") += 1;
        send(channel);
    }
    turns.give();
    turns.wait();
}

fn run_use(receiver: &Receiver<u64>, turns: &Turns, at_once: bool) {
    turns.wait();
    {
        let _region = avtrace_markers::region!("use");
        receive(receiver, at_once);
        let mut value = MUTEX.lock().expect("no panic");
        *value += 1;
        drop(value); // @use_unlock
    }
    turns.give();
}

/// Each message is received by its sender, and what is sent to the one orders nothing for the other.
fn own(channel: &Channel, receiver: &Mutex<Receiver<u64>>, turns: &Turns, first: bool) {
    if !first {
        turns.wait();
    }
    {
        let _region = avtrace_markers::region!("own");
        let receiver = receiver.lock().expect("no panic");
        send(channel);
        receive(&receiver, false);
    }
    if first {
        turns.give();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, how, form] = &arguments[..] else { panic!("usage: channels CHANNEL split|whole|own") };
    let (channel, receiver) = if how.ends_with("unbounded") {
        let (sender, receiver) = mpsc::channel();
        (Channel::Unbounded(sender), receiver)
    } else {
        let (sender, receiver) = mpsc::sync_channel(4);
        (Channel::Bounded(sender), receiver)
    };
    let at_once = how.starts_with("try-");
    let (first, theirs_first) = pipe().expect("a pipe");
    let (second, theirs_second) = pipe().expect("a pipe");
    let one = Turns { mine: first, theirs: theirs_second };
    let other = Turns { mine: second, theirs: theirs_first };
    let receiver = Mutex::new(receiver);
    let (sender, receiver) = (&channel, &receiver);
    thread::scope(|scope| {
        scope.spawn(move || match &**form {
            "own" => own(sender, receiver, &one, true),
            "whole" => prepare_whole(sender, &one),
            _ => prepare(sender, &one),
        });
        scope.spawn(move || match &**form {
            "own" => own(sender, receiver, &other, false),
            _ => run_use(&receiver.lock().expect("no panic"), &other, at_once),
        });
    });
    println!("done: {}", *MUTEX.lock().expect("no panic"));
}
