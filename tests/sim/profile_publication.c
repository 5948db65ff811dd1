/* Profile "publication": publishers make versions, readers fetch them from each other, and everything dies. Each
 * version is stamped: all of its elements follow from the stamp, so that a mixture shows. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <muster/publication.h>

#include "tests/sim/faults.h"
#include "tests/sim/profile.h"
#include "tests/sim/registry_stage.h"
#include "tests/sim/sim_internal.h"

#define NAME           "weights"
#define READERS_MAX    6u
#define VERSIONS_MAX   4096u
#define STAMPS_MAX     4096u
#define COUNT_MAX      250000u /* elements of a version: up to four chunks */
#define PORT           7400
#define PUT_PAUSE_NS   (100 * MUSTER_NS_PER_MS)
#define HOLD_NS        (300 * MUSTER_NS_PER_MS)
#define PUT_TIMEOUT_NS (10 * MUSTER_NS_PER_S)
#define RUN_NS         (8 * MUSTER_NS_PER_S)
#define HEAL_NS        (120 * MUSTER_NS_PER_S)
#define RESTART_NS     (500 * MUSTER_NS_PER_MS)
/* A death costs a reader one silence, one attempt to connect and one question. */
#define DELAY_MAX_NS (12 * MUSTER_NS_PER_S)

struct scene;

struct publisher {
    struct scene *scene;
    struct muster_env *env;
    struct muster_publication *publication;
    struct muster_publication_op op;
    struct muster_named_tensor tensor;
    struct muster_timer timer;
    uint32_t *elements;
    uint32_t stamp;
    bool is_open, is_busy, is_fenced;
};

/* A place for a reader: one process after the other. */
struct seat {
    struct scene *scene;
    struct sim_host *host;
    struct sim_node *node;
    uint32_t number, lives;
    uint64_t restart_ns; /* 0: it runs */
};

struct reader {
    struct seat *seat;
    struct muster_env *env;
    struct muster_reader *reader;
    const struct muster_version *used;
    uint32_t used_stamp;
    uint64_t shown; /* the newest number that it has shown */
    struct muster_timer timer;
    bool is_closed;
};

struct scene {
    struct sim_world *world;
    struct registry_stage *registry;
    struct sim_host *registry_host, *publisher_host;
    struct sim_node *publisher_node, *rival_node; /* the newest, and the one before */
    uint32_t publisher_lives;
    uint32_t publisher_ports; /* taken: two processes may begin in one moment */
    struct seat seats[READERS_MAX];
    uint32_t seat_count, count; /* elements */
    uint32_t stamp_count;
    uint32_t committed[VERSIONS_MAX]; /* the stamp of a version whose put ended well */
    uint32_t shown[VERSIONS_MAX];     /* the stamp that readers have shown */
    uint64_t newest;                  /* version of which a put was told that it is there */
    uint32_t wait_readers;
    uint32_t hunger; /* one in so many allocations fails; 0: none does */
    bool is_ending, is_closed;
};

static uint64_t scene_draw(struct scene *scene, uint64_t bound)
{
    return muster_rng_below(sim_world_rng(scene->world), bound);
}

/* Most elements are those of the version before: one in eight changes with each stamp. */
static uint32_t element_of(uint32_t stamp, uint32_t i)
{
    return i % 8 == stamp % 8 || i == 0 ? stamp * 2654435761u + i : stamp / 8 * 97 + i;
}

static void version_check(struct scene *scene, const struct muster_version *version, uint32_t stamp,
                          const char *who)
{
    const uint32_t *elements = version->tensors[0].data;

    for (uint32_t i = 0; i < scene->count; i++) {
        if (elements[i] != element_of(stamp, i)) {
            sim_fail(scene->world, "%s: element %" PRIu32 " of version %" PRIu64 " is torn", who, i,
                     version->number);
            return;
        }
    }
}

static void stamp_agree(struct scene *scene, uint64_t version, uint32_t stamp, const char *who)
{
    const uint32_t known[] = {scene->committed[version], scene->shown[version]};

    for (size_t i = 0; i < 2; i++) {
        if (known[i] != 0 && known[i] != stamp)
            sim_fail(scene->world,
                     "%s: version %" PRIu64 " has stamp %" PRIu32 ", and elsewhere %" PRIu32, who,
                     version, stamp, known[i]);
    }
}

/* Memory is short from the moment a process has opened until the end of the play. */
static bool scene_refuses(void *data)
{
    struct scene *scene = data;

    return !scene->is_ending && scene->hunger != 0 && scene_draw(scene, scene->hunger) == 0;
}

