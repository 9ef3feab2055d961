/* Who holds the clock. In lockstep the host counts as infinitely fast: the device goes on only
 * when every client is settled. */
#include "model.h"

#include <tsemu/ring.h>

/* Wall time for which a launch that is blocked on one stream leaves the clock to the other
 * threads of its client, counted from the last thing that they did. */
#define LAUNCH_GRACE_NS 100000000u

static const struct tsemu_control_page *page_of(const struct device *dev, uint32_t context)
{
    return (const struct tsemu_control_page *)dev->hal.window[context];
}

bool hal_clock_started(struct hal *hal)
{
    struct device *dev = (struct device *)hal;
    uint32_t here = 0;
    for (uint32_t id = 0; !dev->started && id < dev->config.max_contexts; id++)
        here += dev->contexts[id].open && !dev->contexts[id].left;
    if (!dev->started && here >= dev->config.clients)
        dev->started = true;
    return dev->started;
}

/* A wait counts when somebody wants a result, or when no other thread is busy launching. */
static bool wait_counts(const struct device *dev, const struct hal_client *client, bool grace_over)
{
    return client->waits &&
           (client->waits_for_result || grace_over ||
            tsemu_load_acquire(&page_of(dev, client->context)->launching) == 0);
}

/* Another context of the same process waits, so its threads cannot be expected to act here. */
static bool process_waits(const struct device *dev, uint32_t id)
{
    for (uint32_t other = 0; other < dev->config.max_contexts; other++) {
        if (other == id || !dev->contexts[other].open ||
            dev->contexts[other].process != dev->contexts[id].process)
            continue;
        struct hal_client client;
        fw_client(dev->fw, other, &client);
        if (tsemu_load_acquire(&page_of(dev, other)->wait_posts) != client.posts ||
            (client.waits ? wait_counts(dev, &client, false) : fw_client_waits(dev->fw, other)))
            return true;
    }
    return false;
}

static bool holds_at_all(const struct device *dev, const struct hal_client *client)
{
    return dev->config.clients || client->mends || client->admitted != client->completed;
}

static bool broken(struct device *dev, const struct hal_client *client)
{
    struct soc_context *context = &dev->contexts[client->context];
    if (context->hold_broken &&
        (client->tail != context->broken_tail || client->posts != context->broken_posts))
        context->hold_broken = false;
    return context->hold_broken;
}

enum hal_settled hal_client_settled(struct hal *hal, const struct hal_client *client)
{
    struct device *dev = (struct device *)hal;
    /* Asked here too, not only remembered: within one pass the clock has started for all or none. */
    if (dev->config.clock_mode != TSEMU_CLOCK_MODE_LOCKSTEP || !hal_clock_started(hal) ||
        client->blocked)
        return HAL_SETTLED;
    if (wait_counts(dev, client, false) || !holds_at_all(dev, client) || broken(dev, client))
        return HAL_SETTLED;
    if (process_waits(dev, client->context)) {
        const struct tsemu_control_page *page = page_of(dev, client->context);
        bool moved = tsemu_load_acquire(&page->sq_tail) != client->tail ||
                     tsemu_load_acquire(&page->wait_posts) != client->posts;
        /* Behind a refused entry nothing is read, however far the tail is. */
        return moved && !client->mends ? HAL_INPUT_AGAIN : HAL_SETTLED;
    }
    dev->holder = client->context;
    return HAL_UNSETTLED;
}

/* The wait may not have been taken in yet: no input is, of clients whose names come later. */
static bool somebody_else_waits(const struct device *dev, uint32_t holder)
{
    for (uint32_t id = 0; id < dev->config.max_contexts; id++) {
        struct hal_client client;
        if (id == holder || !dev->contexts[id].open)
            continue;
        fw_client(dev->fw, id, &client);
        if (fw_client_waits(dev->fw, id) ||
            tsemu_load_acquire(&page_of(dev, id)->wait_posts) != client.posts)
            return true;
    }
    return false;
}

/* Input stands still at the holder: has anything come that lets it go on, or that starts the time
 * for which it may keep the clock? */
bool lockstep_holder_moved(const struct device *dev)
{
    return !dev->contexts[dev->holder].open || fw_input_changed(dev->fw, dev->holder) ||
           process_waits(dev, dev->holder) ||
           (!dev->hold_since_ns && somebody_else_waits(dev, dev->holder));
}

/* Only an idle gap is left: may the clock cross it? Every client that holds must wait. */
bool lockstep_gap_is_held(struct device *dev)
{
    if (dev->config.clock_mode != TSEMU_CLOCK_MODE_LOCKSTEP)
        return false;
    for (uint32_t id = 0; id < dev->config.max_contexts; id++) {
        struct hal_client client;
        if (!dev->contexts[id].open)
            continue;
        fw_client(dev->fw, id, &client);
        if (!client.mends &&
            (client.waits ? wait_counts(dev, &client, false) : fw_client_waits(dev->fw, id)))
            continue;
        if (!(holds_at_all(dev, &client) || client.blocked) || broken(dev, &client) ||
            process_waits(dev, id))
            continue;
        dev->holder = id;
        return true;
    }
    return false;
}

/* The holder keeps the clock: how long may it still do so, in wall nanoseconds (NEVER: for good)?
 * When its time is over the hold is broken, counted, and 0 is returned. */
uint64_t lockstep_hold(struct device *dev, uint64_t wall)
{
    struct hal_client client;
    fw_client(dev->fw, dev->holder, &client);
    if (!dev->hold_since_ns || dev->hold_tail != client.tail || dev->hold_posts != client.posts) {
        dev->hold_since_ns = wall;
        dev->hold_tail = client.tail;
        dev->hold_posts = client.posts;
    }
    bool own_launch = client.waits;
    if (!own_launch && !somebody_else_waits(dev, dev->holder)) {
        dev->hold_since_ns = 0; /* its time runs from when somebody waits for it */
        return NEVER;
    }
    uint64_t limit = own_launch ? LAUNCH_GRACE_NS : dev->config.hold_limit_ns;
    uint64_t held = wall - dev->hold_since_ns;
    if (held < limit)
        return limit - held;
    struct soc_context *context = &dev->contexts[dev->holder];
    context->hold_broken = true;
    context->broken_tail = client.tail;
    context->broken_posts = client.posts;
    dev->hold_since_ns = 0;
    if (!own_launch) {
        dev->hold_limits++;
        struct tsemu_control_page *page =
            (struct tsemu_control_page *)dev->hal.window[dev->holder];
        tsemu_store_relaxed(&page->hold_limits, page->hold_limits + 1u);
    }
    return 0;
}
