/* A group of fixed members: a listener, a wire, and a view of epoch 1 that everybody makes alike. Tests and small
 * programs on one host use it; without a cluster layer a member that is lost ends the operations at their deadline. */
#include <muster/static_group.h>

#include "collective/board/system.h"
#include "collective/group/group.h"
#include "collective/plan/shm_limits.h"
#include <muster/hash.h>

#include <stdio.h>
#include <string.h>

/* An accepted stream that has said nothing for so long is closed: it is not a member's. */
#define HELLO_TIMEOUT_NS (10 * MUSTER_NS_PER_S)
/* Streams whose hello is awaited: more are closed at once, so that strangers cannot take all memory. */
#define HELLOS_MAX 1024u

/* An accepted link whose hello is awaited. */
struct greeting {
    struct muster_static_group *static_group;
    struct muster_peer_link *link;
    struct muster_list node;
};

struct muster_static_group {
    struct muster_env *env;
    char job[MUSTER_JOB_NAME_BYTES];
    struct muster_listener *listener;
    struct muster_peer_hello hello;
    struct muster_wire *wire;
    struct muster_board *board; /* NULL: none */
    struct muster_group *group;
    struct muster_list greetings;
    uint32_t greeting_count;
};

/* The same on every member: nothing but (job, rank) tells static members apart. */
static struct muster_incarnation incarnation_of(const char *job, uint32_t rank)
{
    struct muster_incarnation incarnation = {.bytes = {0}};
    uint64_t hash = muster_hash64(job, strlen(job), rank);

    memcpy(incarnation.bytes, &hash, sizeof(hash));
    for (size_t i = 0; i < 4; i++)
        incarnation.bytes[8 + i] = (uint8_t)((rank + 1) >> (8 * i));
    return incarnation;
}

static void greeting_free(struct greeting *greeting)
{
    muster_list_remove(&greeting->node);
    greeting->static_group->greeting_count--;
    muster_mem_free(greeting->static_group->env->mem, greeting);
}

/* The wire takes the link, and its events with it. */
static void on_ready(struct muster_peer_link *link)
{
    struct greeting *greeting = muster_peer_link_data(link);
    struct muster_static_group *static_group = greeting->static_group;

    greeting_free(greeting);
    muster_wire_accept(static_group->wire, link);
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
    greeting_free(muster_peer_link_data(link));
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events greeting_events = {
    .on_ready = on_ready,
    .on_frame = on_frame,
    .on_payload = on_payload,
    .on_down = on_down,
};

static void greet_stream(struct muster_static_group *static_group, struct muster_stream *stream)
{
    struct muster_env *env = static_group->env;
    struct greeting *greeting = NULL;

    if (static_group->greeting_count < HELLOS_MAX)
        greeting = muster_mem_alloc_zero(env->mem, 1, sizeof(*greeting));
    if (greeting == NULL) {
        muster_stream_close(stream, NULL);
        return;
    }
    greeting->static_group = static_group;
    muster_list_append(&static_group->greetings, &greeting->node);
    static_group->greeting_count++;
    if (muster_peer_link_accept(env, stream, &static_group->hello,
                                muster_loop_after_ns(env->loop, HELLO_TIMEOUT_NS), &greeting_events,
                                greeting, &greeting->link) != MUSTER_OK)
        greeting_free(greeting);
}

/* Before join there is no hello to answer with: a member that comes early connects again. */
static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct muster_static_group *static_group = listener->data;

    if (static_group->wire == NULL)
        muster_stream_close(stream, NULL);
    else
        greet_stream(static_group, stream);
}

static enum muster_rc check_job(const char *job, struct muster_error *ret_error)
{
    if (job != NULL && job[0] != '\0' && strlen(job) < MUSTER_JOB_NAME_BYTES)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "the job of a static group needs a name of 1 to %d bytes",
                            MUSTER_JOB_NAME_BYTES - 1);
}

enum muster_rc muster_static_group_open(struct muster_env *env, const char *job,
                                        struct muster_static_group **ret_static_group,
                                        struct muster_error *ret_error)
{
    struct muster_static_group *static_group = NULL;
    struct muster_address any;
    enum muster_rc rc = muster_address_parse("127.0.0.1:0", &any, ret_error);

