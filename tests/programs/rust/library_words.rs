//! Threads that synchronise in every way of the standard library, in a region, and share no data: all words that they
//! access are the library's.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Barrier, Mutex, Once, OnceLock, RwLock};
use std::thread;

const THREADS: usize = 3;
const ROUNDS: usize = 40;

struct Shared {
    gate: Barrier,
    open: RwLock<()>,
    turn: Mutex<()>,
    once: Once,
    first: OnceLock<u64>,
    bell: Receiver<u64>,
}

struct Posts {
    unbounded: Sender<u64>,
    bounded: SyncSender<u64>,
}

// The receiver is used under a lock.
unsafe impl Sync for Shared {}

#[inline(never)]
fn work(shared: &Shared, posts: &Posts, round: u64) {
    posts.unbounded.send(round).expect("the receiver lives");
    posts.bounded.send(round).expect("the receiver lives");
    drop(shared.open.read().expect("nobody panics"));
    shared.gate.wait();
    drop(shared.open.write().expect("nobody panics"));
    shared.once.call_once(|| {});
    shared.first.get_or_init(|| 1);
    let turn = shared.turn.lock().expect("nobody panics");
    shared.bell.recv().expect("each thread has sent one");
    drop(turn);
    shared.gate.wait();
    posts.unbounded.send(round).expect("the receiver lives");
    drop(shared.open.read().expect("nobody panics"));
    drop(shared.open.write().expect("nobody panics"));
}

fn main() {
    let (unbounded, log) = channel();
    let (bounded, bell) = sync_channel(THREADS);
    let shared = Arc::new(Shared {
        gate: Barrier::new(THREADS),
        open: RwLock::new(()),
        turn: Mutex::new(()),
        once: Once::new(),
        first: OnceLock::new(),
        bell,
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let shared = Arc::clone(&shared);
            let posts = Posts { unbounded: unbounded.clone(), bounded: bounded.clone() };
            thread::spawn(move || (0..ROUNDS as u64).for_each(|round| work(&shared, &posts, round)))
        })
        .collect();
    drop((unbounded, bounded));
    let logged = log.iter().count();
    for thread in threads {
        thread.join().expect("it does not panic");
    }
    assert_eq!(logged, 2 * THREADS * ROUNDS);
}
