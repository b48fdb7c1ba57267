//! Examples of the topics of `avtrace explain`, in C, of at most ten lines.

pub(super) const CHECK_THEN_ACT: &str = "\
lock(&pool.lock);
int free = pool.free;                   /* reads */
unlock(&pool.lock);
                                        /* others come in */
lock(&pool.lock);
if (free > 0)                           /* decides by the old value */
    pool.free--;
unlock(&pool.lock);
";

pub(super) const CALLEES: &str = "\
void deposit(long amount)
{
    long balance = get_balance();       /* locks and unlocks */
                                        /* others come in */
    set_balance(balance + amount);      /* locks and unlocks again */
}
";

pub(super) const ITERATIONS: &str = "\
while ((job = next_job())) {
    lock(&stats.lock);
    stats.jobs++;                       /* again in the next iteration: */
    unlock(&stats.lock);                /* others may come in between */
}
";

pub(super) const AGAIN: &str = "\
lock(&cache.lock);
entry = find(key);                      /* nothing there */
unlock(&cache.lock);
value = compute(key);                   /* others come in */
lock(&cache.lock);
if (!find(key))                         /* looks again: no harm */
    insert(key, value);
unlock(&cache.lock);
";

pub(super) const WITHOUT_LOCK: &str = "\
lock(&list.lock);                       /* T2, without the lock: */
first = list.head;
                                        /*     list.head = node; */
list.head = first->next;
unlock(&list.lock);
";

pub(super) const SEPARATE: &str = "\
lock(&names.lock);  names.count++;  unlock(&names.lock);
                                        /* others come in */
lock(&log.lock);    log.lines++;    unlock(&log.lock);
";

pub(super) const ATOMIC: &str = "\
atomic_fetch_add(&stats.requests, 1);
                                        /* others add, too */
atomic_fetch_add(&stats.requests, 1);   /* no update is lost */
";

pub(super) const ONE_OBJECT: &str = "\
line->text[line->length] = c;           /* one field */
                                        /* others come in */
line->length++;                         /* another field of the same object */
";

pub(super) const WAIT: &str = "\
queue_push(&requests, request);
wait_for(&request->done);               /* lets others work, on purpose */
return request->result;
";

pub(super) const LIKELY: &str = "\
lock(&account.lock);
long balance = account.balance;         /* +: the write below loses an update */
unlock(&account.lock);                  /* +: the lock is released and acquired again */
                                        /* another thread deposits 5 */
lock(&account.lock);
account.balance = balance + amount;     /* +: the value had changed: 3 or more, likely */
unlock(&account.lock);
";

pub(super) const POSSIBLE: &str = "\
lock(&pool.lock);
int free = pool.free;                   /* +: released and acquired again */
unlock(&pool.lock);
                                        /* another thread takes one */
lock(&pool.lock);
if (pool.free > 0)                      /* -: read again after the gap: at most possible */
    pool.free--;
unlock(&pool.lock);
";

pub(super) const BY_DESIGN: &str = "\
while (running) {                       /* a region that is a loop of events: speaks against */
    lock(&stats.lock);
    stats.rounds++;                     /* again in the next iteration: speaks against */
    unlock(&stats.lock);                /* others count their rounds here, in most executions */
}
";

pub(super) const DATA: &str = "\
long balance = account.balance;         /* T1 reads 100 */
                                        /*     account.balance = 105;   T2: T1 before T2 */
account.balance = balance + 1;          /* T1 writes it: T2 before T1, a cycle of data */
";

pub(super) const SYNC: &str = "\
lock(&cache.lock);  look_up(key);  unlock(&cache.lock);
                                        /* T2: lock(&cache.lock); ...; unlock(&cache.lock); */
lock(&cache.lock);  store(key);  unlock(&cache.lock);
                                        /* T2 was in between; no variable of both was seen */
";

pub(super) const RACY: &str = "\
ready = true;                           /* T1, without a lock */
                                        /*     if (ready) use();   T2, without a lock */
ready = false;                          /* nothing orders T2's read before or after it */
";

pub(super) const PATTERN: &str = "\
long balance = account.balance;         /* read */
                                        /*     account.balance += 5;    write of another thread */
account.balance = balance + amount;     /* write: read, write, write is a lost update (AV1) */
";

pub(super) const CHANGED: &str = "\
int length = queue.length;              /* reads 3 */
                                        /*     queue.length = 2;        another value */
queue.items[length - 1] = item;         /* the old length is wrong now */
";

