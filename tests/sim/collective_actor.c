/* A process of the profile "collective": a trainee, its group and its links; what a view does to
 * it. */
#include "tests/sim/collective_stage.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/membership/progress_proto.h"
#include "collective/group/shm.h"
#include "tests/sim/sim_internal.h"

#define BOARD_BYTES ((size_t)6 << 20)
#define HEAL_NS     (60 * MUSTER_NS_PER_S)

struct actor *role_actor(const struct role *role)
{
    return sim_node_program(role->node);
}

bool role_is_alive(const struct role *role)
{
    return role->node != NULL && sim_node_is_alive(role->node);
}

bool role_is_member(const struct role *role)
{
    return role->stage->view != NULL &&
           muster_view_find(role->stage->view, &role->member.incarnation, NULL);
}

static struct muster_group *actor_group(void *keeper)
{
    return ((struct actor *)keeper)->group;
}

static uint64_t actor_epoch(void *keeper)
{
    const struct actor *actor = keeper;

    return actor->group == NULL ? 0 : actor->view->epoch;
}

static void actor_begin_step(void *keeper, uint64_t step)
{
    muster_group_begin_step(((struct actor *)keeper)->group, step);
}

static void actor_commit_step(void *keeper, uint64_t step)
{
    muster_group_commit_step(((struct actor *)keeper)->group, step);
}

static void actor_nothing(void *keeper)
{
    (void)keeper;
}

static void *actor_share(void *keeper, size_t bytes)
{
    const struct actor *actor = keeper;
    void *memory = NULL;

    if (actor->board == NULL || muster_board_share_new(actor->board, bytes, &memory) != MUSTER_OK)
        return NULL;
    return memory;
}

static void actor_unshare(void *keeper, void *memory)
{
    muster_board_share_free(((struct actor *)keeper)->board, memory);
}

static const struct trainee_keeper_ops keeper_ops = {
    .group = actor_group,
    .epoch = actor_epoch,
    .begin_step = actor_begin_step,
    .commit_step = actor_commit_step,
    .touch = actor_nothing,
    .may_leave = actor_nothing,
};

static const struct trainee_keeper_ops sharing_keeper_ops = {
    .group = actor_group,
    .epoch = actor_epoch,
    .begin_step = actor_begin_step,
    .commit_step = actor_commit_step,
    .touch = actor_nothing,
    .may_leave = actor_nothing,
    .share = actor_share,
    .unshare = actor_unshare,
};

static uint32_t find_role(const struct stage *stage, const struct muster_incarnation *incarnation)
{
    uint32_t i = 0;

    while (!muster_incarnation_is_equal(&stage->roles[i].member.incarnation, incarnation))
        i++;
    return i;
}

/* A change of view took something back that stood before what has to stay: this end cannot go on
 * with the link, and the other one finds that it is not known here any more. */
static bool is_given_up(struct role *role, struct role *peer, const struct muster_error *error)
{
    const struct role *roles = role->stage->roles;
    uint64_t *theirs = &peer->given_up[role - roles];
    bool is_theirs = *theirs != 0 && role->epoch <= *theirs + 1;

    if (strstr(error->text, "were recalled") != NULL) {
        role->given_up[peer - roles] = role->epoch;
        return true;
    }
    *theirs = 0;
    return is_theirs;
}

static void on_suspect(void *data, const struct muster_incarnation *peer,
                       const struct muster_error *error)
{
    struct role *role = ((struct actor *)data)->role;
    struct stage *stage = role->stage;

    stage->is_accused = true;
    if (!is_given_up(role, &stage->roles[find_role(stage, peer)], error) && stage->is_healing)
        sim_fail(stage->world, "a broken connection became a suspicion: %s", error->text);
}

static void on_abort_proposed(void *data, const struct muster_op_id *op, enum muster_rc why)
{
    struct actor *actor = data;

    sim_note(actor->role->stage->world, "abort_proposed", op->step, op->sequence, (uint64_t)why);
    actor->role->stage->is_accused = true;
}

static void on_higher_epoch(void *data, const struct muster_incarnation *peer, uint64_t epoch)
{
    struct actor *actor = data;

    (void)peer;
    (void)epoch;
    if (actor->role->follow_ns != 0)
        actor->role->follow_ns = 1;
}

static void on_expired(void *data, const struct muster_error *error)
{
    struct actor *actor = data;

    (void)error;
    sim_kill(actor->role->node);
}

static const struct muster_group_events group_events = {
    .on_suspect = on_suspect,
    .on_abort_proposed = on_abort_proposed,
    .on_higher_epoch = on_higher_epoch,
    .on_expired = on_expired,
};

