/* The SoC model's own state. Everything is indexed; time is integer picoseconds. */
#ifndef SOC_MODEL_H
#define SOC_MODEL_H

#include "device.h"
#include "firmware.h"

#include <pthread.h>

#define NEVER FW_NEVER
#define CONSOLE_BYTES 65536u

/* What the event queue holds: the end of a block on a core, or (SOC_WAKE) a time at which firmware
 * must run. `order` is the sequence number, with the core in the low bits. */
#define SOC_WAKE 0xFFFFu
#define SOC_CORE_BITS 16u

struct soc_event {
    uint64_t time;
    uint64_t order;
};

static inline uint32_t soc_event_core(const struct soc_event *event)
{
    return event->order & ((1u << SOC_CORE_BITS) - 1u);
}

struct event_queue {
    struct soc_event *heap;
    uint32_t count, capacity;   /* the hole counts */
    bool hole;                  /* heap[0] has been taken out */
    uint64_t sequence;
};

/* Time of the earliest event, NEVER when there is none. */
static inline uint64_t queue_next_time(const struct event_queue *queue)
{
    if (!queue->hole)
        return queue->count ? queue->heap[0].time : NEVER;
    uint64_t next = queue->count > 1 ? queue->heap[1].time : NEVER;
    return queue->count > 2 && queue->heap[2].time < next ? queue->heap[2].time : next;
}

struct soc_core {
    uint32_t engine_class;
    bool busy;
    struct hal_block block;
    uint64_t started;
    uint64_t ended;
    uint64_t busy_ps, blocks;
};

struct soc_context {
    bool open;
    bool left;              /* its client is gone; its last blocks run */
    uint64_t process;
    int interrupt_fd;
    char name[DEVICE_NAME_BYTES];
    bool hold_broken;       /* the hold's wall-clock limit passed; until the client acts again */
    uint32_t broken_tail, broken_posts;
};

struct device {
    struct hal hal;         /* first: the firmware's registers */
    struct device_config config;
    struct fw *fw;
    uint8_t *arena;
    uint64_t arena_size, context_offset, context_stride;
    struct event_queue queue;
    struct soc_core *cores;
    uint32_t core_count;
    uint64_t setup_ps[TSEMU_MAX_CLASSES];
    uint32_t cycle_ps[TSEMU_MAX_CLASSES]; /* 0: not a whole number of picoseconds */
    uint32_t done[HAL_CORES];
    uint32_t done_head, done_count;
    struct soc_context contexts[DEVICE_MAX_CONTEXTS];
    bool started;
    pthread_mutex_t lock;
    bool sleeping;          /* the contexts' sleep flags are set */
    uint32_t holder;        /* client that last kept the clock from going on */
    bool unsettled;         /* input stands still at the holder */
    uint64_t hold_since_ns; /* wall time; 0: nobody holds */
    uint32_t hold_tail, hold_posts;
    uint64_t wall_wait_ns;
    uint64_t pace_wall_ns, pace_now;
    bool in_gap;            /* `free`: the pace of an idle gap is set */
    uint64_t instants, hold_limits;
    uint64_t last_wake;
    char console[CONSOLE_BYTES];
    uint64_t console_written, console_read;
    char panic[160];
};

/* geometry.c */
bool geometry_check(const struct device_config *config, char *detail, size_t size);
uint64_t geometry_pages(uint64_t bytes);
void geometry_lay_out(const struct device_config *config,
                      const struct device_context_options *options,
                      struct fw_context_config *context);
void geometry_firmware(const struct device_config *config, struct fw_config *fw);
uint64_t geometry_largest_context(const struct device_config *config, const struct fw_config *fw);
/* queue.c */
bool queue_push(struct event_queue *queue, uint64_t time, uint32_t core);
struct soc_event queue_pop(struct event_queue *queue);
void queue_remove_core(struct event_queue *queue, uint32_t core);
/* cores.c */
void cores_prepare(struct device *dev);
void cores_end(struct device *dev, uint32_t core);
/* lockstep.c */
bool lockstep_gap_is_held(struct device *dev);
bool lockstep_holder_moved(const struct device *dev);
uint64_t lockstep_hold(struct device *dev, uint64_t wall);
/* clock.c */
uint64_t clock_wall_ns(void);

#endif