pub(super) const UNCHANGED: &str = "\
bool stop = stopping;                   /* reads false */
                                        /*     stopping = false;        the same value */
if (!stopping && !stop)                 /* nothing has changed for the region */
    work();
";

pub(super) const UNREAD: &str = "\
lock(&m); last_user = me; unlock(&m);   /* T1 notes it */
                                        /*     last_user = other;       T2 notes another one */
lock(&m); served++; unlock(&m);         /* nobody ever reads last_user */
";

pub(super) const POLLED: &str = "\
while (ready != me)                     /* T1 polls it */
    sched_yield();                      /*     ready = me;              T2 lets T1 go on */
work();
ready = other;
";

pub(super) const CAME_BACK: &str = "\
request.id = next_id++;                 /* T1, in its region */
                                        /*     reply.id = request.id;   T2 reads what T1 wrote */
if (reply.id != request.id)             /* T1 reads what T2 wrote: through T2 back to T1 */
    retry();
";

pub(super) const NAMED: &str = "\
void transfer(void)
{
    AVTRACE_REGION(\"transfer\");         /* a marker: in C, C++; region!(\"transfer\") in Rust */
    long balance = get_balance();
                                        /* another thread sets it */
    set_balance(balance - amount);
}
";

pub(super) const FAR_APART: &str = "\
void serve(void)
{
    handle(accept_one());               /* a step five calls down from here */
                                        /* others come in */
    handle(accept_one());               /* another step, five calls down again */
}
";

pub(super) const COMMON_LOCK: &str = "\
lock(&list.lock);  node = list.head;  unlock(&list.lock);
                                        /*     the same lock:  list.head = other;  list.length++; */
lock(&list.lock);  list.length--;  unlock(&list.lock);
                                        /* list.lock guards both: they belong together */
";

pub(super) const MAY_COME_ANY_TIME: &str = "\
void put(struct item *item)
{
    lock(&queue.lock);
    push(&queue, item);
    unlock(&queue.lock);
                                            /* another thread takes it, and waits again */
    cond_signal(&queue.not_empty);          /* wakes it in vain */
}
";

pub(super) const LOCK_WORD: &str = "\
while (atomic_exchange(&busy, 1))       /* `busy` is a lock of the program's own */
    ;
                                        /*     the others try it, too: that is no defect of data */
atomic_store(&busy, 0);
";

pub(super) const FREED_UNUSED: &str = "\
total += item->price;                   /* the last use of item */
                                        /*     free(item); */
print(total);
";

pub(super) const FREES_IT: &str = "\
job = new_job();
submit(job);                            /*     the worker fills it in */
wait_for(job);
free(job);
";

pub(super) const SYNC_ONLY: &str = "\
lock(&log.lock);  puts(\"begin\");  unlock(&log.lock);
                                        /*     the same lock:  puts(\"other\"); */
lock(&log.lock);  puts(\"end\");  unlock(&log.lock);
                                        /* the lock alone met: data of the C library is not seen */
";

pub(super) const OUT_OF_SIGHT: &str = "\
lock(&table.lock);
row = library_find(table.rows, key);    /* the library's accesses are not captured */
unlock(&table.lock);
                                        /*     the same lock:  library_remove(table.rows, key); */
lock(&table.lock);  library_update(row, value);  unlock(&table.lock);
";

pub(super) const NOT_CAPTURED: &str = "\
$ avtrace run --accesses sync ./bank    # locks alone

lock(&account.lock);  balance = account.balance;  unlock(&account.lock);
                                        /*     lock(&account.lock);  ...;  unlock(&account.lock); */
lock(&account.lock);  account.balance = balance + 1;  unlock(&account.lock);
";

pub(super) const LIBRARY: &str = "\
size_t pool_size(struct pool *pool)     /* code of a library that the program is linked to */
{
    size_t all = atomic_load(&pool->all);
                                        /*     atomic_fetch_add(&pool->all, 1);  ...->idle, 1); */
    return all - atomic_load(&pool->idle);
}
";

pub(super) const RACY_ORDER: &str = "\
total += amount;                        /* T1, without a lock: a read and a write */
                                        /*     total += 5;              T2, without a lock */
report(total);                          /* which write came first is known up to the window */
";

pub(super) const CUT: &str = "\
executed 100,000 times, cut 3 times:    /* a window of some instructions: suspicious */
    if (cache.owner == NULL)
        cache.owner = self;
executed 500 times, cut 480 times:      /* a loop of events: others are meant to come in */
    for (;;) { handle(next_event()); }
";
