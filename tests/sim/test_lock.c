/* Locks in the simulated world: one holder at a time, tokens that rise, whatever dies, stands still
 * or is cut off. */
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/locks.h>
#include <muster/registry.h>
#include <muster/registry_server.h>

#include "tests/sim/world.h"

#define PORT        2379
#define TTL_S       4
#define PEOPLE      4
#define SEEDS       24
#define FAULTS      30
#define SECOND      MUSTER_NS_PER_S
#define HOLD_MAX_NS (300 * MUSTER_NS_PER_MS)

struct scene;

/* One contender for the lock, as the world knows it. */
struct person {
    struct scene *scene;
    struct sim_host *host;
    struct sim_node *node;
    uint64_t token; /* believes to hold the lock; 0: does not */
    uint64_t held_count;
};

struct scene {
    struct sim_world *world;
    struct sim_host *registry_host;
    struct sim_node *registry;
    struct muster_registry_store *store;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    struct person people[PEOPLE];
    uint64_t token_max;   /* of all holders so far */
    uint64_t guard_max;   /* of all guarded puts that were let through */
    bool can_stand_still; /* then two may believe in it, but not write */
};

/* The registry's process. */

static void run_registry(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    struct muster_registry_server_options options = {.listen = scene->endpoint};
    struct muster_registry_server *server = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)node;
    if (muster_registry_server_open(env, scene->store, &options, &server, &error) != MUSTER_OK)
        sim_fail(scene->world, "the registry does not open: %s", error.text);
}

static void start_registry(struct scene *scene)
{
    scene->registry =
        sim_node_start(scene->world, &(struct sim_node_options){.name = "registry",
                                                                .host = scene->registry_host,
                                                                .start = run_registry,
                                                                .data = scene});
}

/* A process that takes the lock, writes under it, and gives it back, for ever. */

