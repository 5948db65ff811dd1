/* Steps on paper. */
#include "step_paper.h"

#include "test_env.h"

#include <stdlib.h>
#include <string.h>

static unsigned paper_draw(struct paper *paper, unsigned below)
{
    paper->random = paper->random * 1103515245u + 12345u;
    return (paper->random >> 16) % below;
}

static struct paper_message *message_of(struct paper *paper, uint32_t from, uint32_t to, uint32_t c,
                                        uint32_t number)
{
    assert_true(number < PAPER_MESSAGES_MAX);
    return &paper->messages[(((size_t)from * paper->n + to) * paper->chunk_count + c) *
                                PAPER_MESSAGES_MAX +
                            number];
}

static uint32_t self_of(const struct paper *paper, const struct paper_member *member)
{
    return (uint32_t)(member - paper->members);
}

uint32_t paper_input_at(const struct paper *paper, const struct paper_member *member, uint64_t i)
{
    const struct muster_plan *plan = &member->plan;
    uint32_t self = self_of(paper, member);

    if (plan->kind == MUSTER_OP_BROADCAST && self != plan->root)
        return 0;
    if (plan->kind == MUSTER_OP_ALL_GATHER && i / (plan->count / plan->n) != self)
        return 0;
    return 1u << self;
}

/* --- Steps --- */

static void paper_stage(struct paper *paper, uint32_t to, uint64_t count)
{
    struct paper_member *member = &paper->members[to];

    member->staged += count;
    if (member->staged > member->staged_max)
        member->staged_max = member->staged;
}

static uint32_t step_expecting(const struct paper_member *member, uint32_t c, uint32_t from,
                               uint32_t number)
{
    for (uint32_t s = member->begin[c]; s < member->begin[c + 1]; s++) {
        const struct muster_step *step = &member->steps[s];

        if (step->kind >= MUSTER_STEP_RECEIVE && step->kind <= MUSTER_STEP_HOLD &&
            step->peer == from && step->message == number)
            return s;
    }
    fail_msg("a message that nobody expects");
    return 0;
}

static bool do_overlap(const struct muster_step *a, const struct muster_step *b)
{
    return a->first < b->first + b->count && b->first < a->first + a->count;
}

/* Final values go into place as they arrive: no step before may still need what is there. */
static void member_place(struct paper_member *member, uint32_t c, uint32_t s,
                         const struct paper_message *message)
{
    const struct muster_step *step = &member->steps[s];

    for (uint32_t before = member->begin[c]; before < s; before++)
        assert_true(member->has_run[before] || !do_overlap(&member->steps[before], step));
    memcpy(member->work + step->first, message->sets, step->count * sizeof(uint32_t));
}

static void paper_send(struct paper *paper, struct paper_member *member, uint32_t c,
                       const struct muster_step *step)
{
    uint32_t self = self_of(paper, member), s;
    struct paper_message *message = message_of(paper, self, step->peer, c, step->message);
    struct paper_member *to = &paper->members[step->peer];

    assert_int_not_equal(step->peer, self);
    assert_null(message->sets);
    message->first = step->first;
    message->count = step->count;
    message->sets = malloc(step->count * sizeof(uint32_t));
    for (uint64_t i = 0; i < step->count; i++)
        message->sets[i] = step->is_from_input ? paper_input_at(paper, member, step->first + i)
                                               : member->work[step->first + i];
    member->sent += step->count;
    member->messages_sent++;
    s = step_expecting(to, c, self, step->message);
    assert_true(to->steps[s].first == step->first && to->steps[s].count == step->count);
    if (to->steps[s].kind == MUSTER_STEP_RECEIVE)
        member_place(to, c, s, message);
    else
        paper_stage(paper, step->peer, step->count);
}

static void use_up(struct paper_member *member, struct paper_message *message, bool is_staged)
{
    if (is_staged)
        member->staged -= message->count;
    free(message->sets);
    message->sets = NULL;
}

static void paper_reduce(struct paper *paper, struct paper_member *member,
                         const struct muster_step *step, struct paper_message *message)
{
    for (uint64_t i = 0; i < step->count; i++) {
        uint32_t own = step->is_from_input ? paper_input_at(paper, member, step->first + i)
                                           : member->work[step->first + i];

        assert_int_equal(own & message->sets[i], 0);
        member->work[step->first + i] = own | message->sets[i];
    }
    use_up(member, message, true);
}

static void reduce_held(struct paper *paper, struct paper_member *member, uint32_t c, uint32_t s)
{
    const struct muster_step *step = &member->steps[s];

    for (uint64_t i = 0; i < step->count; i++)
        member->work[step->first + i] = paper_input_at(paper, member, step->first + i);
    for (uint32_t before = member->begin[c]; before < s; before++) {
        const struct muster_step *hold = &member->steps[before];
        struct paper_message *message;

        if (hold->kind != MUSTER_STEP_HOLD)
            continue;
        message = message_of(paper, hold->peer, self_of(paper, member), c, hold->message);
        assert_true(message->first == step->first && message->count == step->count);
        for (uint64_t i = 0; i < step->count; i++) {
            assert_int_equal(member->work[step->first + i] & message->sets[i], 0);
            member->work[step->first + i] |= message->sets[i];
        }
        use_up(member, message, true);
    }
}

