//! Rules: the kinds of findings, with identifiers that stay the same, their meaning, an example and the usual repair
//! (`docs/semantics.md#defects`). Other topics of `avtrace explain` are in `topic`.

use super::model::Pattern;

/// A kind of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Identifier, such as `AV1`.
    pub id: &'static str,
    /// Name, such as `lost-update`: the name of the pattern in JSON reports.
    pub name: &'static str,
    /// The kind in a sentence without its end.
    pub summary: &'static str,
    /// Accesses that make it, and their consequence.
    pub meaning: &'static str,
    /// Example of about ten lines, in C.
    pub example: &'static str,
    /// Usual repair.
    pub repair: &'static str,
}

/// All rules, by number.
pub const RULES: [Rule; 12] = [
    Rule {
        id: "AV1",
        name: "lost-update",
        summary: "an update of another thread was overwritten by a value computed before it",
        meaning: "The region reads a variable and writes it later; another thread writes the variable in between. What \
                  the region writes was computed from the old value, so the other thread's write is gone.",
        example: "\
void deposit(long amount)
{
    lock(&account.lock);
    long balance = account.balance;         /* reads 100 */
    unlock(&account.lock);
                                            /* another thread deposits 5: 105 */
    lock(&account.lock);
    account.balance = balance + amount;     /* writes 100 + amount: the 5 are lost */
    unlock(&account.lock);
}
",
        repair: "Hold one lock from the read to the write, or read again under the second lock; for a single word use an \
                 atomic read-modify-write (fetch_add, compare_exchange).",
    },
    Rule {
        id: "AV2",
        name: "stale-read",
        summary: "a variable that was read before was changed by another thread",
        meaning: "The region reads a variable, and reads it again or updates it atomically later; another thread writes it \
                  in between. What the region concluded from the first read does not hold any more.",
        example: "\
bool take(struct item **item)
{
    if (atomic_load(&queue.length) == 0)    /* reads 1: there is one */
        return false;
                                            /* another thread takes it: 0 */
    atomic_fetch_sub(&queue.length, 1);     /* -1: the check does not hold any more */
    *item = queue_pop();                    /* pops from an empty queue */
    return true;
}
",
        repair: "Check and act under one lock, or make both one atomic operation that fails when the value has changed \
                 (compare_exchange in a loop).",
    },
    Rule {
        id: "AV3",
        name: "intermediate-state",
        summary: "another thread read the variable between two steps of the region on it",
        meaning: "The region writes a variable and accesses it again later; another thread reads it in between, and sees a \
                  value that was not meant for others.",
        example: "\
void transfer(struct account *from, struct account *to, long amount)
{
    lock(&bank.lock);
    bank.total -= amount;                   /* for a moment the sum is wrong */
    unlock(&bank.lock);
                                            /* another thread reads bank.total */
    lock(&bank.lock);
    bank.total += amount;
    unlock(&bank.lock);
}
",
        repair: "Hold one lock from the first write to the last step, and take it where the variable is read; or compute \
                 the new value aside and store it once.",
    },
    Rule {
        id: "AV4",
        name: "overwritten",
        summary: "another thread overwrote what the region had written before",
        meaning: "The region writes a variable and accesses it again later as if its own value were still there; another \
                  thread writes it in between.",
        example: "\
void log_request(const char *text)
{
    lock(&buffer.lock);
    strcpy(buffer.text, text);              /* writes the message */
    unlock(&buffer.lock);
                                            /* another thread writes its message */
    lock(&buffer.lock);
    fputs(buffer.text, file);               /* prints the other one */
    unlock(&buffer.lock);
}
",
        repair: "Hold one lock from the write to the last use of the value, or keep the value in a variable of the thread.",
    },
    Rule {
        id: "AV5",
        name: "torn",
        summary: "another thread came between the accesses to two variables",
        meaning: "The region accesses one variable and then another; a transaction of another thread accesses both in \
                  between, and one of each two conflicting accesses writes. One of both sees or leaves the two out of step.",
        example: "\
void append(char c)
{
    lock(&line.lock);
    line.text[line.length] = c;             /* the text has one character more */
    unlock(&line.lock);
                                            /* another thread reads text and length */
    lock(&line.lock);
    line.length++;                          /* the length only now */
    unlock(&line.lock);
}
",
        repair: "Protect both variables by one lock, and hold it over both accesses, here and in the other transaction.",
    },
    Rule {
        id: "AV6",
        name: "chain",
        summary: "the cycle goes through several transactions",
        meaning: "Between two steps of the region, one transaction depends on the region, another one on that, and the \
                  region on the last. No two of them conflict in both directions, yet no order of whole transactions gives \
                  the result.",
        example: "\
void rename(struct entry *entry)            /* thread 1 */
{
    set(&entry->name, new_name);            /* 1: thread 2 reads it in index() */
                                            /* 2: index() writes table, */
                                            /* 3: which thread 3 reads in report(), */
                                            /* 4: report() writes totals */
    entry->total = get(&totals);            /* 5: closes the cycle */
}
",
        repair: "Hold one lock over the whole region and in each transaction of the cycle; or break the cycle: read what \
                 the last step needs before the first one.",
    },
    Rule {
        id: "AV7",
        name: "split-section",
        summary: "another thread's critical section came between two steps of the region",
        meaning: "The region releases a lock and acquires it, or another one, later; another thread's critical section came \
                  in between. The transactions were not seen to meet on data: evidence is synchronisation alone.",
        example: "\
void refill(struct pool *pool)
{
    lock(&pool->lock);
    bool is_low = pool_is_low(pool);
    unlock(&pool->lock);
                                            /* another thread holds pool->lock */
    lock(&pool->lock);
    if (is_low)
        pool_grow(pool);                    /* is it still low? */
    unlock(&pool->lock);
}
",
        repair: "If both sections belong together, make them one; if not, the region is larger than what must be atomic. \
                 `--watch` on the data tells whether it met.",
    },
    Rule {
        id: "AV8",
        name: "not-serializable",
        summary: "no order of whole transactions gives the result of the run",
        meaning: "The graph of transactions has a cycle, though no single chain of events leaves a region and returns to \
                  it. So there is no one region to name.",
        example: "\
void transfer(void)                         void audit(void)
{                                           {
    set(&from, 60);     /* 3 */                 long second = get(&to);  /* 1 */
    set(&to, 140);      /* 2 */                 long first = get(&from); /* 4 */
}                                           }
/* audit's read 1 is before transfer's write 2, and transfer's write 3 before audit's read 4 */
",
        repair: "Hold one lock over the whole of each region in the cycle.",
    },
    Rule {
        id: "AV9",
        name: "violation",
        summary: "a region was not atomic, and no defect says more",
        meaning: "A dependency returned to a region that others had left it for. The algorithm keeps no witness, or the \
                  report is of an older version, so that no pattern is known.",
        example: "\
avtrace check --algorithm regiontrack run.avt   # finds violations, without witnesses
avtrace check run.avt                           # Davida: the same ones, with witnesses
",
        repair: "Check the trace with `--algorithm davida`, which gives a witness and a pattern.",
    },
    Rule {
        id: "AV10",
        name: "open-at-end",
        summary: "the program died in a region that other threads had already depended on",
        meaning: "A region was open when the program died, and another thread had read or overwritten what it wrote. The \
                  region never returned, so it is no violation; it may have been about to be one.",
        example: "\
void move(struct list *from, struct list *to)
{
    struct node *node = list_pop(from);     /* another thread sees the list without it */
    list_push(to, node);                    /* SIGSEGV: the region stays open */
}
",
        repair: "Look at what the other thread did with the state in between: it may be the cause of the death. Hold one \
                 lock over the whole region.",
    },
    Rule {
        id: "AV11",
        name: "use-after-free",
        summary: "memory that the region found was freed before it was used",
        meaning: "The region finds an object, another thread frees it, and the region uses it nevertheless. By then the \
                  memory may be another object's.",
        example: "\
void touch(struct cache *cache, int key)
{
    lock(&cache->lock);
    struct node *node = find(cache, key);
    unlock(&cache->lock);
                                            /* another thread removes node and frees it */
    node->refs++;                           /* writes to freed memory */
}
",
        repair: "Hold the lock of the look-up over the use, or take a reference to the object under that lock, and let \
                 whoever drops the last reference free it.",
    },
    Rule {
        id: "AV12",
        name: "lost-wake-up",
        summary: "a notification came between a look at the condition and the begin of the wait for it",
        meaning: "The region looks at a condition, and begins to wait since it does not hold; in between another thread \
                  makes it hold and notifies. Nobody waits yet, so the notification is lost, and the thread may sleep \
                  for good.",
        example: "\
void wait_for_news(void)
{
    lock(&mailbox.lock);
    bool news = mailbox.news;               /* none yet */
    unlock(&mailbox.lock);
                                            /* another thread brings news and signals */
    lock(&mailbox.lock);
    if (!news)
        cond_wait(&mailbox.changed, &mailbox.lock);     /* sleeps until there is more */
    unlock(&mailbox.lock);
}
",
        repair: "Hold the mutex of the wait from the look to the wait, look again in a loop (`while (!condition) wait`), \
                 and change the condition under that mutex.",
    },
];

