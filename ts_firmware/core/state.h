/* The firmware's state: tables in one arena, linked by indices, never by pointers.
 *
 * A context's part is contiguous (header, tasks, edge nodes, streams, events), so that it can be
 * copied as bytes. A `ref` names a task among all contexts: context << 16 | slot. */
#ifndef FW_STATE_H
#define FW_STATE_H

#include "firmware.h"

#include <tsemu/ring.h>

#define NIL 0xFFFFFFFFu
#define NO_SLOT TSEMU_NO_SLOT
#define NO_STATUS TSEMU_PENDING

enum task_state {
    TASK_EMPTY,    /* the slot has never held a task */
    TASK_WAITING,  /* edges are open */
    TASK_READY,    /* in a ready queue, no block started */
    TASK_RUNNING,  /* at least one block started */
    TASK_PENDING,  /* event wait: edges satisfied, value not reached */
    TASK_RETIRING, /* ends without a core, in the retire heap */
    TASK_PARKED,   /* ended, but its completion has found no room in the ring yet */
    TASK_ENDED     /* completion written; the slot may be used again */
};

/* One slot of the scoreboard: two cache lines, the first has what edges and queues touch. */
struct task {
    uint32_t ticket;
    uint8_t state;           /* enum task_state */
    uint8_t opcode;
    uint8_t engine_class;
    uint8_t priority;
    uint16_t stream;
    uint16_t open_edges;     /* predecessors that have not ended */
    uint32_t successors;     /* first edge node */
    uint16_t stream_next;    /* in-order successor's slot */
    uint16_t event_next;     /* next record of the same event, or next waiter, or next poisoned */
    uint32_t next;           /* ready list; heap: next sibling */
    uint32_t child;          /* heap: first child; ready list head: tail of its group */
    uint32_t group_next;     /* ready list head: next group of the level */
    uint16_t group_sibling;  /* ready list head: other group of the same stream */
    uint16_t status;         /* how it ended or is about to end */
    uint16_t blocks, started, running, ended;
    uint32_t value;          /* scheduling value */
    uint32_t order;          /* place in the completion queue */
    uint32_t mark;           /* ticket of the last entry that names it as predecessor; own: none */

    uint64_t user_tag;
    uint64_t start, end;
    union {
        uint64_t argument;   /* KERNEL: argument; MEMCPY: source offset; MEMSET: pattern */
        struct {             /* once `status` says that it did not succeed */
            uint32_t ancestor;
            uint16_t ancestor_context;
        };
    };
    uint64_t limit;          /* in a timer list: the deadline; else running time left, or FW_NEVER */
    union {
        struct {
            uint32_t cycles, bytes_read, bytes_written;
        } kernel;
        struct {
            uint64_t destination, length;
        } copy;
        struct {
            uint32_t event, value;
            union {          /* a record: its neighbours; a wait: why its value has failed */
                struct {
                    uint32_t next_ticket, previous_ticket;
                };
                struct {
                    uint32_t failed_ticket, failed_context;
                };
            };
        } event;
    } u;
    uint32_t timer_next, timer_previous;
    uint32_t stream_next_ticket;
    union {
        uint16_t event_previous; /* slot of the event's previous record, NO_SLOT: none was open */
        uint16_t gang;           /* KERNEL, MEMCPY, MEMSET: 1 if all blocks start together */
    };
    uint16_t core;
};

_Static_assert(sizeof(struct task) == 128, "two cache lines");

/* An edge has its own identity: the successor may be long gone when its predecessor ends. */
struct edge_node {
    uint32_t next;
    uint32_t ticket;         /* of the successor */
    uint16_t slot;           /* of the successor */
    uint16_t unused;
};

struct stream {
    uint8_t used, in_order;
    uint16_t groups;         /* first group head of this stream in the ready queues */
    uint32_t incomplete;
    uint32_t last_ticket;    /* last task admitted */
    uint16_t last_slot;      /* NO_SLOT: there is none, or recover has forgotten it */
    uint16_t last_status;    /* NO_STATUS while it has not ended */
    uint32_t last_order;
    uint32_t last_ancestor;
    uint16_t last_ancestor_context;
    uint16_t unused;
};

struct event {
    uint8_t used, unused[3];
    uint32_t admitted;       /* highest value recorded by an admitted task */
    uint32_t reached;        /* highest value whose record has ended */
    uint32_t last_ticket;    /* last record admitted */
    uint16_t last_slot;      /* NO_SLOT: there is none */
    uint16_t waiters;        /* pending waits, by event_next */
    uint16_t poisoned;       /* failed records whose slots are not used again, by event_next */
    uint16_t unused1;
};

struct wait {
    uint32_t sequence;       /* last one answered, or the posted one */
    uint32_t submitted, kind, flags, a, b, c, next_completed;
    uint64_t deadline;       /* as posted, then absolute */
    uint32_t blocker;        /* slot that keeps the condition false, or NIL */
    bool started;
};

