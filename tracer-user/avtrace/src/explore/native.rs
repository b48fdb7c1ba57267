//! A native program as a test of `checker::interleaving_tree`. What an execution did before is remembered: a program
//! runs only for what is new.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

use checker::interleaving_tree::{Exploration, Next, Program, Run, ThreadIndex};

use super::{
    execution::Execution,
    history::Specification,
    image::{Place, SiteId},
    outcome::Outcome,
    subject::{ExecutionError, Subject},
    thread::{MOST_THREADS, Status},
};
use crate::{progress::RunBar, session::EndSignals};
use linux::tracee::Ending;

/// State of an execution that was reached once.
#[derive(Debug)]
struct Node {
    statuses: Vec<Status>,
    /// States that were reached from here, by the thread that went on.
    after: BTreeMap<ThreadIndex, usize>,
    outcome: Option<Rc<Outcome>>,
}

/// A program, and the executions that are known of it.
#[derive(Debug)]
pub(super) struct Native<'a> {
    subject: &'a Subject,
    /// Becomes set when the user wants no more of it.
    signals: &'a EndSignals,
    bar: RefCell<RunBar>,
    /// Places at which threads are switched: those at which several have met.
    visible: RefCell<Rc<BTreeSet<SiteId>>>,
    nodes: RefCell<Vec<Node>>,
    places: RefCell<Vec<Rc<Place>>>,
    numbers: RefCell<HashMap<Rc<Place>, usize>>,
    specification: RefCell<Option<Specification>>,
    error: RefCell<Option<ExecutionError>>,
    first_fault: RefCell<Option<Rc<Outcome>>>,
    executions: Cell<u64>,
    has_grown: Cell<bool>,
    remembers: Cell<bool>,
}

impl<'a> Native<'a> {
    pub(super) fn new(subject: &'a Subject, bar: RunBar, signals: &'a EndSignals) -> Self {
        Self {
            subject,
            signals,
            bar: RefCell::new(bar),
            visible: RefCell::default(),
            nodes: RefCell::default(),
            places: RefCell::default(),
            numbers: RefCell::default(),
            specification: RefCell::default(),
            error: RefCell::default(),
            first_fault: RefCell::default(),
            executions: Cell::default(),
            has_grown: Cell::default(),
            remembers: Cell::new(true),
        }
    }

    /// Number of times that the program has run.
    pub(super) fn executions(&self) -> u64 {
        self.executions.get()
    }

    /// Returns whether the program has operations.
    pub(super) fn has_operations(&self) -> bool {
        !self.subject.image.operations.is_empty()
    }

    /// Returns the error that has ended the exploration.
    pub(super) fn check(&self) -> Result<(), ExecutionError> {
        self.error.borrow_mut().take().map_or(Ok(()), Err)
    }

