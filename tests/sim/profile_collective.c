/* Profile "collective": real groups on the TCP wire; a director decides views as the membership
 * layer would. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/progress_proto.h"
#include "cluster/view_decide.h"
#include "collective/group.h"
#include "collective/shm.h"
#include "sim_board.h"
#include "tests/sim/faults.h"
#include "tests/sim/profile.h"
#include "tests/sim/sim_internal.h"
#include "tests/sim/trainee.h"

#define TASKS_MAX   5
#define PORT        5000
#define BOARD_BYTES ((size_t)6 << 20)
#define RUN_NS      (4 * MUSTER_NS_PER_S)
#define HEAL_NS     (60 * MUSTER_NS_PER_S)
#define LIVES_MAX   (LEDGER_LIVES_MAX - TASKS_MAX)

struct stage;

/* One life of a task, seen from outside. */
struct role {
    struct stage *stage;
    struct sim_node *node;
    struct muster_member member;
    uint32_t life;
    uint64_t epoch;     /* that it has followed to */
    uint64_t freeze_ns; /* when the Freeze of the change under way reaches it; 0: not sent */
    uint64_t follow_ns; /* when it hears of the present view; 0: it has */
    struct muster_progress *vote;
    bool is_joining;
};

/* The same, in its process. */
struct actor {
    struct role *role;
    struct muster_env *env;
    struct muster_listener *listener;
    struct muster_wire *wire;
    struct muster_board *board; /* NULL: none */
    struct muster_group *group;
    struct muster_view *view;
    struct trainee trainee;
    struct muster_timer timer; /* looks for the state to begin with */
    uint64_t state_wanted;     /* step; UINT64_MAX: none */
    uint32_t chunks_to_live;   /* a kill at a chunk is armed; 0: not */
};

struct stage {
    struct sim_world *world;
    struct ledger *ledger;
    uint64_t seed;
    struct sim_host *hosts[TASKS_MAX];
    struct role roles[LEDGER_LIVES_MAX];
    uint32_t role_count, task_count;
    uint32_t holders[TASKS_MAX]; /* role of each task's present life */
    struct muster_view *view;
    void *view_bytes;
    size_t view_size;
    bool is_changing, is_accused, is_over;
    bool is_healing;              /* connections break, processes do not: nobody may be suspected */
    bool has_boards;              /* the members share a host */
    bool has_asides;              /* steps have operations on other lanes, too */
    struct muster_env boards_env; /* memory only */
    struct sim_board_world boards;
    uint64_t begin_ns, decide_ns, return_ns[TASKS_MAX];
    uint64_t step_wanted;
    uint64_t kills;
};

static uint64_t draw(struct stage *stage, uint64_t bound)
{
    return muster_rng_below(sim_world_rng(stage->world), bound == 0 ? 1 : bound);
}

static uint64_t soon(struct stage *stage)
{
    return sim_world_now_ns(stage->world) + draw(stage, UINT64_C(1) << (10 + draw(stage, 13)));
}

static struct actor *actor_of(const struct role *role)
{
    return sim_node_program(role->node);
}

static bool is_alive(const struct role *role)
{
    return role->node != NULL && sim_node_is_alive(role->node);
}

/* In the process. */

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

static void on_suspect(void *data, const struct muster_incarnation *peer,
                       const struct muster_error *error)
{
    struct actor *actor = data;

    (void)peer;
    actor->role->stage->is_accused = true;
    if (actor->role->stage->is_healing && strstr(error->text, "taken back") == NULL)
        sim_fail(actor->role->stage->world, "a broken connection became a suspicion: %s",
                 error->text);
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

/* What it stores from now on reaches nobody. */
static void on_death(struct sim_node *node, void *data)
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

static void start_actor(struct sim_node *node, struct muster_env *env, void *data)
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

static bool is_member(const struct role *role);

static bool has_state(const struct role *role, uint64_t step)
{
    const struct actor *actor = actor_of(role);

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

        if (!is_alive(role) || !is_member(role))
            continue;
        if ((older >> role->life & 1) == 0) {
            joiner = has_state(role, step) ? actor_of(role) : joiner;
            continue;
        }
        if (!has_state(role, step))
            return NULL;
        holder = actor_of(role);
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

static void freeze(struct role *role)
{
    struct stage *stage = role->stage;
    struct actor *actor = actor_of(role);
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

static void leave_group(struct actor *actor)
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

static void follow(struct role *role)
{
    struct stage *stage = role->stage;
    struct actor *actor = actor_of(role);
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

        leave_group(actor);
        if (was_member)
            ledger_excluded(stage->ledger, role->life);
        role->is_joining = true;
    }
    muster_view_unref(view);
    sim_leave(role->node);
}

/* The director. */

static bool is_member(const struct role *role)
{
    return role->stage->view != NULL &&
           muster_view_find(role->stage->view, &role->member.incarnation, NULL);
}

static void commit(struct stage *stage, struct muster_view *view)
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
        role->follow_ns = soon(stage);
    }
}

