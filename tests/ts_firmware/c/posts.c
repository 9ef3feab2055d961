/* The hand-writing client's posted waits and control requests, and what is answered to them. */
#define _GNU_SOURCE
#include "client.h"

#include <string.h>

#include <tsemu/crc32c.h>
#include <tsemu/ring.h>

#define MESSAGE_CRC 20u

bool client_post(struct client *client, uint32_t index, const struct answer *asked)
{
    struct posted *wait = &client->waits[index];
    struct tsemu_wait_request *request = &client->page->waits[index];
    if (wait->used)
        return false;
    *wait = (struct posted){true, client->page->answers[index].sequence + 1u, *asked};
    wait->asked.submitted += client->submitted;
    request->submitted = wait->asked.submitted;
    request->kind = asked->kind;
    request->flags = asked->flags;
    request->a = asked->a;
    request->b = asked->b;
    request->next_completed = asked->next_completed;
    request->deadline_ps = asked->deadline;
    tsemu_store_release(&request->sequence, wait->sequence);
    tsemu_store_release(&client->page->wait_posts, client->page->wait_posts + 1u);
    return true;
}

void client_post_request(struct client *client, uint32_t kind, uint32_t a, uint32_t b)
{
    struct answer asked = {.kind = TSEMU_WAIT_KIND_CONTROL, .deadline = FOREVER};
    _Alignas(8) struct tsemu_control_message message = {
        .magic = TSEMU_CONTROL_MAGIC,
        .major = TSEMU_ABI_MAJOR,
        .minor = TSEMU_ABI_MINOR,
        .kind = (uint16_t)kind,
        .token = ++client->token,
        .argument = {a, b},
    };
    message.crc = tsemu_crc32c_entry(&message, MESSAGE_CRC);
    client->request = message;
    client->request_is_bad = client->request_is_repeat = false;
    client->page->request = client->request;
    client_post(client, CONTROL_WAIT, &asked);
}

void client_post_repeat(struct client *client)
{
    struct answer asked = {.kind = TSEMU_WAIT_KIND_CONTROL, .deadline = FOREVER};
    if (!client->good_request.magic)
        return;
    client->request = client->good_request;
    client->request_is_bad = false;
    client->request_is_repeat = true;
    client->page->request = client->request;
    client_post(client, CONTROL_WAIT, &asked);
}

void client_post_bad_request(struct client *client)
{
    struct answer asked = {.kind = TSEMU_WAIT_KIND_CONTROL, .deadline = FOREVER};
    _Alignas(8) struct tsemu_control_message message = client->request;
    uint8_t *bytes = (uint8_t *)&message;
    message.magic = TSEMU_CONTROL_MAGIC;
    message.token = ++client->token;
    client->request_is_bad = true;
    client->request_is_repeat = false;
    switch (seeded_below(client->random, 4)) {
    case 0:
        for (uint32_t i = 0; i < sizeof message; i++)
            bytes[i] = (uint8_t)seeded_next(client->random);
        break;
    case 1: message.kind = (uint16_t)(100u + seeded_below(client->random, 60000)); break;
    case 2: message.major = 9; break;
    default: message.length = 1; break;
    }
    message.crc = tsemu_crc32c_entry(&message, MESSAGE_CRC);
    if (seeded_chance(client->random, 25))
        message.crc ^= 1u << seeded_below(client->random, 32);
    client->request = message;
    client->page->request = message;
    client_post(client, CONTROL_WAIT, &asked);
}

/* The next task of the stream to be admitted no longer follows the one before it. */
static void recovered(struct client *client, uint32_t stream, uint32_t sq_head)
{
    for (uint32_t ticket = 1; ticket <= client->submitted; ticket++) {
        struct record *task = &client->tasks[ticket];
        if (task->stream != stream || tsemu_after(sq_head, task->position))
            continue;
        task->recovered = true;
        return;
    }
    client->streams[stream].recovered = true;
}

static void take_reply(struct client *client, uint32_t sq_head)
{
    const struct tsemu_control_message *request = &client->request;
    _Alignas(8) struct tsemu_control_message reply = client->page->reply;
    if (reply.crc != tsemu_crc32c_entry(&reply, MESSAGE_CRC) || reply.token != request->token)
        fail(client, "reply does not belong to the request, or is damaged");
    client->reply = reply;
    if (client->request_is_bad) {
        if (reply.status == TSEMU_CONTROL_STATUS_OK)
            fail(client, "a garbage request was carried out");
        if (reply.status == TSEMU_CONTROL_STATUS_BAD_KIND)
            client->good_request.magic = 0; /* well formed, so it is the one that counts now */
        return;
    }
    if (client->request_is_repeat) {
        if (memcmp(&reply, &client->good_reply, sizeof reply) != 0)
            fail(client, "a repeated request is answered differently");
        return;
    }
    client->good_request = *request;
    client->good_reply = reply;
    if (reply.status != TSEMU_CONTROL_STATUS_OK) {
        if (request->kind == TSEMU_CONTROL_KIND_CANCEL
                ? reply.status != TSEMU_CONTROL_STATUS_BUSY
                : request->kind == TSEMU_CONTROL_KIND_STREAM_RECOVER)
            fail(client, "request %u has status %u", request->kind, reply.status);
        return;
    }
    uint32_t id = request->argument[0];
    switch (request->kind) {
    case TSEMU_CONTROL_KIND_STREAM_CREATE:
        client->streams[reply.argument[0]] = (struct stream_state){
            .used = true, .in_order = id & TSEMU_STREAM_FLAG_IN_ORDER, .life = ++client->lives};
        break;
    case TSEMU_CONTROL_KIND_CANCEL: client->tasks[id].cancel = true; break;
    case TSEMU_CONTROL_KIND_STREAM_DESTROY: client->streams[id].used = false; break;
    case TSEMU_CONTROL_KIND_STREAM_RECOVER: recovered(client, id, sq_head); break;
    case TSEMU_CONTROL_KIND_EVENT_CREATE:
        memset(&client->events[reply.argument[0]], 0, sizeof client->events[0]);
        client->events[reply.argument[0]].used = true;
        break;
    default: break;
    }
}

void client_take_answers(struct client *client)
{
    for (uint32_t index = 0; index < TSEMU_MAX_WAITS; index++) {
        struct posted *wait = &client->waits[index];
        const struct tsemu_wait_answer *found = &client->page->answers[index];
        if (!wait->used || tsemu_load_acquire(&found->sequence) != wait->sequence)
            continue;
        wait->used = false;
        if (client->armed && tsemu_load_relaxed(&client->page->host_sleeps))
            fail(client, "a wait is answered without an interrupt although the host sleeps");
        if (index == CONTROL_WAIT) {
            if (found->reason != TSEMU_ANSWER_MET)
                fail(client, "control request is answered with reason %u", found->reason);
            take_reply(client, found->sq_head);
        }
        if (client->answer_count == MAX_ANSWERS)
            continue;
        struct answer *answer = &client->answers[client->answer_count++];
        *answer = wait->asked;
        answer->reason = found->reason;
        answer->completed = found->completed;
        answer->now = found->now_ps;
        answer->deadline = found->deadline_ps;
    }
}

bool client_waits(const struct client *client)
{
    for (uint32_t index = 0; index < TSEMU_MAX_WAITS; index++)
        if (client->waits[index].used)
            return true;
    return false;
}
