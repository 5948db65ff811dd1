/* Aligned barriers: the state of a server is the cut when all sources have marked and nothing that came
 * behind a mark is applied (Chandy & Lamport 1985, as Flink does it). */
#include "params/clock/cut.h"

#include <inttypes.h>

struct source {
    struct muster_list node;
    struct muster_incarnation id;
    uint64_t marked; /* the cut that it has marked last */
};

#define FROM(state) (1u << MUSTER_PARAMS_CUT_##state)

/* The states from which each state is reached. */
static const uint8_t moves[] = {
    [MUSTER_PARAMS_CUT_NONE] = FROM(RELEASING),
    [MUSTER_PARAMS_CUT_MARKING] = FROM(NONE),
    [MUSTER_PARAMS_CUT_COMPLETE] = FROM(MARKING),
    [MUSTER_PARAMS_CUT_ENDED] = FROM(MARKING) | FROM(COMPLETE),
    [MUSTER_PARAMS_CUT_RELEASING] = FROM(COMPLETE) | FROM(ENDED),
};

static void cut_move(struct muster_params_cut *cut, enum muster_params_cut_state state)
{
    MUSTER_ASSERT((moves[state] & 1u << cut->state) != 0);
    cut->state = state;
}

static struct source *source_find(const struct muster_params_cut *cut,
                                  const struct muster_incarnation *id)
{
    MUSTER_LIST_EACH (&cut->sources, source, struct source, node) {
        if (muster_incarnation_is_equal(&source->id, id))
            return source;
    }
    return NULL;
}

void muster_params_cut_init(struct muster_params_cut *cut, struct muster_mem *mem)
{
    *cut = (struct muster_params_cut){.mem = mem};
    muster_list_init(&cut->sources);
    muster_list_init(&cut->held);
}

void muster_params_cut_fini(struct muster_params_cut *cut)
{
    MUSTER_ASSERT(muster_list_is_empty(&cut->held));
    MUSTER_LIST_EACH_SAFE (&cut->sources, source, struct source, node)
        muster_mem_free(cut->mem, source);
    muster_list_init(&cut->sources);
}

static void marks_review(struct muster_params_cut *cut)
{
    if (cut->state == MUSTER_PARAMS_CUT_MARKING && cut->unmarked == 0)
        cut_move(cut, MUSTER_PARAMS_CUT_COMPLETE);
}

enum muster_rc muster_params_cut_join(struct muster_params_cut *cut,
                                      const struct muster_incarnation *id)
{
    struct source *source;

    if (source_find(cut, id) != NULL)
        return MUSTER_ALREADY_EXISTS;
    source = muster_mem_alloc_zero(cut->mem, 1, sizeof(*source));
    if (source == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    source->id = *id;
    source->marked = cut->number;
    muster_list_append(&cut->sources, &source->node);
    return MUSTER_OK;
}

void muster_params_cut_leave(struct muster_params_cut *cut, const struct muster_incarnation *id)
{
    struct source *source = source_find(cut, id);

    if (source == NULL)
        return;
    if (cut->state == MUSTER_PARAMS_CUT_MARKING && source->marked != cut->number)
        cut->unmarked--;
    muster_list_remove(&source->node);
    muster_mem_free(cut->mem, source);
    marks_review(cut);
}

enum muster_rc muster_params_cut_begin(struct muster_params_cut *cut, uint64_t number,
                                       uint64_t now_ns, uint64_t deadline_ns,
                                       struct muster_error *ret_error)
{
    if (cut->state != MUSTER_PARAMS_CUT_NONE)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "cut %" PRIu64 " is not done yet", cut->number);
    if (number <= cut->number)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the number of a cut must be above %" PRIu64 ", got %" PRIu64,
                                cut->number, number);
    cut_move(cut, MUSTER_PARAMS_CUT_MARKING);
    cut->number = number;
    cut->began_ns = now_ns;
    cut->deadline_ns = deadline_ns;
    cut->unmarked = 0;
    MUSTER_LIST_EACH (&cut->sources, source, struct source, node)
        cut->unmarked++;
    marks_review(cut);
    return MUSTER_OK;
}

void muster_params_cut_mark(struct muster_params_cut *cut, const struct muster_incarnation *id,
                            uint64_t number)
{
    struct source *source = source_find(cut, id);

    if (source == NULL || cut->state != MUSTER_PARAMS_CUT_MARKING || number != cut->number ||
        source->marked == number)
        return;
    source->marked = number;
    cut->unmarked--;
    marks_review(cut);
}

bool muster_params_cut_must_hold(const struct muster_params_cut *cut,
                                 const struct muster_incarnation *id)
{
    const struct source *source = source_find(cut, id);

    /* A message that comes while others are released is held, too: it must not overtake earlier ones of its
     * source. */
    return cut->state != MUSTER_PARAMS_CUT_NONE &&
           (source == NULL || source->marked == cut->number);
}

void muster_params_cut_hold(struct muster_params_cut *cut, const struct muster_incarnation *id,
                            struct muster_params_cut_held *held)
{
    MUSTER_ASSERT(muster_params_cut_must_hold(cut, id));
    muster_list_append(&cut->held, &held->node);
}

enum muster_rc muster_params_cut_expire(struct muster_params_cut *cut, uint64_t now_ns,
                                        struct muster_error *ret_error)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    uint64_t ms;

    if (cut->state != MUSTER_PARAMS_CUT_MARKING || now_ns < cut->deadline_ns)
        return MUSTER_OK;
    MUSTER_LIST_EACH (&cut->sources, source, struct source, node) {
        if (source->marked == cut->number)
            continue;
        cut_move(cut, MUSTER_PARAMS_CUT_ENDED);
        ms = (now_ns - cut->began_ns) / MUSTER_NS_PER_MS;
        return muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                                "cut %" PRIu64 " has ended: the source %s has not marked within "
                                "%" PRIu64 ".%03" PRIu64 " s (%u sources have not)",
                                cut->number, muster_incarnation_format(&source->id, text),
                                ms / 1000, ms % 1000, cut->unmarked);
    }
    MUSTER_ASSERT(false); /* marks_review has moved on */
    return MUSTER_INTERNAL;
}

void muster_params_cut_abandon(struct muster_params_cut *cut)
{
    if (cut->state == MUSTER_PARAMS_CUT_MARKING || cut->state == MUSTER_PARAMS_CUT_COMPLETE)
        cut_move(cut, MUSTER_PARAMS_CUT_ENDED);
}

struct muster_params_cut_held *muster_params_cut_release(struct muster_params_cut *cut)
{
    struct muster_list *node;

    if (cut->state != MUSTER_PARAMS_CUT_RELEASING)
        cut_move(cut, MUSTER_PARAMS_CUT_RELEASING);
    node = muster_list_pop(&cut->held);
    if (node == NULL) {
        cut_move(cut, MUSTER_PARAMS_CUT_NONE);
        return NULL;
    }
    return MUSTER_CONTAINER_OF(node, struct muster_params_cut_held, node);
}