static void commit_first(struct stage *stage)
{
    struct muster_member members[TASKS_MAX];
    struct muster_view fields = {.job = "sim", .epoch = 1, .reason = "first view"};
    struct muster_view *view = NULL;
    uint32_t i;

    for (i = 0; i < stage->task_count; i++)
        members[i] = stage->roles[stage->holders[i]].member;
    fields.members = members;
    fields.member_count = stage->task_count;
    fields.plan.chunk_bytes = 64u << draw(stage, 5);
    fields.plan.direct_max_bytes = 16u << draw(stage, 8);
    fields.plan.forced = (enum muster_algorithm)draw(stage, MUSTER_ALGORITHM_TWO_LEVEL + 1);
    if (muster_view_new(muster_mem_system(), &fields, &view) != MUSTER_OK)
        abort();
    commit(stage, view);
}

/* Everybody alive has voted: decide and commit. */
static void decide(struct stage *stage)
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

        if (role->vote != NULL && is_member(role))
            votes[input.vote_count++] = (struct muster_vote){
                .incarnation = role->member.incarnation, .progress = role->vote};
        else if (is_alive(role) && role->is_joining && !is_member(role))
            joiners[input.joiner_count++] = role->member;
    }
    if (input.vote_count == 0) {
        stage->is_over = true;
        return;
    }
    if (muster_view_decide(&input, &view) != MUSTER_OK)
        abort();
    commit(stage, view);
}

static bool needs_change(const struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        const struct role *role = &stage->roles[i];

        if (is_member(role) ? !is_alive(role) : is_alive(role) && role->is_joining)
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
        if (is_member(&stage->roles[i]))
            stage->roles[i].freeze_ns = soon(stage);
}

static bool may_act(const struct role *role)
{
    return is_alive(role) && !sim_node_is_paused(role->node) && actor_of(role) != NULL;
}

static bool has_all_votes(const struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        const struct role *role = &stage->roles[i];

        if (is_member(role) && is_alive(role) && role->vote == NULL)
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
        follow(role);
    if (!may_act(role)) /* died of it */
        return;
    if (stage->is_changing && is_member(role) && role->vote == NULL && role->freeze_ns != 0 &&
        now_ns >= role->freeze_ns)
        freeze(role);
    else if (stage->is_changing && role->vote != NULL && draw(stage, 50) == 0)
        freeze(role); /* a second leader asks too */
}

/* Only members are left that wait for a state which nobody has any more: the job is lost. */
static bool is_lost(const struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        const struct role *role = &stage->roles[i];
        const struct actor *actor = is_alive(role) ? actor_of(role) : NULL;

        if (actor != NULL && is_member(role) && actor->trainee.is_running)
            return false;
    }
    return stage->view->epoch > 1;
}

static void direct(struct stage *stage)
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
            stage->begin_ns = soon(stage);
        if (stage->begin_ns != 0 && now_ns >= stage->begin_ns)
            begin_change(stage);
        return;
    }
    if (stage->decide_ns == 0 && has_all_votes(stage))
        stage->decide_ns = soon(stage);
    if (stage->decide_ns != 0 && now_ns >= stage->decide_ns && has_all_votes(stage))
        decide(stage);
}

/* The launcher. */

