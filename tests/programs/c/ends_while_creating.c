// A process ends with all its threads (`exit_group`, by the thread of that name) while others create threads: some are
// killed after the kernel has made a thread and before they return from the system call. Ends with status 6.
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

enum { CREATORS = 4, BEFORE_THE_END = 50 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long created;

static void *thread(void *unused) {
    pthread_mutex_lock(&lock);
    ++created;
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *creator(void *unused) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (;;) {
        pthread_t id;
        pthread_create(&id, &detached, thread, NULL);
    }
    return unused;
}

int main(void) {
    for (int i = 0; i < CREATORS; ++i) {
        pthread_t id;
        pthread_create(&id, NULL, creator, NULL);
    }
    for (long seen = 0; seen < BEFORE_THE_END;) {
        pthread_mutex_lock(&lock);
        seen = created;
        pthread_mutex_unlock(&lock);
    }
    _exit(6);
}
