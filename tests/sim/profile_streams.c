/* Profile "streams": processes send patterns to each other over streams; no byte is lost, added or
 * moved. */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/faults.h"
#include "tests/sim/profile.h"

#define NODES_MAX       5
#define PORT            4000
#define CHUNK_BYTES_MAX 6000
#define TALKS_MAX       24
#define RUN_NS          (3 * MUSTER_NS_PER_S)
#define HEAL_NS         (20 * MUSTER_NS_PER_S)
#define STEP_NS         (20 * MUSTER_NS_PER_MS)

struct scene;

/* One process. */
struct talker {
    struct scene *scene;
    struct muster_env *env;
    struct muster_listener *listener;
    struct muster_timer timer;
    struct muster_list talks;
    uint32_t talk_count;
    bool is_closing;
};

/* One side of one connection. The key of a connection is its client's hello; each direction has its
 * own pattern. */
struct talk {
    struct talker *talker;
    struct muster_list link;
    struct muster_connect connect;
    struct muster_stream *stream;
    struct muster_stream_write hello_write, write;
    struct muster_stream_read read;
    struct iovec iov[2];
    uint64_t key;
    bool is_client, has_key, is_writing, is_saying, is_closing;
    uint64_t sent, received;
    uint8_t out[CHUNK_BYTES_MAX], in[CHUNK_BYTES_MAX];
};

struct scene {
    struct sim_world *world;
    struct sim_host *hosts[NODES_MAX];
    struct sim_node *nodes[NODES_MAX];
    uint32_t node_count;
    uint64_t next_key;
    uint64_t bytes_checked;
    uint64_t bytes_wanted;
};

static uint8_t pattern_byte(uint64_t key, bool from_client, uint64_t offset)
{
    uint64_t mixed = (key * 2 + from_client) * UINT64_C(0x9E3779B97F4A7C15) + offset;

    return (uint8_t)(mixed * UINT64_C(0xBF58476D1CE4E5B9) >> 56);
}

static uint64_t talker_draw(struct talker *talker, uint64_t bound)
{
    return muster_rng_below(talker->env->rng, bound);
}

static void talk_free(struct talk *talk)
{
    muster_list_remove(&talk->link);
    talk->talker->talk_count--;
    muster_mem_free(talk->talker->env->mem, talk);
}

static void talk_on_closed(struct muster_stream *stream)
{
    talk_free(stream->data);
}

static void talk_close(struct talk *talk)
{
    if (talk->is_closing)
        return;
    talk->is_closing = true;
    if (talk->stream == NULL) {
        muster_connect_cancel(&talk->connect);
        return;
    }
    muster_stream_close(talk->stream, talk_on_closed);
}

/* Sending. */

static void on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    struct talk *talk = write->data;

    if (write == &talk->hello_write) {
        talk->is_saying = false;
    } else {
        talk->is_writing = false;
        talk->sent += write->bytes_done;
    }
    if (rc != MUSTER_OK)
        talk_close(talk);
}

static void say_something(struct talk *talk)
{
    size_t count =
        1 + (size_t)talker_draw(talk->talker, UINT64_C(1) << talker_draw(talk->talker, 13));
    size_t cut, i;

    if (talk->is_writing || talk->is_closing || talk->stream == NULL || !talk->has_key)
        return;
    count = count > CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX : count;
    for (i = 0; i < count; i++)
        talk->out[i] = pattern_byte(talk->key, talk->is_client, talk->sent + i);
    cut = (size_t)talker_draw(talk->talker, count + 1);
    talk->iov[0] = (struct iovec){.iov_base = talk->out, .iov_len = cut};
    talk->iov[1] = (struct iovec){.iov_base = talk->out + cut, .iov_len = count - cut};
    talk->write.data = talk;
    talk->is_writing =
        muster_stream_submit(&talk->write, talk->stream, talk->iov, 2, on_write) == MUSTER_OK;
}

/* Receiving. */

static void start_read(struct talk *talk);