static void launch(struct stage *stage, uint32_t task)
{
    struct role *role = &stage->roles[stage->role_count];
    char name[32];

    *role = (struct role){.stage = stage, .is_joining = stage->view != NULL};
    muster_rng_fill(sim_world_rng(stage->world), role->member.incarnation.bytes,
                    sizeof(role->member.incarnation.bytes));
    strcpy(role->member.task_type, "worker");
    role->member.task_index = task;
    role->member.address = sim_host_address(stage->hosts[task], PORT);
    snprintf(role->member.host_key, sizeof(role->member.host_key), "%s",
             stage->has_boards ? "one" : sim_host_name(stage->hosts[task]));
    role->life = ledger_life(stage->ledger, &role->member.incarnation);
    snprintf(name, sizeof(name), "worker:%" PRIu32, task);
    stage->holders[task] = stage->role_count++;
    role->node = sim_node_start(stage->world, &(struct sim_node_options){.name = name,
                                                                         .host = stage->hosts[task],
                                                                         .start = start_actor,
                                                                         .on_death = on_death,
                                                                         .data = role});
    role->member.pid = sim_node_pid(role->node);
}

static void relaunch(struct stage *stage)
{
    uint64_t now_ns = sim_world_now_ns(stage->world);
    uint32_t i;

    for (i = 0; i < stage->task_count; i++) {
        if (is_alive(&stage->roles[stage->holders[i]]) || stage->role_count >= LIVES_MAX)
            continue;
        if (stage->return_ns[i] == 0)
            stage->return_ns[i] = now_ns + draw(stage, 300 * MUSTER_NS_PER_MS);
        if (now_ns < stage->return_ns[i])
            continue;
        stage->return_ns[i] = 0;
        launch(stage, i);
    }
}

static void arm_kill(struct stage *stage)
{
    struct role *role = &stage->roles[stage->holders[draw(stage, stage->task_count)]];
    struct actor *actor = is_alive(role) ? actor_of(role) : NULL;

    if (actor == NULL || actor->chunks_to_live != 0)
        return;
    actor->chunks_to_live = 1 + (uint32_t)draw(stage, 60);
    stage->kills++;
}

/* Let time pass in small, uneven steps. */
static bool play_on(struct stage *stage)
{
    if (!sim_run_for(stage->world, 1 + draw(stage, UINT64_C(1) << (12 + draw(stage, 9)))))
        return false;
    direct(stage);
    return sim_failure(stage->world) == NULL && !stage->is_over;
}

static bool is_whole(const struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        const struct role *role = &stage->roles[i];

        if (is_alive(role) && (actor_of(role) == NULL || !is_member(role) ||
                               actor_of(role)->trainee.committed < stage->step_wanted))
            return false;
    }
    return true;
}

static uint64_t highest_step(const struct stage *stage)
{
    uint64_t step = 0;
    uint32_t i;

    for (i = 0; i < stage->role_count; i++)
        if (is_alive(&stage->roles[i]) && actor_of(&stage->roles[i]) != NULL &&
            actor_of(&stage->roles[i])->trainee.committed > step)
            step = actor_of(&stage->roles[i])->trainee.committed;
    return step;
}

/* For the trace: where each process stands. */
static void note_roles(struct stage *stage)
{
    uint32_t i, slot;

    for (i = 0; i < stage->role_count; i++) {
        const struct actor *actor = is_alive(&stage->roles[i]) ? actor_of(&stage->roles[i]) : NULL;

        if (actor == NULL)
            continue;
        sim_note(stage->world, "role", i, stage->roles[i].epoch, actor->trainee.step);
        for (slot = 0; slot < actor->trainee.issued; slot++)
            sim_note(stage->world, "slot", actor->trainee.slots[slot].id.sequence,
                     actor->trainee.slots[slot].state, actor->trainee.slots[slot].kind);
        for (slot = 0; slot < TRAINEE_ASIDES_MAX; slot++)
            if (actor->trainee.asides[slot].state == TRAINEE_OP_OPEN)
                sim_note(stage->world, "aside", actor->trainee.asides[slot].id.sequence,
                         actor->trainee.asides[slot].id.lane, actor->trainee.asides[slot].kind);
        sim_note(stage->world, "open", actor->trainee.aside_open, actor->trainee.list.is_open, 0);
    }
}

/* No more faults: all that live must be members and go on. */
static void end_play(struct stage *stage, struct sim_faults *faults)
{
    uint64_t end_ns = sim_world_now_ns(stage->world) + HEAL_NS;
    uint32_t i;

    sim_faults_heal(faults);
    for (i = 0; i < stage->role_count; i++)
        if (is_alive(&stage->roles[i]) && actor_of(&stage->roles[i]) != NULL)
            actor_of(&stage->roles[i])->chunks_to_live = 0;
    stage->step_wanted = highest_step(stage) + 5;
    while (play_on(stage) && !is_whole(stage))
        if (sim_world_now_ns(stage->world) >= end_ns) {
            note_roles(stage);
            sim_fail(stage->world, "no progress to step %" PRIu64 " after healing",
                     stage->step_wanted);
            return;
        }
}

