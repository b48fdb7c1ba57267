//! Plans as bytes. A plan follows from files and options alone, up to the addresses at which a process has the files:
//! [`Plan::key`] describes both, and a plan that is read is moved to the addresses of another process. The caller keeps
//! the bytes.

use std::fmt::Write as _;
use std::{ops::Range, path::PathBuf, sync::Arc};

use abi::Cookie;
use serde::{Deserialize, Serialize};
use symbolize::{Module, ProcessAddr, Symbolizer};

use super::{Plan, PlannedProbe, Site, SiteKind, Wanted, builder::file_for_kernel, own_code};
use crate::{
    memory::site::MemorySite,
    regions::site::{FunctionPlace, InlinedBegin, RegionSite},
    sync::site::{RecordedCallers, SyncSite},
};

/// Plan with the places of the modules that its addresses are in.
#[derive(Serialize, Deserialize)]
struct Stored<P> {
    modules: Vec<Place>,
    plan: P,
}

/// Place of a module in a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    range: Range<u64>,
    load_bias: u64,
}

impl Place {
    fn of(module: &Module) -> Self {
        let range = module.range();
        Self { range: range.start.0..range.end.0, load_bias: module.load_bias() }
    }

    fn all(symbolizer: &Symbolizer) -> Vec<Self> {
        sorted_modules(symbolizer).into_iter().map(Self::of).collect()
    }
}

/// Returns the modules by their paths: the kernel chooses the order of their addresses anew for each process.
fn sorted_modules(symbolizer: &Symbolizer) -> Vec<&Module> {
    let mut modules: Vec<&Module> = symbolizer.modules().collect();
    modules.sort_by_key(|module| module.path());
    modules
}

impl Plan {
    /// Returns a description of all inputs of a plan of these modules. `None` where a file has no identity.
    #[must_use]
    pub fn key(symbolizer: &Symbolizer, pid: u32, wanted: Wanted<'_>) -> Option<String> {
        let mut key = String::new();
        let executable = symbolizer.executable();
        for module in sorted_modules(symbolizer) {
            let identity = module.file().ok()?.identity()?;
            let is_program = executable.is_some_and(|program| std::ptr::eq(program, module));
            // Writing to a string does not fail.
            let _ = writeln!(key, "{:?} {is_program} {identity}", module.path());
        }
        let _ = writeln!(key, "{:?}\n{wanted:?}", own_code::switches(pid));
        Some(key)
    }

    /// Returns a plan of these modules as bytes, before its probes are attached. `None` if it cannot be written.
    #[must_use]
    pub fn to_bytes(&self, symbolizer: &Symbolizer) -> Option<Vec<u8>> {
        let stored = Stored { modules: Place::all(symbolizer), plan: self };
        postcard::to_allocvec(&stored).ok()
    }

    /// Reads a plan of the same files and options, and moves it to the addresses of these modules. `None` where the
    /// bytes are no plan, or a plan of other modules: they may be damaged. The number of bytes bounds the memory.
    #[must_use]
    pub fn from_bytes(
        bytes: &[u8],
        symbolizer: &Symbolizer,
        pid: u32,
        wanted: Wanted<'_>,
    ) -> Option<Self> {
        let (stored, rest) = postcard::take_from_bytes::<Stored<Self>>(bytes).ok()?;
        let Stored { modules: before, mut plan } = stored;
        let moves = Moves::new(&before, symbolizer)?;
        plan.state.place_rules = wanted.place_rules;
        plan.state.focus = wanted.focus.map(Arc::clone);
        (rest.is_empty() && plan.move_to(&moves, pid).is_some() && plan.is_consistent())
            .then_some(plan)
    }

    fn move_to(&mut self, moves: &Moves<'_>, pid: u32) -> Option<()> {
        for Site { address, kind } in &mut self.sites {
            let distance = moves.distance(*address)?;
            moved(address, distance);
            move_kind(kind, distance);
        }
        let files: Vec<PathBuf> =
            moves.modules.iter().map(|module| file_for_kernel(pid, module)).collect();
        for PlannedProbe { point, address, has_address, cost: _, purpose: _ } in &mut self.probes {
            let number = moves.module(*address)?;
            let distance = moves.distances[number];
            moved(address, distance);
            if *has_address && let Some(access) = &mut point.access {
                access.displacement = access.displacement.wrapping_add_unsigned(distance);
            }
            point.file.clone_from(&files[number]);
            // The place in the file follows from the one in the process.
            (moves.modules[number].file_offset(*address)?.0 == point.offset).then_some(())?;
        }
        let others = (self.shared.iter_mut().map(|(address, _)| address))
            .chain(self.functions.iter_mut().map(|function| &mut function.address))
            .chain(self.facts.unwatched.iter_mut().map(|function| &mut function.address))
            .chain(self.globals.iter_mut().map(|(address, ..)| address));
        for address in others {
            let distance = moves.distance(*address)?;
            moved(address, distance);
        }
        Some(())
    }