/* --- Publishers --- */

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    struct publisher *publisher = op->data;
    struct scene *scene = publisher->scene;

    publisher->is_busy = false;
    sim_note(scene->world, "put", op->version, (uint64_t)rc, publisher->stamp);
    if (op->version >= VERSIONS_MAX) {
        sim_fail(scene->world, "version %" PRIu64 " is too high", op->version);
    } else if (op->version != 0) {
        stamp_agree(scene, op->version, publisher->stamp, "publisher");
        scene->committed[op->version] = publisher->stamp;
        scene->newest = op->version > scene->newest ? op->version : scene->newest;
    } else if (rc == MUSTER_OK) {
        sim_fail(scene->world, "a put ended well without a version");
    }
    publisher->is_fenced |= rc == MUSTER_ABORTED;
    if (rc == MUSTER_ABORTED && scene->publisher_lives < 2)
        sim_fail(scene->world, "the only publisher is fenced");
    muster_timer_start(&publisher->timer, publisher->env->loop,
                       muster_loop_after_ns(publisher->env->loop,
                                            muster_rng_below(publisher->env->rng, PUT_PAUSE_NS)));
}

static void publisher_put(struct publisher *publisher)
{
    struct scene *scene = publisher->scene;
    const struct muster_publication_put put = {
        .tensors = &publisher->tensor,
        .count = 1,
        .wait_readers = scene->wait_readers,
        .deadline_ns = muster_loop_after_ns(publisher->env->loop, PUT_TIMEOUT_NS)};

    if (publisher->is_busy || publisher->is_fenced || !publisher->is_open ||
        scene->stamp_count + 1 >= STAMPS_MAX)
        return;
    publisher->stamp = ++scene->stamp_count;
    for (uint32_t i = 0; i < scene->count; i++)
        publisher->elements[i] = element_of(publisher->stamp, i);
    publisher->op.data = publisher;
    publisher->tensor = (struct muster_named_tensor){
        .name = "w", .dtype = MUSTER_U32, .count = scene->count, .data = publisher->elements};
    publisher->is_busy = muster_publication_put_start(&publisher->op, publisher->publication, &put,
                                                      on_put) == MUSTER_OK;
}

static void on_put_timer(struct muster_timer *timer)
{
    struct publisher *publisher = timer->data;

    if (publisher->scene->is_ending)
        return;
    publisher_put(publisher);
    if (!publisher->is_busy && !publisher->is_fenced) /* there was no memory for it */
        muster_timer_start(timer, publisher->env->loop,
                           muster_loop_after_ns(publisher->env->loop, PUT_PAUSE_NS));
}

static void on_publication(struct muster_publication *publication, enum muster_rc rc)
{
    struct publisher *publisher = muster_publication_data(publication);

    publisher->is_open = rc == MUSTER_OK;
    if (rc != MUSTER_OK)
        sim_fail(publisher->scene->world, "the publication does not open: %s",
                 muster_publication_error(publication)->text);
    on_put_timer(&publisher->timer);
}

static void publisher_main(struct sim_node *node, struct muster_env *env, void *data)
{
    struct publisher *publisher = sim_mem_alloc_surely(env->mem, sizeof(*publisher));
    struct scene *scene = data;
    struct muster_address listen =
        sim_host_address(scene->publisher_host, (uint16_t)(PORT + ++scene->publisher_ports));
    const struct muster_publication_options options = {.name = NAME,
                                                       .job = REGISTRY_STAGE_JOB,
                                                       .registry = REGISTRY_STAGE_ENDPOINT,
                                                       .listen = &listen,
                                                       .history = 1 + scene->publisher_lives % 3,
                                                       .deadline_ns = UINT64_MAX,
                                                       .data = publisher};
    struct muster_error error;

    memset(publisher, 0, sizeof(*publisher));
    publisher->scene = scene;
    publisher->env = env;
    publisher->elements = sim_mem_alloc_surely(env->mem, scene->count * sizeof(uint32_t));
    muster_timer_init(&publisher->timer, on_put_timer, publisher);
    sim_node_set_program(node, publisher);
    if (muster_publication_open(env, &options, on_publication, &publisher->publication, &error) !=
        MUSTER_OK)
        sim_fail(scene->world, "the publisher does not open: %s", error.text);
    sim_refuse(node, scene_refuses, scene);
}

