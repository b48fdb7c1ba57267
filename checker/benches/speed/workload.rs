//! Workloads: threads that run transactions of ten events, interleaved at random; as events and as files of
//! both formats.

use checker::event::{Event, LockId, Op, RegionId, ThreadId, VarId};
use checker::format::{
    AvtWriter, Object, ObjectKind, ReadOptions, Region, TextWriter, Thread, TraceReader, convert,
    numbered_location,
};

/// A pseudo-random number generator with a fixed sequence.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(limit)) >> 32) as u32
    }
}

/// Regions in the code; they share no locations.
const REGIONS: u32 = 16;

/// Events of one transaction.
const LENGTH: u32 = 10;

#[derive(Clone, Copy)]
pub struct Workload {
    pub events: usize,
    pub threads: u32,
    pub variables: u32,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Begin, acquire of one of `locks` locks, six accesses (one in three writes) to variables of that
    /// lock, release, end: serializable.
    Locked { locks: u32 },
    /// Begin, read of x, six accesses to other variables of the thread, write of x, end; one thread outside all
    /// regions writes x (or another variable, when not `violating`) after the read of each transaction.
    Intruded { violating: bool },
}

fn numbered(number: u32) -> checker::event::LocationId {
    numbered_location(number).expect("a small number")
}

impl Workload {
    /// Returns the trace as an `.avt` file.
    pub fn avt(&self) -> Vec<u8> {
        self.write().expect("memory takes everything that is defined")
    }

    fn write(&self) -> Result<Vec<u8>, checker::format::WriteError> {
        let mut writer = AvtWriter::new(Vec::with_capacity(self.events * 17))?;
        for id in 0..self.threads {
            writer.thread(ThreadId(id), &Thread { name: Some(format!("T{id}")), tid: None })?;
        }
        for id in 0..REGIONS {
            writer.region(RegionId(id), &Region { name: format!("m{id}"), location: None })?;
        }
        for id in 0..self.variables {
            let name = Some(format!("V{id}"));
            writer.variable(VarId(id), &Object { name, ..Object::new(ObjectKind::Variable) })?;
        }
        if let Kind::Locked { locks } = self.kind {
            for id in 0..locks {
                let name = Some(format!("L{id}"));
                writer.lock(LockId(id), &Object { name, ..Object::new(ObjectKind::Mutex) })?;
            }
        }
        for event in self.generate() {
            writer.event(&event)?;
        }
        writer.finish()
    }

    /// Converts the trace to text.
    pub fn text(avt: &[u8]) -> Vec<u8> {
        let mut writer = TextWriter::new(Vec::with_capacity(avt.len()));
        let mut reader =
            TraceReader::from_bytes(avt, ReadOptions::new("avt")).expect("it was just written");
        convert(&mut reader, &mut writer).expect("it was just written");
        writer.into_inner()
    }

    fn generate(&self) -> Vec<Event> {
        match self.kind {
            Kind::Locked { locks } => self.locked(locks),
            Kind::Intruded { violating } => self.intruded(violating),
        }
    }

    fn locked(&self, locks: u32) -> Vec<Event> {
        let mut random = Random::new(7);
        let mut threads = vec![(0_u32, 0_u32, 0_u32); self.threads as usize];
        let mut held = vec![false; locks as usize];
        let mut events = Vec::with_capacity(self.events);
        while events.len() < self.events {
            let id = random.below(self.threads);
            let (step, region, lock) = &mut threads[id as usize];
            let op = match *step {
                0 => {
                    *region = random.below(REGIONS);
                    *lock = random.below(locks);
                    Op::Begin(RegionId(*region))
                }
                1 if held[*lock as usize] => continue,
                1 => {
                    held[*lock as usize] = true;
                    Op::Acquire(LockId(*lock))
                }
                8 => {
                    held[*lock as usize] = false;
                    Op::Release(LockId(*lock))
                }
                9 => Op::End(None),
                _ => {
                    let variable = VarId(random.below(self.variables / locks) * locks + *lock);
                    if random.below(3) == 0 { Op::Write(variable) } else { Op::Read(variable) }
                }
            };
            let location = numbered(*region * LENGTH + *step);
            *step = (*step + 1) % LENGTH;
            events.push(Event { thread: ThreadId(id), op, location });
        }
        events
    }

    fn intruded(&self, violating: bool) -> Vec<Event> {
        let mut random = Random::new(7);
        let own = self.variables / self.threads;
        let intruder = self.threads - 1;
        let mut threads = vec![(0_u32, 0_u32, 0_u32); intruder as usize];
        let mut events = Vec::with_capacity(self.events + 1);
        while events.len() < self.events {
            let id = random.below(intruder);
            let (step, region, x) = &mut threads[id as usize];
            // The last variable of a thread is the intruder's when there is to be no violation.
            let first = id * own;
            let op = match *step {
                0 => {
                    *region = random.below(REGIONS);
                    *x = first + random.below(own - 1);
                    Op::Begin(RegionId(*region))
                }
                1 => Op::Read(VarId(*x)),
                7 => Op::Write(VarId(*x)),
                8 => Op::End(None),
                _ => {
                    let variable = VarId(first + random.below(own - 1));
                    if random.below(3) == 0 { Op::Write(variable) } else { Op::Read(variable) }
                }
            };
            let location = numbered(*region * LENGTH + *step);
            events.push(Event { thread: ThreadId(id), op, location });
            if *step == 1 {
                let variable = VarId(if violating { *x } else { first + own - 1 });
                let location = numbered(REGIONS * LENGTH);
                events.push(Event {
                    thread: ThreadId(intruder),
                    op: Op::Write(variable),
                    location,
                });
            }
            *step = (*step + 1) % (LENGTH - 1);
        }
        events.truncate(self.events);
        events
    }
}