    /// Returns whether all numbers of sites, functions and groups exist.
    fn is_consistent(&self) -> bool {
        let has_function = |function: &u32| (*function as usize) < self.functions.len();
        let is_site = |site: &Site| match &site.kind {
            SiteKind::Region(RegionSite::Function(FunctionPlace::Entry { function, .. })) => {
                has_function(function)
            }
            SiteKind::Region(RegionSite::Function(FunctionPlace::Exit {
                function, into, ..
            })) => has_function(function) && into.as_ref().is_none_or(has_function),
            SiteKind::Region(RegionSite::Inlined(inlined)) => {
                inlined.ends.iter().all(|(function, _)| has_function(function))
                    && inlined.begins.iter().all(|begin| has_function(&begin.function))
            }
            SiteKind::Memory(MemorySite::Access(place)) => place.group < self.access_groups.len(),
            _ => true,
        };
        let is_probe = |probe: &PlannedProbe| {
            let site = Cookie(probe.point.cookie).site().number() as usize;
            let group = probe.point.regions.map_or(0, |group| group as usize + 1);
            site < self.sites.len() && group <= self.region_groups.len()
        };
        self.sites.iter().all(is_site)
            && self.probes.iter().all(is_probe)
            && self.detachable.keys().all(has_function)
            && self.region_groups.iter().flatten().all(has_function)
    }
}

/// Distances by which modules moved from one process to another.
struct Moves<'process> {
    before: &'process [Place],
    modules: Vec<&'process Module>,
    /// Modulo 2⁶⁴, by the modules' numbers.
    distances: Vec<u64>,
}

impl<'process> Moves<'process> {
    fn new(before: &'process [Place], symbolizer: &'process Symbolizer) -> Option<Self> {
        let (modules, after) = (sorted_modules(symbolizer), Place::all(symbolizer));
        let distance = |(before, after): (&Place, &Place)| {
            let distance = after.load_bias.wrapping_sub(before.load_bias);
            let moved = |address: u64| address.wrapping_add(distance);
            let range = moved(before.range.start)..moved(before.range.end);
            let is_same = range == after.range;
            is_same.then_some(distance)
        };
        let distances = before.iter().zip(&after).map(distance).collect::<Option<Vec<_>>>()?;
        (before.len() == after.len()).then_some(Self { before, modules, distances })
    }

    /// Returns the number of the module that had an address.
    fn module(&self, address: ProcessAddr) -> Option<usize> {
        self.before.iter().position(|place| place.range.contains(&address.0))
    }

    fn distance(&self, address: ProcessAddr) -> Option<u64> {
        self.module(address).map(|number| self.distances[number])
    }
}

const fn moved(address: &mut ProcessAddr, distance: u64) {
    address.0 = address.0.wrapping_add(distance);
}

