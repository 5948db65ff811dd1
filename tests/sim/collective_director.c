/* The director of the profile "collective": collects votes, decides views, and lets everybody hear
 * of them sooner or later. */
#include "tests/sim/collective_stage.h"

#include <stdlib.h>

#include "cluster/membership/progress_proto.h"
#include "cluster/membership/view_decide.h"
#include "tests/sim/sim_internal.h"

uint64_t stage_draw(struct stage *stage, uint64_t bound)
{
    return muster_rng_below(sim_world_rng(stage->world), bound == 0 ? 1 : bound);
}

uint64_t stage_soon(struct stage *stage)
{
    return sim_world_now_ns(stage->world) +
           stage_draw(stage, UINT64_C(1) << (10 + stage_draw(stage, 13)));
}

static void stage_commit(struct stage *stage, struct muster_view *view)
{
    uint32_t i;

    muster_view_unref(stage->view);
    stage->view = view;
    muster_mem_free(muster_mem_system(), stage->view_bytes);
    if (muster_view_pack(view, muster_mem_system(), &stage->view_bytes, &stage->view_size) !=
        MUSTER_OK)
        abort();
    ledger_committed(stage->ledger, view);
    stage->is_changing = false;
    stage->begin_ns = 0;
    for (i = 0; i < stage->role_count; i++) {
        struct role *role = &stage->roles[i];

        muster_progress_free(role->vote);
        role->vote = NULL;
        role->freeze_ns = 0;
        role->follow_ns = stage_soon(stage);
    }
}

void stage_commit_first(struct stage *stage)
{
    struct muster_member members[TASKS_MAX];
    struct muster_view fields = {.job = "sim", .epoch = 1, .reason = "first view"};
    struct muster_view *view = NULL;
    uint32_t i;

    for (i = 0; i < stage->task_count; i++)
        members[i] = stage->roles[stage->holders[i]].member;
    fields.members = members;
    fields.member_count = stage->task_count;
    fields.plan.chunk_bytes = 64u << stage_draw(stage, 5);
    fields.plan.direct_max_bytes = 16u << stage_draw(stage, 8);
    fields.plan.forced = (enum muster_algorithm)stage_draw(stage, MUSTER_ALGORITHM_TWO_LEVEL + 1);
    if (muster_view_new(muster_mem_system(), &fields, &view) != MUSTER_OK)
        abort();
    stage_commit(stage, view);
}

/* Everybody alive has voted: decide and commit. */
static void stage_decide(struct stage *stage)
{
    struct muster_vote votes[LEDGER_LIVES_MAX];
    struct muster_member joiners[LEDGER_LIVES_MAX];
    struct muster_decide_input input = {.mem = muster_mem_system(),
                                        .view = stage->view,
                                        .votes = votes,
                                        .joiners = joiners,
                                        .reason = "the director's wish"};
    struct muster_view *view = NULL;
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        struct role *role = &stage->roles[i];

        if (role->vote != NULL && role_is_member(role))
            votes[input.vote_count++] = (struct muster_vote){
                .incarnation = role->member.incarnation, .progress = role->vote};
        else if (role_is_alive(role) && role->is_joining && !role_is_member(role))
            joiners[input.joiner_count++] = role->member;
    }
    if (input.vote_count == 0) {
        stage->is_over = true;
        return;
    }
    if (muster_view_decide(&input, &view) != MUSTER_OK)
        abort();
    stage_commit(stage, view);
}

static bool needs_change(const struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        const struct role *role = &stage->roles[i];

        if (role_is_member(role) ? !role_is_alive(role) : role_is_alive(role) && role->is_joining)
            return true;
    }
    return stage->is_accused;
}

static void begin_change(struct stage *stage)
{
    uint32_t i;

    stage->is_changing = true;
    stage->is_accused = false;
    stage->decide_ns = 0;
    for (i = 0; i < stage->role_count; i++)
        if (role_is_member(&stage->roles[i]))
            stage->roles[i].freeze_ns = stage_soon(stage);
}

static bool may_act(const struct role *role)
{
    return role_is_alive(role) && !sim_node_is_paused(role->node) && role_actor(role) != NULL;
}

static bool has_all_votes(const struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        const struct role *role = &stage->roles[i];

        if (role_is_member(role) && role_is_alive(role) && role->vote == NULL)
            return false;
    }
    return true;
}

static void direct_role(struct role *role)
{
    struct stage *stage = role->stage;
    uint64_t now_ns = sim_world_now_ns(stage->world);

    if (!may_act(role))
        return;
    if (stage->view != NULL && role->epoch < stage->view->epoch &&
        (now_ns >= role->follow_ns || (stage->is_changing && now_ns >= role->freeze_ns)))
        role_follow(role);
    if (!may_act(role)) /* died of it */
        return;
    if (stage->is_changing && role_is_member(role) && role->vote == NULL && role->freeze_ns != 0 &&
        now_ns >= role->freeze_ns)
        role_freeze(role);
    else if (stage->is_changing && role->vote != NULL && stage_draw(stage, 50) == 0)
        role_freeze(role); /* a second leader asks too */
}

/* Only members are left that wait for a state which nobody has any more: the job is lost. */
static bool is_lost(const struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        const struct role *role = &stage->roles[i];
        const struct actor *actor = role_is_alive(role) ? role_actor(role) : NULL;

        if (actor != NULL && role_is_member(role) && actor->trainee.is_running)
            return false;
    }
    return stage->view->epoch > 1;
}

void stage_direct(struct stage *stage)
{
    uint64_t now_ns = sim_world_now_ns(stage->world);
    uint32_t i;

    if (is_lost(stage)) {
        stage->is_over = true;
        return;
    }
    for (i = 0; i < stage->role_count; i++)
        direct_role(&stage->roles[i]);
    if (!stage->is_changing) {
        if (stage->begin_ns == 0 && needs_change(stage))
            stage->begin_ns = stage_soon(stage);
        if (stage->begin_ns != 0 && now_ns >= stage->begin_ns)
            begin_change(stage);
        return;
    }
    if (stage->decide_ns == 0 && has_all_votes(stage))
        stage->decide_ns = stage_soon(stage);
    if (stage->decide_ns != 0 && now_ns >= stage->decide_ns && has_all_votes(stage))
        stage_decide(stage);
}