static void check_bytes(struct talk *talk, size_t count)
{
    struct scene *scene = talk->talker->scene;
    size_t i;

    for (i = 0; i < count; i++)
        if (talk->in[i] != pattern_byte(talk->key, !talk->is_client, talk->received + i)) {
            sim_fail(scene->world, "stream %" PRIu64 ": byte %" PRIu64 " is wrong", talk->key,
                     talk->received + i);
            return;
        }
    talk->received += count;
    scene->bytes_checked += count;
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct talk *talk = read->data;

    if (!talk->has_key && read->bytes_done == sizeof(talk->key)) {
        memcpy(&talk->key, talk->in, sizeof(talk->key));
        talk->has_key = true;
    } else if (talk->has_key) {
        check_bytes(talk, read->bytes_done);
    }
    if (rc != MUSTER_OK)
        talk_close(talk);
    else
        start_read(talk);
}

static void start_read(struct talk *talk)
{
    size_t bytes_max = talk->has_key ? 1 + (size_t)talker_draw(talk->talker, CHUNK_BYTES_MAX) : 8;
    size_t bytes_min = talk->has_key ? 1 + (size_t)talker_draw(talk->talker, bytes_max) : 8;

    talk->read.data = talk;
    if (!talk->is_closing && muster_stream_receive_into(&talk->read, talk->stream, talk->in,
                                                        bytes_min, bytes_max, on_read) != MUSTER_OK)
        sim_fail(talk->talker->scene->world, "a read was refused");
}

/* Talks begin. */

static struct talk *talk_new(struct talker *talker)
{
    struct talk *talk = muster_mem_alloc_zero(talker->env->mem, 1, sizeof(*talk));

    talk->talker = talker;
    muster_list_append(&talker->talks, &talk->link);
    talker->talk_count++;
    return talk;
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct talk *talk = talk_new(listener->data);

    talk->stream = stream;
    stream->data = talk;
    start_read(talk);
}

static void on_connect(struct muster_connect *connect, enum muster_rc rc)
{
    struct talk *talk = connect->data;

    if (rc != MUSTER_OK) {
        talk_free(talk);
        return;
    }
    talk->stream = connect->stream;
    talk->stream->data = talk;
    if (talk->is_closing) {
        muster_stream_close(talk->stream, talk_on_closed);
        return;
    }
    talk->iov[0] = (struct iovec){.iov_base = &talk->key, .iov_len = sizeof(talk->key)};
    talk->hello_write.data = talk;
    talk->is_saying =
        muster_stream_submit(&talk->hello_write, talk->stream, talk->iov, 1, on_write) == MUSTER_OK;
    start_read(talk);
}

static void begin_talk(struct talker *talker)
{
    struct scene *scene = talker->scene;
    struct sim_host *host = scene->hosts[talker_draw(talker, scene->node_count)];
    struct muster_address address = sim_host_address(host, PORT);
    struct talk *talk;

    if (talker->talk_count >= TALKS_MAX)
        return;
    talk = talk_new(talker);
    talk->is_client = talk->has_key = true;
    talk->key = ++scene->next_key;
    talk->connect.data = talk;
    if (muster_connect_start(&talk->connect, talker->env->net, &address, NULL,
                             muster_loop_after_ns(talker->env->loop, MUSTER_NS_PER_S),
                             on_connect) != MUSTER_OK)
        sim_fail(scene->world, "a connect was refused");
}

static void on_act(struct muster_timer *timer)
{
    struct talker *talker = timer->data;
    struct muster_list *link, *next;

    if (talker->is_closing)
        return;
    if (talker_draw(talker, 4) == 0 || talker->talk_count == 0)
        begin_talk(talker);
    for (link = talker->talks.next; link != &talker->talks; link = next) {
        struct talk *talk = MUSTER_CONTAINER_OF(link, struct talk, link);

        next = link->next;
        if (!talk->is_saying && talker_draw(talker, 3) == 0)
            say_something(talk);
        if (talker_draw(talker, 40) == 0)
            talk_close(talk);
        else if (talk->stream != NULL && !talk->is_closing && talker_draw(talker, 40) == 0)
            muster_stream_shutdown(talk->stream);
    }
    muster_timer_start(timer, talker->env->loop,
                       muster_loop_after_ns(talker->env->loop, 1 + talker_draw(talker, STEP_NS)));
}

static void start_talker(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    struct talker *talker = muster_mem_alloc_zero(env->mem, 1, sizeof(*talker));
    struct muster_address address = sim_host_address(sim_node_host(node), PORT);

    sim_node_set_program(node, talker);
    talker->scene = scene;
    talker->env = env;
    muster_list_init(&talker->talks);
    if (muster_listener_open(env->net, &address, NULL, on_accept, talker, &talker->listener,
                             NULL) != MUSTER_OK)
        sim_fail(scene->world, "the port is not free after a death");
    muster_timer_init(&talker->timer, on_act, talker);
    muster_timer_start(&talker->timer, env->loop, muster_loop_now_ns(env->loop));
}

