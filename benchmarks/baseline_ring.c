/* The bare machine to compare tsemu with: a submission ring, a scoreboard, eight cores and a
 * completion ring, and nothing else. No clock rules, no classes, streams, priorities or policies,
 * no events, no control channel, no error path, no process boundary; but the same checks on every
 * entry (version, opcode, phase, ticket, slot, edges, CRC-32C of 64 bytes on both rings), the same
 * window and the same three workloads as throughput.py gives to tsemu.
 *
 *     baseline_ring WORKLOAD TASKS THREADS
 *
 * WORKLOAD is independent, streams or layered; THREADS is 1 (host and device take turns) or 2 (the
 * host in a thread of its own, spinning). Prints the wall time in seconds of submitting, running
 * and consuming all tasks, the virtual makespan in cycles and a checksum of what was consumed. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <nmmintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SLOTS = 4096, WINDOW = 2048, RING = 4096, CORES = 8, BATCH = 64, NO_SLOT = 0xFFFF };
enum { STREAMS = 64, LAYER = 256, FANIN = 3, PHASE = 64, KERNEL = 1, NO_EDGE = 0xFFFFFFFF };

/* Entries are handled as eight words, as fields would make the CPU wait for its own narrow stores.
 * Submission: 0 version, opcode, flags, class, priority, stream; 1 ticket, CRC; 2 user tag;
 * 3 argument; 4 cycles, bytes read; 5 bytes written, blocks, kernel; 6 timeout, value; 7 slot and
 * three predecessors' slots. Completion: 0 user tag; 1 start; 2 end; 3 fault address; 4 ticket,
 * ancestor; 5 CRC, stream, slot; 6 status, core, block, context; 7 epoch, phase, flags. */
struct entry {
    uint64_t word[8];
};
_Static_assert(sizeof(struct entry) == 64, "entries are a cache line");
enum { SQE_CRC = 1, CQE_CRC = 5 };
static const uint64_t low = 0xFFFFFFFF;

/* One task of the workload, made before the time runs. */
struct task {
    uint32_t cycles;
    uint32_t predecessors[2]; /* task number plus one; 0: none */
    uint16_t stream;
};

static struct entry sq[RING] __attribute__((aligned(64)));
static struct entry cq[RING] __attribute__((aligned(64)));
static _Alignas(64) _Atomic uint32_t sq_tail;
static _Alignas(64) _Atomic uint32_t sq_head;
static _Alignas(64) _Atomic uint32_t cq_tail;
static _Alignas(64) _Atomic uint32_t cq_head;
static struct task *tasks;
static uint32_t count;

static _Noreturn void fail(const char *what, uint32_t at)
{
    fprintf(stderr, "baseline_ring: %s at %" PRIu32 "\n", what, at);
    exit(1);
}

/* CRC-32C of an entry whose CRC field is zero. */
static inline uint64_t crc_of(const struct entry *entry)
{
    uint64_t crc = low;
    for (int i = 0; i < 8; i++)
        crc = _mm_crc32_u64(crc, entry->word[i]);
    return crc ^ low;
}

static inline uint64_t phase_of(uint32_t position)
{
    return (position / RING & 1) ^ 1;
}

/* ---- host ---- */

static struct {
    uint32_t next, consumed, tail, sq_head;
    uint32_t free_head, free_tail;
    uint16_t free_slots[SLOTS];
    uint16_t slot_of[SLOTS];    /* by ticket modulo SLOTS: only the last SLOTS tasks can be open */
    uint32_t ticket_in[SLOTS];  /* by slot; 0: empty */
    uint64_t checksum, makespan;
} host;

static void host_start(void)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        host.free_slots[i] = (uint16_t)i;
    host.free_tail = SLOTS;
}

/* Put in what fits, at most `most`. */
static uint32_t host_submit(uint32_t most)
{
    if (RING - (host.tail - host.sq_head) < most) /* look only when what is known runs out */
        host.sq_head = atomic_load_explicit(&sq_head, memory_order_acquire);
    uint32_t room = RING - (host.tail - host.sq_head);
    uint32_t slots = host.free_tail - host.free_head, done = 0;
    most = most < room ? most : room;
    most = most < slots ? most : slots;
    most = most < count - host.next ? most : count - host.next;
    for (; done < most; done++) {
        uint32_t n = host.next++;
        const struct task *task = &tasks[n];
        uint16_t slot = host.free_slots[host.free_head++ % SLOTS];
        uint64_t edges = 0xFFFFFFFFFFFF;
        for (int k = 0; k < 2; k++) {
            uint32_t ticket = task->predecessors[k];
            if (ticket && n + 1 - ticket < SLOTS) {
                uint16_t other = host.slot_of[ticket % SLOTS];
                if (host.ticket_in[other] == ticket) /* else it has been consumed: no edge */
                    edges = edges << 16 | other;
            }
        }
        struct entry entry = {{
            1 | KERNEL << 8 | phase_of(host.tail) * PHASE << 16 | UINT64_C(4) << 40
                | (uint64_t)task->stream << 48,
            n + 1, n, 0, task->cycles, UINT64_C(1) << 32, 0, edges << 16 | slot,
        }};
        entry.word[SQE_CRC] |= crc_of(&entry) << 32;
        host.slot_of[(n + 1) % SLOTS] = slot;
        host.ticket_in[slot] = n + 1;
        sq[host.tail++ % RING] = entry;
    }
    if (done)
        atomic_store_explicit(&sq_tail, host.tail, memory_order_release);
    return done;
}

