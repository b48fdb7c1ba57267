//! What instructions touch that are probed.

use checker::event::{Op, ThreadId, VarId};
use tracer_ebpf::{PairRecord, Touch};

use super::{Item, Source};
use crate::{live::location::Location, probes::plan::SiteKind};

impl Source {
    /// An instruction has touched memory, or is about to.
    pub(super) fn touch(&mut self, record: &PairRecord, sink: &mut impl FnMut(Item)) {
        let header = record.call.header;
        let site = self.sites.get(header.site as usize).map(|site| &site.kind);
        let Some(&SiteKind::Touch(place)) = site else {
            self.omissions.foreign_records += 1;
            return;
        };
        let thread = self.thread(header.tid);
        self.acts_at(thread, record.call.sp, sink);
        self.at(thread, record.call.sp, sink);
        let mut frames = record.call.frames;
        frames[0] = place.instruction.0;
        let location = self.locations.stack(Location::Access(frames), &mut self.symbolizer);
        let (address, bytes) = (record.call.object, record.second);
        let mut variables = std::mem::take(&mut self.touched);
        self.variables(thread, location, (address, bytes), &mut variables, sink);
        let done = header.detail as u8;
        let both = Touch::READ | Touch::WRITE;
        let ops: [Option<fn(VarId) -> Op>; 2] = match done & (both | Touch::ATOMIC) {
            Touch::READ => [Some(Op::Read), None],
            Touch::WRITE => [Some(Op::Write), None],
            done if done == both => [Some(Op::Read), Some(Op::Write)],
            _ => [Some(Op::Update), None],
        };
        for op in ops.into_iter().flatten() {
            for &variable in &variables {
                self.emit(thread, op(variable), location, sink);
            }
        }
        variables.clear();
        self.touched = variables;
        self.sharing.touched(thread, address, bytes, done & Touch::WRITE != 0);
    }

    /// The variables that an access is to, after what has to come before it.
    pub(super) fn variables(
        &mut self,
        thread: ThreadId,
        location: checker::event::LocationId,
        (address, bytes): (u64, u64),
        variables: &mut Vec<VarId>,
        sink: &mut impl FnMut(Item),
    ) {
        let Self { memory, events, .. } = self;
        let before = &mut |op| {
            *events += 1;
            sink(Item::Event(checker::event::Event { thread, op, location }));
        };
        memory.touch(thread, address, bytes, before, variables);
    }
}