/* Ending in order: everything is closed, then nothing may be left. */

static void on_listener_closed(struct muster_listener *listener)
{
    struct talker *talker = listener->data;

    talker->listener = NULL;
}

static void stop_talker(struct sim_node *node)
{
    struct talker *talker = sim_node_program(node);
    struct muster_list *link;

    if (talker == NULL)
        return;
    sim_enter(node);
    talker->is_closing = true;
    muster_timer_stop(&talker->timer);
    muster_listener_close(talker->listener, on_listener_closed);
    for (link = talker->talks.next; link != &talker->talks; link = link->next)
        talk_close(MUSTER_CONTAINER_OF(link, struct talk, link));
    sim_leave(node);
}

static void exit_talker(struct sim_node *node)
{
    struct talker *talker = sim_node_program(node);

    if (talker == NULL)
        return;
    sim_enter(node);
    muster_mem_free(talker->env->mem, talker);
    sim_leave(node);
    sim_exit(node);
}

static bool is_quiet(void *data)
{
    const struct scene *scene = data;
    uint32_t i;

    for (i = 0; i < scene->node_count; i++) {
        const struct talker *talker = sim_node_program(scene->nodes[i]);

        if (talker != NULL && (talker->talk_count > 0 || talker->listener != NULL))
            return false;
    }
    return true;
}

static bool has_progressed(void *data)
{
    const struct scene *scene = data;

    return scene->bytes_checked >= scene->bytes_wanted;
}

static void scene_revive(struct scene *scene)
{
    uint32_t i;

    for (i = 0; i < scene->node_count; i++)
        if (!sim_node_is_alive(scene->nodes[i]) && sim_host_is_up(scene->hosts[i]))
            scene->nodes[i] = sim_node_start(
                scene->world, &(struct sim_node_options){.name = sim_host_name(scene->hosts[i]),
                                                         .host = scene->hosts[i],
                                                         .start = start_talker,
                                                         .data = scene});
}

static void scene_finish(struct scene *scene)
{
    uint32_t i;

    scene->bytes_wanted = scene->bytes_checked + 100000;
    if (!sim_run_until(scene->world, has_progressed, scene, HEAL_NS))
        sim_fail(scene->world, "no progress after healing");
    for (i = 0; i < scene->node_count; i++)
        stop_talker(scene->nodes[i]);
    if (!sim_run_until(scene->world, is_quiet, scene, HEAL_NS))
        sim_fail(scene->world, "closing does not end");
    for (i = 0; i < scene->node_count && sim_failure(scene->world) == NULL; i++)
        exit_talker(scene->nodes[i]);
}

void sim_profile_streams(struct sim_run *run, const struct sim_profile *profile)
{
    struct scene scene = {.world = sim_run_open(run)};
    struct sim_faults_options options = {
        .allowed = SIM_FAULTS_ALL,
        .interval_min_ns = 5 * MUSTER_NS_PER_MS,
        .interval_max_ns = 200 * MUSTER_NS_PER_MS,
        .duration_max_ns = MUSTER_NS_PER_S,
        .count_max = 60,
    };
    struct sim_faults *faults;
    uint64_t end_ns = sim_world_now_ns(scene.world) + RUN_NS;
    uint32_t i;

    (void)profile;
    scene.node_count = 2 + (uint32_t)muster_rng_below(sim_world_rng(scene.world), NODES_MAX - 1);
    for (i = 0; i < scene.node_count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "talker%" PRIu32, i);
        scene.hosts[i] = sim_host_add(scene.world, name);
        scene.nodes[i] = sim_node_start(
            scene.world,
            &(struct sim_node_options){
                .name = name, .host = scene.hosts[i], .start = start_talker, .data = &scene});
    }
    faults = sim_faults_start(scene.world, &options);
    while (sim_world_now_ns(scene.world) < end_ns &&
           sim_run_for(scene.world, 50 * MUSTER_NS_PER_MS))
        scene_revive(&scene);
    sim_faults_heal(faults);
    scene_revive(&scene);
    scene_finish(&scene);
    sim_run_close(run, scene.world, sim_faults_count(faults));
    sim_faults_free(faults);
}
