/* State of a context in the driver, shared by the files of this library.
 *
 * Locking: `lock` protects everything here and all words of the control page that the host writes.
 * It is never held while a thread sleeps, spins or pumps an embedded device. A launch that waits
 * for slots or ring room (a pipe wait) sets `launcher`, so that launches keep their order; a launch
 * that waits for its stream does not, so that it blocks nobody else.
 *
 * Names: W slots, V window, N tasks submitted, P completions used, C completions that the last
 * answer told of. P is at every moment max(N - W, C), whatever the device has already published:
 * that is what makes a program's result independent of the host's speed. */
#ifndef TSEMU_DRIVER_INTERNAL_H
#define TSEMU_DRIVER_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include <tsemu/crc32c.h>
#include <tsemu/ring.h>

#include "driver.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "entries are built as words");

#pragma GCC visibility push(hidden)

#define SLICE_NS 20000000ull /* longest time for which a step keeps its caller */
#define CACHE_LINE 64

/* Byte offsets of the CRC in the entries. */
enum { SQE_CRC = 12, EXTENSION_CRC = 8, CQE_CRC = 40, MESSAGE_CRC = 20 };

struct entry {
    uint64_t word[8];
};

/* Who is told how a task ended. */
enum owner { OWNER_FREE, OWNER_NOBODY, OWNER_HANDLE, OWNER_STATUS, OWNER_PROGRAM };

enum slot_flag {
    SLOT_CALLBACK = 1, /* counted in `pending`: waits also end at the next completion */
    SLOT_RECORD = 2,   /* event record: `event` and `value` say which */
    SLOT_EVENT_WAIT = 4
};

/* The task that holds a slot. */
struct slot {
    void *owner;     /* tsemu_task, status word or driver_program */
    uint32_t ticket;
    uint32_t index;  /* program: low bits of the task's index */
    uint32_t mark;   /* last ticket that named it as predecessor: duplicates count once */
    uint32_t event;
    uint32_t value;
    uint16_t stream;
    uint8_t kind;    /* enum owner */
    uint8_t flags;   /* enum slot_flag */
};

/* A task that did not succeed, as its dependents have to know it. */
struct failure {
    uint32_t order;     /* place in the completion queue */
    uint32_t ancestor;
    uint16_t context;
};

struct stream {
    uint32_t outstanding;
    uint32_t limit;
    uint32_t wanted;      /* scratch of a batch's room check */
    uint32_t last_ticket; /* in order: the implicit predecessor of the next task ... */
    struct failure failure;
    bool exists, in_order;
    bool has_last;        /* ... while it has not been seen to succeed */
    bool failed;          /* it has been seen to fail */
};

struct event {
    uint32_t value; /* last one submitted */
    struct failure failure;
    bool exists;
    bool failed;    /* the record of `value` did not succeed */
};

/* What a thread has done in this context. */
struct thread_record {
    uint64_t id;
    uint8_t launched; /* since its last wait */
    uint8_t in_callback;
};

#define THREAD_RECORDS 64

struct heap_block {
    uint64_t offset, size;
    struct heap_block *next;
    bool used;
};

struct heap {
    uint64_t base, size, offset; /* device address, bytes, place in the memory object */
    struct heap_block *first;
};

struct callback_queue {
    tsemu_task **tasks;
    uint32_t head, count, capacity;
};

struct kept_queue {
    struct tsemu_cqe *cqes;
    uint32_t head, count, capacity; /* capacity 0: off */
    uint32_t reserved;              /* completions to come that have a place */
};

struct tsemu_context {
    /* set once */
    struct tsemu_control_page *page;
    uint8_t *memory;
    struct entry *sq;
    struct entry *shadow; /* private copy of the submission ring: refused entries are mended from it */
    struct tsemu_cqe *cq;
    const uint32_t *status_table;
    struct slot *slot;
    struct stream *stream;
    tsemu_task *first_failure; /* by stream: first failure since open or recover; context: set */
    struct event *event;
    uint16_t *free_slot; /* ring of W free slots, in order of completion */
    uint16_t *edge_slot; /* scratch: predecessors of the task being built */
    uint32_t slots, window, sq_entries, cq_entries, batch;
    uint32_t stream_count, event_count, class_count, alignment;
    uint32_t mover_classes; /* bit i: class i runs MEMCPY and MEMSET */
    uint16_t number;
    bool embedded;

    pthread_mutex_t lock __attribute__((aligned(CACHE_LINE)));
    /* submission */
    uint32_t submitted;   /* N */
    uint32_t tail;        /* next position in the submission ring */
    uint32_t published;   /* tail that the device knows */
    uint32_t head_seen;   /* a value that sq_head had */
    uint32_t free_pop, free_push;
    /* consumption */
    uint32_t consumed;    /* P */
    uint32_t tail_seen;   /* a value that cq_tail had */
    uint32_t answered;    /* C of the last answer */
    uint32_t answered_head;
    uint32_t pending;     /* callbacks and awaitables: waits also end at the next completion */
    uint64_t now_ps;
    bool launcher;        /* a launch waits for slots or ring room */
    bool closing, closed;
    int broken;           /* a code: the context is in error for good */