    /// Starts an execution that stops at all places.
    pub(super) fn everywhere(&self) -> Result<Execution<'a>, ExecutionError> {
        self.count();
        Execution::start(self.subject, None)
    }

    fn count(&self) {
        self.executions.set(self.executions.get() + 1);
        self.bar.borrow_mut().advance(self.executions.get());
    }

    /// Returns whether the exploration has to end: for an error, a signal, or to begin anew with more places.
    pub(super) fn is_over(&self) -> bool {
        self.error.borrow().is_some()
            || (self.has_grown.get() && self.remembers.get())
            || self.is_interrupted()
    }

    /// Returns whether a signal has asked for the end.
    pub(super) fn is_interrupted(&self) -> bool {
        self.signals.is_asked().unwrap_or(true)
    }

    /// Forgets all executions if more places are known by now. Returns whether that is so.
    pub(super) fn has_grown(&self) -> bool {
        let has_grown = self.has_grown.take();
        if has_grown {
            self.nodes.borrow_mut().clear();
        }
        has_grown
    }

    /// Runs the program in each execution from now on, instead of using known executions.
    pub(super) fn forget_always(&self) {
        self.remembers.set(false);
        self.first_fault.borrow_mut().take();
    }

    pub(super) fn specify(&self, specification: Option<Specification>) {
        *self.specification.borrow_mut() = specification;
    }

    pub(super) fn specification(&self) -> Option<Specification> {
        self.specification.borrow_mut().take()
    }

    /// Judges executions by a specification, unless it is empty: operations that wait for one another have no serial
    /// order, and nothing to be compared with.
    pub(super) fn judge_by(&self, specification: Option<Specification>) {
        self.specify(specification.filter(|of| of.orders() > 0));
    }

    /// The first execution that was a fault.
    pub(super) fn first_fault(&self) -> Option<Rc<Outcome>> {
        self.first_fault.borrow().clone()
    }

    /// Returns a place by the name that it has in trees.
    pub(super) fn place(&self, name: &str) -> Option<Rc<Place>> {
        self.places.borrow().get(name.parse::<usize>().ok()?).cloned()
    }

    /// Returns the result of a schedule of the tree.
    pub(super) fn outcome_of(&self, schedule: &[ThreadIndex]) -> Option<Rc<Outcome>> {
        let nodes = self.nodes.borrow();
        let mut node = nodes.first()?;
        for thread in schedule {
            node = &nodes[*node.after.get(thread)?];
        }
        node.outcome.clone()
    }

    /// Returns whether an execution is as it should be.
    pub(super) fn is_correct(&self, outcome: &Outcome) -> bool {
        outcome.ending == Some(Ending::Exited(0))
            && self.specification.borrow().as_ref().is_none_or(|of| of.allows(outcome))
    }

    /// Returns whether the first fault is that the program exits with another status than 0, or is killed.
    pub(super) fn fails_itself(&self, found: &Exploration) -> bool {
        let outcome = found.first_fault.as_ref().and_then(|fault| self.outcome_of(fault));
        let ending = outcome.and_then(|outcome| outcome.ending);
        ending.is_some_and(|ending| ending != Ending::Exited(0))
    }

    fn name_of(&self, place: &Rc<Place>) -> String {
        let mut numbers = self.numbers.borrow_mut();
        let number = *numbers.entry(Rc::clone(place)).or_insert_with(|| {
            self.places.borrow_mut().push(Rc::clone(place));
            self.places.borrow().len() - 1
        });
        number.to_string()
    }

    fn fail(&self, error: ExecutionError) {
        self.error.borrow_mut().get_or_insert(error);
    }

    /// Adds a state; `execution` is in it.
    fn add(&self, execution: &mut Execution<'_>) -> usize {
        let statuses = execution.statuses();
        let is_end = !statuses.iter().any(|status| matches!(status, Status::Ready { .. }));
        let outcome = is_end.then(|| Rc::new(execution.finish()));
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(Node { statuses, after: BTreeMap::new(), outcome });
        nodes.len() - 1
    }

    fn begin(&self) -> Result<Execution<'a>, ExecutionError> {
        self.count();
        Execution::start(self.subject, Some(Rc::clone(&self.visible.borrow())))
    }

    /// Notes the places at which threads have met.
    fn learn(&self, execution: &Execution<'_>) {
        let met = execution.conflicts();
        let mut visible = self.visible.borrow_mut();
        if !met.is_subset(&visible) {
            Rc::make_mut(&mut visible).extend(met);
            self.has_grown.set(true);
        }
    }
}

impl<'a> Program for &'a Native<'a> {
    type Run = NativeRun<'a>;

    fn start(&self) -> NativeRun<'a> {
        if !self.remembers.get() {
            self.nodes.borrow_mut().clear();
        }
        let mut run = NativeRun { native: self, path: Vec::new(), node: 0, execution: None };
        if self.nodes.borrow().is_empty() && self.error.borrow().is_none() {
            match self.begin() {
                Ok(mut execution) => {
                    self.add(&mut execution);
                    run.execution = Some(execution);
                }
                Err(error) => self.fail(error),
            }
        }
        run
    }
}

/// An execution, which may be known.
#[derive(Debug)]
pub(super) struct NativeRun<'a> {
    native: &'a Native<'a>,
    path: Vec<ThreadIndex>,
    node: usize,
    /// The program, if it runs: it is in the state of the node.
    execution: Option<Execution<'a>>,
}

impl<'a> NativeRun<'a> {
    /// Returns the result, at the end.
    pub(super) fn outcome(&self) -> Option<Rc<Outcome>> {
        self.native.nodes.borrow().get(self.node)?.outcome.clone()
    }