struct program {
    struct person *person;
    struct muster_env *env;
    struct muster_registry *registry;
    struct muster_session session;
    struct muster_lock lock;
    struct muster_registry_op guarded;
    struct muster_timer pace;
    bool is_writing, has_time_passed;
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static uint64_t draw_ns(struct program *program, uint64_t below_ns)
{
    return muster_loop_after_ns(program->env->loop, muster_rng_below(program->env->rng, below_ns));
}

static void open_session(struct program *program);
static void program_ask(struct program *program);

static void on_session_closed(struct muster_session *session)
{
    open_session(session->data);
}

static void on_session_lost(struct muster_session *session)
{
    muster_session_close(session, on_session_closed);
}

static void on_unlocked(struct muster_lock *lock)
{
    program_ask(lock->data);
}

static void let_go(struct program *program)
{
    if (program->is_writing || !program->has_time_passed || program->person->token == 0)
        return;
    program->person->token = 0;
    if (muster_lock_stop(&program->lock, on_unlocked) != MUSTER_OK)
        sim_fail(program->person->scene->world, "a lock that is held cannot be given back");
}

static void on_pace(struct muster_timer *timer)
{
    struct program *program = timer->data;

    program->has_time_passed = true;
    let_go(program);
}

static void on_guarded(struct muster_registry_op *op, enum muster_rc rc)
{
    struct program *program = op->data;

    (void)rc;
    program->is_writing = false;
    let_go(program);
}

/* The guard's value is the token: the registry's log shows who was let through, in order. */
static void write_guarded(struct program *program)
{
    struct muster_registry_compare held = muster_lock_compare(&program->lock);
    char text[24];
    struct muster_registry_step put = {.kind = MUSTER_REGISTRY_PUT, .key = bytes_of("/t/guard")};
    struct muster_registry_txn txn = {
        .compares = &held, .compare_count = 1, .success = &put, .success_count = 1};

    (void)snprintf(text, sizeof(text), "%" PRIu64, program->lock.token);
    put.value = bytes_of(text);
    program->guarded.data = program;
    program->is_writing =
        muster_registry_txn_start(&program->guarded, program->registry, &txn,
                                  muster_loop_after_ns(program->env->loop, 2 * SECOND),
                                  on_guarded) == MUSTER_OK;
}

static void check_alone(const struct person *person)
{
    const struct scene *scene = person->scene;

    for (size_t i = 0; i < PEOPLE; i++) {
        const struct person *other = &scene->people[i];

        if (other != person && other->token != 0 && !scene->can_stand_still)
            sim_fail(scene->world, "%zu has the lock while %zu believes to have it",
                     (size_t)(person - scene->people), i);
    }
}

static void on_locked(struct muster_lock *lock, enum muster_rc rc)
{
    struct program *program = lock->data;
    struct person *person = program->person;
    struct scene *scene = person->scene;

    if (rc == MUSTER_ABORTED)
        return; /* the session ends */
    if (rc != MUSTER_OK) {
        sim_fail(scene->world, "no lock: %s", lock->error.text);
        return;
    }
    check_alone(person);
    if (lock->token <= scene->token_max)
        sim_fail(scene->world, "token %" PRIu64 " after %" PRIu64, lock->token, scene->token_max);
    scene->token_max = lock->token;
    person->token = lock->token;
    person->held_count++;
    program->has_time_passed = false;
    muster_timer_start(&program->pace, program->env->loop, draw_ns(program, HOLD_MAX_NS));
    write_guarded(program);
}

static void on_lost(struct muster_lock *lock)
{
    struct program *program = lock->data;

    program->person->token = 0;
    muster_timer_stop(&program->pace);
}

static void program_ask(struct program *program)
{
    struct muster_lock_options options = {.name = bytes_of("/t/lock"), .deadline_ns = UINT64_MAX};

    program->lock.data = program;
    if (muster_lock_start(&program->lock, &program->session, &options, on_locked, on_lost) !=
        MUSTER_OK)
        return; /* the session is lost, which is about to be told */
}

static void on_opened(struct muster_session *session, enum muster_rc rc)
{
    struct program *program = session->data;

    if (rc == MUSTER_OK)
        program_ask(program);
    else
        open_session(program);
}

static void open_session(struct program *program)
{
    program->session.data = program;
    if (muster_session_open(&program->session, program->registry, TTL_S,
                            muster_loop_after_ns(program->env->loop, 5 * SECOND), on_opened,
                            on_session_lost) != MUSTER_OK)
        sim_fail(program->person->scene->world, "no session");
}

static void run_person(struct sim_node *node, struct muster_env *env, void *data)
{
    struct person *person = data;
    struct program *program = muster_mem_alloc_zero(env->mem, 1, sizeof(*program));
    struct muster_registry_options options = {.endpoints = person->scene->endpoint};
    struct muster_error error;

    (void)node;
    program->person = person;
    program->env = env;
    muster_timer_init(&program->pace, on_pace, program);
    if (muster_registry_open(env, &options, &program->registry, &error) != MUSTER_OK)
        sim_fail(person->scene->world, "the client does not open: %s", error.text);
    open_session(program);
}

static void on_death(struct sim_node *node, void *data)
{
    struct person *person = data;

    (void)node;
    person->token = 0;
}

static void start_person(struct person *person)
{
    person->node = sim_node_start(person->scene->world,
                                  &(struct sim_node_options){.name = sim_host_name(person->host),
                                                             .host = person->host,
                                                             .start = run_person,
                                                             .on_death = on_death,
                                                             .data = person});
}

/* A process that sees every guarded write, in the order of the log. */

static void on_guard(struct muster_registry_watch *watch,
                     const struct muster_registry_change *changes, size_t count)
{
    struct scene *scene = watch->data;

    for (size_t i = 0; i < count; i++) {
        char text[24];
        uint64_t token = 0;

        (void)snprintf(text, sizeof(text), "%.*s", (int)changes[i].kv.value.size,
                       (const char *)changes[i].kv.value.data);
        token = strtoull(text, NULL, 10);
        if (token < scene->guard_max)
            sim_fail(scene->world, "a write of token %" PRIu64 " after one of %" PRIu64, token,
                     scene->guard_max);
        scene->guard_max = token;
    }
}

static void on_guard_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    const struct scene *scene = watch->data;

    sim_fail(scene->world, "the watch ended: %s", muster_rc_name(rc));
}

static void run_witness(struct sim_node *node, struct muster_env *env, void *data)
{
    struct muster_registry_watch *watch = muster_mem_alloc_zero(env->mem, 1, sizeof(*watch));
    struct scene *scene = data;
    struct muster_registry_options options = {.endpoints = scene->endpoint};
    struct muster_registry *registry = NULL;
    struct muster_error error;

    (void)node;
    watch->data = scene;
    if (muster_registry_open(env, &options, &registry, &error) != MUSTER_OK ||
        muster_registry_watch_start(watch, registry, bytes_of("/t/guard"), MUSTER_REGISTRY_KEY, 1,
                                    on_guard, on_guard_end) != MUSTER_OK)
        sim_fail(scene->world, "the witness does not come");
}

