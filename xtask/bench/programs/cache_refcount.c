/*
 * A cache's reference count that is lowered in one section and compared with zero in another. Two threads lower it, both
 * then see zero, and both free the object.
 *
 * Regions: decrement_refcount
 * Pattern: overwritten, stale read, torn
 * Evidence: data
 * Reference: Apache httpd bug 21287, mod_mem_cache
 */
#include "turn.h"

#define QUIET_OBJECTS 20

struct object {
    pthread_mutex_t lock;
    int references; /* guarded by lock */
    int times_freed; /* guarded by lock */
};

static struct object quiet = {PTHREAD_MUTEX_INITIALIZER, 0, 0}, shared = {PTHREAD_MUTEX_INITIALIZER, 2, 0};
static struct turn other_may_go, first_may_go_on;

static void lower(struct object *object)
{
    pthread_mutex_lock(&object->lock);
    object->references--;
    pthread_mutex_unlock(&object->lock);
}

static int is_unused(struct object *object)
{
    pthread_mutex_lock(&object->lock);
    int references = object->references;
    pthread_mutex_unlock(&object->lock);
    return references == 0;
}

static void free_object(struct object *object)
{
    pthread_mutex_lock(&object->lock);
    object->times_freed++;
    pthread_mutex_unlock(&object->lock);
}

static void decrement_refcount(struct object *object, int is_split)
{
    lower(object);
    if (is_split) {
        turn_give(&other_may_go);
        turn_await(&first_may_go_on);
    }
    if (is_unused(object))
        free_object(object);
}

static void *worker(void *unused)
{
    for (int i = 0; i < QUIET_OBJECTS; i++) {
        pthread_mutex_lock(&quiet.lock);
        quiet.references++;
        pthread_mutex_unlock(&quiet.lock);
        decrement_refcount(&quiet, 0);
    }
    decrement_refcount(&shared, 1);
    return unused;
}

static void *cleaner(void *unused)
{
    turn_await(&other_may_go);
    decrement_refcount(&shared, 0);
    turn_give(&first_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&other_may_go);
    turn_make(&first_may_go_on);
    run_both(worker, cleaner);
    turn_outcome(shared.times_freed == 2);
    return 0;
}
