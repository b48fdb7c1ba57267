//! Tasks on two workers of tokio that share a map, a counter and a channel; the argument is the number of rounds.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{sync::mpsc, task::JoinSet};

const TASKS: u64 = 4;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let counts = Arc::new(Mutex::new(HashMap::new()));
    let requests = Arc::new(AtomicU64::new(0));
    let (sender, mut receiver) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (counts, requests, sender) = (counts.clone(), requests.clone(), sender.clone());
        tasks.spawn(async move {
            for round in 0..rounds {
                serve(&counts, &requests, task * 31 + round % 17);
                sender.send(round).await.expect("a receiver");
            }
        });
    }
    drop(sender);
    let mut received = 0;
    while receiver.recv().await.is_some() {
        received += 1;
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    let counted: u64 = counts.lock().expect("no panic").values().sum();
    assert_eq!(counted, rounds * TASKS);
    assert_eq!(requests.load(Ordering::Relaxed), received);
    println!("{received}");
}

/// Counts a request, in all and by its key.
fn serve(counts: &Mutex<HashMap<u64, u64>>, requests: &AtomicU64, key: u64) {
    requests.fetch_add(1, Ordering::Relaxed);
    *counts.lock().expect("no panic").entry(key).or_insert(0) += 1;
}
