/*
 * watch_struct.c - a structure of fields of 1, 2, 4 and 8 bytes that nobody locks.
 *
 * Without a lock only the accesses themselves can show what went wrong: watch the fields, for example with
 * `--watch record+4:4`. Every field is read by `update`, changed by `interfere`, and written by `update`:
 *
 *     thread 1: update                           thread 2: interfere
 *
 *     read every field
 *                          -- go_interfere -->
 *                                                add 100 to every field
 *                            <-- go_update --
 *     write every field + 1                      (the 100 are gone)
 *
 * The pipes order the accesses, which avtrace cannot see: for avtrace they race.
 */
#include <stddef.h>
#include <stdint.h>

#include "avtrace.h"
#include "handshake.h"
#include "threads.h"

struct record {
    uint8_t byte;   /* at 0 */
    uint16_t half;  /* at 2 */
    uint32_t word;  /* at 4 */
    uint64_t whole; /* at 8 */
};

struct record record = {1, 2, 4, 8};

static turn_t go_interfere;
static turn_t go_update;

static void *update(void *unused)
{
    AVTRACE_REGION("update");                  /* @update_begin */

    uint8_t byte = record.byte;                /* @byte_read */
    uint16_t half = record.half;               /* @half_read */
    uint32_t word = record.word;               /* @word_read */
    uint64_t whole = record.whole;             /* @whole_read */

    give_turn(go_interfere);
    await_turn(go_update);

    record.byte = byte + 1;                    /* @byte_write */
    record.half = half + 1;                    /* @half_write */
    record.word = word + 1;                    /* @word_write */
    record.whole = whole + 1;                  /* @whole_write */
    return unused;
}

static void *interfere(void *unused)
{
    await_turn(go_interfere);
    {
        AVTRACE_REGION("interfere");           /* @interfere_begin */

        record.byte += 100;                    /* @byte_interfere */
        record.half += 100;                    /* @half_interfere */
        record.word += 100;                    /* @word_interfere */
        record.whole += 100;                   /* @whole_interfere */
    }
    give_turn(go_update);
    return unused;
}

int main(void)
{
    make_turn(go_interfere);
    make_turn(go_update);

    pthread_t first = start(update, NULL), second = start(interfere, NULL);

    join(first);
    join(second);
    printf("%d %d %ld %ld\n", record.byte, record.half, (long)record.word, (long)record.whole);
    return 0;
}
