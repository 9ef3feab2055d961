/* tsemu: the driver of a task scheduler, for C and C++ runtimes.
 *
 *     tsemu_context *context;
 *     if (tsemu_open("unix:/run/user/1000/tsemu.sock", "my-client", NULL, &context)) ...
 *     tsemu_launch(context, &desc, after, 2, &task);
 *     tsemu_wait(context, &task, TSEMU_NO_LIMIT);
 *     tsemu_close(context);
 *
 * A context is one client's session with the device: it owns its rings, streams, events and
 * memory. Times are picoseconds of the device's virtual time. Functions return TSEMU_OK or a
 * negative code; `tsemu_last_error` of the same thread then says field, value and remedy. A
 * context may be used by several threads. */
#ifndef TSEMU_H
#define TSEMU_H

#include <stddef.h>
#include <stdint.h>
#include <tsemu/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSEMU_NO_LIMIT UINT64_MAX /* timeout: the device's own limit */
#define TSEMU_ALL_STREAMS UINT32_MAX

enum tsemu_code {
    TSEMU_OK = 0,
    TSEMU_E_INVALID = -1,       /* an argument cannot be accepted; nothing was changed */
    TSEMU_E_QUEUE_FULL = -2,    /* not blocking, and window, stream or ring is full */
    TSEMU_E_NO_RESOURCE = -3,   /* a limit is used up, or a blocked launch can never go on */
    TSEMU_E_TIMEOUT = -4,       /* the deadline came first */
    TSEMU_E_DEVICE_LOST = -5,   /* the device process is gone or does not answer */
    TSEMU_E_CONTEXT = -6,       /* the context is in error: an entry could not be read */
    TSEMU_E_CLOSED = -7,        /* the context is closed */
    TSEMU_E_PROTOCOL = -8,      /* the peer speaks another protocol or sent nonsense */
    TSEMU_E_NAME_IN_USE = -9,   /* another client has this name */
    TSEMU_E_ADDRESS = -10,      /* nobody can be reached at this address */
    TSEMU_E_BUSY = -11,         /* somebody still uses what should be destroyed */
    TSEMU_E_IN_CALLBACK = -12,  /* a callback may launch but not wait */
    TSEMU_E_FAILED = -13        /* a task that was waited for did not succeed */
};

typedef struct tsemu_context tsemu_context;

typedef struct tsemu_error {
    int code;             /* enum tsemu_code */
    char field[32];       /* what was wrong, or the limit's name */
    uint64_t value;       /* what it was, or how many are in use */
    uint64_t limit;       /* what it may be at most, or at least */
    uint32_t ticket;      /* task that it is about, or 0 */
    uint32_t stream;      /* stream that it is about, or TSEMU_ALL_STREAMS */
    char message[256];    /* all of it in words */
    char hint[192];       /* what to do next */
} tsemu_error;

typedef struct tsemu_options {
    uint32_t slots;         /* W; 0: 4096 */
    uint32_t window;        /* V; 0: half of the slots */
    uint32_t sq_entries;    /* 0: as many as slots, rounded up to a power of two */
    uint32_t cq_entries;    /* 0: as many as slots, rounded up to a power of two */
    uint32_t batch;         /* 0: slots - window */
    uint32_t stream_limit;  /* 0: an eighth of the window */
    uint32_t host_heap_mib; /* 0: 64 */
    uint32_t device_heap_mib; /* 0: 256 */
} tsemu_options;

/* A task handle: memory of the caller's that must stay until the task has been consumed
 * (`status` is no longer TSEMU_PENDING). The driver writes it when it consumes the completion. */
typedef struct tsemu_task {
    tsemu_context *context;
    uint32_t ticket;
    uint16_t slot;
    uint16_t status;       /* enum tsemu_status, or TSEMU_PENDING */
    uint64_t start_ps;
    uint64_t end_ps;
    uint64_t fault_address;
    uint32_t ancestor;     /* ticket of the first task that failed */
    uint32_t order;        /* place in the completion queue, counted from 0 */
    uint16_t ancestor_context;
    uint16_t core;
    uint16_t stream;
    uint16_t block;
    uint32_t value;        /* event value that a record or wait task carries */
    uint32_t flags;        /* of the driver: bit 0 has a callback */
} tsemu_task;

typedef struct tsemu_launch_desc {
    uint16_t opcode;       /* enum tsemu_opcode */
    uint16_t stream;
    uint8_t engine_class;
    uint8_t priority;
    uint16_t blocks;       /* KERNEL */
    uint32_t cycles;       /* KERNEL, per block */
    uint32_t bytes_read;   /* KERNEL, per block */
    uint32_t bytes_written; /* KERNEL, per block */
    uint16_t kernel;       /* KERNEL */
    uint16_t flags;        /* TSEMU_SQE_FLAG_GANG: all blocks of a KERNEL start together */
    uint32_t timeout_us;
    uint32_t value;        /* scheduling value */
    uint32_t event;        /* EVENT_RECORD, EVENT_WAIT, EVENT_RESET */
    uint64_t argument;     /* KERNEL: argument address; MEMCPY: source; MEMSET: pattern */
    uint64_t destination;  /* MEMCPY, MEMSET */
    uint64_t length;       /* MEMCPY, MEMSET */
    uint64_t user_tag;
} tsemu_launch_desc;

