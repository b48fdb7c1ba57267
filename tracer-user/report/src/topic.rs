//! Topics of `avtrace explain`: classes, evidence, order and the reasons for classes, in words. Patterns are in
//! `rule`. All of it agrees with `docs/semantics.md#defects`.

mod examples;

use super::rule::{RULES, Rule};

/// Kind of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicKind {
    /// Likelihood of a bug.
    Class,
    /// Kind of evidence or order.
    Certainty,
    /// Fact that speaks for a bug.
    For,
    /// Fact that speaks against a bug.
    Against,
    /// Fact that says how sure or how frequent something is.
    Note,
}

/// A topic beside the patterns.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// Name, as in reports.
    pub name: &'static str,
    /// Kind.
    pub kind: TopicKind,
    /// Meaning.
    pub meaning: &'static str,
    /// Usual repair, or what to look at.
    pub repair: &'static str,
    /// Example of at most ten lines.
    pub example: &'static str,
}

const fn topic(
    kind: TopicKind,
    name: &'static str,
    meaning: &'static str,
    repair: &'static str,
    example: &'static str,
) -> Topic {
    Topic { name, kind, meaning, repair, example }
}

use TopicKind::{Against, Certainty, Class, For, Note};

/// All topics beside the patterns.
pub const TOPICS: &[Topic] = &[
    topic(
        Class,
        "likely",
        "The facts for a bug outweigh those against it: their weights sum to 3 or more, or a region that was named as \
         atomic was cut with data as evidence. Each fact is a reason of the defect.",
        "Read the witness, and do what `help` says; a defect that is by design goes into avtrace.toml.",
        examples::LIKELY,
    ),
    topic(
        Class,
        "possible",
        "The weights of the facts sum to 1 or 2, or a fact limits the class: evidence by locks alone where data is seen, \
         a library's code, a variable that was read again, rates that say that the region is seldom whole.",
        "Look at those in your own code; `--all` shows them in full, `--watch` on the data gives better evidence.",
        examples::POSSIBLE,
    ),
    topic(
        Class,
        "by-design",
        "Others came in, but the facts speak against a bug: the sum of the weights is 0 or less, or at least half of 20 or \
         more executions were cut while no update was lost. Such defects are counted, not shown; `--all` shows them.",
        "None is needed. `--fail-on any` counts them as found.",
        examples::BY_DESIGN,
    ),
    topic(
        Certainty,
        "data",
        "Evidence: the cycle is one of accesses to variables alone, so the transactions were seen to meet on data.",
        "See the pattern.",
        examples::DATA,
    ),
    topic(
        Certainty,
        "sync",
        "Evidence: another thread's critical section or other synchronisation came in between; the accesses that were seen \
         make no cycle.",
        "Name the data with `--watch`, or capture accesses (`--accesses`), to find out whether it met.",
        examples::SYNC,
    ),
    topic(
        Certainty,
        "racy",
        "Order: no synchronisation that was seen orders two accesses of the cycle. Their order is known up to the capture \
         window, the few instructions between an access and its record.",
        "Protect the data by a lock, or use atomic operations; `--watch` or `--serialize` record the exact order.",
        examples::RACY,
    ),
    topic(
        Note,
        "pattern",
        "The accesses of the region at both ends of the gap and those of others in between follow a pattern.",
        "`avtrace explain` with the name of the pattern says more.",
        examples::PATTERN,
    ),
    topic(
        For,
        "value-changed",
        "The write of the other thread stored another value than was there.",
        "Hold one lock over both steps.",
        examples::CHANGED,
    ),
    topic(
        Against,
        "value-unchanged",
        "The write of the other thread stored the value that was there already: nobody could notice.",
        "None, unless other values are possible in other runs.",
        examples::UNCHANGED,
    ),
    topic(
        Against,
        "same-value",
        "What the region had read before is the value that others left, though another thread had written the variable in between.",
        "None for the value itself; what it stands for, such as the object that a pointer leads to, may be another one.",
        examples::UNCHANGED,
    ),
    topic(
        Against,
        "unread",
        "One write overwrote another one, and no thread has read a value there in the whole run: padding that is copied \
         with a structure, or a note for debuggers.",
        "None in this run. Where reads were not captured, hold one lock over both steps.",
        examples::UNREAD,
    ),
    topic(
        Against,
        "polled",
        "Threads read the variables again and again until another thread changes them: they are flags, by which threads wait \
         for one another.",
        "None, unless the data that they guard is at fault.",
        examples::POLLED,
    ),
    topic(
        For,
        "acts-unchecked",
        "The variable was read before a lock was given up, and updated after it without another look at it: what was checked \
         may not hold any more.",
        "Check and act under one lock, or check again after acquiring it.",
        examples::CHECK_THEN_ACT,
    ),
    topic(
        For,
        "acts-on-value",
        "After the gap the region computes with the value that it read before, or decides by it: by the program's code, the \
         two steps belong together.",
        "Make both steps under one lock, or read the value again where it is used.",
        examples::CHECK_THEN_ACT,
    ),
    topic(
        For,
        "used-together",
        "Another region reads both variables in one section and, by its code, compares the values or computes something from \
         both: it saw the one changed and the other not yet.",
        "Change both variables under one lock, without giving it up in between.",
        examples::ONE_OBJECT,
    ),
    topic(
        For,
        "only-in-failing-runs",
        "A hunt showed the defect in runs that failed, in none that passed, and in too many for chance. No likelier defect \
         was in these runs, so that this one is likely the cause, whatever the facts about the code say. Locks alone make \
         it likely only if a run died by a fault: a delay can have made the program late, and nothing else.",
        "Repeat the run by the command at `again`, and look at what the program does after the gap.",
        examples::CHECK_THEN_ACT,
    ),
    topic(
        For,
        "came-back",
        "Each transaction of the cycle read what the one before it wrote, up to the region itself, which neither let others \
         go on in between nor waited for them.",
        "Hold one lock over the region, or read what it needs first.",
        examples::CAME_BACK,
    ),
    topic(
        For,
        "one-object",
        "Both variables are fields of one object: they probably belong together.",
        "Hold one lock over the accesses to both.",
        examples::ONE_OBJECT,
    ),
    topic(
        For,
        "named",
        "A marker or `--atomic` names the region: it is meant to be atomic. With data as evidence its defects are likely, \
         without at least possible.",
        "Make it atomic, or take the marker away.",
        examples::NAMED,
    ),
    topic(
        Against,
        "thread-body",
        "The region is the body of a thread, the main function or a loop that waits for events: seldom meant to be atomic.",
        "Name smaller regions with a marker or `--atomic`.",
        examples::ITERATIONS,
    ),
    topic(
        Against,
        "waits",
        "The function waits for other threads or for events, so others are meant to come in.",
        "End the region before the wait, and begin another one after it.",
        examples::WAIT,
    ),
    topic(
        Against,
        "waited-in-between",
        "The region waited for another thread between the two steps: a wait, a join, or a condition variable.",
        "Read again after the wait what the region relies on.",
        examples::WAIT,
    ),
    topic(
        For,
        "one-activation",
        "Both steps are in one run of one function.",
        "Hold one lock from the one to the other.",
        examples::CHECK_THEN_ACT,
    ),
    topic(
        For,
        "callees",
        "The steps are in different calls of the region: each callee may be atomic by itself, both together are not.",
        "Hold the lock around both calls; where the callees take it themselves, split off variants that expect it held.",
        examples::CALLEES,
    ),
    topic(
        Against,
        "iterations",
        "The steps are in different iterations of a loop, between which others usually may come in.",
        "None, unless a later iteration relies on what an earlier one saw.",
        examples::ITERATIONS,
    ),
    topic(
        Against,
        "far-apart",
        "More calls lie between the steps than are remembered, or both are at least four calls down: they seldom belong \
         together.",
        "Name a smaller region that holds both steps, if they do.",
        examples::FAR_APART,
    ),
    topic(
        For,
        "lock-reacquired",
        "A lock was released and acquired again between the two steps. By the function itself that is often on purpose, \
         and speaks against a bug where it loses no update; by what it calls, it is easily overlooked.",
        "Hold the lock over both steps, or look again at what was read before.",
        examples::CHECK_THEN_ACT,
    ),
    topic(
        Against,
        "lock-held-throughout",
        "A lock was held from one step to the other, and others came in without it. What is meant to be atomic is guarded by \
         the lock; for a single variable, others may have forgotten it.",
        "Take the lock in the other region as well, if it guards this variable.",
        examples::WITHOUT_LOCK,
    ),
    topic(
        For,
        "common-lock",
        "One lock guards both variables, in the region and in others: the program takes them for one thing.",
        "Hold that lock over the accesses to both.",
        examples::COMMON_LOCK,
    ),
    topic(
        Against,
        "separate-locks",
        "Each step is under a lock of its own, in the region as in others, and no section contains both: each section is \
         complete in itself.",
        "None, unless something is transferred between the two, as money between accounts.",
        examples::SEPARATE,
    ),
    topic(
        Against,
        "partly-guarded",
        "Locks were held, but others accessed one of the variables without those of the region.",
        "Decide which lock guards the variable, and take it everywhere.",
        examples::WITHOUT_LOCK,
    ),
    topic(
        Against,
        "independent",
        "By the program's code, the step after the gap does not depend on the value that the region read before: the two \
         steps need not be one.",
        "None, unless others expect to see both changes at once.",
        examples::SEPARATE,
    ),
    topic(
        Against,
        "checked-again",
        "The region reads the variable again after the gap, and what it finds decides what happens then.",
        "None: the second check is the valid one.",
        examples::AGAIN,
    ),
    topic(
        Against,
        "read-anew",
        "After the gap the region only reads the variable again, and would have done so whatever it had read before. \
         It has the present value then, and computes nothing from both.",
        "None, unless both values are expected to be the same.",
        examples::AGAIN,
    ),
    topic(
        Against,
        "complete-call",
        "The call before the gap read the variable and changed shared data, in one section of a lock, as a call does that \
         takes an element out of a queue; or the section before the gap wrote both variables. By the program's code, what \
         comes after the gap is not known to depend on it.",
        "None, unless both calls are meant to be one step: then hold the lock around both.",
        examples::SEPARATE,
    ),
    topic(
        Against,
        "partly-seen",
        "A part of the region's accesses was not recorded between the two steps, so that the overhead stays within its \
         bound: the region may have looked again, unseen.",
        "Run it with a higher `--overhead`, or with `--accesses probe`, to see all of them.",
        examples::AGAIN,
    ),
    topic(
        Against,
        "read-again",
        "The variable was read again after the gap, before it was used.",
        "None, if what was read first is not used any more.",
        examples::AGAIN,
    ),
    topic(
        Against,
        "read-again-under-lock",
        "The variable was read again under a lock that was not held before: check, lock, check again.",
        "None; the first read should be an atomic one.",
        examples::AGAIN,
    ),
    topic(
        Against,
        "atomic-updates",
        "The variable is updated by atomic operations, each in one step, so that no update is lost.",
        "None, unless the region relies on the value between two of them.",
        examples::ATOMIC,
    ),
    topic(
        Against,
        "lock-word",
        "The variable is the word of a lock: it is meant to be changed by others.",
        "None; a lock of your own is made known by `--lock acquire=…,release=…`.",
        examples::LOCK_WORD,
    ),
    topic(
        Against,
        "may-come-any-time",
        "One of the steps notifies threads that wait for a condition, or begins to wait for it. Neither belongs to \
         another step, except that a notification which comes before the wait is lost: see `lost-wake-up`.",
        "None: threads that are woken in vain look again.",
        examples::MAY_COME_ANY_TIME,
    ),
    topic(
        Against,
        "freed-unused",
        "Others freed memory that the region had accessed, and the region did not access it again.",
        "None: see whether the region had done with it. Where it has not, `--watch` on the memory shows the use.",
        examples::FREED_UNUSED,
    ),
    topic(
        Against,
        "frees-it",
        "The region freed the memory at the second step: others had accessed it before, and are most likely done with it.",
        "None, unless the free is decided by a count that others may have changed: decide under their lock.",
        examples::FREES_IT,
    ),
    topic(
        Against,
        "sync-only",
        "Only locks and other synchronisation met, although accesses to data were seen.",
        "Name the data with `--watch`, if some may be out of sight.",
        examples::SYNC_ONLY,
    ),
    topic(
        Note,
        "data-out-of-sight",
        "No execution of a transaction in the cycle accessed anything that was seen, although it held a lock: its data may be \
         out of sight.",
        "Name the data with `--watch`, or its code with `--probe`.",
        examples::OUT_OF_SIGHT,
    ),
    topic(
        Against,
        "data-not-captured",
        "Accesses to memory were not captured: locks alone do not show that the same data met.",
        "Run without `--accesses sync`.",
        examples::NOT_CAPTURED,
    ),
    topic(
        Against,
        "library",
        "The code is a library's or a crate's: its authors know which of their variables belong together.",
        "Report it to them, if the witness convinces you; `--ignore` or a suppression sets it aside.",
        examples::LIBRARY,
    ),
    topic(
        Note,
        "racy-order",
        "The order of racing accesses decides the cycle; it is known up to the capture window.",
        "See `avtrace explain racy`.",
        examples::RACY_ORDER,
    ),
    topic(
        Note,
        "cut",
        "Others came in during that many executions of the region. One that is cut in most of its runs, and loses no update, \
         is not meant to be atomic; one that is cut 3 times in 100,000 is suspicious.",
        "A rare one seldom shows in tests: `avtrace hunt` delays threads there.",
        examples::CUT,
    ),
];

