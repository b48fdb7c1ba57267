//! How long Davida takes, next to a pass that only touches the state of each event's object.
mod micro;
mod null;
mod workload;

use checker::{Checker, Davida, Options};
use std::time::{Duration, Instant};
use workload::{Kind, Workload};

fn time(mut f: impl FnMut() -> u64) -> Duration {
    let start = Instant::now();
    std::hint::black_box(f());
    start.elapsed()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if args.first().is_some_and(|a| a == "micro") {
        micro::run();
        return;
    }
    let events: usize = args.first().map_or(1_000_000, |a| a.parse().unwrap());
    if let Some(which) = args.get(1) {
        let p: Vec<u32> = which.split(',').map(|x| x.parse().unwrap()).collect();
        let kind = match p[2] {
            100 => Kind::Intruded { violating: false },
            101 => Kind::Intruded { violating: true },
            locks => Kind::Locked { locks },
        };
        let w = Workload { events, threads: p[0], variables: p[1], kind };
        let trace = w.generate();
        let mut best = [f64::MAX; 2];
        for _ in 0..p[4] {
            let run = |k| {
                time(|| match k {
                    0 => {
                        let mut n = null::Null::default();
                        n.events(&trace);
                        n.sum()
                    }
                    k => {
                        let mut c = Box::new(Davida::new(Options {
                            serializability: k == 2,
                            ..Options::default()
                        }));
                        c.events(&trace).unwrap();
                        let f = c.finish();
                        f.counts.dependencies
                    }
                })
            };
            for (i, k) in [0, p[3]].into_iter().enumerate() {
                best[i] = best[i].min(run(k).as_secs_f64() * 1e9 / events as f64);
            }
        }
        println!("null {:.2} ns, davida {:.2} ns, {:.2}x", best[0], best[1], best[1] / best[0]);
        return;
    }
    for threads in [4, 16, 64] {
        for variables in [100, 1_000_000] {
            for kind in [
                Kind::Locked { locks: 1 },
                Kind::Locked { locks: 16 },
                Kind::Intruded { violating: false },
                Kind::Intruded { violating: true },
            ] {
                let variables = if variables == 100 && matches!(kind, Kind::Intruded { .. }) {
                    64 * 4
                } else {
                    variables
                };
                let w = Workload { events, threads, variables, kind };
                let trace = w.generate();
                let mut best = [Duration::MAX; 3];
                let mut found = 0;
                for _ in 0..5 {
                    let t = [
                        time(|| {
                            let mut n = null::Null::default();
                            n.events(&trace);
                            n.sum()
                        }),
                        time(|| {
                            let mut c = Box::new(Davida::new(Options {
                                serializability: false,
                                ..Options::default()
                            }));
                            c.events(&trace).unwrap();
                            let f = c.finish();
                            found = f.counts.violations;
                            found
                        }),
                        time(|| {
                            let mut c = Box::new(Davida::new(Options::default()));
                            c.events(&trace).unwrap();
                            let f = c.finish();
                            f.counts.violations
                        }),
                    ];
                    for i in 0..3 {
                        best[i] = best[i].min(t[i]);
                    }
                }
                let ns = |d: Duration| d.as_secs_f64() * 1e9 / events as f64;
                println!(
                    "{threads:3} thr {variables:8} var {:10} null {:6.2} ns  davida {:6.2} ({:.2}x)  +verdict {:6.2} ({:.2}x) violations {found}",
                    match kind {
                        Kind::Locked { locks } => format!("locks {locks}"),
                        Kind::Intruded { violating } => format!("intr {violating}"),
                    },
                    ns(best[0]),
                    ns(best[1]),
                    ns(best[1]) / ns(best[0]),
                    ns(best[2]),
                    ns(best[2]) / ns(best[0])
                );
            }
        }
    }
}