/* Consume completions when there are at least `least`. */
static uint32_t host_consume(uint32_t least)
{
    uint32_t tail = atomic_load_explicit(&cq_tail, memory_order_acquire);
    uint32_t start = host.consumed;
    if (tail - start < least)
        return 0;
    for (; host.consumed != tail; host.consumed++) {
        struct entry entry = cq[host.consumed % RING];
        uint64_t crc = entry.word[CQE_CRC] & low;
        entry.word[CQE_CRC] ^= crc;
        if (crc != crc_of(&entry) || (entry.word[7] >> 16 & 1) != phase_of(host.consumed))
            fail("damaged completion", host.consumed);
        uint32_t ticket = (uint32_t)entry.word[4], slot = (uint32_t)(entry.word[CQE_CRC] >> 48);
        if (slot >= SLOTS || host.ticket_in[slot] != ticket || entry.word[6] & 0xFFFF)
            fail("unexpected completion", host.consumed);
        host.ticket_in[slot] = 0;
        host.free_slots[host.free_tail++ % SLOTS] = (uint16_t)slot;
        host.checksum = host.checksum * 31 + entry.word[2] + ticket;
        host.makespan = entry.word[2] > host.makespan ? entry.word[2] : host.makespan;
    }
    if (start != tail)
        atomic_store_explicit(&cq_head, tail, memory_order_release);
    return tail - start;
}

/* ---- device ---- */

struct scoreboard {
    uint64_t user_tag, start;
    uint32_t ticket; /* 0: empty */
    uint32_t cycles;
    uint32_t waiting;
    uint32_t first_edge; /* slot * FANIN + k of the first task that waits for this one */
    uint16_t stream, core;
};
static struct {
    struct scoreboard slot[SLOTS];
    uint32_t next_edge[SLOTS * FANIN];
    uint16_t ready[SLOTS];
    uint32_t ready_head, ready_tail;
    uint32_t admitted, completed, fetched, sq_tail, cq_tail, cq_head, running;
    uint64_t now;
    uint64_t end[CORES]; /* of running blocks, earliest last; ties end in order of dispatch */
    uint16_t end_slot[CORES];
    uint16_t idle[CORES];
    uint32_t idle_count;
} dev;

static void device_start(void)
{
    for (uint32_t i = 0; i < CORES; i++)
        dev.idle[dev.idle_count++] = (uint16_t)(CORES - 1 - i);
}

static uint32_t device_admit(void)
{
    uint32_t start = dev.fetched;
    if (dev.sq_tail == start)
        dev.sq_tail = atomic_load_explicit(&sq_tail, memory_order_acquire);
    while (dev.fetched != dev.sq_tail && dev.admitted - dev.completed < WINDOW) {
        struct entry entry = sq[dev.fetched % RING];
        uint64_t crc = entry.word[SQE_CRC] >> 32, first = entry.word[0];
        entry.word[SQE_CRC] &= low;
        if (crc != crc_of(&entry))
            fail("damaged entry", dev.fetched);
        if ((first & 0xFFFF) != (1 | KERNEL << 8)
            || (first >> 16 & 0xFFFF) != phase_of(dev.fetched) * PHASE || first >> 32 & 0xFF
            || (first >> 40 & 0xFF) > 7 || !(entry.word[5] >> 32 & 0xFFFF)
            || entry.word[SQE_CRC] != dev.admitted + 1)
            fail("bad entry", dev.fetched);
        uint32_t own = entry.word[7] & 0xFFFF;
        if (own >= SLOTS || dev.slot[own].ticket)
            fail("slot in use", dev.fetched);
        struct scoreboard *task = &dev.slot[own];
        *task = (struct scoreboard){
            .user_tag = entry.word[2], .ticket = dev.admitted + 1,
            .cycles = (uint32_t)entry.word[4], .first_edge = NO_EDGE,
            .stream = (uint16_t)(first >> 48),
        };
        for (uint32_t k = 0; k < FANIN; k++) {
            uint32_t slot = entry.word[7] >> 16 * (k + 1) & 0xFFFF;
            if (slot == NO_SLOT)
                break;
            if (slot >= SLOTS)
                fail("bad edge", dev.fetched);
            if (!dev.slot[slot].ticket)
                continue; /* completed, and not yet consumed when the host wrote the edge */
            uint32_t edge = own * FANIN + k;
            dev.next_edge[edge] = dev.slot[slot].first_edge;
            dev.slot[slot].first_edge = edge;
            task->waiting++;
        }
        if (!task->waiting)
            dev.ready[dev.ready_tail++ % SLOTS] = (uint16_t)own;
        dev.admitted++;
        dev.fetched++;
    }
    if (dev.fetched != start && (dev.fetched == dev.sq_tail || !(dev.fetched % BATCH)))
        atomic_store_explicit(&sq_head, dev.fetched, memory_order_release);
    return dev.fetched - start;
}

