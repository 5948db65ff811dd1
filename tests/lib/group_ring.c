/* Members of a group in one process: listeners, wires, views, changes. */
#include "group_ring.h"

#include <stdio.h>
#include <string.h>

#include "cluster/membership/view_decide.h"
#include "collective/group/shm.h"
#include "collective/wire/wire_tcp_internal.h"

bool group_ring_has_boards;
uint32_t group_ring_stripe_count = 1;
static struct group_ring *open_ring; /* NULL: none */

#define CHUNK_BYTES  256u
#define BOARD_BYTES  ((size_t)6 << 20)
#define DIRECT_BYTES 64u

/* Until all have answered, however slow the machine is. */
#define ANSWER_WAIT_NS (20 * MUSTER_NS_PER_S)

/* --- Links --- */

static struct muster_peer_hello hello_of(const struct group_ring_member *member)
{
    struct muster_peer_hello hello = {.purpose = MUSTER_LINK_DATA,
                                      .incarnation = member->self.incarnation};

    snprintf(hello.job, sizeof(hello.job), "test");
    return hello;
}

static void forget_accepted(struct group_ring_member *member, struct muster_peer_link *link)
{
    for (size_t i = 0; i < sizeof(member->accepted) / sizeof(member->accepted[0]); i++)
        if (member->accepted[i] == link)
            member->accepted[i] = NULL;
}

static void on_ready(struct muster_peer_link *link)
{
    struct group_ring_member *member = muster_peer_link_data(link);

    forget_accepted(member, link);
    muster_wire_accept(member->wire, link);
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    (void)header;
    return NULL;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    (void)link;
    (void)header;
    (void)buffer;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    forget_accepted(muster_peer_link_data(link), link);
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events accept_events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct group_ring_member *member = listener->data;
    struct muster_env *env = &member->ring->test.env;
    struct muster_peer_hello hello = hello_of(member);
    struct muster_peer_link *link = NULL;

    if (member->is_dead) {
        muster_stream_close(stream, NULL);
        return;
    }
    assert_int_equal(muster_peer_link_accept(env, stream, &hello,
                                             muster_loop_after_ns(env->loop, 5 * MUSTER_NS_PER_S),
                                             &accept_events, member, &link),
                     MUSTER_OK);
    for (size_t i = 0; i < sizeof(member->accepted) / sizeof(member->accepted[0]); i++) {
        if (member->accepted[i] != NULL)
            continue;
        member->accepted[i] = link;
        return;
    }
    fail_msg("too many links wait for a hello");
}

/* --- Events of groups --- */

static void on_suspect(void *data, const struct muster_incarnation *peer,
                       const struct muster_error *error)
{
    struct group_ring_member *member = data;

    (void)peer;
    memcpy(member->suspect_text, error->text, sizeof(member->suspect_text));
    member->suspect_count++;
}

static void on_death(void *data, const struct muster_incarnation *peer)
{
    struct group_ring_member *member = data;

    (void)peer;
    member->death_count++;
}

static void on_abort_proposed(void *data, const struct muster_op_id *op, enum muster_rc why)
{
    struct group_ring_member *member = data;

    member->abort_count++;
    member->abort_op = *op;
    member->abort_why = why;
}

static void on_higher_epoch(void *data, const struct muster_incarnation *peer, uint64_t epoch)
{
    struct group_ring_member *member = data;

    (void)peer;
    (void)epoch;
    member->higher_count++;
}

static void on_expired(void *data, const struct muster_error *error)
{
    struct group_ring_member *member = data;

    (void)error;
    member->expired_count++;
}

static void on_skipped(void *data, uint64_t step)
{
    struct group_ring_member *member = data;

    member->skipped_count++;
    member->skipped_step = step;
}

static void on_left_out(void *data, uint64_t step, const char *why)
{
    struct group_ring_member *member = data;

    assert_non_null(strstr(why, "which has left"));
    member->left_out_count++;
    member->left_out_step = step;
}

static const struct muster_group_events group_events = {
    .on_suspect = on_suspect,
    .on_death = on_death,
    .on_abort_proposed = on_abort_proposed,
    .on_higher_epoch = on_higher_epoch,
    .on_expired = on_expired,
    .on_skipped = on_skipped,
    .on_left_out = on_left_out,
};

static void stop_others(struct group_ring *ring)
{
    struct muster_progress progress;

    for (uint32_t i = 0; i < ring->count; i++) {
        struct group_ring_member *member = &ring->members[i];

        if (member->is_dead || member->group == NULL)
            continue;
        assert_int_equal(muster_group_freeze(member->group, &progress), MUSTER_OK);
        muster_progress_fini(&progress);
    }
}

static bool on_failpoint(void *data, const struct muster_wire_point *at)
{
    struct group_ring_member *member = data;

    (void)at;
    if (member->is_dead || ++member->passed != member->cut_at)
        return false;
    member->is_dead = true;
    member->ring->has_cut = true;
    if (member->ring->is_stopped_at_cut)
        stop_others(member->ring);
    return true;
}