/* The scene. */

static void open_scene(struct scene *scene, uint64_t seed)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error;
    struct muster_address address;

    memset(scene, 0, sizeof(*scene));
    assert_int_equal(
        muster_registry_store_open(muster_mem_system(), &options, &scene->store, &error),
        MUSTER_OK);
    scene->can_stand_still = seed % 2 != 0;
    scene->world = sim_world_open(seed, NULL);
    scene->registry_host = sim_host_add(scene->world, "registry");
    address = sim_host_address(scene->registry_host, PORT);
    muster_address_format(&address, scene->endpoint);
    start_registry(scene);
    (void)sim_node_start(scene->world,
                         &(struct sim_node_options){.name = "witness",
                                                    .host = sim_host_add(scene->world, "witness"),
                                                    .start = run_witness,
                                                    .data = scene});
    for (size_t i = 0; i < PEOPLE; i++) {
        static const char *const names[PEOPLE] = {"ann", "bob", "cy", "dee"};

        scene->people[i].scene = scene;
        scene->people[i].host = sim_host_add(scene->world, names[i]);
        start_person(&scene->people[i]);
    }
}

static void scene_fault(struct scene *scene)
{
    struct muster_rng *rng = sim_world_rng(scene->world);
    struct person *person = &scene->people[muster_rng_below(rng, PEOPLE)];

    switch (muster_rng_below(rng, scene->can_stand_still ? 7 : 5)) {
    case 0:
        sim_kill_within(person->node, (uint32_t)muster_rng_below(rng, 40));
        break;
    case 1:
        sim_cut(scene->world, scene->registry_host, person->host, SIM_BOTH_WAYS);
        break;
    case 2:
        sim_cut(scene->world, scene->registry_host, person->host, SIM_ONE_WAY);
        break;
    case 3:
        sim_kill_within(scene->registry, (uint32_t)muster_rng_below(rng, 40));
        break;
    case 4:
        (void)sim_reset_stream(scene->world, muster_rng_below(rng, 64));
        break;
    default:
        if (sim_node_is_alive(person->node))
            sim_pause(person->node);
        break;
    }
}

static void scene_mend(struct scene *scene)
{
    sim_heal_all(scene->world);
    if (!sim_node_is_alive(scene->registry))
        start_registry(scene);
    for (size_t i = 0; i < PEOPLE; i++) {
        struct person *person = &scene->people[i];

        if (!sim_node_is_alive(person->node))
            start_person(person);
        else if (sim_node_is_paused(person->node))
            sim_resume(person->node);
    }
}

static bool have_all_held(void *data)
{
    const struct scene *scene = data;

    for (size_t i = 0; i < PEOPLE; i++) {
        if (scene->people[i].held_count == 0)
            return false;
    }
    return true;
}

static void play_seed(uint64_t seed, uint64_t *ret_hash)
{
    struct scene scene;

    open_scene(&scene, seed);
    for (int i = 0; i < FAULTS && sim_failure(scene.world) == NULL; i++) {
        (void)sim_run_for(scene.world, muster_rng_below(sim_world_rng(scene.world), 2 * SECOND));
        scene_fault(&scene);
        (void)sim_run_for(scene.world,
                          muster_rng_below(sim_world_rng(scene.world), (TTL_S + 2) * SECOND));
        scene_mend(&scene);
    }
    (void)sim_run_for(scene.world, SECOND); /* a kill within a turn may still be to come */
    scene_mend(&scene);
    for (size_t i = 0; i < PEOPLE; i++)
        scene.people[i].held_count = 0;
    if (!sim_run_until(scene.world, have_all_held, &scene, 60 * SECOND))
        fail_msg("seed %" PRIu64 ": %s", seed,
                 sim_failure(scene.world) != NULL ? sim_failure(scene.world)
                                                  : "somebody never gets the lock again");
    if (scene.guard_max == 0)
        fail_msg("seed %" PRIu64 ": nobody wrote", seed);
    *ret_hash = sim_world_hash(scene.world);
    (void)sim_world_close(scene.world);
    muster_registry_store_close(scene.store);
}

static void one_holder_at_a_time_whatever_happens(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t first = 0;
        uint64_t second = 0;

        play_seed(seed, &first);
        if (seed <= 2) {
            play_seed(seed, &second);
            assert_int_equal(first, second);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_holder_at_a_time_whatever_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
