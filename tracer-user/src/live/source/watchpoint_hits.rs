//! Hits of watchpoints: the access and its variables, and the values before and after.

use checker::{
    event::{LocationId, Op, ThreadId, VarId},
    format::ObservedValue,
};
use tracer_ebpf::WatchpointRecord;

use super::{Item, MAX_VALUES, Source, WatchedRange};
use crate::{
    live::{
        location::Location,
        watchpoint_access::{self, Access, AccessKind, Undecoded},
    },
    symbolize::ProcessAddr,
};

/// Calls and jumps through memory that are remembered at most.
const MAX_TRANSFERS: usize = 1 << 16;

impl Source {
    /// Handles a hit of a watchpoint.
    pub(super) fn access(&mut self, record: &WatchpointRecord, sink: &mut impl FnMut(Item)) {
        self.hits += 1;
        let is_sample = record.is_sample != 0;
        let Some(index) = self.range_at(ProcessAddr(record.address), is_sample) else {
            self.omissions.foreign_records += 1;
            return;
        };
        let length = self.watches[index].length;
        let thread = self.thread(record.header.tid);
        self.acts_at(thread, record.sp, sink);
        self.at(thread, record.sp, sink);
        let (decoded, is_of_lock) = self.decode(record);
        if is_of_lock {
            self.omissions.lock_accesses += 1;
            return;
        }
        if decoded.is_ok_and(|access| access.is_masked) {
            self.omissions.masked_accesses += u64::from(!is_sample);
            return;
        }
        let mut frames = record.frames;
        let kind = match decoded {
            Ok(access) => {
                frames[0] = access.instruction.0;
                access.what.done(record.flags)
            }
            Err(reason) => {
                *self.omissions.undecoded_accesses.entry(reason).or_default() += 1;
                AccessKind::Read
            }
        };
        if let Ok(access) = decoded {
            let trust = self.trusts.get(&frames[0]).copied();
            let trust = trust.unwrap_or_else(|| self.trust(access.instruction));
            self.trusts.insert(frames[0], trust);
            if !trust.counts(!is_sample, kind.writes(), access.bytes) {
                self.omissions.library_accesses += 1;
                return;
            }
        }
        if is_sample {
            // A probe beside the instruction may report it too, or another watchpoint that was named; or the access
            // may be to a part of the range only.
            let is_whole = |access: Access| access.bytes >= length;
            if self.is_named(record.address, length)
                || !decoded.is_ok_and(is_whole)
                || !self.hit_counts(thread, frames[0], record.address)
            {
                return;
            }
        }
        let location = self.locations.stack(Location::Access(frames), &mut self.symbolizer);
        self.touch_watched(thread, index, sink);
        if self.touched.is_empty() {
            self.omissions.freed_accesses += 1;
            return;
        }
        if is_sample {
            let place = (record.address, length);
            let use_of_memory = (kind.reads(), kind.writes());
            if self.synchronises(thread, frames[0], place, use_of_memory, location, sink) {
                return;
            }
            self.shared_words.touched(thread, record.address, length, kind.writes());
        }
        // As a read it conflicts with what overwrites it, and with no other one of its kind. An access to a named
        // range is reported unchanged.
        let commutes = is_sample && decoded.is_ok_and(|access| access.commutes);
        let kind = if commutes { AccessKind::Read } else { kind };
        let mask = if length >= 8 { u64::MAX } else { (1 << (8 * length)) - 1 };
        let after = record.value & mask;
        let written = kind.writes();
        // The kernel side reads the values of named ranges alone.
        let value = (!is_sample).then(|| {
            let before = self.last_values[index].replace(after);
            ObservedValue { event: self.events, before, after, length: length as u8, written }
        });
        if self.counted_early.remove(&(thread, frames[0], index)) {
            return;
        }
        match kind {
            AccessKind::Read => {
                self.emit_access(thread, Op::Read, location, value, sink);
            }
            AccessKind::Write => {
                self.emit_access(thread, Op::Write, location, value, sink);
            }
            AccessKind::Update => {
                self.emit_access(thread, Op::Update, location, value, sink);
            }
            AccessKind::ReadThenWrite => {
                let read = value.map(|value| {
                    let after = value.before.unwrap_or(value.after);
                    ObservedValue { after, written: false, ..value }
                });
                self.emit_access(thread, Op::Read, location, read, sink);
                self.emit_access(thread, Op::Write, location, value, sink);
            }
        }
    }

    /// Decodes the instruction of a hit; true if it is of a lock's own code.
    fn decode(&mut self, record: &WatchpointRecord) -> (Result<Access, Undecoded>, bool) {
        let (next, top) = (record.frames[0], record.top);
        let judged = |access: Result<Access, Undecoded>| {
            let of_lock =
                |access| watchpoint_access::is_of_lock(&self.symbolizer, &self.sites, access);
            (access, access.is_ok_and(of_lock))
        };
        let known = self.accesses.entry(next);
        let known = known.or_insert_with(|| {
            judged(watchpoint_access::before(&self.symbolizer, ProcessAddr(next)))
        });
        if known.0 != Err(Undecoded::Transfer) {
            return *known;
        }
        if self.transfers.len() == MAX_TRANSFERS {
            self.transfers.clear();
        }
        let known = self.transfers.entry((next, top, record.address));
        *known.or_insert_with(|| {
            let (top, accessed) = (ProcessAddr(top), ProcessAddr(record.address));
            let found = watchpoint_access::transfer(&self.symbolizer, top, accessed);
            judged(found.ok_or(Undecoded::Transfer))
        })
    }

    /// Emits an access to all variables in `touched`.
    fn emit_access(
        &mut self,
        thread: ThreadId,
        op: impl Fn(VarId) -> Op,
        location: LocationId,
        value: Option<ObservedValue>,
        sink: &mut impl FnMut(Item),
    ) {
        for index in 0..self.touched.len() {
            if let Some(value) = value {
                if self.values.len() == MAX_VALUES {
                    self.values.pop_front();
                }
                self.values.push_back(ObservedValue { event: self.events, ..value });
            }
            self.emit(thread, op(self.touched[index]), location, sink);
        }
    }

    /// Adds a range whose address became known while the process runs.
    pub fn add_watch(&mut self, range: WatchedRange) {
        if !range.is_sample {
            self.named_watches.push(self.watches.len());
        }
        self.watches.push(range);
        self.last_values.push(None);
    }

    /// Returns the index of the named range that starts at an address.
    #[must_use]
    pub fn watch_at(&self, address: ProcessAddr) -> Option<usize> {
        self.range_at(address, false)
    }

    /// Returns the index of the range that starts at an address, of the named ranges or of the others.
    fn range_at(&self, address: ProcessAddr, is_sample: bool) -> Option<usize> {
        let mut watches = self.watches.iter().enumerate();
        let found = watches.find(|(index, range)| {
            range.is_sample == is_sample
                && range.address == address
                && !self.unloaded_watches.contains(index)
        });
        found.map(|(index, _)| index)
    }
}