/* A batch: accepted or refused as a whole. Edges inside the batch are indices of earlier tasks. */
typedef struct tsemu_batch {
    const tsemu_launch_desc *tasks;
    uint32_t count;
    const uint32_t *edge_start;  /* count + 1 offsets in `edges`, or NULL: no edges inside */
    const uint32_t *edges;
    tsemu_task *const *after;    /* every task of the batch also waits for these */
    uint32_t after_count;
    uint16_t *status;            /* count words: TSEMU_PENDING, then enum tsemu_status; must stay */
    int block;                   /* 0: QUEUE_FULL instead of waiting for room */
} tsemu_batch;

/* Open a context on the device process at `address` ("unix:PATH"). `name` says who the client is and
 * has to be the only one of its kind (empty or NULL: the device chooses); `options` NULL: defaults.
 * ADDRESS: nobody listens there, or the path is too long. INVALID: an option is out of range.
 * NAME_IN_USE, NO_RESOURCE: the device says so. PROTOCOL: versions differ, or it is no device.
 * A device that does not move for TSEMU_GUARD_SECONDS of wall time (environment, default 600, 0: no
 * limit) while a call waits counts as lost. */
int tsemu_open(const char *address, const char *name, const tsemu_options *options,
               tsemu_context **context);
/* Cancel what has not started, wait a bounded wall time for what runs, free everything. Handles that
 * are still pending end CANCELLED. No other call of this context may be running or follow. */
void tsemu_close(tsemu_context *context);
/* What the device has written about the context: limits, alignment, class table. Read only. */
const struct tsemu_control_page *tsemu_page(const tsemu_context *context);
/* Index of an engine class by name, or INVALID. */
int tsemu_engine_class(const tsemu_context *context, const char *name);
/* `limit`: tasks that it may hold before a launch waits; 0: the device's default. NO_RESOURCE: no
 * stream is left. Stream 0 always exists and is out of order. */
int tsemu_stream_create(tsemu_context *context, int in_order, uint32_t limit, uint16_t *stream);
/* BUSY: it still holds tasks (the error names one). */
int tsemu_stream_destroy(tsemu_context *context, uint16_t stream);
int tsemu_event_create(tsemu_context *context, uint32_t *event);
/* BUSY: a task still uses it (the error names one). */
int tsemu_event_destroy(tsemu_context *context, uint32_t event);
/* A buffer of `size` bytes in the host heap or the device heap, aligned as the device says;
 * `address` is what tasks use. NO_RESOURCE: no piece of that size is free. */
int tsemu_buffer_alloc(tsemu_context *context, int on_device, uint64_t size, uint64_t *address);
int tsemu_buffer_free(tsemu_context *context, uint64_t address);
/* The host's view of [address, address + size), or NULL when it is not inside a heap. */
void *tsemu_buffer_pointer(tsemu_context *context, uint64_t address, uint64_t size);
/* Launch one task after the tasks in `after` (at most 1024 different ones; those that have succeeded
 * cost nothing). `task` NULL: nobody wants to know how it ends. Waits while the window or the stream
 * is full. INVALID: the description cannot be accepted, nothing has changed. NO_RESOURCE: it can
 * never go on, because all that it waits for waits itself. */
int tsemu_launch(tsemu_context *context, const tsemu_launch_desc *desc, tsemu_task *const *after,
                 uint32_t after_count, tsemu_task *task);
int tsemu_submit_batch(tsemu_context *context, const tsemu_batch *batch);
/* Wait for one task. FAILED: it has ended without success (look at the handle). TIMEOUT: it has not
 * ended in `timeout_ps` of the device's time. */
int tsemu_wait(tsemu_context *context, tsemu_task *task, uint64_t timeout_ps);
/* Wait for all tasks launched so far, of one stream or of TSEMU_ALL_STREAMS, however they end. */
int tsemu_synchronize(tsemu_context *context, uint32_t stream, uint64_t timeout_ps);
/* The next completion of single tasks and batches, in order of completion. The first call turns
 * keeping on: earlier completions are not among them. TIMEOUT: there was none in time. */
int tsemu_next_completion(tsemu_context *context, struct tsemu_cqe *cqe, uint64_t timeout_ps);
/* The error of this thread's last call that failed. */
const tsemu_error *tsemu_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
