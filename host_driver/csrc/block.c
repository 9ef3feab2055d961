/* Blocking: spin, then sleep across processes; pump an embedded device. Doorbells.
 *
 * Several threads of a context may block at once. One of them, the leader, sleeps on the interrupt
 * eventfd; the others sleep on `wake`. A thread goes to sleep only after it has looked at its
 * condition while `host_sleeps` was set, so no wake-up is lost: the leader sets the flag under the
 * lock, and whoever comes later looks under the lock. When the leader wakes it wakes all, and each
 * looks again. */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SPIN_MAX_NS 50000u
#define SPIN_MIN_NS 2000u
#define SPIN_RANG_NS 120000u
#define IDLE_PUMP_NS 200000u  /* embedded, and the device waits for somebody else */
#define BYTES_POLL_NS 1000000u
#define SHARED_EVENT_NS 500000u
#define WATCH_GAP_NS 1000000000u /* no wait for so long: the guard's time starts again */

uint64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True when the server has closed the connection. */
static bool link_closed(const struct tsemu_context *c)
{
    if (c->link_fd < 0)
        return false;
    for (;;) {
        char byte[64];
        ssize_t got = recv(c->link_fd, byte, sizeof byte, MSG_DONTWAIT);
        if (got > 0)
            continue; /* nothing is expected here: thrown away */
        if (got == 0)
            return true;
        if (errno == EINTR)
            continue;
        return errno != EAGAIN && errno != EWOULDBLOCK;
    }
}

void ring_doorbell(struct tsemu_context *c)
{
    static const uint64_t one = 1;
    c->counters.doorbells++;
    /* It is on its way: until it sleeps again nobody has to ring. The write that follows wakes it
     * even if this store meets a newer sleep. */
    tsemu_store_relaxed(&c->page->device_sleeps, 0);
    c->rang = true;
    while (write(c->doorbell_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    /* A device that died asleep never takes its flag back: look here, where it costs nothing. */
    if (link_closed(c))
        device_lost(c, "the device has closed the connection");
}

bool condition_holds(const struct tsemu_context *c, const struct condition *condition)
{
    const struct tsemu_control_page *page = c->page;
    switch (condition->kind) {
    case FOR_ANSWER:
        return tsemu_load_acquire(&page->answers[condition->index].sequence) ==
               condition->sequence;
    case FOR_COMPLETIONS:
        if (tsemu_reached(tsemu_load_acquire(&page->cq_tail), condition->need))
            return true;
        break;
    case FOR_ENTRIES:
        if (tsemu_reached(tsemu_load_acquire(&page->sq_head), condition->need))
            return true;
        break;
    case FOR_SIGNAL:
        return false;
    }
    return condition->sequence &&
           tsemu_load_acquire(&page->pipe_stalled) == condition->sequence;
}

int attend(struct tsemu_context *c)
{
    if (__builtin_expect(c->closed || c->broken, 0))
        return context_refuses(c);
    uint32_t sequence = tsemu_load_acquire(&c->page->refusal_sequence);
    uint32_t state = tsemu_load_acquire(&c->page->state);
    if (__builtin_expect(state == TSEMU_CONTEXT_STATE_ERROR, 0))
        return context_in_error(c);
    if (__builtin_expect(sequence != c->refusal_mended, 0))
        refusal_mend(c, sequence);
    return c->broken ? context_refuses(c) : TSEMU_OK;
}

/* Anything that a spinning thread has to look at under the lock. */
static bool needs_attention(const struct tsemu_context *c)
{
    return tsemu_load_relaxed(&c->page->refusal_sequence) != c->refusal_mended ||
           tsemu_load_relaxed(&c->page->state) == TSEMU_CONTEXT_STATE_ERROR;
}

/* Without the lock: true when the condition came to hold within the budget. */
static bool spin(const struct tsemu_context *c, const struct condition *condition, uint32_t budget)
{
    uint64_t end = 0;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            if (condition_holds(c, condition))
                return true;
            cpu_pause();
        }
        uint64_t now = wall_ns();
        if (!end)
            end = now + budget;
        else if (now >= end || needs_attention(c))
            return false;
        else
            sched_yield(); /* the device may want this processor */
    }
}

bool spin_for(struct tsemu_context *c, const struct condition *condition)
{
    if (c->embedded)
        return condition_holds(c, condition);
    uint32_t budget = c->spin_ns;
    /* The device has been woken just now: one wake-up in a round trip is enough. */
    uint32_t longest = c->rang && budget < SPIN_RANG_NS ? SPIN_RANG_NS : budget;
    c->rang = false;
    context_unlock(c);
    bool held = spin(c, condition, longest);
    context_lock(c);
    c->spin_ns = held ? SPIN_MAX_NS : budget / 2 > SPIN_MIN_NS ? budget / 2 : SPIN_MIN_NS;
    return held;
}

static void sleep_on(struct tsemu_context *c, uint64_t until)
{
    struct timespec time = {.tv_sec = (time_t)(until / 1000000000u),
                            .tv_nsec = (long)(until % 1000000000u)};
    c->sleepers++;
    pthread_cond_timedwait(&c->wake, &c->lock, &time);
    c->sleepers--;
}