static void publisher_start(struct scene *scene)
{
    char name[32];

    snprintf(name, sizeof(name), "publisher.%" PRIu32, scene->publisher_lives++);
    scene->rival_node = scene->publisher_node;
    scene->publisher_node = sim_node_start(
        scene->world,
        &(struct sim_node_options){
            .name = name, .host = scene->publisher_host, .start = publisher_main, .data = scene});
}

/* --- Readers --- */

static void reader_release(struct reader *reader)
{
    if (reader->used == NULL)
        return;
    version_check(reader->seat->scene, reader->used, reader->used_stamp, "a version in use");
    muster_reader_release(reader->reader, reader->used);
    reader->used = NULL;
}

static void on_hold_over(struct muster_timer *timer)
{
    reader_release(timer->data);
}

static void on_version(struct muster_reader *muster_reader)
{
    struct reader *reader = muster_reader_data(muster_reader);
    struct scene *scene = reader->seat->scene;
    const struct muster_version *version = muster_reader_current(muster_reader);
    uint32_t stamp;

    sim_note(scene->world, "shown", reader->seat->number, version->number, 0);
    if (version->number <= reader->shown || version->number >= VERSIONS_MAX)
        sim_fail(scene->world, "reader %" PRIu32 " shows version %" PRIu64 " after %" PRIu64,
                 reader->seat->number, version->number, reader->shown);
    if (version->count != 1 || version->tensors[0].count != scene->count)
        sim_fail(scene->world, "version %" PRIu64 " has other tensors", version->number);
    if (sim_failure(scene->world) != NULL)
        return;
    stamp = ((const uint32_t *)version->tensors[0].data)[0] * 244002641u; /* the inverse */
    if (stamp == 0 || stamp > scene->stamp_count)
        sim_fail(scene->world, "version %" PRIu64 " has a stamp that nobody made", version->number);
    version_check(scene, version, stamp, "a new version");
    stamp_agree(scene, version->number, stamp, "reader");
    scene->shown[version->number] = stamp;
    reader->shown = version->number;
    if (reader->used != NULL || scene->is_ending || muster_rng_below(reader->env->rng, 3) != 0) {
        muster_reader_release(muster_reader, version);
        return;
    }
    reader->used = version;
    reader->used_stamp = stamp;
    muster_timer_start(
        &reader->timer, reader->env->loop,
        muster_loop_after_ns(reader->env->loop, muster_rng_below(reader->env->rng, HOLD_NS)));
}

static void reader_main(struct sim_node *node, struct muster_env *env, void *data)
{
    struct reader *reader = sim_mem_alloc_surely(env->mem, sizeof(*reader));
    struct seat *seat = data;
    struct muster_address listen = sim_host_address(
        seat->host, (uint16_t)(PORT + 1000 + seat->number * 500 + seat->lives++ % 500));
    const struct muster_reader_options options = {.name = NAME,
                                                  .job = REGISTRY_STAGE_JOB,
                                                  .registry = REGISTRY_STAGE_ENDPOINT,
                                                  .listen = seat->number == 1 ? NULL : &listen,
                                                  .data = reader};
    struct muster_error error;

    memset(reader, 0, sizeof(*reader));
    reader->seat = seat;
    reader->env = env;
    muster_timer_init(&reader->timer, on_hold_over, reader);
    sim_node_set_program(node, reader);
    if (muster_reader_open(env, &options, on_version, &reader->reader, &error) != MUSTER_OK)
        sim_fail(seat->scene->world, "a reader does not open: %s", error.text);
    sim_refuse(node, scene_refuses, seat->scene);
}

static void reader_start(struct seat *seat)
{
    char name[32];

    snprintf(name, sizeof(name), "reader%" PRIu32 ".%" PRIu32, seat->number, seat->lives);
    seat->restart_ns = 0;
    seat->node =
        sim_node_start(seat->scene->world,
                       &(struct sim_node_options){
                           .name = name, .host = seat->host, .start = reader_main, .data = seat});
}

/* --- The play --- */

static void scene_revive(struct scene *scene, bool is_at_once)
{
    uint64_t now_ns = sim_world_now_ns(scene->world);

    if (!sim_node_is_alive(scene->publisher_node) && sim_host_is_up(scene->publisher_host))
        publisher_start(scene);
    for (uint32_t i = 0; i < scene->seat_count; i++) {
        struct seat *seat = &scene->seats[i];

        if (sim_node_is_alive(seat->node) || !sim_host_is_up(seat->host))
            continue;
        if (seat->restart_ns == 0)
            seat->restart_ns = now_ns + scene_draw(scene, RESTART_NS);
        if (is_at_once || now_ns >= seat->restart_ns)
            reader_start(seat);
    }
}