    /* waiting */
    uint32_t wait_busy;      /* bit i: wait record i is in use */
    uint32_t wait_abandoned; /* bit i: nobody looks at its answer */
    bool control_busy;
    uint32_t control_wait;   /* wait record of an abandoned control request, plus 1 */
    uint32_t token;
    bool leader;             /* a thread sleeps on the eventfd; others on `wake` */
    pthread_cond_t wake;
    uint32_t sleepers;       /* threads on `wake` */
    uint32_t contenders;     /* threads that want `lock` (atomic) */
    bool poll_armed;         /* an event loop also waits for the eventfd */
    uint32_t users;          /* threads inside a call that may wait */
    uint32_t launching;      /* copy of the page's word */
    uint32_t pipe_sequence;
    bool rang;               /* the device was asleep at the last doorbell */
    uint32_t spin_ns;        /* how long spinning has paid off lately */
    struct thread_record thread[THREAD_RECORDS];
    uint64_t serial;         /* distinguishes contexts at the same address */

    driver_pump pump;
    void *pump_argument;
    int doorbell_fd, interrupt_fd, link_fd;
    bool owns_link;          /* opened by tsemu_open: unmapped and closed by tsemu_close */
    uint64_t memory_size;
    uint64_t guard_ns;       /* wall time without movement after which the device counts as lost */
    uint64_t movement, moved_ns, watched_ns;

    uint32_t refusal_mended;
    uint32_t refusal_position, refusal_repeats;
    struct driver_status counters;
    tsemu_error broken_error;
    struct callback_queue callbacks;
    struct kept_queue kept;
    struct heap host_heap, device_heap;
};

/* errors.c */
int driver_fail(int code, const char *field, uint64_t value, uint64_t limit, const char *hint,
                const char *format, ...) __attribute__((cold, format(printf, 6, 7)));
void driver_fail_about(uint32_t ticket, uint32_t stream);
tsemu_error *driver_error(void);
int context_refuses(struct tsemu_context *c); /* sets the error: closed or broken */

static inline int context_check(struct tsemu_context *c)
{
    return __builtin_expect(c->closed || c->broken, 0) ? context_refuses(c) : TSEMU_OK;
}

/* Reasons of a pump (ts_firmware/soc/device.h) that matter here. */
enum { DEVICE_SLICE_OVER = 1, DEVICE_PANICKED = 5 };

/* block.c: sleeping, spinning, pumping, doorbells */
enum condition_kind { FOR_ANSWER, FOR_COMPLETIONS, FOR_ENTRIES, FOR_SIGNAL };

struct condition {
    enum condition_kind kind;
    uint32_t index;    /* ANSWER: wait record */
    uint32_t sequence; /* ANSWER: that of the request; others: that of the posted pipe wait, or 0 */
    uint32_t need;     /* COMPLETIONS, ENTRIES: position */
};

uint64_t wall_ns(void);
void ring_doorbell(struct tsemu_context *c);
bool condition_holds(const struct tsemu_context *c, const struct condition *condition);
/* With the lock held. TSEMU_OK: it may hold now; TSEMU_AGAIN: `until` is over; or an error. */
int block_until(struct tsemu_context *c, const struct condition *condition, uint64_t until);
/* Spins for a short while, the lock released; true when it came to hold. Embedded: only looks. */
bool spin_for(struct tsemu_context *c, const struct condition *condition);
/* Waits for other threads of the process to signal (`wake`), at most until `until`. */
void block_for_threads(struct tsemu_context *c, uint64_t until);
void wake_threads(struct tsemu_context *c);
/* Look at what the device says about the context: refusals are mended, errors end it. */
int attend(struct tsemu_context *c);

/* Tell the device about what was published; the lock is held. */
static inline void publish_fence(struct tsemu_context *c)
{
    if (c->embedded)
        return;
    tsemu_ring_fence();
    if (__builtin_expect(tsemu_load_relaxed(&c->page->device_sleeps) != 0u, 0))
        ring_doorbell(c);
}

static inline void publish_tail(struct tsemu_context *c)
{
    if (c->published == c->tail)
        return;
    c->published = c->tail;
    tsemu_store_release(&c->page->sq_tail, c->tail);
    publish_fence(c);
}

/* threads.c */
struct thread_record *thread_record(struct tsemu_context *c);
void thread_launched(struct tsemu_context *c, struct thread_record *record);
void thread_waits(struct tsemu_context *c, struct thread_record *record);