/* The next entry of the ring: copied once, checked in the copy. */
struct head {
    bool valid;              /* fetched and checked */
    bool cost_known;
    uint8_t entries;         /* ring entries that it takes */
    uint16_t predecessor_count;
    uint64_t ready_at;       /* host cost */
    union {
        struct tsemu_sqe sqe;
        struct tsemu_sqe_copy copy;
        struct tsemu_sqe_event event;
        struct tsemu_sqe_poisoned poisoned;
    } entry;
    uint16_t predecessors[TSEMU_MAX_PREDECESSORS + 2];
};

struct level {
    uint32_t first, last;    /* priority: group heads in turn; fifo and fair: tasks */
};

/* Policy fair: what is ready of one context in one class. */
struct fair_queue {
    uint32_t levels;         /* bit per level that has a task */
    struct level level[TSEMU_PRIORITY_LEVELS];
    uint64_t service;        /* work done so far, scaled by the weight; wraps */
};

struct context {
    uint32_t id;
    uint8_t name[64];        /* the firmware's own copy: the client can write to the page */
    uint8_t closing, errored;
    uint8_t blocked;         /* the next entry is there and cannot be admitted now */
    uint8_t tries;           /* refusals of the entry at the head */
    uint16_t posted;         /* bit per posted wait */
    uint32_t admitted, completed;
    uint32_t position;       /* submission ring, next entry to take */
    uint32_t tail;           /* as last read */
    uint32_t posts;          /* wait posts as last read */
    uint32_t pipe;           /* pipe sequence as last read */
    uint32_t refusal;        /* last refusal raised */
    bool refused;            /* it has not been mended yet */
    uint32_t cq_tail, cq_published, cq_head;
    uint32_t parked_first, parked_last, parked;  /* ended tasks without room in the ring */
    uint32_t slots, window, sq_entries, cq_entries;
    uint32_t edge_free, edge_free_count;
    uint32_t control_token;
    bool control_done;
    uint64_t last_admission, last_answer, host_ready;
    uint64_t tasks, nodes, streams, events;      /* offsets from the context's start */
    uint64_t sq_offset, cq_offset, status_offset;
    uint64_t host_heap_offset, host_heap_size, host_base;
    uint64_t device_heap_offset, device_heap_size, device_base;
    uint32_t fair_scale;
    struct fair_queue fair[TSEMU_MAX_CLASSES];
    struct tsemu_control_message reply;
    struct wait waits[TSEMU_MAX_WAITS];
    struct head head;
};

struct ready_class {
    uint32_t count;
    uint32_t levels;         /* bit per level that has a group */
    struct level level[TSEMU_PRIORITY_LEVELS];
    uint32_t heap;           /* policies rank and edf */
    uint64_t fair_time;      /* policy fair: service of the context served last */
};

struct core {
    uint32_t task;           /* ref, NIL: idle */
    uint16_t block;
    uint16_t engine_class;
};

struct engine_class {
    uint32_t first_core, cores, idle;
    uint32_t gang;           /* ref of the gang that the class is reserved for, or NIL */
    uint32_t moves_bytes;
};

struct fw {
    struct hal *hal;
    struct fw_config config;
    bool panicked;
    uint32_t input_cursor;   /* context at which the input pass stands */
    uint32_t context_count;
    uint8_t by_name[HAL_CONTEXTS];
    uint8_t name_rank[HAL_CONTEXTS];             /* place of a context in by_name */
    uint64_t context_offset[HAL_CONTEXTS];       /* from the start of the arena; 0: none */
    uint64_t busy_until;
    uint32_t newly_first, newly_last;            /* became ready at this instant */
    bool newly_sorted;
    uint32_t retire;                             /* heap by ticket */
    uint32_t posted_waits;                       /* of all contexts */
    uint32_t timer_events, timer_events_last;    /* pending event waits by deadline */
    uint32_t timer_blocks, timer_blocks_last;    /* running tasks with a timeout by deadline */
    struct ready_class ready[TSEMU_MAX_CLASSES];
    struct engine_class classes[TSEMU_MAX_CLASSES];
    uint32_t core_count;
    uint32_t idle[HAL_CORES / 32u];              /* bit per idle core */
    struct core cores[HAL_CORES];
    uint64_t dispatched;
};

static inline struct context *fw_context(const struct fw *fw, uint32_t id)
{
    return (struct context *)((uintptr_t)fw + (uintptr_t)fw->context_offset[id]);
}

static inline struct task *context_task(const struct context *context, uint32_t slot)
{
    return (struct task *)((uintptr_t)context + (uintptr_t)context->tasks) + slot;
}

static inline struct edge_node *context_node(const struct context *context, uint32_t node)
{
    return (struct edge_node *)((uintptr_t)context + (uintptr_t)context->nodes) + node;
}

static inline struct stream *context_stream(const struct context *context, uint32_t stream)
{
    return (struct stream *)((uintptr_t)context + (uintptr_t)context->streams) + stream;
}

static inline struct event *context_event(const struct context *context, uint32_t event)
{
    return (struct event *)((uintptr_t)context + (uintptr_t)context->events) + event;
}

static inline uint32_t task_ref(const struct context *context, uint32_t slot)
{
    return context->id << 16 | slot;
}