static void on_link_ready(struct muster_peer_link *link)
{
    struct actor *actor = muster_peer_link_data(link);

    muster_wire_accept(actor->wire, link);
}

static void *on_link_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    (void)header;
    return NULL;
}

static void on_link_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                            void *buffer)
{
    (void)link;
    (void)header;
    (void)buffer;
}

static void on_link_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    muster_peer_link_close(link);
}

static void fill_hello(const struct actor *actor, struct muster_peer_hello *hello)
{
    memset(hello, 0, sizeof(*hello));
    strcpy(hello->job, "sim");
    hello->incarnation = actor->role->member.incarnation;
    hello->version = MUSTER_PEER_VERSION;
    hello->purpose = MUSTER_LINK_DATA;
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    static const struct muster_peer_link_events events = {
        .on_ready = on_link_ready,
        .on_frame = on_link_frame,
        .on_payload = on_link_payload,
        .on_down = on_link_down,
    };
    struct actor *actor = listener->data;
    struct muster_peer_link *link = NULL;
    struct muster_peer_hello hello;

    fill_hello(actor, &hello);
    if (muster_peer_link_accept(actor->env, stream, &hello,
                                muster_loop_after_ns(actor->env->loop, 10 * MUSTER_NS_PER_S),
                                &events, actor, &link) != MUSTER_OK)
        sim_fail(actor->role->stage->world, "a link was not accepted");
}

/* kill -9 before or after a store that others see. */
static void on_store(void *data, const char *point)
{
    struct actor *actor = data;

    (void)point;
    if (actor->chunks_to_live > 0 && --actor->chunks_to_live == 0)
        sim_kill(actor->role->node);
}

/* Stores of the dead process from now on reach no other process. */
void role_on_death(struct sim_node *node, void *data)
{
    struct role *role = data;

    (void)node;
    if (role->stage->has_boards)
        sim_board_kill(&role->stage->boards, &role->member.incarnation);
}

/* kill -9 at a chunk, inside the wire. */
static bool on_point(void *data, const struct muster_wire_point *at)
{
    struct actor *actor = data;

    (void)at;
    if (actor->chunks_to_live == 0 || --actor->chunks_to_live > 0)
        return false;
    sim_kill(actor->role->node);
    return true;
}

static void find_state(struct muster_timer *timer);

void actor_start(struct sim_node *node, struct muster_env *env, void *data)
{
    struct role *role = data;
    struct actor *actor = muster_mem_alloc_zero(env->mem, 1, sizeof(*actor));
    struct muster_address address = role->member.address;
    struct muster_wire_options options = {.env = env};
    struct muster_error error = {.rc = MUSTER_OK};

    actor->role = role;
    actor->env = env;
    actor->state_wanted = UINT64_MAX;
    sim_node_set_program(node, actor);
    if (role->stage->has_boards)
        actor->board = sim_board_open_on(&role->stage->boards, env->loop, &role->member.incarnation,
                                         BOARD_BYTES);
    trainee_init(&actor->trainee, node, role->stage->ledger, &role->member.incarnation,
                 role->stage->seed, role->stage->has_asides ? &sharing_keeper_ops : &keeper_ops,
                 actor);
    actor->trainee.has_mail = role->stage->seed % 2 == 0;
    actor->trainee.has_asides = role->stage->has_asides;
    fill_hello(actor, &options.hello);
    options.heal_ns = role->stage->is_healing ? HEAL_NS : 0;
    options.stripe_count = 1u << sim_mix(role->stage->seed, 11 + role->member.task_index) % 3;
    options.stripe_bytes_min = 64;
    muster_timer_init(&actor->timer, find_state, actor);
    if (muster_listener_open(env->net, &address, NULL, on_accept, actor, &actor->listener,
                             &error) != MUSTER_OK ||
        muster_wire_tcp_open(&options, &actor->wire) != MUSTER_OK)
        sim_fail(role->stage->world, "a process does not start: %s", error.text);
    else
        muster_wire_set_failpoint(actor->wire, on_point, actor);
}

static bool has_state(const struct role *role, uint64_t step)
{
    const struct actor *actor = role_actor(role);

    return actor != NULL && actor->trainee.is_running && actor->trainee.committed == step;
}

/* State of a joiner: all older members must agree about it; where none is left, another joiner may
 * have it. */
static const struct actor *find_holder(const struct stage *stage, uint64_t step)
{
    ledger_lives_type older = ledger_participants(stage->ledger, stage->view->epoch, step);
    const struct actor *holder = NULL, *joiner = NULL;
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        const struct role *role = &stage->roles[i];

        if (!role_is_alive(role) || !role_is_member(role))
            continue;
        if ((older >> role->life & 1) == 0) {
            joiner = has_state(role, step) ? role_actor(role) : joiner;
            continue;
        }
        if (!has_state(role, step))
            return NULL;
        holder = role_actor(role);
    }
    return holder != NULL ? holder : joiner;
}