static void device_dispatch(void)
{
    while (dev.idle_count && dev.ready_head != dev.ready_tail) {
        uint16_t slot = dev.ready[dev.ready_head++ % SLOTS];
        struct scoreboard *task = &dev.slot[slot];
        task->core = dev.idle[--dev.idle_count];
        task->start = dev.now;
        uint64_t end = dev.now + task->cycles;
        uint32_t at = dev.running++;
        for (; at && dev.end[at - 1] <= end; at--) {
            dev.end[at] = dev.end[at - 1];
            dev.end_slot[at] = dev.end_slot[at - 1];
        }
        dev.end[at] = end;
        dev.end_slot[at] = slot;
    }
}

static void device_retire(uint16_t number)
{
    struct scoreboard *task = &dev.slot[number];
    struct entry entry = {{
        task->user_tag, task->start, dev.now, 0, task->ticket,
        (uint64_t)task->stream << 32 | (uint64_t)number << 48, (uint64_t)task->core << 16,
        phase_of(dev.cq_tail) << 16,
    }};
    entry.word[CQE_CRC] |= crc_of(&entry);
    cq[dev.cq_tail++ % RING] = entry;
    dev.idle[dev.idle_count++] = task->core;
    task->ticket = 0;
    dev.completed++;
    for (uint32_t edge = task->first_edge; edge != NO_EDGE; edge = dev.next_edge[edge])
        if (!--dev.slot[edge / FANIN].waiting)
            dev.ready[dev.ready_tail++ % SLOTS] = (uint16_t)(edge / FANIN);
}

/* Run while there is something to do, at most `most` instants. */
static uint32_t device_run(uint32_t most)
{
    uint32_t done = 0;
    for (; done < most; done++) {
        device_admit();
        device_dispatch();
        if (!dev.running)
            break;
        if (RING - (dev.cq_tail - dev.cq_head) < CORES) {
            dev.cq_head = atomic_load_explicit(&cq_head, memory_order_acquire);
            if (RING - (dev.cq_tail - dev.cq_head) < CORES)
                break;
        }
        dev.now = dev.end[dev.running - 1];
        while (dev.running && dev.end[dev.running - 1] == dev.now)
            device_retire(dev.end_slot[--dev.running]);
        if (done % BATCH == BATCH - 1)
            atomic_store_explicit(&cq_tail, dev.cq_tail, memory_order_release);
    }
    atomic_store_explicit(&cq_tail, dev.cq_tail, memory_order_release);
    return done;
}

/* ---- both ---- */

static inline uint32_t mix(uint32_t x) /* same as workloads.mix */
{
    x ^= x >> 16;
    x *= 0x7FEB352D;
    x ^= x >> 15;
    x *= 0x846CA68B;
    return x ^ x >> 16;
}

static void make_tasks(const char *workload)
{
    for (uint32_t i = 0; i < count; i++) {
        struct task *task = &tasks[i];
        task->cycles = 64 + mix(i) % 960;
        if (!strcmp(workload, "streams")) {
            task->stream = (uint16_t)(i % STREAMS);
            task->predecessors[0] = i >= STREAMS ? i - STREAMS + 1 : 0;
        } else if (!strcmp(workload, "layered") && i >= LAYER) {
            uint32_t first = (i / LAYER - 1) * LAYER;
            uint32_t a = mix(2 * i + 0x40000000) % LAYER, b = mix(2 * i + 0x40000001) % LAYER;
            task->predecessors[0] = first + a + 1;
            task->predecessors[1] = a == b ? 0 : first + b + 1;
        }
    }
}

static void backoff(uint32_t *spins)
{
    if (++*spins < 2000)
        _mm_pause();
    else
        sched_yield();
}

static void *host_thread(void *unused)
{
    (void)unused;
    for (uint32_t spins = 0; host.consumed < count;) {
        uint32_t least = spins < 64 ? BATCH : 1;
        if (host.free_tail - host.free_head >= least)
            host_submit(4 * BATCH);
        if (host_consume(least))
            spins = 0;
        else
            backoff(&spins);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: baseline_ring independent|streams|layered TASKS 1|2\n");
        return 2;
    }
    count = (uint32_t)strtoul(argv[2], NULL, 10);
    tasks = calloc(count ? count : 1, sizeof *tasks);
    if (!tasks)
        fail("no memory for tasks", count);
    make_tasks(argv[1]);
    host_start();
    device_start();
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (argv[3][0] == '2') {
        pthread_t thread;
        if (pthread_create(&thread, NULL, host_thread, NULL))
            fail("no thread", 0);
        for (uint32_t spins = 0; dev.completed < count;) {
            if (device_run(64))
                spins = 0;
            else
                backoff(&spins);
        }
        pthread_join(thread, NULL);
    } else {
        while (host.consumed < count) {
            host_submit(RING);
            device_run(1024);
            host_consume(1);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.9f %" PRIu64 " %" PRIu64 "\n",
           (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec),
           host.makespan, host.checksum);
    return 0;
}
