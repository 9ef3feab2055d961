/* The loop that turns virtual time: run the firmware at an instant, find the next one, decide
 * whether to wait in wall time. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "model.h"

#include <sched.h>
#include <time.h>
#include <tsemu/ring.h>

#define LOOK_AT_WALL_EVERY 256u

#if defined(__x86_64__)
#define spin_pause() __builtin_ia32_pause()
#else
#define spin_pause() atomic_signal_fence(memory_order_seq_cst)
#endif

uint64_t clock_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void hal_wake(struct hal *hal, uint64_t time)
{
    struct device *dev = (struct device *)hal;
    if (dev->last_wake == time)
        return;
    dev->last_wake = time;
    if (!queue_push(&dev->queue, time, SOC_WAKE))
        hal_panic(hal, "no memory for the event queue");
}

/* Move to `time` and let everything happen that is due. */
static void advance(struct device *dev, uint64_t time)
{
    dev->hal.now = time;
    dev->instants++;
    while (queue_next_time(&dev->queue) <= time) {
        struct soc_event event = queue_pop(&dev->queue);
        uint32_t core = soc_event_core(&event);
        if (core != SOC_WAKE)
            cores_end(dev, core);
        else if (dev->last_wake == event.time)
            dev->last_wake = NEVER;
    }
}

/* While input stands still at a client that holds the clock, what the clients behind it have done
 * is not read, so it is no reason to run again. */
static bool input_changed(const struct device *dev)
{
    return dev->unsettled ? lockstep_holder_moved(dev) : fw_any_input(dev->fw);
}

static void set_sleep_flags(struct device *dev, uint32_t value)
{
    for (uint32_t id = 0; id < dev->config.max_contexts; id++) {
        if (!dev->contexts[id].open)
            continue;
        struct tsemu_control_page *page = (struct tsemu_control_page *)dev->hal.window[id];
        tsemu_store_relaxed(&page->device_sleeps, value);
    }
    dev->sleeping = value != 0;
}

/* Wait in wall time for input, at most `longest`. True when there is input; else the doorbells are
 * armed. */
static bool wait_for_input(struct device *dev, uint64_t longest, uint64_t spin_ns)
{
    uint64_t begin = clock_wall_ns();
    uint64_t limit = longest < spin_ns ? longest : spin_ns;
    for (bool first = true; first || clock_wall_ns() - begin < limit; first = false) {
        if (!first)
            sched_yield(); /* the host may want this processor */
        for (int i = 0; i < 32; i++) {
            if (input_changed(dev))
                return true;
            spin_pause();
        }
    }
    if (longest <= spin_ns)
        return true;
    set_sleep_flags(dev, 1);
    tsemu_ring_fence();
    if (!input_changed(dev))
        return false;
    set_sleep_flags(dev, 0);
    return true;
}

/* Virtual time that wall time has reached, in modes where one follows the other. */
static uint64_t paced_now(const struct device *dev, uint64_t wall)
{
    unsigned __int128 passed = wall - dev->pace_wall_ns;
    return dev->pace_now + (uint64_t)(passed * dev->config.paced_num / dev->config.paced_den);
}

/* Wall nanoseconds until virtual `time`. */
static uint64_t paced_wait(const struct device *dev, uint64_t now, uint64_t time)
{
    unsigned __int128 wait = (unsigned __int128)(time - now) * dev->config.paced_den;
    wait = wait / dev->config.paced_num + 1u;
    return wait > 1000000000u ? 1000000000u : (uint64_t)wait;
}

struct verdict {
    int reason;             /* 0: go on at the instant that was moved to */
    uint64_t wall_wait;
};

static const struct verdict go_on = {0, 0};

/* Follow wall time up to `time`. */
static struct verdict follow_wall(struct device *dev, uint64_t time)
{
    uint64_t reached = paced_now(dev, clock_wall_ns());
    if (reached >= time) {
        advance(dev, time);
        return go_on;
    }
    if (reached > dev->hal.now)
        dev->hal.now = reached;
    return (struct verdict){DEVICE_TIMER, paced_wait(dev, reached, time)};
}

/* `free` crosses idle gaps at wall speed: its pace starts where work ended. */
static void start_pace(struct device *dev)
{
    dev->pace_wall_ns = clock_wall_ns();
    dev->pace_now = dev->hal.now;
}

