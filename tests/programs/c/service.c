/*
 * service.c FIFO - a process that runs already when it is traced. It reads commands of one byte from FIFO, and prints
 * each once it is carried out:
 *
 * h: a third thread enters `hold`, takes the lock of `held` there and keeps both; once.
 * r: it releases the lock, and leaves the region.
 * t: `transfer` reads the balance and writes it in two sections, and `audit` of another thread comes in between.
 * n: `transfer` in a thread that begins now.
 * b: 20,000 times the main thread counts in `count`, a region of its own, with a lock of its own.
 * l: it loads a library.
 * f: it forks a process, which does nothing, and waits for its end.
 * x: it replaces itself with the same program.
 * m: the main thread ends, and another one reads commands from then on.
 * q: end with status 7.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

static struct {
    pthread_mutex_t lock;
    long balance;
} account = {PTHREAD_MUTEX_INITIALIZER, 1000};

static struct {
    pthread_mutex_t lock;
    long count;
} held = {PTHREAD_MUTEX_INITIALIZER, 0};

static struct {
    pthread_mutex_t lock;
    long count;
} counter = {PTHREAD_MUTEX_INITIALIZER, 0};

static turn_t go_transfer, go_audit, go_hold, audited, done;

__attribute__((noinline)) static void transfer(void)
{
    AVTRACE_REGION("transfer");

    pthread_mutex_lock(&account.lock);
    long balance = account.balance;            /* @read */
    pthread_mutex_unlock(&account.lock);

    give_turn(go_audit);
    await_turn(audited);

    pthread_mutex_lock(&account.lock);
    account.balance = balance - 100;           /* @write */
    pthread_mutex_unlock(&account.lock);
}

__attribute__((noinline)) static void audit(void)
{
    AVTRACE_REGION("audit");

    pthread_mutex_lock(&account.lock);
    account.balance -= 5;
    pthread_mutex_unlock(&account.lock);
}

__attribute__((noinline)) static void hold(void)
{
    AVTRACE_REGION("hold");

    pthread_mutex_lock(&held.lock);
    held.count++;
    give_turn(done);
    await_turn(go_hold);
    held.count++;
    pthread_mutex_unlock(&held.lock);
}

__attribute__((noinline)) static void count(void)
{
    AVTRACE_REGION("count");

    pthread_mutex_lock(&counter.lock);
    counter.count++;
    pthread_mutex_unlock(&counter.lock);
}

static void *run_transfers(void *unused)
{
    for (;;) {
        await_turn(go_transfer);
        transfer();
        give_turn(done);
    }
    return unused;
}

static void *run_audits(void *unused)
{
    for (;;) {
        await_turn(go_audit);
        audit();
        give_turn(audited);
    }
    return unused;
}

static void *run_hold(void *unused)
{
    await_turn(go_hold);
    hold();
    give_turn(done);
    return unused;
}

static void *run_transfer(void *unused)
{
    transfer();
    return unused;
}

static int commands;
static const char *fifo;
static pthread_t main_thread;

static void *run_commands(void *unused);

static void *run_other_commands(void *unused)
{
    pthread_join(main_thread, NULL);
    puts("m done");
    fflush(stdout);
    return run_commands(unused);
}

static void *run_commands(void *unused)
{
    char command;
    while (read(commands, &command, 1) == 1 && command != 'q') {
        if (command == 'h' || command == 'r') {
            give_turn(go_hold);
            await_turn(done);
        } else if (command == 't') {
            give_turn(go_transfer);
            await_turn(done);
        } else if (command == 'n') {
            join(start(run_transfer, NULL));
        } else if (command == 'b') {
            for (int round = 0; round < 20000; round++)
                count();
        } else if (command == 'l') {
            dlopen("libresolv.so.2", RTLD_NOW);
        } else if (command == 'f') {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            waitpid(child, NULL, 0);
        } else if (command == 'x') {
            execl("/proc/self/exe", "service", "again", fifo, (char *)NULL);
            _exit(1);
        } else if (command == 'm') {
            main_thread = pthread_self();
            start(run_other_commands, NULL);
            pthread_exit(NULL);
        }
        printf("%c done\n", command);
        fflush(stdout);
    }
    exit(7);
    return unused;
}

int main(int argc, char **argv)
{
    make_turn(go_transfer);
    make_turn(go_audit);
    make_turn(go_hold);
    make_turn(audited);
    make_turn(done);
    start(run_transfers, NULL);
    start(run_audits, NULL);
    start(run_hold, NULL);
    puts(argc > 2 ? "x done" : "ready");
    fflush(stdout);
    fifo = argv[argc - 1];
    commands = open(fifo, O_RDWR | O_CLOEXEC);
    run_commands(NULL);
}