    /// Returns the threads that are within operations of which they have done a part, and can go on.
    fn inside(&self) -> Vec<ThreadIndex> {
        let nodes = self.native.nodes.borrow();
        let Some(node) = nodes.get(self.node) else { return Vec::new() };
        let is_inside =
            |status: &Status| matches!(status, Status::Ready { inside: true, idle: false, .. });
        (0..node.statuses.len()).filter(|&thread| is_inside(&node.statuses[thread])).collect()
    }

    fn try_step(&mut self, thread: ThreadIndex) -> Result<(), ExecutionError> {
        let known = self.native.nodes.borrow()[self.node].after.get(&thread).copied();
        if let Some(next) = known {
            if let Some(execution) = &mut self.execution {
                execution.step(thread)?;
            }
            self.path.push(thread);
            self.node = next;
            return Ok(());
        }
        let mut execution = match self.execution.take() {
            Some(execution) => execution,
            None => self.again()?,
        };
        execution.step(thread)?;
        let next = self.native.add(&mut execution);
        self.native.nodes.borrow_mut()[self.node].after.insert(thread, next);
        self.path.push(thread);
        self.node = next;
        self.execution = Some(execution);
        Ok(())
    }

    /// Runs the program up to the state of the node.
    fn again(&self) -> Result<Execution<'a>, ExecutionError> {
        let mut execution = self.native.begin()?;
        let mut node = 0;
        for step in 0..=self.path.len() {
            let nodes = self.native.nodes.borrow();
            if execution.statuses() != nodes[node].statuses {
                return Err(ExecutionError::Differs { step: step + 1 });
            }
            let Some(thread) = self.path.get(step) else { break };
            node = nodes[node].after[thread];
            execution.step(*thread)?;
        }
        Ok(execution)
    }
}

impl Run for NativeRun<'_> {
    fn threads(&self) -> usize {
        MOST_THREADS
    }

    fn next(&self, thread: ThreadIndex) -> Next {
        if self.native.error.borrow().is_some() {
            return Next::Ended;
        }
        let nodes = self.native.nodes.borrow();
        let statuses = &nodes[self.node].statuses;
        let others_can =
            || statuses.iter().any(|status| matches!(status, Status::Ready { idle: false, .. }));
        match statuses.get(thread) {
            Some(Status::Ready { idle: true, .. }) if others_can() => Next::Blocked,
            Some(Status::Ready { place, .. }) => Next::Access(self.native.name_of(place)),
            Some(Status::Waiting) => Next::Blocked,
            Some(Status::Ended) | None => Next::Ended,
        }
    }

    fn step(&mut self, thread: ThreadIndex) {
        if self.native.error.borrow().is_none()
            && let Err(error) = self.try_step(thread)
        {
            self.native.fail(error);
        }
    }

    fn is_correct(&self) -> bool {
        self.native.error.borrow().is_some()
            || self.outcome().is_some_and(|outcome| self.native.is_correct(&outcome))
    }
}

impl Drop for NativeRun<'_> {
    fn drop(&mut self) {
        if let Some(execution) = &self.execution {
            self.native.learn(execution);
        }
        if let Some(outcome) = self.outcome()
            && !self.native.is_correct(&outcome)
        {
            self.native.first_fault.borrow_mut().get_or_insert(outcome);
        }
    }
}

/// A program whose operations run one after the other: threads are switched between them only, unless one waits.
#[derive(Debug)]
pub(super) struct Serial<'a>(pub(super) &'a Native<'a>);

/// An execution of operations one after the other. Its result becomes part of the specification.
#[derive(Debug)]
pub(super) struct SerialRun<'a>(NativeRun<'a>);

impl<'a> Program for Serial<'a> {
    type Run = SerialRun<'a>;

    fn start(&self) -> SerialRun<'a> {
        SerialRun(Program::start(&self.0))
    }
}

impl Run for SerialRun<'_> {
    fn threads(&self) -> usize {
        self.0.threads()
    }

    fn next(&self, thread: ThreadIndex) -> Next {
        let inside = self.0.inside();
        match self.0.next(thread) {
            Next::Access(_) if !inside.is_empty() && !inside.contains(&thread) => Next::Blocked,
            next => next,
        }
    }

    fn step(&mut self, thread: ThreadIndex) {
        self.0.step(thread);
    }

    fn is_correct(&self) -> bool {
        if let Some(outcome) = self.0.outcome()
            && let Some(specification) = &mut *self.0.native.specification.borrow_mut()
        {
            specification.add(&outcome);
        }
        true
    }
}