impl Rule {
    /// Returns the rule of a pattern.
    #[must_use]
    pub const fn of(pattern: Pattern) -> &'static Self {
        &RULES[match pattern {
            Pattern::LostUpdate => 0,
            Pattern::StaleRead => 1,
            Pattern::IntermediateState => 2,
            Pattern::Overwritten => 3,
            Pattern::Torn => 4,
            Pattern::Chain => 5,
            Pattern::SplitSection => 6,
            Pattern::UseAfterFree => 10,
            Pattern::LostWakeUp => 11,
        }]
    }

    /// The rule of a run that is not serializable though no violation shows it.
    pub const NOT_SERIALIZABLE: &'static Self = &RULES[7];
    /// The rule of violations without a defect.
    pub const VIOLATION: &'static Self = &RULES[8];
    /// The rule of regions that were open when the program died.
    pub const OPEN_AT_END: &'static Self = &RULES[9];

    /// Name in words: `lost update`.
    #[must_use]
    pub fn title(&self) -> String {
        self.name.replace('-', " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_the_rules_of_their_names() {
        for pattern in [
            Pattern::LostUpdate,
            Pattern::StaleRead,
            Pattern::IntermediateState,
            Pattern::Overwritten,
            Pattern::Torn,
            Pattern::Chain,
            Pattern::SplitSection,
            Pattern::UseAfterFree,
            Pattern::LostWakeUp,
        ] {
            let name = serde_json::to_value(pattern).expect("a pattern has a name");
            assert_eq!(name, Rule::of(pattern).name);
        }
        for (index, rule) in RULES.iter().enumerate() {
            assert_eq!(rule.id, format!("AV{}", index + 1));
            assert!(rule.example.lines().all(|line| line.len() <= 100), "{}", rule.id);
        }
        assert_eq!(Rule::NOT_SERIALIZABLE.name, "not-serializable");
        assert_eq!(Rule::VIOLATION.name, "violation");
        assert_eq!(Rule::OPEN_AT_END.name, "open-at-end");
    }
}