/* --- Members --- */

static struct muster_group *open_group(struct group_ring_member *member, struct muster_view *view)
{
    struct muster_group_options options = {
        .env = &member->ring->test.env,
        .view = view,
        .self = member->self.incarnation,
        .wire = member->wire,
        .events = &group_events,
        .data = member,
        .board = member->board,
        .abort_grace_ns = member->ring->abort_grace_ns,
        .answer_wait_ns = ANSWER_WAIT_NS,
    };
    struct muster_group *group = NULL;

    assert_int_equal(muster_group_open(&options, &group), MUSTER_OK);
    return group;
}

uint32_t group_ring_add(struct group_ring *ring)
{
    struct muster_env *env = &ring->test.env;
    uint32_t index = ring->count++;
    struct group_ring_member *member = &ring->members[index];
    struct muster_wire_options options = {.env = env};
    struct muster_address any;
    struct muster_error error;

    assert_true(index < GROUP_RING_MAX);
    member->ring = ring;
    snprintf(member->self.task_type, sizeof(member->self.task_type), "worker");
    member->self.task_index = index;
    snprintf(member->self.host_key, sizeof(member->self.host_key), "host-%u",
             ring->per_host > 0 ? index / ring->per_host : 0);
    /* Not in rank order: who connects must not depend on it. */
    member->self.incarnation.bytes[0] = (uint8_t)(index * 37 + 11);
    member->self.incarnation.bytes[15] = (uint8_t)(index + 1);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, &error), MUSTER_OK);
    assert_int_equal(
        muster_listener_open(env->net, &any, NULL, on_accept, member, &member->listener, &error),
        MUSTER_OK);
    member->self.address = *muster_listener_address(member->listener);
    options.hello = hello_of(member);
    options.stripe_count = group_ring_stripe_count;
    options.stripe_bytes_min = 8;
    assert_int_equal(muster_wire_tcp_open(&options, &member->wire), MUSTER_OK);
    muster_wire_set_failpoint(member->wire, on_failpoint, member);
    if (ring->has_boards) {
        snprintf(member->self.host_key, sizeof(member->self.host_key), "host");
        member->board = sim_board_open(&ring->boards, &member->self.incarnation, BOARD_BYTES);
    }
    return index;
}

void group_ring_open(struct group_ring *ring, uint32_t n)
{
    const struct muster_plan_parameters plan = {.chunk_bytes = CHUNK_BYTES,
                                                .direct_max_bytes = DIRECT_BYTES};

    group_ring_open_plan(ring, n, &plan);
}

void group_ring_open_plan(struct group_ring *ring, uint32_t n,
                          const struct muster_plan_parameters *plan)
{
    group_ring_open_hosts(ring, n, plan, 0);
}

void group_ring_open_hosts(struct group_ring *ring, uint32_t n,
                           const struct muster_plan_parameters *plan, uint32_t per_host)
{
    struct muster_member members[GROUP_RING_MAX];
    struct muster_view fields = {.epoch = 1, .member_count = n, .members = members};

    memset(ring, 0, sizeof(*ring));
    open_ring = ring;
    test_env_open(&ring->test);
    assert_int_equal(muster_net_system_open(&ring->test.env, &ring->test.env.net), MUSTER_OK);
    ring->plan = *plan;
    ring->has_boards = group_ring_has_boards;
    sim_board_world_init(&ring->boards, &ring->test.env);
    ring->per_host = per_host;
    for (uint32_t i = 0; i < n; i++)
        members[group_ring_add(ring)] = ring->members[i].self;
    snprintf(fields.job, sizeof(fields.job), "test");
    fields.plan = ring->plan;
    assert_int_equal(muster_view_new(ring->test.env.mem, &fields, &ring->view), MUSTER_OK);
    group_ring_reopen(ring);
}

void group_ring_reopen(struct group_ring *ring)
{
    for (uint32_t i = 0; i < ring->view->member_count; i++)
        if (ring->members[i].group == NULL)
            ring->members[i].group = open_group(&ring->members[i], ring->view);
}

void group_ring_turn(struct group_ring *ring, unsigned turns)
{
    test_env_turn(&ring->test.env, turns);
}

static bool are_links_ready(void *data)
{
    const struct group_ring *ring = data;

    for (uint32_t i = 0; i < ring->count; i++) {
        const struct muster_wire *wire = ring->members[i].wire;

        for (uint32_t rank = 0; wire != NULL && rank < wire->member_count; rank++)
            if (wire->members[rank] != NULL && !muster_wire_is_linked(wire->members[rank]))
                return false;
    }
    return true;
}

void group_ring_wait_for_links(struct group_ring *ring)
{
    test_env_run_until(&ring->test.env, are_links_ready, ring);
}