static struct verdict cross_gap(struct device *dev)
{
    if (input_changed(dev))
        return go_on;
    if (!hal_clock_started(&dev->hal))
        return (struct verdict){DEVICE_IDLE, NEVER};
    if (lockstep_gap_is_held(dev))
        return (struct verdict){DEVICE_HELD, NEVER};
    struct fw_gap gap = fw_idle_gap(dev->fw);
    if (gap.changed)
        return go_on;
    uint64_t next = fw_next_deadline(dev->fw);
    if (dev->config.clock_mode == TSEMU_CLOCK_MODE_LOCKSTEP) {
        if (next == NEVER || !gap.waiting)
            return (struct verdict){DEVICE_IDLE, NEVER};
        advance(dev, next);
        return go_on;
    }
    if (next == NEVER)
        return (struct verdict){DEVICE_IDLE, NEVER};
    if (dev->config.clock_mode == TSEMU_CLOCK_MODE_FREE && !dev->in_gap)
        start_pace(dev);
    dev->in_gap = true;
    return follow_wall(dev, next);
}

/* Nothing was pending while wall time passed: input that arrives now is stamped with the time that
 * it is now. */
static void catch_up(struct device *dev)
{
    bool follows = dev->config.clock_mode == TSEMU_CLOCK_MODE_PACED ||
                   (dev->config.clock_mode == TSEMU_CLOCK_MODE_FREE && dev->in_gap);
    if (!follows || queue_next_time(&dev->queue) != NEVER)
        return;
    uint64_t reached = paced_now(dev, clock_wall_ns());
    if (reached > dev->hal.now && reached < fw_next_deadline(dev->fw))
        dev->hal.now = reached;
}

static struct verdict next_instant(struct device *dev, enum fw_result result)
{
    if (result == FW_UNSETTLED)
        return (struct verdict){DEVICE_HELD, NEVER};
    uint64_t next = queue_next_time(&dev->queue);
    if (next == NEVER)
        return cross_gap(dev);
    uint64_t deadline = fw_next_deadline(dev->fw);
    if (deadline < next && result != FW_BUSY) /* busy firmware looks at limits when it is done */
        next = deadline;
    if (dev->config.clock_mode == TSEMU_CLOCK_MODE_PACED)
        return follow_wall(dev, next);
    dev->in_gap = false;
    advance(dev, next);
    return go_on;
}

static int run(struct device *dev, uint64_t slice_ns, uint64_t spin_ns, bool pumped)
{
    uint64_t end = clock_wall_ns() + slice_ns;
    uint32_t count = 0;
    if (dev->sleeping)
        set_sleep_flags(dev, 0);
    catch_up(dev);
    for (;;) {
        enum fw_result result = fw_run(dev->fw);
        dev->unsettled = result == FW_UNSETTLED;
        if (result == FW_PANIC || dev->panic[0])
            return DEVICE_PANIC;
        struct verdict verdict = next_instant(dev, result);
        if (verdict.reason == 0) {
            if (++count % LOOK_AT_WALL_EVERY == 0 && clock_wall_ns() >= end) {
                fw_publish(dev->fw);
                return DEVICE_SLICE;
            }
            continue;
        }
        fw_publish(dev->fw);
        if (pumped && !(verdict.reason == DEVICE_TIMER)) {
            if (verdict.reason == DEVICE_HELD && lockstep_hold(dev, clock_wall_ns()) == 0)
                continue;
            if (!input_changed(dev))
                return verdict.reason;
            continue;
        }
        if (verdict.reason == DEVICE_HELD) {
            verdict.wall_wait = lockstep_hold(dev, clock_wall_ns());
            if (verdict.wall_wait == 0)
                continue;
        }
        if (wait_for_input(dev, verdict.wall_wait, spin_ns)) {
            if (clock_wall_ns() >= end)
                return DEVICE_SLICE;
            catch_up(dev);
            continue;
        }
        dev->wall_wait_ns = verdict.wall_wait;
        return verdict.reason;
    }
}

int device_run(device *dev, uint64_t slice_ns, uint64_t spin_ns)
{
    pthread_mutex_lock(&dev->lock);
    int reason = run(dev, slice_ns, spin_ns, false);
    pthread_mutex_unlock(&dev->lock);
    return reason;
}

int device_pump(void *device, uint64_t slice_ns)
{
    struct device *dev = device;
    pthread_mutex_lock(&dev->lock);
    int reason = run(dev, slice_ns, slice_ns, true);
    pthread_mutex_unlock(&dev->lock);
    return reason;
}
