/* Code whose steps can be delayed: `split` has a critical section in two parts, which no other thread gets into unless
 * it takes long; the other modes are lives of processes with delays. The gap is behind the first unlock of `update`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;
static int nothing[2];
static volatile sig_atomic_t handled;

__attribute__((noinline)) void update(void) {
    pthread_mutex_lock(&lock);
    long before = total;
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&lock);
    total = before + 1;
    pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) void audit(void) {
    pthread_mutex_lock(&lock);
    total += 10;
    pthread_mutex_unlock(&lock);
}

/* Sets a bit without a lock. Its first instruction reads, so that only the next one is left for the probe of that. */
__attribute__((noinline, noclone)) void claim(unsigned *bits, unsigned bit) {
    unsigned seen = *(volatile unsigned *)bits;
    if ((seen & bit) == 0) {
        *(volatile unsigned *)bits = seen | bit;
    }
}

static unsigned claimed;

static void *claims(void *unused) {
    claim(&claimed, 1);
    return unused;
}

static void *claims_later(void *unused) {
    struct pollfd never = {.fd = nothing[0], .events = POLLIN};
    poll(&never, 1, 5);
    claim(&claimed, 2);
    return unused;
}

static void *updates(void *unused) {
    update();
    return unused;
}

static void *audits(void *unused) {
    struct pollfd never = {.fd = nothing[0], .events = POLLIN};
    poll(&never, 1, 5);
    audit();
    return unused;
}

static void *announces(void *unused) {
    if (write(nothing[1], "x", 1) == 1) {
        update();
    }
    return unused;
}

static void handle(int number) {
    (void)number;
    handled++;
}

static int split(void *(*first)(void *), void *(*second)(void *)) {
    pthread_t one, other;
    pthread_create(&one, NULL, first, NULL);
    pthread_create(&other, NULL, second, NULL);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    puts("done");
    return 0;
}

/* Waits for what never comes, again and again; a call that fails ends it. */
static void *waits(void *rounds) {
    int set = epoll_create1(0);
    struct epoll_event event;
    for (long round = 0; round < (long)rounds; round++) {
        if (epoll_wait(set, &event, 1, 2) != 0) {
            printf("epoll_wait: %s\n", strerror(errno));
            exit(1);
        }
        audit();
    }
    return NULL;
}

static int starved(long rounds) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, waits, (void *)rounds);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    puts("fed");
    return 0;
}

static void *counts(void *rounds) {
    for (int i = 0; i < ROUNDS; i++) {
        update();
        (*(int *)rounds)++;
    }
    return NULL;
}

/* All threads on one processor, which they have in turn. */
static int turns(void) {
    pthread_t threads[THREADS];
    int rounds[THREADS] = {0}, sum = 0;
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &allowed)) {
            CPU_SET(cpu, &one);
        }
    }
    sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, counts, &rounds[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += rounds[i];
    }
    printf("rounds %d\n", sum);
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "split";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pipe(nothing) != 0) {
        return 2;
    }
    if (strcmp(mode, "split") == 0) {
        return split(updates, audits);
    } else if (strcmp(mode, "claim") == 0) {
        return split(claims, claims_later);
    } else if (strcmp(mode, "turns") == 0) {
        return turns();
    } else if (strcmp(mode, "loop") == 0) {
        for (long round = atol(argv[2]); round > 0; round--) {
            update();
        }
        printf("total %ld\n", total);
        return 7;
    } else if (strcmp(mode, "signal") == 0) {
        struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
        struct itimerval soon = {.it_value.tv_usec = 20000};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &soon, NULL);
        update();
        while (!handled) {
            poll(NULL, 0, 1);
        }
        printf("handled %d\n", (int)handled);
        return 0;
    } else if (strcmp(mode, "exit") == 0) {
        pthread_t thread;
        char byte;
        pthread_create(&thread, NULL, announces, NULL);
        if (read(nothing[0], &byte, 1) != 1) {
            return 2;
        }
        poll(NULL, 0, 20);
        puts("exits");
        exit(3);
    } else if (strcmp(mode, "fork") == 0) {
        int status = 0;
        update();
        pid_t child = fork();
        if (child == 0) {
            update();
            _exit(total == 2 ? 5 : 6);
        }
        waitpid(child, &status, 0);
        printf("child %d\n", WEXITSTATUS(status));
        return 0;
    } else if (strcmp(mode, "exec") == 0) {
        update();
        execl("/proc/self/exe", argv[0], "loop", "2", NULL);
        return 2;
    } else if (strcmp(mode, "plugin") == 0) {
        void *library = dlopen(argv[2], RTLD_NOW);
        int (*plugged)(int) = library ? (int (*)(int))dlsym(library, "plugged") : NULL;
        if (plugged == NULL) {
            return 2;
        }
        printf("plugged %d\n", plugged(20));
        return 0;
    } else if (strcmp(mode, "outlive") == 0) {
        pid_t parent = getppid();
        puts("ready");
        while (getppid() == parent) {
            poll(NULL, 0, 1);
        }
        update();
        update();
        printf("total %ld\n", total);
        return 0;
    } else if (strcmp(mode, "starved") == 0) {
        return starved(atol(argv[2]));
    }
    return 2;
}