    if (rc == MUSTER_OK)
        rc = check_job(job, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_board_system_check_wire(env, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    static_group = muster_mem_alloc_zero(env->mem, 1, sizeof(*static_group));
    if (static_group == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    static_group->env = env;
    snprintf(static_group->job, sizeof(static_group->job), "%s", job);
    muster_list_init(&static_group->greetings);
    rc = muster_listener_open(env->net, &any, NULL, on_accept, static_group,
                              &static_group->listener, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, static_group);
        return rc;
    }
    *ret_static_group = static_group;
    return MUSTER_OK;
}

const struct muster_address *muster_static_group_address(
    const struct muster_static_group *static_group)
{
    return muster_listener_address(static_group->listener);
}

/* --- Joining --- */

static void fill_member(struct muster_member *member, const char *job, uint32_t rank,
                        const struct muster_address *address)
{
    memset(member, 0, sizeof(*member));
    member->incarnation = incarnation_of(job, rank);
    snprintf(member->task_type, sizeof(member->task_type), "worker");
    member->task_index = rank;
    member->address = *address;
    snprintf(member->host_key, sizeof(member->host_key), "static"); /* all listen on loopback */
}

static void open_board(struct muster_static_group *static_group, const struct muster_view *view,
                       uint32_t rank)
{
    const struct muster_board_options options = {.env = static_group->env,
                                                 .job = static_group->job,
                                                 .self = &view->members[rank],
                                                 .memory_bytes = MUSTER_SHM_BOARD_BYTES};

    static_group->board = muster_board_system_choose(&options);
}

static enum muster_rc make_view(struct muster_static_group *static_group,
                                const struct muster_address *addresses, uint32_t count,
                                const struct muster_plan_parameters *parameters,
                                struct muster_view **ret_view)
{
    struct muster_mem *mem = static_group->env->mem;
    struct muster_view fields = {.epoch = 1, .member_count = count, .reason = "static"};
    enum muster_rc rc;

    fields.members = muster_mem_alloc_zero(mem, count, sizeof(*fields.members));
    if (fields.members == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (uint32_t rank = 0; rank < count; rank++)
        fill_member(&fields.members[rank], static_group->job, rank, &addresses[rank]);
    if (parameters != NULL)
        fields.plan = *parameters;
    memcpy(fields.job, static_group->job, sizeof(fields.job));
    rc = muster_view_new(mem, &fields, ret_view);
    muster_mem_free(mem, fields.members);
    return rc;
}

/* Nobody heals a static group: aborts that are proposed get no verdict, so the group expires after the grace period. */
static const struct muster_group_events group_events = {.on_suspect = NULL};

enum muster_rc muster_static_group_join(struct muster_static_group *static_group, uint32_t rank,
                                        const struct muster_address *addresses, uint32_t count,
                                        const struct muster_plan_parameters *parameters)
{
    struct muster_wire_options wire_options = {.env = static_group->env};
    struct muster_group_options options = {
        .env = static_group->env, .events = &group_events, .data = static_group};
    struct muster_view *view = NULL;
    enum muster_rc rc;

    if (static_group->wire != NULL)
        return MUSTER_FAILED_PRECONDITION;
    if (rank >= count)
        return MUSTER_INVALID_ARGUMENT;
    rc = make_view(static_group, addresses, count, parameters, &view);
    if (rc != MUSTER_OK)
        return rc;
    static_group->hello.incarnation = incarnation_of(static_group->job, rank);
    memcpy(static_group->hello.job, static_group->job, sizeof(static_group->job));
    wire_options.hello = static_group->hello;
    rc = muster_wire_tcp_open(&wire_options, &static_group->wire);
    if (rc != MUSTER_OK)
        goto done;
    open_board(static_group, view, rank);
    options.board = static_group->board;
    options.view = view;
    options.self = static_group->hello.incarnation;
    options.wire = static_group->wire;
    rc = muster_group_open(&options, &static_group->group);
    if (rc != MUSTER_OK) {
        muster_wire_close(static_group->wire);
        muster_board_close(static_group->board);
        static_group->wire = NULL;
        static_group->board = NULL;
    }
done:
    muster_view_unref(view);
    return rc;
}

struct muster_group *muster_static_group_group(const struct muster_static_group *static_group)
{
    return static_group->group;
}

bool muster_static_group_is_idle(const struct muster_static_group *static_group)
{
    return static_group->group == NULL || muster_group_is_idle(static_group->group);
}

void muster_static_group_close(struct muster_static_group *static_group)
{
    const struct muster_error why = {.rc = MUSTER_CANCELLED, .text = "the group was closed"};

    if (static_group == NULL)
        return;
    muster_listener_close(static_group->listener, NULL);
    if (static_group->group != NULL) {
        muster_group_abort_all(static_group->group, &why);
        muster_group_close(static_group->group);
    }
    while (!muster_list_is_empty(&static_group->greetings)) {
        struct greeting *greeting =
            MUSTER_CONTAINER_OF(static_group->greetings.next, struct greeting, node);

        muster_peer_link_close(greeting->link);
        greeting_free(greeting);
    }
    muster_wire_close(static_group->wire);
    muster_board_close(static_group->board);
    muster_mem_free(static_group->env->mem, static_group);
}
