/* The device as the emulator drives it: configuration, contexts, and `device_run`, which turns
 * virtual time until something outside the model is needed. */
#ifndef TSEMU_DEVICE_H
#define TSEMU_DEVICE_H

#include <stddef.h>
#include <stdint.h>
#include <tsemu/abi.h>

#define DEVICE_MAX_CONTEXTS 64
#define DEVICE_MAX_CORES 1024
#define DEVICE_NAME_BYTES 64

enum device_policy {
    DEVICE_POLICY_PRIORITY = 0,
    DEVICE_POLICY_FIFO = 1,
    DEVICE_POLICY_RANK = 2,
    DEVICE_POLICY_EDF = 3,
    DEVICE_POLICY_FAIR = 4
};
enum device_cost { DEVICE_COST_FIXED = 0, DEVICE_COST_ROOFLINE = 1 };

/* One engine class. Times come from its clock and its bandwidth. */
struct device_class {
    char name[16];
    uint32_t cores;
    uint32_t frequency_mhz;
    uint32_t bandwidth_mbps;  /* bytes per microsecond = MB/s of one core; 0: not limited */
    uint32_t moves_bytes;     /* 1: runs MEMCPY and MEMSET, 0: runs kernels */
    uint32_t cost;            /* enum device_cost */
    uint32_t setup_cycles;    /* added to every block or copy */
};

struct device_config {
    uint32_t class_count;
    struct device_class classes[TSEMU_MAX_CLASSES];
    uint32_t policy;            /* enum device_policy */
    uint32_t clock_mode;        /* enum tsemu_clock_mode */
    uint32_t paced_num;         /* virtual picoseconds per wall nanosecond, as a fraction */
    uint32_t paced_den;
    uint32_t clients;           /* lockstep: the clock starts when so many clients are there */
    uint32_t max_contexts;
    uint32_t max_streams;
    uint32_t max_events;
    uint32_t edge_nodes;        /* 0: four per place in the window */
    uint32_t alignment;
    uint64_t seed;
    uint64_t poll_cost_ps;
    uint64_t wait_limit_ps;
    uint64_t host_task_ps;      /* host cost per task, 0: none */
    uint64_t host_call_ps;      /* host cost per call (NEW_CALL) */
    uint64_t ageing_ps;         /* priority: a ready task rises a level after this time; 0: never */
    uint64_t hold_limit_ns;     /* wall time that a client may hold the clock while another waits */
    /* cost of the scheduler's work, in picoseconds (0: ideal) */
    uint64_t fetch_ps;
    uint64_t edge_ps;
    uint64_t dispatch_ps;
    uint64_t retire_ps;
    uint64_t interrupt_ps;
};

/* What a client asked for; zero fields have been replaced by defaults. */
struct device_context_options {
    char name[DEVICE_NAME_BYTES];
    uint64_t process;           /* contexts of one process count as waiting together */
    uint32_t slots, window, sq_entries, cq_entries, batch, stream_limit;
    uint32_t weight;            /* policy fair: share of the cores, 1 to 1000 */
    uint64_t host_heap_size, device_heap_size;
    int interrupt_fd;           /* eventfd towards the host, or -1 */
};

enum device_error {
    DEVICE_OK = 0,
    DEVICE_E_CONTEXTS = -1,     /* no context left */
    DEVICE_E_NAME = -2,         /* name in use */
    DEVICE_E_OPTIONS = -3,      /* options out of range */
    DEVICE_E_MEMORY = -4
};

/* Why device_run or device_pump returned. */
enum device_reason {
    DEVICE_SLICE = 1,   /* the slice of wall time is over; call again */
    DEVICE_IDLE = 2,    /* nothing to do until a client acts: sleep on the doorbells */
    DEVICE_HELD = 3,    /* a client holds the clock: device_serve knows how long to sleep */
    DEVICE_TIMER = 4,   /* virtual time follows wall time: the same */
    DEVICE_PANIC = 5,   /* the firmware found its own state damaged; `device_panic_text` */
    DEVICE_OUTSIDE = 6  /* device_serve only: something that the device does not know of */
};

/* What device_serve watches beside the device. */
struct device_serving {
    int doorbells;          /* epoll of the contexts' doorbells, edge-triggered */
    int others;             /* epoll of everything else */
    uint32_t attend;        /* 1: return after each run */
    uint64_t limit_ns;      /* return after so much wall time at the latest */
    uint64_t slice_ns, spin_ns;
};

struct device_status {
    uint64_t now_ps;
    uint64_t admitted, completed, instants, hold_limits, dispatched;
    uint32_t contexts, cores;
};

struct device_core_status {
    uint32_t engine_class, busy;
    uint64_t busy_ps, blocks;
};

struct device_context_status {
    char name[DEVICE_NAME_BYTES];
    uint32_t context, admitted, completed, incomplete, state, holds, waits, published;
};

typedef struct device device;

/* Bytes of the memory object for these options, 0 when they are out of range; fills `detail`
 * (at least 160 bytes) with field, value and what is possible. */
uint64_t device_memory_size(const struct device_config *config,
                            const struct device_context_options *options, char *detail,
                            size_t detail_size);
/* NULL when the configuration is out of range (same `detail`) or there is no memory. */
device *device_create(const struct device_config *config, char *detail, size_t detail_size);
void device_destroy(device *dev);
/* `memory`: zeroed, of device_memory_size bytes, page aligned; the caller unmaps it after
 * device_context_gone has become true. Returns the context's number or a device_error. */
int device_context_open(device *dev, const struct device_context_options *options, void *memory,
                        uint64_t size);
/* The client is gone (socket closed) or has closed: unstarted tasks are cancelled, running blocks
 * end. The number is free again when device_context_gone says 1. */
void device_context_close(device *dev, int context);
int device_context_gone(device *dev, int context);
/* Turn virtual time, for at most `slice_ns` of wall time. Spins for `spin_ns` before it returns
 * IDLE, HELD or TIMER; on return with one of these the contexts' sleep flags are set, so that
 * doorbells ring the eventfd. */
int device_run(device *dev, uint64_t slice_ns, uint64_t spin_ns);
/* A process's loop: sleep after `reason` (0: not at all), run, and so on. Returns DEVICE_OUTSIDE
 * when `others` is ready, the limit has passed or a signal has come, and else what device_run
 * says when that is SLICE or PANIC or `attend` is set. */
int device_serve(device *dev, int reason, const struct device_serving *with);
/* Embedded: the host calls this instead of sleeping. Same as device_run without spinning or
 * flags; safe from several threads. `dev` is a `device *`. */
int device_pump(void *dev, uint64_t slice_ns);
void device_status(device *dev, struct device_status *status);
uint32_t device_cores(device *dev, struct device_core_status *cores, uint32_t count);
int device_context_status(device *dev, int context, struct device_context_status *status);
/* Take up to `size` bytes of the firmware's console output; returns how many. */
size_t device_console(device *dev, char *text, size_t size);
const char *device_panic_text(device *dev);

#endif
