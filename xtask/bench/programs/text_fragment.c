/*
 * A text whose pointer and length are set in two sections: a reader in between takes the new text for as long as the
 * old one was.
 *
 * Regions: set_text
 * Pattern: torn, intermediate state
 * Evidence: data
 * Reference: Mozilla nsTextFrame, after Lu et al.: Learning from Mistakes (ASPLOS 2008), Figure 4
 */
#include <string.h>

#include "turn.h"

struct fragment {
    pthread_mutex_t lock;
    const char *content; /* guarded by lock */
    size_t length;       /* guarded by lock */
};

static struct fragment fragment = {PTHREAD_MUTEX_INITIALIZER, "a long text", 11};
static struct turn reader_may_go, writer_may_go_on;
static size_t length_seen, length_there;

static void set_text(struct fragment *fragment, const char *text, int is_split)
{
    pthread_mutex_lock(&fragment->lock);
    fragment->content = text;
    pthread_mutex_unlock(&fragment->lock);
    if (is_split) {
        turn_give(&reader_may_go);
        turn_await(&writer_may_go_on);
    }
    pthread_mutex_lock(&fragment->lock);
    fragment->length = strlen(text);
    pthread_mutex_unlock(&fragment->lock);
}

static void measure(struct fragment *fragment)
{
    pthread_mutex_lock(&fragment->lock);
    const char *content = fragment->content;
    size_t length = fragment->length;
    pthread_mutex_unlock(&fragment->lock);
    length_there = strlen(content);
    length_seen = length;
}

static void *editor(void *unused)
{
    for (int i = 0; i < 10; i++)
        set_text(&fragment, i % 2 ? "text" : "a text", 0);
    set_text(&fragment, "t", 1);
    return unused;
}

static void *layout(void *unused)
{
    turn_await(&reader_may_go);
    measure(&fragment);
    turn_give(&writer_may_go_on);
    return unused;
}

int main(void)
{
    turn_make(&reader_may_go);
    turn_make(&writer_may_go_on);
    run_both(editor, layout);
    turn_outcome(length_seen != length_there);
    return 0;
}
