/* A pull at clock c with staleness s is answered when all live sources have completed c - s steps. */
#include "params/clock/clock.h"

#include <inttypes.h>
#include <string.h>

#define ROOM_MIN 16u

void muster_params_clock_init(struct muster_params_clock *clock, struct muster_mem *mem)
{
    *clock = (struct muster_params_clock){.mem = mem};
    muster_list_init(&clock->waits);
}

void muster_params_clock_fini(struct muster_params_clock *clock)
{
    MUSTER_ASSERT(muster_list_is_empty(&clock->waits));
    muster_mem_free(clock->mem, clock->sources);
    *clock = (struct muster_params_clock){0};
}

/* Where it is, or belongs. */
static bool source_find(const struct muster_params_clock *clock,
                        const struct muster_incarnation *id, uint32_t *ret_at)
{
    uint32_t low = 0, high = clock->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = memcmp(clock->sources[middle].id.bytes, id->bytes, sizeof(id->bytes));

        if (order == 0) {
            *ret_at = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_at = low;
    return false;
}

static enum muster_rc room_make(struct muster_params_clock *clock)
{
    struct muster_params_clock_source *sources;
    uint32_t room = clock->room == 0 ? ROOM_MIN : 2 * clock->room;

    if (clock->count < clock->room)
        return MUSTER_OK;
    sources = muster_mem_realloc(clock->mem, clock->sources, room * sizeof(*sources));
    if (sources == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    clock->sources = sources;
    clock->room = room;
    return MUSTER_OK;
}

enum muster_rc muster_params_clock_join(struct muster_params_clock *clock,
                                        const struct muster_incarnation *id, uint64_t start,
                                        uint64_t now_ns)
{
    enum muster_rc rc;
    uint32_t at;

    if (source_find(clock, id, &at))
        return MUSTER_ALREADY_EXISTS;
    rc = room_make(clock);
    if (rc != MUSTER_OK)
        return rc;
    memmove(&clock->sources[at + 1], &clock->sources[at],
            (clock->count - at) * sizeof(clock->sources[0]));
    clock->sources[at] =
        (struct muster_params_clock_source){.id = *id, .clock = start, .since_ns = now_ns};
    clock->count++;
    return MUSTER_OK;
}

bool muster_params_clock_leave(struct muster_params_clock *clock,
                               const struct muster_incarnation *id)
{
    uint32_t at;

    if (!source_find(clock, id, &at))
        return false;
    clock->count--;
    memmove(&clock->sources[at], &clock->sources[at + 1],
            (clock->count - at) * sizeof(clock->sources[0]));
    return true;
}

enum muster_rc muster_params_clock_tick(struct muster_params_clock *clock,
                                        const struct muster_incarnation *id, uint64_t steps,
                                        uint64_t now_ns, struct muster_error *ret_error)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    uint32_t at;

    if (!source_find(clock, id, &at))
        return muster_error_set(ret_error, MUSTER_NOT_FOUND, "the source %s is not in the group",
                                muster_incarnation_format(id, text));
    if (steps < clock->sources[at].clock)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the clock of a source must not go back, got %" PRIu64
                                " after %" PRIu64,
                                steps, clock->sources[at].clock);
    if (steps > clock->sources[at].clock) {
        clock->sources[at].clock = steps;
        clock->sources[at].since_ns = now_ns;
    }
    return MUSTER_OK;
}

const struct muster_params_clock_source *muster_params_clock_slowest(
    const struct muster_params_clock *clock)
{
    const struct muster_params_clock_source *slowest = NULL;

    for (uint32_t i = 0; i < clock->count; i++) {
        const struct muster_params_clock_source *source = &clock->sources[i];

        if (slowest == NULL || source->clock < slowest->clock ||
            (source->clock == slowest->clock && source->since_ns < slowest->since_ns))
            slowest = source;
    }
    return slowest;
}

uint64_t muster_params_clock_low(const struct muster_params_clock *clock)
{
    const struct muster_params_clock_source *slowest = muster_params_clock_slowest(clock);

    return slowest != NULL ? slowest->clock : UINT64_MAX;
}

/* --- Pulls that wait --- */

static uint64_t clock_needed(uint64_t at, uint64_t staleness)
{
    return at > staleness ? at - staleness : 0;
}

bool muster_params_clock_is_due(const struct muster_params_clock *clock, uint64_t at,
                                uint64_t staleness)
{
    return muster_params_clock_low(clock) >= clock_needed(at, staleness);
}

static void wait_move(struct muster_params_clock_wait *wait,
                      enum muster_params_clock_wait_state state)
{
    MUSTER_ASSERT(wait->state != state);
    wait->state = state;
}

void muster_params_clock_wait_start(struct muster_params_clock *clock,
                                    struct muster_params_clock_wait *wait, uint64_t at,
                                    uint64_t staleness)
{
    struct muster_list *behind = clock->waits.prev;

    MUSTER_ASSERT(!muster_params_clock_is_due(clock, at, staleness));
    wait_move(wait, MUSTER_PARAMS_CLOCK_WAIT_WAITING);
    wait->need = clock_needed(at, staleness);
    while (behind != &clock->waits &&
           MUSTER_CONTAINER_OF(behind, struct muster_params_clock_wait, node)->need > wait->need)
        behind = behind->prev;
    muster_list_prepend(behind, &wait->node); /* after it */
}

void muster_params_clock_wait_stop(struct muster_params_clock_wait *wait)
{
    if (wait->state == MUSTER_PARAMS_CLOCK_WAIT_IDLE)
        return;
    wait_move(wait, MUSTER_PARAMS_CLOCK_WAIT_IDLE);
    muster_list_remove(&wait->node);
}

struct muster_params_clock_wait *muster_params_clock_next(struct muster_params_clock *clock)
{
    uint64_t low = muster_params_clock_low(clock);

    MUSTER_LIST_EACH (&clock->waits, wait, struct muster_params_clock_wait, node) {
        if (wait->need > low)
            return NULL;
        muster_params_clock_wait_stop(wait);
        return wait;
    }
    return NULL;
}

enum muster_rc muster_params_clock_wait_blame(const struct muster_params_clock *clock,
                                              const struct muster_params_clock_wait *wait,
                                              uint64_t now_ns, struct muster_error *ret_error)
{
    const struct muster_params_clock_source *slowest = muster_params_clock_slowest(clock);
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    uint64_t ms;

    MUSTER_ASSERT(wait->state == MUSTER_PARAMS_CLOCK_WAIT_WAITING && slowest != NULL);
    ms = (now_ns - slowest->since_ns) / MUSTER_NS_PER_MS;
    return muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                            "waits for clock %" PRIu64
                            ": the slowest source %s has been at %" PRIu64 " for %" PRIu64
                            ".%03" PRIu64 " s",
                            wait->need, muster_incarnation_format(&slowest->id, text),
                            slowest->clock, ms / 1000, ms % 1000);
}