/* False: its message has not arrived. */
static bool run_step(struct paper *paper, struct paper_member *member, uint32_t c, uint32_t s)
{
    const struct muster_step *step = &member->steps[s];
    struct paper_message *message = NULL;

    if (step->kind >= MUSTER_STEP_RECEIVE && step->kind <= MUSTER_STEP_HOLD) {
        message = message_of(paper, step->peer, self_of(paper, member), c, step->message);
        if (message->sets == NULL)
            return false;
    }
    switch ((enum muster_step_kind)step->kind) {
    case MUSTER_STEP_SEND:
        paper_send(paper, member, c, step);
        break;
    case MUSTER_STEP_RECEIVE:
        use_up(member, message, false);
        break;
    case MUSTER_STEP_REDUCE:
        paper_reduce(paper, member, step, message);
        break;
    case MUSTER_STEP_HOLD:
        break; /* stays where it is until REDUCE_HELD */
    case MUSTER_STEP_REDUCE_HELD:
        reduce_held(paper, member, c, s);
        break;
    case MUSTER_STEP_KEEP:
        for (uint64_t i = 0; i < step->count; i++)
            member->work[step->first + i] = paper_input_at(paper, member, step->first + i);
        break;
    case MUSTER_STEP_FINISH:
        break;
    }
    member->has_run[s] = true;
    return true;
}

/* As far as chunk c can go, or one step of it. */
static bool paper_advance(struct paper *paper, struct paper_member *member, uint32_t c,
                          bool is_one_step)
{
    bool has_moved = false;

    while (member->cursor[c] < member->begin[c + 1] &&
           run_step(paper, member, c, member->cursor[c])) {
        member->cursor[c]++;
        has_moved = true;
        if (is_one_step)
            break;
    }
    return has_moved;
}

uint32_t paper_unfinished(const struct paper_member *member, uint32_t chunk_count)
{
    uint32_t c = 0;

    while (c < chunk_count && member->cursor[c] == member->begin[c + 1])
        c++;
    return c;
}

static bool advance_member(struct paper *paper, uint32_t index, bool is_one_step)
{
    struct paper_member *member = &paper->members[index];
    uint32_t first = paper_unfinished(member, paper->chunk_count);
    uint32_t end = first + member->plan.window;
    bool has_moved = false;

    for (uint32_t c = first; c < end && c < paper->chunk_count; c++)
        has_moved = paper_advance(paper, member, c, is_one_step) || has_moved;
    return has_moved;
}

/* --- A paper --- */

static void member_open(struct paper *paper, uint32_t index, struct muster_plan_input input)
{
    struct paper_member *member = &paper->members[index];
    uint32_t step_count = 0, max;

    input.index = index;
    member->plan = muster_plan_make(&input);
    paper->chunk_count = member->plan.chunk_count;
    max = muster_steps_max(&member->plan);
    member->steps = calloc((size_t)paper->chunk_count * max, sizeof(struct muster_step));
    member->begin = calloc(paper->chunk_count + 1, sizeof(uint32_t));
    member->cursor = calloc(paper->chunk_count, sizeof(uint32_t));
    member->work = calloc(paper->count + 1, sizeof(uint32_t));
    for (uint32_t c = 0; c < paper->chunk_count; c++) {
        member->begin[c] = member->cursor[c] = step_count;
        step_count +=
            muster_steps_make(&member->plan, &paper->topology, c, member->steps + step_count);
    }
    member->begin[paper->chunk_count] = step_count;
    member->has_run = calloc(step_count + 1, sizeof(bool));
}

static const char *host_key(const void *data, uint32_t i)
{
    static const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i",
                                       "j", "k", "l", "m", "n", "o", "p", "q"};
    const uint32_t *per_host = data;

    return keys[i / *per_host];
}

void paper_open(struct paper *paper, struct muster_mem *mem, const struct muster_plan_input *input,
                uint32_t per_host)
{
    memset(paper, 0, sizeof(*paper));
    paper->n = input->n;
    paper->count = input->count;
    assert_int_equal(muster_topology_init(&paper->topology, mem, input->n), MUSTER_OK);
    muster_topology_make(&paper->topology, input->n, host_key, &per_host);
    for (uint32_t i = 0; i < input->n; i++)
        member_open(paper, i, *input);
    paper->messages = calloc((size_t)paper->n * paper->n * paper->chunk_count * PAPER_MESSAGES_MAX,
                             sizeof(struct paper_message));
}

void paper_close(struct paper *paper, struct muster_mem *mem)
{
    for (uint32_t i = 0; i < paper->n; i++) {
        struct paper_member *member = &paper->members[i];

        free(member->steps);
        free(member->begin);
        free(member->cursor);
        free(member->has_run);
        free(member->work);
    }
    free(paper->messages);
    muster_topology_fini(&paper->topology, mem);
}

void paper_run(struct paper *paper, unsigned seed, uint32_t lazy)
{
    bool has_moved = true;

    paper->random = seed;
    while (has_moved) {
        has_moved = false;
        for (uint32_t i = 0; i < paper->n; i++) {
            uint32_t index = paper_draw(paper, paper->n);

            if (index != lazy)
                has_moved = advance_member(paper, index, seed % 2 != 0) || has_moved;
        }
        for (uint32_t i = 0; i < paper->n && !has_moved; i++)
            if (i != lazy)
                has_moved = advance_member(paper, i, false);
        if (!has_moved && lazy < paper->n)
            has_moved = advance_member(paper, lazy, true);
    }
}