void block_for_threads(struct tsemu_context *c, uint64_t until)
{
    sleep_on(c, until);
}

void wake_threads(struct tsemu_context *c)
{
    if (c->sleepers)
        pthread_cond_broadcast(&c->wake);
}

/* Everything whose movement shows that the device is alive. */
static uint64_t movement(const struct tsemu_context *c)
{
    const struct tsemu_control_page *page = c->page;
    uint64_t sum = 0;
    sum += tsemu_load_relaxed(&page->sq_head);
    sum += tsemu_load_relaxed(&page->cq_tail);
    sum += tsemu_load_relaxed(&page->admitted);
    sum += tsemu_load_relaxed(&page->completed);
    for (uint32_t i = 0; i < TSEMU_MAX_WAITS; i++)
        sum += tsemu_load_relaxed(&page->answers[i].sequence);
    return sum;
}

static int watch(struct tsemu_context *c, uint64_t now)
{
    uint64_t sum = movement(c);
    bool continued = now - c->watched_ns < WATCH_GAP_NS;
    c->watched_ns = now;
    if (sum != c->movement || !continued) {
        c->movement = sum;
        c->moved_ns = now;
    } else if (c->guard_ns && now - c->moved_ns > c->guard_ns) {
        return device_lost(c, "nothing has moved for longer than TSEMU_GUARD_SECONDS");
    }
    return TSEMU_OK;
}

/* The leader's sleep. Called with the lock, which is released meanwhile. */
static int sleep_as_leader(struct tsemu_context *c, const struct condition *condition,
                           uint64_t now, uint64_t until)
{
    int code = TSEMU_OK;
    c->leader = true;
    tsemu_store_relaxed(&c->page->host_sleeps, 1);
    tsemu_ring_fence();
    if (!condition_holds(c, condition) && !needs_attention(c)) {
        struct pollfd fds[2] = {{.fd = c->interrupt_fd, .events = POLLIN},
                                {.fd = c->link_fd, .events = POLLIN}};
        int timeout = (int)((until - now + 999999u) / 1000000u);
        context_unlock(c);
        int ready = poll(fds, 2, timeout);
        uint64_t count;
        bool rung = ready > 0 && fds[0].revents;
        bool closed = ready > 0 && fds[1].revents && link_closed(c);
        context_lock(c);
        if (rung && c->poll_armed) /* an event loop has to see it too: left for it to read */
            sleep_on(c, now + SHARED_EVENT_NS < until ? now + SHARED_EVENT_NS : until);
        else if (rung && read(c->interrupt_fd, &count, sizeof count) < 0)
            count = 0; /* somebody else has taken it: as good */
        if (closed)
            code = device_lost(c, "the device has closed the connection");
    }
    tsemu_store_relaxed(&c->page->host_sleeps, 0);
    c->leader = false;
    wake_threads(c);
    return code;
}

static int pump_once(struct tsemu_context *c, const struct condition *condition, uint64_t until)
{
    uint64_t now = wall_ns();
    if (now >= until)
        return TSEMU_AGAIN;
    context_unlock(c);
    int reason = c->pump(c->pump_argument, until - now);
    context_lock(c);
    if (reason == DEVICE_PANICKED)
        return device_lost(c, "the firmware has panicked");
    if (reason != DEVICE_SLICE_OVER && !condition_holds(c, condition) && !needs_attention(c)) {
        /* It waits for another client or thread, or for wall time to pass. */
        now = wall_ns();
        if (now >= until)
            return TSEMU_AGAIN;
        sleep_on(c, now + IDLE_PUMP_NS < until ? now + IDLE_PUMP_NS : until);
    }
    return TSEMU_OK;
}

int block_until(struct tsemu_context *c, const struct condition *condition, uint64_t until)
{
    bool spun = false;
    uint64_t slept_at = 0;
    for (;;) {
        if (condition_holds(c, condition)) {
            if (slept_at && wall_ns() - slept_at < 2 * SPIN_MAX_NS)
                c->spin_ns = SPIN_MAX_NS; /* spinning would have paid */
            return TSEMU_OK;
        }
        int code = attend(c);
        if (code)
            return code;
        if (c->embedded) {
            code = pump_once(c, condition, until);
            if (code)
                return condition_holds(c, condition) ? TSEMU_OK : code;
            continue;
        }
        if (!spun) { /* a pipe wait has spun before it was posted */
            spun = true;
            if (condition->kind == FOR_ANSWER || !condition->sequence)
                spin_for(c, condition);
            continue;
        }
        uint64_t now = wall_ns();
        if (!slept_at)
            slept_at = now;
        code = watch(c, now);
        if (code)
            return code;
        if (now >= until)
            return TSEMU_AGAIN;
        if (condition->kind == FOR_COMPLETIONS && !condition->sequence &&
            until > now + BYTES_POLL_NS)
            until = now + BYTES_POLL_NS; /* no pipe wait is posted: nobody raises an interrupt */
        if (c->leader)
            sleep_on(c, until);
        else
            code = sleep_as_leader(c, condition, now, until);
        if (code)
            return code;
    }
}