/* refusal.c */
void refusal_mend(struct tsemu_context *c, uint32_t sequence);
int context_in_error(struct tsemu_context *c);
int device_lost(struct tsemu_context *c, const char *reason);
/* The error of this thread becomes the context's; all that is not terminal ends with `status`. */
void context_break(struct tsemu_context *c, int code, uint16_t status);
void end_outstanding(struct tsemu_context *c, uint16_t status);

/* consume.c */
/* Use the completions up to `upto`, all of which are published. */
int consume_published(struct tsemu_context *c, uint32_t upto);
/* The same, waiting for their bytes; the lock is released meanwhile. */
int consume_to(struct tsemu_context *c, uint32_t upto, uint64_t until);
void deliver(struct tsemu_context *c, const struct tsemu_cqe *cqe, struct slot *slot);
int load_cq_tail(struct tsemu_context *c);

/* queues.c: callbacks, kept completions */
int callback_reserve(struct tsemu_context *c);
void callback_push(struct tsemu_context *c, tsemu_task *task);
/* What a step returns: of a context in error, TSEMU_CALLBACKS until those of the tasks that the error
 * has ended have run. */
int callbacks_first(struct tsemu_context *c, int code);
void kept_push(struct tsemu_context *c, const struct tsemu_cqe *cqe);
int kept_reserve(struct tsemu_context *c, uint32_t count);

/* wait.c */
enum stage { STAGE_START, STAGE_POSTED, STAGE_ANSWERED, STAGE_COLLECTED, STAGE_PIPE };
int wait_post(struct tsemu_context *c, const struct driver_wait *wait, uint32_t flags,
              driver_operation *operation, uint64_t until);
int wait_collect(struct tsemu_context *c, driver_operation *operation, uint64_t until, bool poll,
                 uint32_t *reason);
void wait_reap(struct tsemu_context *c);
int wait_for_record(struct tsemu_context *c, uint64_t until);
int wait_locked(struct tsemu_context *c, const struct driver_wait *wait,
                driver_operation *operation, bool poll);
/* Give up an operation; nothing when it has not started. */
void operation_drop(struct tsemu_context *c, driver_operation *operation);

/* room.c */
struct room {
    uint32_t count;   /* tasks of the launch */
    uint32_t entries; /* ring entries that they need at most */
    uint32_t stream;  /* stream of the first task */
    const tsemu_launch_desc *tasks; /* a batch: all of them count; NULL: only the first */
    bool block;
};
/* Room for a launch, by the rules of the clock. On TSEMU_OK the lock has been held since. */
int room_reserve(struct tsemu_context *c, const struct room *room, driver_operation *operation,
                 uint64_t until);
/* The same without any waiting: TSEMU_AGAIN when there is no room. */
int room_try(struct tsemu_context *c, const struct room *room);
void pipe_end(struct tsemu_context *c, driver_operation *operation);

/* check.c */
int check_task(const struct tsemu_context *c, const tsemu_launch_desc *desc, const char *prefix);
bool task_valid(const struct tsemu_context *c, const tsemu_launch_desc *desc);
/* Handles as predecessors, `extra` more beside them; *entries: ring entries needed at most. */
int check_after(const struct tsemu_context *c, tsemu_task *const *after, uint32_t count,
                uint32_t extra, uint32_t *entries);
int check_entries(const struct tsemu_context *c, uint32_t predecessors, uint32_t *entries);

/* heap.c */
bool heap_open(struct heap *heap);
void heap_close(struct heap *heap);

/* control.c */
int control_locked(struct tsemu_context *c, uint16_t kind, const uint32_t argument[10],
                   struct tsemu_control_message *reply, driver_operation *operation,
                   uint64_t until);

/* attach.c */
void context_free(struct tsemu_context *c);

/* program.c */
void program_deliver(driver_program *program, const struct tsemu_cqe *cqe, uint32_t index);

/* Ring entries of a task with so many predecessors. */
static inline uint32_t entries_for(uint32_t predecessors)
{
    if (__builtin_expect(predecessors <= TSEMU_INLINE_PREDECESSORS, 1))
        return 1;
    return 1 + (predecessors - TSEMU_INLINE_PREDECESSORS + TSEMU_EXTENSION_SLOTS - 1) /
                   TSEMU_EXTENSION_SLOTS;
}

/* Keep the failure that comes first in the completion queue; orders wrap. */
static inline void first_failure(struct failure *first, bool *any, const struct failure *other,
                                 uint32_t consumed)
{
    if (!*any || consumed - other->order > consumed - first->order)
        *first = *other;
    *any = true;
}

static inline void context_lock(struct tsemu_context *c)
{
    if (__builtin_expect(pthread_mutex_trylock(&c->lock) == 0, 1))
        return;
    __atomic_fetch_add(&c->contenders, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&c->lock);
    __atomic_fetch_sub(&c->contenders, 1, __ATOMIC_RELAXED);
}

static inline void context_unlock(struct tsemu_context *c)
{
    pthread_mutex_unlock(&c->lock);
}

#pragma GCC visibility pop
#endif