static inline struct task *fw_task(const struct fw *fw, uint32_t ref)
{
    return context_task(fw_context(fw, ref >> 16), ref & 0xFFFFu);
}

static inline struct tsemu_control_page *context_page(const struct fw *fw,
                                                      const struct context *context)
{
    return (struct tsemu_control_page *)fw->hal->window[context->id];
}

/* Costs: the firmware is one processor; while it is busy it does nothing else. */
static inline bool fw_is_busy(const struct fw *fw)
{
    return fw->busy_until > fw->hal->now;
}

static inline void fw_charge(struct fw *fw, uint64_t cost)
{
    if (cost)
        fw->busy_until = (fw_is_busy(fw) ? fw->busy_until : fw->hal->now) + cost;
}

static inline bool task_incomplete(const struct task *task)
{
    return task->state != TASK_EMPTY && task->state < TASK_PARKED;
}

static inline bool task_has_ended(const struct task *task)
{
    return task->state >= TASK_PARKED;
}

/* kernel.c: the firmware's own state is damaged; it stops at its next step */
__attribute__((cold)) void firmware_panic(struct fw *fw, const char *reason);
/* submit.c */
bool submit_take(struct fw *fw, struct context *context);
/* scoreboard.c */
void scoreboard_place(struct fw *fw, struct context *context);
void scoreboard_satisfied(struct fw *fw, struct context *context, uint32_t slot);
void scoreboard_abort(struct fw *fw, struct context *context, uint32_t slot, uint16_t status,
                      uint32_t ancestor, uint16_t ancestor_context);
uint32_t scoreboard_nodes_needed(const struct context *context);
void scoreboard_release(struct fw *fw, struct context *context, struct task *task);
/* ready.c */
void ready_push(struct fw *fw, uint32_t ref);
void ready_sort_in(struct fw *fw);
uint32_t ready_pick(struct fw *fw, uint32_t engine_class);
void ready_pop(struct fw *fw, uint32_t engine_class, uint32_t ref);
void ready_remove(struct fw *fw, uint32_t ref);
/* fair.c */
void fair_enter(struct fw *fw, uint32_t engine_class, uint32_t ref);
uint32_t fair_pick(const struct fw *fw, uint32_t engine_class);
void fair_remove(struct fw *fw, uint32_t engine_class, uint32_t ref);
void fair_charge(struct fw *fw, uint32_t engine_class, uint32_t ref);
/* heap.c */
enum heap_order { HEAP_BY_TICKET, HEAP_BY_VALUE, HEAP_BY_DEADLINE };
uint32_t heap_push(struct fw *fw, uint32_t root, uint32_t ref, enum heap_order order);
uint32_t heap_pop(struct fw *fw, uint32_t root, enum heap_order order);
uint32_t heap_without(struct fw *fw, uint32_t root, uint32_t ref, enum heap_order order);
/* dispatch.c */
void dispatch_run(struct fw *fw);
void dispatch_collect(struct fw *fw);
void dispatch_stop(struct fw *fw, struct context *context, uint32_t slot);
/* complete.c */
void complete_task(struct fw *fw, struct context *context, uint32_t slot);
bool complete_retire(struct fw *fw);
bool complete_unpark(struct fw *fw, struct context *context);
bool complete_room_came(const struct fw *fw, const struct context *context);
void complete_publish(struct fw *fw, struct context *context);
void complete_interrupt(struct fw *fw, struct context *context);
/* event.c */
void event_admit_record(struct context *context, uint32_t slot);
const struct task *event_failed_record(const struct context *context, uint32_t event,
                                       uint32_t value);
bool event_record_must_wait(const struct context *context, uint32_t slot);
bool event_try_wait(struct fw *fw, struct context *context, uint32_t slot);
void event_record_ended(struct fw *fw, struct context *context, uint32_t slot);
void event_forget_waiter(struct fw *fw, struct context *context, uint32_t slot);
void event_slot_reused(struct context *context, uint32_t slot);
void event_reset(struct fw *fw, struct context *context, uint32_t reset_slot);
bool event_destroy(struct context *context, uint32_t event, uint32_t *user);
/* timer.c */
enum timer_list { TIMER_EVENTS, TIMER_BLOCKS };
void timer_insert(struct fw *fw, enum timer_list list, uint32_t ref, uint64_t deadline);
void timer_remove(struct fw *fw, enum timer_list list, uint32_t ref);
bool timer_expire(struct fw *fw);
/* wait.c */
bool wait_gather(struct fw *fw, struct context *context);
bool wait_answer_met(struct fw *fw, struct context *context);
bool wait_expire(struct fw *fw, struct context *context);
void wait_answer(struct fw *fw, struct context *context, uint32_t index, uint32_t reason);
uint64_t wait_next_deadline(const struct fw *fw);
/* control.c */
void control_request(struct fw *fw, struct context *context);
void control_cancel_all(struct fw *fw, struct context *context, uint16_t status);
void control_cancel(struct fw *fw, struct context *context, uint32_t slot, uint16_t status);
/* console.c */
__attribute__((cold)) void console_log(struct fw *fw, const char *format, ...);

#endif