static void close_group(struct actor *actor)
{
    leave_group(actor);
    muster_timer_stop(&actor->timer);
    muster_view_unref(actor->view);
    muster_wire_close(actor->wire);
    muster_listener_close(actor->listener, NULL);
}

/* Behind the ends of its operations, whose tensors may be shares of the board. */
static void close_board(struct actor *actor)
{
    trainee_fini(&actor->trainee);
    muster_board_close(actor->board);
}

static void in_each_process(struct stage *stage, void (*act)(struct actor *actor))
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        struct role *role = &stage->roles[i];

        if (!is_alive(role) || actor_of(role) == NULL || sim_failure(stage->world) != NULL)
            continue;
        sim_enter(role->node);
        act(actor_of(role));
        sim_leave(role->node);
    }
    (void)sim_run_for(stage->world, 20 * MUSTER_NS_PER_S);
}

static void close_processes(struct stage *stage)
{
    uint32_t i;

    in_each_process(stage, close_group);
    in_each_process(stage, close_board);
    for (i = 0; i < stage->role_count && sim_failure(stage->world) == NULL; i++) {
        if (!is_alive(&stage->roles[i]))
            continue;
        muster_mem_free(sim_node_env(stage->roles[i].node)->mem, actor_of(&stage->roles[i]));
        sim_exit(stage->roles[i].node);
    }
}

static void free_stage(struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++)
        muster_progress_free(stage->roles[i].vote);
    sim_board_world_fini(&stage->boards);
    muster_view_unref(stage->view);
    muster_mem_free(muster_mem_system(), stage->view_bytes);
    ledger_free(stage->ledger);
    free(stage);
}

static void set_stage(struct stage *stage)
{
    uint32_t i;

    stage->task_count = 2 + (uint32_t)draw(stage, TASKS_MAX - 1);
    stage->has_boards = draw(stage, 2) == 0;
    stage->boards_env.mem = muster_mem_system();
    sim_board_world_init(&stage->boards, &stage->boards_env);
    for (i = 0; i < stage->task_count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "host%" PRIu32, i);
        stage->hosts[i] = sim_host_add(stage->world, name);
    }
    for (i = 0; i < stage->task_count; i++)
        launch(stage, i);
    (void)sim_run_for(stage->world, MUSTER_NS_PER_MS);
    commit_first(stage);
}

void sim_profile_collective(struct sim_run *run, const struct sim_profile *profile)
{
    struct stage *stage = sim_alloc(sizeof(*stage));
    struct sim_faults_options options = {
        .allowed = SIM_FAULTS_ALL & ~SIM_FAULT_BIT(CRASH_HOST),
        .interval_min_ns = 20 * MUSTER_NS_PER_MS,
        .interval_max_ns = 600 * MUSTER_NS_PER_MS,
        .duration_max_ns = 500 * MUSTER_NS_PER_MS,
        .count_max = 40,
    };
    struct sim_faults *faults;
    uint64_t end_ns;

    stage->is_healing = profile->variant == 1;
    stage->has_asides = profile->variant == 2;
    if (stage->is_healing) {
        options.allowed = SIM_FAULT_BIT(RESET);
        options.interval_min_ns = MUSTER_NS_PER_MS;
        options.interval_max_ns = 60 * MUSTER_NS_PER_MS;
        options.count_max = 400;
    }
    stage->world = sim_run_open(run);
    stage->seed = run->seed;
    stage->ledger = ledger_new(stage->world);
    set_stage(stage);
    faults = sim_faults_start(stage->world, &options);
    end_ns = sim_world_now_ns(stage->world) + RUN_NS;
    while (sim_world_now_ns(stage->world) < end_ns && play_on(stage)) {
        relaunch(stage);
        if (!stage->is_healing && draw(stage, 400) == 0)
            arm_kill(stage);
    }
    if (!stage->is_over && sim_failure(stage->world) == NULL)
        end_play(stage, faults);
    stage->is_healing = false; /* processes end now */
    if (!stage->is_over && sim_failure(stage->world) == NULL)
        close_processes(stage);
    stage->kills += sim_faults_count(faults);
    sim_faults_free(faults);
    sim_run_close(run, stage->world, stage->kills);
    free_stage(stage);
}
