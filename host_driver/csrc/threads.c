/* What each thread has done in a context: the device lets a launch that waits for its stream settle
 * the client only when no thread is in the middle of launching (`launching` in the page). */
#include "internal.h"

#include <stdatomic.h>

static atomic_uint_fast64_t thread_ids;

static _Thread_local struct {
    uint64_t id;
    uint64_t serial; /* of the context that `record` belongs to */
    struct thread_record *record;
} mine;

static void set_launching(struct tsemu_context *c, uint32_t launching)
{
    c->launching = launching;
    tsemu_store_release(&c->page->launching, launching);
}

static struct thread_record *take_record(struct tsemu_context *c)
{
    struct thread_record *spare = NULL;
    for (uint32_t i = 0; i < THREAD_RECORDS; i++) {
        struct thread_record *record = &c->thread[i];
        if (record->id == mine.id)
            return record;
        if (!record->in_callback && (!spare || (spare->launched && !record->launched)))
            spare = record;
    }
    if (!spare)
        spare = &c->thread[0];
    /* The record of a thread that has probably ended. */
    if (spare->launched)
        set_launching(c, c->launching - 1);
    *spare = (struct thread_record){.id = mine.id};
    return spare;
}

struct thread_record *thread_record(struct tsemu_context *c)
{
    if (mine.serial == c->serial && mine.record->id == mine.id)
        return mine.record;
    if (!mine.id)
        mine.id = atomic_fetch_add(&thread_ids, 1) + 1;
    mine.record = take_record(c);
    mine.serial = c->serial;
    return mine.record;
}

void thread_launched(struct tsemu_context *c, struct thread_record *record)
{
    if (record->launched)
        return;
    record->launched = 1;
    set_launching(c, c->launching + 1);
}

void thread_waits(struct tsemu_context *c, struct thread_record *record)
{
    if (!record->launched)
        return;
    record->launched = 0;
    set_launching(c, c->launching - 1);
}

void driver_in_callback(tsemu_context *c, int inside)
{
    context_lock(c);
    thread_record(c)->in_callback = inside != 0;
    context_unlock(c);
}