static void find_state(struct muster_timer *timer)
{
    struct actor *actor = timer->data;
    const struct actor *holder = find_holder(actor->role->stage, actor->state_wanted);
    uint64_t step = actor->state_wanted;

    if (actor->group == NULL)
        return;
    if (holder == NULL) {
        muster_timer_start(timer, actor->env->loop,
                           muster_loop_after_ns(actor->env->loop, MUSTER_NS_PER_MS));
        return;
    }
    memcpy(actor->trainee.state, holder->trainee.state, sizeof(actor->trainee.state));
    actor->trainee.committed = step;
    actor->state_wanted = UINT64_MAX;
    trainee_go(&actor->trainee, step + 1);
}

/* The director's hand in the process. */

void role_freeze(struct role *role)
{
    struct stage *stage = role->stage;
    struct actor *actor = role_actor(role);
    struct muster_progress progress;

    sim_enter(role->node);
    sim_note(stage->world, "freeze", role->life, role->epoch, 0);
    if (muster_group_freeze(actor->group, &progress) != MUSTER_OK)
        sim_fail(stage->world, "a group does not freeze");
    else {
        muster_progress_free(role->vote);
        role->vote = NULL;
        if (muster_progress_copy(muster_mem_system(), &progress, &role->vote) != MUSTER_OK)
            abort();
        muster_progress_fini(&progress);
    }
    sim_leave(role->node);
}

void actor_leave_group(struct actor *actor)
{
    struct muster_error why = {.rc = MUSTER_ABORTED, .text = "left out"};
    struct muster_group *group = actor->group;

    if (group == NULL)
        return;
    trainee_halt(&actor->trainee);
    actor->group = NULL;
    muster_group_abort_all(group, &why);
    muster_group_close(group);
}

static void enter_view(struct actor *actor, struct muster_view *view)
{
    struct muster_group_options options = {
        .env = actor->env,
        .view = view,
        .self = actor->role->member.incarnation,
        .wire = actor->wire,
        .board = actor->board,
        .events = &group_events,
        .data = actor,
    };
    struct muster_group *old = actor->group, *next = NULL;
    uint32_t rank = 0;

    ledger_entered(actor->role->stage->ledger, actor->role->life, view);
    if (muster_group_open(&options, &next) != MUSTER_OK) {
        sim_fail(actor->role->stage->world, "a group does not open");
        return;
    }
    muster_group_set_shm_failpoint(next, on_store, actor);
    muster_view_unref(actor->view);
    actor->view = muster_view_ref(view);
    actor->group = next;
    if (old != NULL) {
        muster_group_hand_over(old, next);
        muster_group_close(old);
        return;
    }
    (void)muster_view_find(view, &actor->role->member.incarnation, &rank);
    if (view->members[rank].from_step == 0) {
        trainee_go(&actor->trainee, 1);
        return;
    }
    actor->state_wanted = view->members[rank].from_step - 1;
    muster_timer_start(&actor->timer, actor->env->loop, muster_loop_now_ns(actor->env->loop));
}

void role_follow(struct role *role)
{
    struct stage *stage = role->stage;
    struct actor *actor = role_actor(role);
    struct muster_view *view = NULL;

    role->follow_ns = 0;
    role->epoch = stage->view->epoch;
    sim_enter(role->node);
    if (muster_view_unpack(actor->env->mem, stage->view_bytes, stage->view_size, &view) !=
        MUSTER_OK) {
        sim_fail(stage->world, "a view cannot be read");
    } else if (muster_view_find(view, &role->member.incarnation, NULL)) {
        role->is_joining = false;
        enter_view(actor, view);
    } else {
        bool was_member = actor->group != NULL;

        actor_leave_group(actor);
        if (was_member)
            ledger_excluded(stage->ledger, role->life);
        role->is_joining = true;
    }
    muster_view_unref(view);
    sim_leave(role->node);
}

void actor_close_group(struct actor *actor)
{
    actor_leave_group(actor);
    muster_timer_stop(&actor->timer);
    muster_view_unref(actor->view);
    muster_wire_close(actor->wire);
    muster_listener_close(actor->listener, NULL);
}

/* Behind the ends of its operations, whose tensors may be shares of the board. */
void actor_close_board(struct actor *actor)
{
    trainee_fini(&actor->trainee);
    muster_board_close(actor->board);
}
