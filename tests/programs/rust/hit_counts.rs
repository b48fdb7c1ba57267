//! A count in a map that is read in one section and written back in another: `HashMap` does the accesses. A second map
//! of the same type is a field of a structure, and has the name of that field. A third variable is an atomic one, in a
//! block of its own.
//!
//! Nothing is marked and nothing named. Turns go through pipes.

use std::{
    collections::HashMap,
    io::{Read, Write, pipe},
    sync::{
        Arc, RwLock,
        atomic::{AtomicI64, Ordering},
    },
    thread,
};

type Hits = Arc<RwLock<HashMap<String, u64>>>;

struct Archive {
    counts: RwLock<HashMap<String, u64>>,
}

#[inline(never)]
fn hit(hits: &Hits, page: &str, pause: impl FnOnce()) {
    let before = {
        let counts = hits.read().unwrap();
        counts.get(page).copied().unwrap_or(0) // @look
    };
    pause();
    let mut counts = hits.write().unwrap();
    counts.insert(page.to_owned(), before + 1); // @insert
}

impl Archive {
    #[inline(never)]
    fn count(&self, page: &str, pause: impl FnOnce()) {
        let before = {
            let counts = self.counts.read().unwrap();
            counts.get(page).copied().unwrap_or(0) // @archive_look
        };
        pause();
        let mut counts = self.counts.write().unwrap();
        counts.insert(page.to_owned(), before + 1); // @archive_insert
    }
}

struct Limiter {
    limit: i64,
    tokens: AtomicI64,
}

impl Limiter {
    #[inline(never)]
    fn take(&self, pause: impl FnOnce()) -> bool {
        let tokens = self.tokens.load(Ordering::SeqCst); // @load
        pause();
        self.tokens.store(tokens - 1, Ordering::SeqCst); // @store
        tokens < self.limit
    }
}

/// Runs one of two functions in the midst of the other.
fn in_the_midst(first: impl FnOnce(&dyn Fn()) + Send, second: impl FnOnce() + Send) {
    let (mut await_other, go_other) = pipe().expect("a pipe");
    let (await_first, mut go_first) = pipe().expect("a pipe");
    thread::scope(|scope| {
        scope.spawn(move || {
            first(&move || {
                (&go_other).write_all(&[0]).expect("a turn to give");
                (&await_first).read_exact(&mut [0]).expect("a turn");
            });
        });
        scope.spawn(move || {
            await_other.read_exact(&mut [0]).expect("a turn");
            second();
            go_first.write_all(&[0]).expect("a turn to give");
        });
    });
}

fn main() {
    let hits: Hits = Arc::default();
    let archive = Archive { counts: RwLock::default() };
    hit(&hits, "/index", || ());
    archive.count("/index", || ());
    in_the_midst(|pause| hit(&hits, "/index", pause), || hit(&hits, "/index", || ()));
    in_the_midst(|pause| archive.count("/index", pause), || archive.count("/index", || ()));
    let limiter = Arc::new(Limiter { limit: 9, tokens: AtomicI64::new(9) });
    in_the_midst(|pause| _ = limiter.take(pause), || _ = limiter.take(|| ()));
    println!("{:?} {:?}", hits.read().unwrap(), archive.counts.read().unwrap());
}