static void scene_play(struct scene *scene)
{
    uint64_t end_ns = sim_world_now_ns(scene->world) + RUN_NS;

    while (sim_world_now_ns(scene->world) < end_ns) {
        uint64_t steps = 1 + scene_draw(scene, UINT64_C(1) << scene_draw(scene, 11));

        while (steps-- > 0)
            if (!sim_step(scene->world))
                return;
        scene_revive(scene, false);
        if (scene_draw(scene, 400) == 0 && scene->publisher_lives < 200)
            publisher_start(scene); /* the other one lives on, and must be fenced */
    }
}

static struct publisher *publisher_of(const struct scene *scene)
{
    return sim_node_is_alive(scene->publisher_node) ? sim_node_program(scene->publisher_node)
                                                    : NULL;
}

static bool is_idle(void *data)
{
    const struct publisher *publisher = publisher_of(data);

    return publisher != NULL && publisher->is_open && !publisher->is_busy;
}

/* All readers that run have the newest version. */
static bool is_everywhere(void *data)
{
    const struct scene *scene = data;

    for (uint32_t i = 0; i < scene->seat_count; i++) {
        const struct sim_node *node = scene->seats[i].node;
        const struct reader *reader;

        if (!sim_node_is_alive(node) || sim_node_is_paused(node))
            continue;
        reader = sim_node_program(node);
        if (reader == NULL || reader->shown < scene->newest)
            return false;
    }
    return is_idle(data);
}

static void scene_put(struct scene *scene)
{
    struct publisher *publisher = publisher_of(scene);

    sim_enter(scene->publisher_node);
    publisher_put(publisher);
    sim_leave(scene->publisher_node);
    if (!publisher->is_busy)
        sim_fail(scene->world, "the last publisher cannot put");
}

/* All is well but for one reader, which dies or stops in the middle of a version: the others have it
 * soon. */
static void scene_lose_one(struct scene *scene)
{
    struct seat *victim = &scene->seats[scene_draw(scene, scene->seat_count)];
    uint64_t before = scene->newest;

    scene->hunger = scene_draw(scene, 3) == 0 ? 50 + (uint32_t)scene_draw(scene, 1000) : 0;
    scene->wait_readers = 0;
    scene_put(scene);
    if (!sim_run_for(scene->world, scene_draw(scene, UINT64_C(1) << scene_draw(scene, 26))))
        return;
    if (scene->seat_count > 1 && scene_draw(scene, 2) == 0)
        sim_kill(victim->node);
    else if (scene->seat_count > 1)
        sim_pause(victim->node);
    if (!sim_run_until(scene->world, is_idle, scene, HEAL_NS) || scene->newest <= before)
        sim_fail(scene->world, "a put does not end though all is well");
    else if (!sim_run_until(scene->world, is_everywhere, scene, DELAY_MAX_NS))
        sim_fail(scene->world, "the death of one reader delays others");
    if (sim_node_is_alive(victim->node) && sim_node_is_paused(victim->node))
        sim_resume(victim->node);
}

static void on_reader_closed(struct muster_reader *muster_reader)
{
    struct reader *reader = muster_reader_data(muster_reader);

    reader->is_closed = true;
}

static void on_publication_closed(struct muster_publication *publication, enum muster_rc rc)
{
    struct publisher *publisher = muster_publication_data(publication);

    (void)rc;
    publisher->scene->is_closed = true;
}

static bool is_closed(void *data)
{
    const struct scene *scene = data;

    for (uint32_t i = 0; i < scene->seat_count; i++) {
        const struct reader *reader = sim_node_program(scene->seats[i].node);

        if (reader != NULL && !reader->is_closed)
            return false;
    }
    return scene->is_closed;
}

