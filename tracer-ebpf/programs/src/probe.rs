//! Common start of the programs on uprobes: the cookie, the traced thread and the registers.

use abi::{Cookie, SiteId};
use aya_ebpf::{
    EbpfContext, bindings::pt_regs, helpers::bpf_get_attach_cookie, programs::ProbeContext,
    programs::RetProbeContext,
};

use crate::emit::traced_at;

/// Context of a program on a uprobe.
pub trait UprobeContext: EbpfContext {
    /// Registers of the thread at the probe.
    fn registers(&self) -> &pt_regs;
}

impl UprobeContext for ProbeContext {
    #[inline(always)]
    fn registers(&self) -> &pt_regs {
        // SAFETY: the kernel passes a valid `pt_regs`.
        unsafe { &*self.regs }
    }
}

impl UprobeContext for RetProbeContext {
    #[inline(always)]
    fn registers(&self) -> &pt_regs {
        // SAFETY: the kernel passes a valid `pt_regs`.
        unsafe { &*self.regs }
    }
}

/// Hit of a probe in a traced thread.
pub struct Hit<'a> {
    pub cookie: Cookie,
    /// The site: the low half of the cookie.
    pub site: SiteId,
    pub tid: u32,
    pub regs: &'a pt_regs,
}

/// Cookie of the probe that was hit.
#[inline(always)]
pub fn cookie(ctx: &impl UprobeContext) -> Cookie {
    // SAFETY: the context is this program's own.
    Cookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) })
}

/// Hit of the probe, if the thread is traced and runs the code that the site's plan is for.
#[inline(always)]
pub fn hit(ctx: &impl UprobeContext) -> Option<Hit<'_>> {
    let cookie = cookie(ctx);
    let site = cookie.site();
    let tid = traced_at(site)?;
    Some(Hit { cookie, site, tid, regs: ctx.registers() })
}