static void close_member(struct group_ring_member *member)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "the member is dead"};

    if (member->group != NULL) {
        muster_group_abort_all(member->group, &why);
        muster_group_close(member->group);
    }
    member->group = NULL;
    for (size_t i = 0; i < sizeof(member->accepted) / sizeof(member->accepted[0]); i++) {
        if (member->accepted[i] != NULL)
            muster_peer_link_close(member->accepted[i]);
        member->accepted[i] = NULL;
    }
    muster_wire_close(member->wire);
    member->wire = NULL;
}

bool group_ring_is_living(const struct group_ring *ring, uint32_t index)
{
    return !ring->members[index].is_dead && ring->members[index].group != NULL;
}

void group_ring_kill(struct group_ring *ring, uint32_t index)
{
    if (ring->members[index].board != NULL)
        sim_board_kill(&ring->boards, &ring->members[index].self.incarnation);
    ring->members[index].is_dead = true;
    if (ring->members[index].wire != NULL)
        close_member(&ring->members[index]);
}

void group_ring_close(struct group_ring *ring)
{
    open_ring = NULL;
    for (uint32_t i = 0; i < ring->count; i++) {
        if (ring->members[i].wire != NULL)
            close_member(&ring->members[i]);
        if (ring->members[i].listener != NULL)
            muster_listener_close(ring->members[i].listener, NULL);
    }
    muster_view_unref(ring->view);
    group_ring_turn(ring, 6);
    for (uint32_t i = 0; i < ring->count; i++)
        muster_board_close(ring->members[i].board);
    muster_net_system_close(ring->test.env.net);
    test_env_close(&ring->test);
}

int group_ring_tear_down(void **state)
{
    (void)state;
    if (open_ring != NULL)
        group_ring_close(open_ring);
    return 0;
}

int group_ring_set_boards(void **state)
{
    (void)state;
    group_ring_has_boards = true;
    return 0;
}

int group_ring_tear_down_boards(void **state)
{
    group_ring_has_boards = false;
    return group_ring_tear_down(state);
}

/* --- Changes --- */

void group_ring_freeze(struct group_ring *ring)
{
    stop_others(ring);
}

static bool is_voter(const struct group_ring_member *member)
{
    return !member->is_dead && member->group != NULL;
}

static void vote_leave(struct muster_vote *vote, const struct group_ring_member *member)
{
    vote->is_leaving = vote->is_done = true;
    vote->done_step = vote->progress->committed_step;
    if (member->counts_calls)
        vote->done_calls = muster_group_count_called(member->group, vote->done_step) + 1;
}

static struct muster_view *ring_decide(struct group_ring *ring, uint32_t joiner)
{
    struct muster_progress progress[GROUP_RING_MAX];
    struct muster_vote votes[GROUP_RING_MAX];
    struct muster_decide_input input = {
        .mem = ring->test.env.mem, .view = ring->view, .votes = votes, .reason = "a member died"};
    struct muster_view *next = NULL;

    memset(votes, 0, sizeof(votes));
    for (uint32_t i = 0; i < ring->count; i++) {
        if (!is_voter(&ring->members[i]))
            continue;
        assert_int_equal(muster_group_freeze(ring->members[i].group, &progress[input.vote_count]),
                         MUSTER_OK);
        votes[input.vote_count].incarnation = ring->members[i].self.incarnation;
        votes[input.vote_count].progress = &progress[input.vote_count];
        if (ring->members[i].is_leaving)
            vote_leave(&votes[input.vote_count], &ring->members[i]);
        input.vote_count++;
    }
    if (joiner != UINT32_MAX) {
        input.joiners = &ring->members[joiner].self;
        input.joiner_count = 1;
    }
    assert_int_equal(muster_view_decide(&input, &next), MUSTER_OK);
    for (uint32_t i = 0; i < next->verdict_count; i++)
        ring->pieced_count += next->verdicts[i].source_count > 1;
    for (size_t i = 0; i < input.vote_count; i++)
        muster_progress_fini(&progress[i]);
    return next;
}

void group_ring_decide(struct group_ring *ring, uint32_t joiner)
{
    struct muster_view *next = ring_decide(ring, joiner);

    muster_view_unref(ring->view);
    ring->view = next;
}

void group_ring_follow(struct group_ring *ring, uint32_t index)
{
    struct group_ring_member *member = &ring->members[index];
    struct muster_group *group = open_group(member, ring->view);

    if (member->group != NULL) {
        muster_group_hand_over(member->group, group);
        muster_group_close(member->group);
    }
    member->group = group;
}

void group_ring_change(struct group_ring *ring, uint32_t joiner)
{
    group_ring_decide(ring, joiner);
    for (uint32_t i = 0; i < ring->count; i++)
        if (is_voter(&ring->members[i]) || i == joiner)
            group_ring_follow(ring, i);
}