/* Ending in order: nothing may be left. */
static void scene_exit(struct scene *scene)
{
    struct publisher *publisher = publisher_of(scene);

    for (uint32_t i = 0; i < scene->seat_count; i++) {
        struct reader *reader = sim_node_program(scene->seats[i].node);

        if (reader == NULL)
            continue;
        sim_enter(scene->seats[i].node);
        reader_release(reader);
        muster_timer_stop(&reader->timer);
        muster_reader_close(reader->reader, on_reader_closed);
        sim_leave(scene->seats[i].node);
    }
    sim_enter(scene->publisher_node);
    muster_timer_stop(&publisher->timer);
    muster_publication_close(publisher->publication, on_publication_closed);
    sim_leave(scene->publisher_node);
    if (!sim_run_until(scene->world, is_closed, scene, HEAL_NS) ||
        !sim_run_for(scene->world, MUSTER_NS_PER_S)) {
        sim_fail(scene->world, "readers and publisher do not close");
        return;
    }
    for (uint32_t i = 0; i < scene->seat_count; i++) {
        struct sim_node *node = scene->seats[i].node;

        if (sim_node_program(node) == NULL)
            continue;
        sim_enter(node);
        muster_mem_free(sim_node_env(node)->mem, sim_node_program(node));
        sim_leave(node);
        sim_exit(node);
    }
    sim_enter(scene->publisher_node);
    muster_mem_free(publisher->env->mem, publisher->elements);
    muster_mem_free(publisher->env->mem, publisher);
    sim_leave(scene->publisher_node);
    sim_exit(scene->publisher_node);
}

static void scene_finish(struct scene *scene)
{
    scene->is_ending = true;
    scene_revive(scene, true);
    if (!sim_run_until(scene->world, is_idle, scene, HEAL_NS))
        sim_fail(scene->world, "the publisher does not open, or its put does not end");
    if (sim_failure(scene->world) == NULL && publisher_of(scene)->is_fenced) {
        /* An older process that stood still in the middle of its opening has opened later. All have now. */
        publisher_start(scene);
        if (!sim_run_until(scene->world, is_idle, scene, HEAL_NS))
            sim_fail(scene->world, "the last publisher does not open");
    }
    if (sim_failure(scene->world) == NULL && publisher_of(scene)->is_fenced)
        sim_fail(scene->world, "the newest publisher is fenced");
    if (sim_failure(scene->world) == NULL)
        scene_put(scene);
    if (sim_failure(scene->world) == NULL &&
        !sim_run_until(scene->world, is_everywhere, scene, HEAL_NS))
        sim_fail(scene->world, "the newest version is not everywhere though all is well");
    if (sim_failure(scene->world) == NULL)
        scene_lose_one(scene);
    if (sim_failure(scene->world) == NULL)
        scene_exit(scene);
}

static void scene_open(struct scene *scene)
{
    scene->registry_host = sim_host_add(scene->world, "registry");
    scene->registry = registry_stage_open(scene->world, scene->registry_host, NULL);
    scene->publisher_host = sim_host_add(scene->world, "publisher");
    scene->count = 1 + (uint32_t)scene_draw(scene, COUNT_MAX);
    scene->wait_readers = (uint32_t)scene_draw(scene, 3);
    scene->seat_count = 1 + (uint32_t)scene_draw(scene, READERS_MAX);
    publisher_start(scene);
    for (uint32_t i = 0; i < scene->seat_count; i++) {
        struct seat *seat = &scene->seats[i];
        char name[32];

        snprintf(name, sizeof(name), "reader%" PRIu32, i);
        seat->scene = scene;
        seat->number = i;
        seat->host = i > 0 && scene_draw(scene, 2) == 0 ? scene->seats[i - 1].host
                                                        : sim_host_add(scene->world, name);
        reader_start(seat);
    }
}

/* The registry does not forget what it has accepted, so it does not die at random. */
static bool may_hit(void *data, enum sim_fault_kind kind, struct sim_node *node)
{
    const struct scene *scene = data;

    return sim_node_host(node) != scene->registry_host || (SIM_FAULTS_DEADLY >> kind & 1u) == 0;
}

void sim_profile_publication(struct sim_run *run, const struct sim_profile *profile)
{
    struct scene *scene = sim_alloc(sizeof(*scene));
    struct sim_faults_options options = {
        .allowed = SIM_FAULTS_ALL,
        .interval_min_ns = 50 * MUSTER_NS_PER_MS,
        .interval_max_ns = 1 * MUSTER_NS_PER_S,
        .duration_max_ns = 2 * MUSTER_NS_PER_S,
        .count_max = 40,
        .may_hit = may_hit,
        .data = scene,
    };
    struct sim_faults *faults;

    (void)profile;
    scene->world = sim_run_open(run);
    scene_open(scene);
    faults = sim_faults_start(scene->world, &options);
    scene_play(scene);
    sim_faults_heal(faults);
    if (sim_failure(scene->world) == NULL)
        scene_finish(scene);
    registry_stage_close(scene->registry);
    sim_run_close(run, scene->world, sim_faults_count(faults));
    sim_faults_free(faults);
    free(scene);
}
