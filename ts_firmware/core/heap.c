/* Pairing heap of tasks, intrusive: links are `next` (sibling) and `child` of the scoreboard. */
#include "state.h"

/* True when a goes before b. Ties between contexts go by the clients' names. */
static bool before(const struct fw *fw, uint32_t a, uint32_t b, enum heap_order order)
{
    const struct task *left = fw_task(fw, a);
    const struct task *right = fw_task(fw, b);
    if (order == HEAP_BY_VALUE && left->value != right->value)
        return left->value > right->value;
    if (order == HEAP_BY_DEADLINE && left->value != right->value)
        return left->value - 1u < right->value - 1u; /* 0: no deadline, behind all others */
    if (left->ticket != right->ticket)
        return tsemu_after(right->ticket, left->ticket);
    return fw->name_rank[a >> 16] < fw->name_rank[b >> 16];
}

static uint32_t meld(struct fw *fw, uint32_t a, uint32_t b, enum heap_order order)
{
    if (a == NIL)
        return b;
    if (b == NIL)
        return a;
    if (!before(fw, a, b, order)) {
        uint32_t other = a;
        a = b;
        b = other;
    }
    fw_task(fw, b)->next = fw_task(fw, a)->child;
    fw_task(fw, a)->child = b;
    return a;
}

uint32_t heap_push(struct fw *fw, uint32_t root, uint32_t ref, enum heap_order order)
{
    struct task *task = fw_task(fw, ref);
    task->next = NIL;
    task->child = NIL;
    return meld(fw, root, ref, order);
}

uint32_t heap_pop(struct fw *fw, uint32_t root, enum heap_order order)
{
    uint32_t pairs = NIL;
    uint32_t child = fw_task(fw, root)->child;
    while (child != NIL) {
        uint32_t first = child;
        uint32_t second = fw_task(fw, first)->next;
        child = second == NIL ? NIL : fw_task(fw, second)->next;
        fw_task(fw, first)->next = NIL;
        if (second != NIL)
            fw_task(fw, second)->next = NIL;
        uint32_t pair = meld(fw, first, second, order);
        fw_task(fw, pair)->next = pairs;
        pairs = pair;
    }
    uint32_t merged = NIL;
    while (pairs != NIL) {
        uint32_t next = fw_task(fw, pairs)->next;
        fw_task(fw, pairs)->next = NIL;
        merged = meld(fw, merged, pairs, order);
        pairs = next;
    }
    return merged;
}

/* Rare (cancel): rebuild without one member. */
uint32_t heap_without(struct fw *fw, uint32_t root, uint32_t ref, enum heap_order order)
{
    uint32_t rebuilt = NIL;
    while (root != NIL) {
        uint32_t rest = heap_pop(fw, root, order);
        if (root != ref)
            rebuilt = heap_push(fw, rebuilt, root, order);
        root = rest;
    }
    return rebuilt;
}
