//! Loading the BPF programs, with those for `uprobe_multi` links once more.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::{AsFd as _, OwnedFd},
};

use abi::{ProbeProgram, symbols};
use aya::{
    EbpfLoader,
    programs::{PerfEvent, UProbe},
};

use super::{
    Kernel, LoadOptions, btf,
    copies::SharedPlaces,
    error::{KernelError, refused, unusable},
    limit::Limit,
    object,
};
use linux::bpf;

/// Loads a program for `uprobe_multi`; `None` where the kernel has no such links.
fn load_multi(
    program: ProbeProgram,
    object::Relocated { instructions, license }: &object::Relocated,
) -> Result<Option<OwnedFd>, KernelError> {
    match bpf::load_uprobe_multi(program.name(), instructions, license, program.may_sleep()) {
        // Kernels before 6.6 may ignore the type of attachment here, and refuse the link.
        Ok(fd) => Ok(bpf::has_uprobe_multi(fd.as_fd()).then_some(fd)),
        // An unknown attach type: a kernel before 6.6.
        Err((error, log)) if log.is_empty() && error.raw_os_error() == Some(libc::EINVAL) => {
            Ok(None)
        }
        Err((error, _)) if error.raw_os_error() == Some(libc::EPERM) => {
            Err(KernelError::NotPermitted)
        }
        Err((error, log)) => {
            let last = log.lines().rev().find(|line| !line.starts_with("processed"));
            let message = format!("{}: {error}: {}", program.name(), last.unwrap_or("no log"));
            Err(KernelError::Refused(message))
        }
    }
}

impl Kernel {
    /// Loads the programs. Nothing fires yet.
    ///
    /// # Errors
    ///
    /// See [`KernelError`].
    pub fn load(options: &LoadOptions) -> Result<Self, KernelError> {
        object::check_abi(object::BYTES)?;
        let layout = btf::kernel_layout()?;
        let (target, debug) = (bpf::Setting(options.target), u32::from(options.debug));
        let (follow, accesses) = (u32::from(options.follow), u32::from(options.accesses));
        let (gated, defers_owned) = (u32::from(options.is_gated), u32::from(options.defers_owned));
        let layout = bpf::Setting(layout);
        let mut loader = EbpfLoader::new();
        loader
            .override_global(symbols::TARGET, &target, true)
            .override_global(symbols::KERNEL_LAYOUT, &layout, true)
            .override_global(symbols::DEBUG, &debug, true)
            .override_global(symbols::FOLLOW, &follow, true)
            .override_global(symbols::GATED, &gated, true)
            .override_global(symbols::PROBES_ACCESSES, &accesses, true)
            .override_global(symbols::OWNERSHIP_ENABLED, &defers_owned, true)
            .map_max_entries(symbols::EVENTS, options.buffer_bytes);
        let ebpf = loader.load(object::BYTES).map_err(|error| refused(&error))?;
        let mut kernel = Self {
            multi: None,
            rare: BTreeMap::new(),
            links: Vec::new(),
            probes: Vec::new(),
            points: Vec::new(),
            files: BTreeMap::new(),
            limit: Limit::of(options),
            anchored: BTreeSet::new(),
            pending_detaches: Vec::new(),
            access_groups: 0,
            places: SharedPlaces::default(),
            watchpoints: Vec::new(),
            spare: Vec::new(),
            samples: Vec::new(),
            ebpf,
        };
        if !options.perf_probes {
            kernel.multi = kernel.load_for_uprobe_multi()?;
        }
        if kernel.multi.is_none() {
            for program in ProbeProgram::ALL.into_iter().filter(|program| !program.is_rare()) {
                let program: &mut UProbe = kernel.program(program.name())?;
                program.load().map_err(|error| refused(&error))?;
            }
        }
        for name in ["watchpoint", "sample"] {
            let program: &mut PerfEvent = kernel.program(name)?;
            program.load().map_err(|error| refused(&error))?;
        }
        Ok(kernel)
    }

    /// Loads the probe programs once more, from the same object and onto the same maps, for `uprobe_multi`.
    fn load_for_uprobe_multi(
        &mut self,
    ) -> Result<Option<BTreeMap<ProbeProgram, OwnedFd>>, KernelError> {
        let mut programs = object::relocated(&self.ebpf).map_err(|error| unusable(&*error))?;
        let mut loaded = BTreeMap::new();
        for program in ProbeProgram::ALL {
            let relocated = programs
                .remove(program.name())
                .ok_or_else(|| KernelError::Object(format!("no program `{}`", program.name())))?;
            if program.is_rare() {
                let newer = program.newer().and_then(|name| programs.remove(name));
                self.rare.insert(program, newer.into_iter().chain([relocated]).collect());
                continue;
            }
            match load_multi(program, &relocated)? {
                Some(fd) => drop(loaded.insert(program, fd)),
                None => return Ok(None),
            }
        }
        Ok(Some(loaded))
    }

    /// Loads a program that is needed now, if it has not been before.
    pub(super) fn load_rare(&mut self, program: ProbeProgram) -> Result<(), KernelError> {
        if !program.is_rare() {
            return Ok(());
        }
        match &mut self.multi {
            Some(multi) => {
                if let Some((oldest, newer)) =
                    self.rare.get(&program).and_then(|all| all.split_last())
                {
                    let mut newer = newer.iter().map(|relocated| load_multi(program, relocated));
                    let loaded =
                        newer.find_map(Result::ok).map_or_else(|| load_multi(program, oldest), Ok);
                    multi.extend(loaded?.map(|fd| (program, fd)));
                    self.rare.remove(&program);
                }
            }
            None => {
                let program: &mut UProbe = self.program(program.name())?;
                if program.fd().is_err() {
                    program.load().map_err(|error| refused(&error))?;
                }
            }
        }
        Ok(())
    }
}