/// Something that `avtrace explain` knows.
#[derive(Clone, Copy, Debug)]
pub enum Explained {
    /// A kind of findings.
    Rule(&'static Rule),
    /// Another topic.
    Topic(&'static Topic),
}

/// Finds a topic by its name or identifier: case, spaces, hyphens and underscores do not matter.
#[must_use]
pub fn find_topic(name: &str) -> Option<Explained> {
    let plain = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let wanted = plain(name);
    let is_it = |name: &str| plain(name) == wanted;
    let rule = RULES.iter().find(|rule| is_it(rule.id) || is_it(rule.name));
    let topic = || TOPICS.iter().find(|topic| is_it(topic.name));
    rule.map(Explained::Rule).or_else(|| topic().map(Explained::Topic))
}

/// Text of a topic.
#[must_use]
pub fn explanation(of: Explained) -> String {
    let (title, meaning, example, repair) = match of {
        Explained::Rule(rule) => {
            let title = format!("{}: {} ({})", rule.id, rule.title(), rule.summary);
            (title, rule.meaning, rule.example, rule.repair)
        }
        Explained::Topic(topic) => {
            let kind = match topic.kind {
                Class => "a class",
                Certainty => "evidence or order",
                For => "a reason that speaks for a bug",
                Against => "a reason that speaks against a bug",
                Note => "a reason that is noted",
            };
            (format!("{}: {kind}", topic.name), topic.meaning, topic.example, topic.repair)
        }
    };
    let mut text = format!("{title}\n\n{}\n", wrapped(meaning));
    text.push_str("\nExample:\n\n");
    for line in example.lines() {
        text.push_str(&format!("    {line}\n"));
    }
    text.push_str(&format!("\n{}\n", wrapped(&format!("Usual repair: {repair}"))));
    text
}

/// All topics, by kinds.
#[must_use]
pub fn topics() -> String {
    let mut text = String::from("patterns:\n");
    for rule in &RULES {
        text.push_str(&format!("  {:<6}{:<22}{}\n", rule.id, rule.name, rule.summary));
    }
    for (heading, kinds) in [
        ("classes", &[Class][..]),
        ("evidence and order", &[Certainty]),
        ("reasons for a bug", &[For]),
        ("reasons against a bug", &[Against]),
        ("other reasons", &[Note]),
    ] {
        let names = TOPICS.iter().filter(|topic| kinds.contains(&topic.kind));
        let names: Vec<&str> = names.map(|topic| topic.name).collect();
        text.push_str(&format!("{heading}:\n"));
        for line in wrapped(&names.join(", ")).lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

/// Text in lines of at most 96 columns.
fn wrapped(text: &str) -> String {
    const COLUMNS: usize = 96;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}
