//! Puts names on potential deadlocks and on patterns of commit nodes.

use checker::{
    Unserializable, deadlock,
    finding::{self, Point},
    predict::{self, NamedPrediction, PredictedStep},
};

use super::{
    super::model::{
        AccessStep, Acquisition, Atomicity, DependingRead, HeldLock, MetAccess, PotentialDeadlock,
        PredictedClass, Prediction, UnserializablePattern,
    },
    resolver::Resolver,
};

impl Resolver<'_> {
    /// Returns potential deadlocks; those with the same names are not merged, as their threads differ.
    pub(super) fn deadlocks(&mut self, found: &[deadlock::Deadlock]) -> Vec<PotentialDeadlock> {
        found.iter().map(|deadlock| self.deadlock(deadlock)).collect()
    }

    fn deadlock(&mut self, found: &deadlock::Deadlock) -> PotentialDeadlock {
        let acquisitions = found.acquisitions.iter().map(|of| self.acquisition(of)).collect();
        PotentialDeadlock { occurrences: found.occurrences, acquisitions }
    }

    fn acquisition(&mut self, of: &deadlock::Acquisition) -> Acquisition {
        let place = self.place(of.location);
        self.note_thread(of.thread);
        Acquisition {
            thread: of.thread.0,
            region: of.region.map(|region| self.known_region(region).name.clone()),
            event: of.event,
            lock: self.object(finding::Object::Lock(of.lock)),
            shared: of.is_shared,
            location: place.location,
            label: place.label,
            holds: self.held_lock(&of.holds),
            others: of.others.iter().map(|held| self.held_lock(held)).collect(),
        }
    }

    fn held_lock(&mut self, held: &deadlock::HeldLock) -> HeldLock {
        let place = self.place(held.location);
        HeldLock {
            lock: self.object(finding::Object::Lock(held.lock)),
            shared: held.is_shared,
            location: place.location,
            label: place.label,
        }
    }

    /// Returns predictions in the order of the numbers of reads that they depend on.
    pub(super) fn predictions(&mut self, found: &[predict::Prediction]) -> Vec<Prediction> {
        let found = predict::named(found, self);
        found.iter().map(|prediction| self.prediction(prediction)).collect()
    }

    fn prediction(&mut self, found: &NamedPrediction) -> Prediction {
        let predict::Prediction {
            region, left, returned, remote, depends_on, dependencies, ..
        } = &found.prediction;
        self.note_thread(left.thread);
        self.note_thread(remote.thread);
        let depends_on = depends_on.iter().map(|read| DependingRead {
            thread: read.thread.0,
            subject: self.subject_of(read),
            step: self.predicted_step(read),
        });
        Prediction {
            fingerprint: format!("{:016x}", found.fingerprint),
            class: PredictedClass::Predicted,
            depends_on: depends_on.collect(),
            region: self.known_region(*region).name.clone(),
            subject: self.subject_of(left),
            thread: left.thread.0,
            left: self.predicted_step(left),
            returned: self.predicted_step(returned),
            delay_at: self.names.after(left.location, false),
            remote_thread: remote.thread.0,
            remote_region: remote.region.map(|region| self.known_region(region).name.clone()),
            remote: self.predicted_step(remote),
            ways: found.ways,
            dependencies: *dependencies,
        }
    }

    fn subject_of(&mut self, step: &PredictedStep) -> String {
        self.names.subject(finding::Object::Variable(step.variable)).name
    }

    fn predicted_step(&mut self, step: &PredictedStep) -> AccessStep {
        let place = self.place(step.location);
        AccessStep {
            event: step.event,
            action: step.action,
            location: place.location,
            label: place.label,
        }
    }

    /// Returns the atomicity over all interleavings.
    pub(super) fn atomicity(&mut self, found: &checker::Atomicity) -> Atomicity {
        Atomicity {
            property: found.property,
            atomic: found.atomic,
            theorem: found.theorem,
            units: found.units,
            split_transactions: found.split_transactions,
            left_out: found.left_out,
            suspects: found.suspects,
            patterns: found.patterns.iter().map(|pattern| self.pattern(pattern)).collect(),
        }
    }

    fn pattern(&mut self, of: &Unserializable) -> UnserializablePattern {
        let accesses = [0, 1].map(|index| MetAccess {
            variable: self.object(finding::Object::Variable(of.variables[index])),
            own: self.access_step(&of.accesses[index]),
            other: self.transaction(&of.others[index]),
            remote: self.access_step(&of.remotes[index]),
        });
        UnserializablePattern {
            region: self.known_region(of.region).name.clone(),
            transaction: self.transaction(&of.transaction),
            occurrences: of.occurrences,
            certain: of.is_certain,
            accesses,
        }
    }

    pub(super) fn access_step(&mut self, point: &Point) -> AccessStep {
        let place = self.point(point);
        AccessStep {
            event: point.event,
            action: point.action,
            location: place.location,
            label: place.label,
        }
    }
}
