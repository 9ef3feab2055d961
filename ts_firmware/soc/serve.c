/* Sleeping and running by turns: the device process's loop while nothing but doorbells happens.
 * Here and not in Python, because the way from a doorbell to the device is what a host waits for. */
#define _GNU_SOURCE /* ppoll */
#include "model.h"

#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#define NS_PER_S 1000000000u
#define LONGEST_SLEEP_NS (3600ull * NS_PER_S)

/* Take the doorbells' edges, so that each wakes once. Nobody reads the counters. */
static void take_edges(int doorbells)
{
    struct epoll_event events[DEVICE_MAX_CONTEXTS];
    (void)!epoll_wait(doorbells, events, DEVICE_MAX_CONTEXTS, 0);
}

/* True when the device should run: a doorbell, or its own time has come. */
static bool sleep_until(int doorbells, int others, uint64_t wait_ns, bool own_time)
{
    struct pollfd fds[2] = {{.fd = doorbells, .events = POLLIN}, {.fd = others, .events = POLLIN}};
    struct timespec limit = {(time_t)(wait_ns / NS_PER_S), (long)(wait_ns % NS_PER_S)};
    int ready = ppoll(fds, 2, &limit, NULL);
    if (ready < 0) /* a signal: Python wants to see it */
        return false;
    if (fds[0].revents)
        take_edges(doorbells);
    if (fds[1].revents)
        return false;
    return ready > 0 || own_time;
}

int device_serve(device *dev, int reason, const struct device_serving *with)
{
    uint64_t began = clock_wall_ns();
    for (;;) {
        if (reason == DEVICE_IDLE || reason == DEVICE_HELD || reason == DEVICE_TIMER) {
            uint64_t slept = clock_wall_ns() - began;
            uint64_t left = slept < with->limit_ns ? with->limit_ns - slept : 0;
            uint64_t own = reason == DEVICE_IDLE ? NEVER : dev->wall_wait_ns;
            uint64_t wait = own < left ? own : left;
            if (wait > LONGEST_SLEEP_NS)
                wait = LONGEST_SLEEP_NS;
            if (!sleep_until(with->doorbells, with->others, wait, own <= left))
                return DEVICE_OUTSIDE;
        }
        reason = device_run(dev, with->slice_ns, with->spin_ns);
        if (reason == DEVICE_SLICE || reason == DEVICE_PANIC || with->attend)
            return reason;
    }
}