/// Moves the addresses of a site, which are all in one module.
fn move_kind(kind: &mut SiteKind, distance: u64) {
    match kind {
        SiteKind::Region(RegionSite::Inlined(inlined)) => {
            let begins = inlined.begins.iter_mut();
            let addresses = begins.flat_map(|InlinedBegin { ends_before, .. }| ends_before);
            addresses.for_each(|address| moved(address, distance));
        }
        SiteKind::Sync(SyncSite::Call { spec: _, end, object, extent: _ }) => {
            [end].into_iter().chain(object).for_each(|address| moved(address, distance));
        }
        SiteKind::Sync(SyncSite::Inlined(place)) => {
            moved(&mut place.at, distance);
            if place.plus_is_address {
                place.plus = place.plus.wrapping_add(distance);
            }
            if let RecordedCallers::OneOf(returns) = &mut place.callers {
                let mut list = returns.to_vec();
                list.iter_mut().for_each(|address| moved(address, distance));
                *returns = list.into();
            }
        }
        SiteKind::Memory(MemorySite::Access(place)) => {
            moved(&mut place.instruction, distance);
            place.returns_to.iter_mut().for_each(|address| moved(address, distance));
        }
        SiteKind::Ignored { end } | SiteKind::Inner { end } => moved(end, distance),
        SiteKind::Region(
            RegionSite::Marker(_)
            | RegionSite::Outside(_)
            | RegionSite::Function(_)
            | RegionSite::NonLocalExit(_),
        )
        | SiteKind::Memory(MemorySite::Allocator(_))
        | SiteKind::Delay
        | SiteKind::ThreadStart
        | SiteKind::Unwatched => {}
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader},
        path::Path,
        process::{Child, Command, Stdio},
    };

    use x86::placement::PlaceRules;

    use super::*;
    use crate::{
        memory::options::{Accesses, Level},
        plan::own_code::OwnCode,
    };

    /// Program with a lock and variables of the file, which waits once it is loaded.
    const SOURCE: &str = r#"
        use std::sync::{Mutex, atomic::{AtomicU64, Ordering}};

        static BALANCE: Mutex<u64> = Mutex::new(0);
        static CALLS: AtomicU64 = AtomicU64::new(0);

        #[inline(never)]
        fn deposit(amount: u64) -> u64 {
            CALLS.store(CALLS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            *BALANCE.lock().unwrap() += amount;
            *BALANCE.lock().unwrap()
        }

        fn main() {
            println!("{}", deposit(1));
            let _ = std::io::stdin().read_line(&mut String::new());
        }
    "#;

    fn compile(folder: &Path) -> PathBuf {
        let [source, program] = ["deposits.rs", "deposits"].map(|name| folder.join(name));
        std::fs::write(&source, SOURCE).expect("written");
        let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        compiler.args(["--edition", "2024", "-g", "-O", "-C", "link-arg=-Wl,--build-id"]);
        let status = compiler.arg("-o").arg(&program).arg(&source).status().expect("a compiler");
        assert!(status.success());
        program
    }

    /// Process of the program, at the addresses that the kernel chose for it.
    struct Loaded {
        child: Child,
        symbolizer: Symbolizer,
    }

    impl Loaded {
        fn start(program: &Path) -> Self {
            let mut command = Command::new(program);
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
            let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
            output.read_line(&mut String::new()).expect("it has been loaded");
            let symbolizer = Symbolizer::from_pid(child.id()).expect("a process");
            Self { child, symbolizer }
        }
    }

    impl Drop for Loaded {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn a_plan_moves_to_another_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = compile(folder.path());
        let accesses = Accesses { level: Level::Auto, ..Accesses::default() };
        let wanted = Wanted {
            rules: &[],
            locks: &[],
            accesses: &accesses,
            watches: false,
            own_code: OwnCode::Auto,
            regions_alone: false,
            place_rules: PlaceRules::InProcess,
            low_prior: false,
            delays: &[],
            thread_starts: true,
            focus: None,
        };
        let [one, other] = [Loaded::start(&program), Loaded::start(&program)];
        let key = |of: &Loaded| Plan::key(&of.symbolizer, of.child.id(), wanted);
        assert_eq!(key(&one), key(&other));
        assert!(key(&one).is_some());
        let plan = Plan::build(&one.symbolizer, one.child.id(), wanted);
        assert!(plan.probes.iter().any(|probe| probe.has_address), "a variable of the file");
        let is_fixed_lock = |site: &Site| matches!(&site.kind, SiteKind::Sync(SyncSite::Inlined(place)) if place.plus_is_address);
        assert!(plan.sites.iter().any(is_fixed_lock), "a lock of the file");
        let bytes = plan.to_bytes(&one.symbolizer).expect("stored");
        let pid = other.child.id();
        let read = |bytes: &[u8]| Plan::from_bytes(bytes, &other.symbolizer, pid, wanted);
        let mut anew = Plan::build(&other.symbolizer, pid, wanted);
        // They are not stored.
        anew.state.lock_code = Arc::default();
        let moved = read(&bytes).expect("the same files");
        let [moved, anew] = [moved, anew].map(|plan| format!("{plan:#?}"));
        let difference = moved.lines().zip(anew.lines()).find(|(moved, anew)| moved != anew);
        assert_eq!((difference, moved.len()), (None, anew.len()));

        for length in (0..bytes.len()).step_by(1 + bytes.len() / 200) {
            assert!(read(&bytes[..length]).is_none(), "cut to {length} bytes");
        }
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 200) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            // Some bytes are of names.
            let _ = read(&damaged);
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_none(), "with more behind it");
    }
}
