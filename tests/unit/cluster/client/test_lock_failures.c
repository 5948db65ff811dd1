/* Sessions, locks and elections, while each allocation of their client, and each system call, fails in turn: each
 * step ends once, and nothing is left behind that would stop the next one. */
#include "careful_mem.h"
#include "registry_pair.h"
#include "torture_calls.h"

#include <muster/locks.h>
#include <muster/registry.h>

#include <string.h>

#define NAME     PREFIX "queue"
#define TTL_S    10
#define RUNS_MAX 60
#define TURNS    40 /* without memory for good; more is tried again in the same way */

struct scene {
    struct torture *torture;
    struct registry_pair f;
    struct muster_mem_limited mem; /* of the client that is hungry */
    struct muster_env env;
    struct muster_registry *registry;
    struct muster_session session;
    struct muster_lock lock;
    struct muster_election election;
    bool is_closed, is_done;
    enum muster_rc rc;
};

/* --- What has come --- */

static void scene_note(struct scene *scene, enum muster_rc rc)
{
    assert_false(scene->is_done);
    scene->is_done = true;
    scene->rc = rc;
}

static void on_opened(struct muster_session *session, enum muster_rc rc)
{
    scene_note(session->data, rc);
}

static void on_session_lost(struct muster_session *session)
{
    (void)session;
    fail_msg("the session was lost");
}

static void on_session_closed(struct muster_session *session)
{
    scene_note(session->data, MUSTER_OK);
}

static void on_locked(struct muster_lock *lock, enum muster_rc rc)
{
    scene_note(lock->data, rc);
}

static void on_unlocked(struct muster_lock *lock)
{
    scene_note(lock->data, MUSTER_OK);
}

static void on_elected(struct muster_election *election, enum muster_rc rc)
{
    scene_note(election->data, rc);
}

static void on_resigned(struct muster_election *election)
{
    scene_note(election->data, MUSTER_OK);
}

static void on_closed(struct muster_registry *registry)
{
    *(bool *)muster_registry_data(registry) = true;
}

/* rc is what the start of a step has returned. Memory comes back after some turns. */
static enum muster_rc scene_await(struct scene *scene, enum muster_rc rc)
{
    for (unsigned i = 0; rc == MUSTER_OK && i < TURNS && !scene->is_done; i++)
        muster_loop_turn(scene->f.env->loop, 0);
    torture_disarm(scene->torture);
    if (rc == MUSTER_OK) {
        test_env_run_until(scene->f.env, test_env_is_true, &scene->is_done);
        rc = scene->rc;
    }
    scene->is_done = false;
    /* An answer that could not be read leaves open what was written. */
    if (rc != MUSTER_OK && (scene->torture->refused == 0 ||
                            (rc != MUSTER_RESOURCE_EXHAUSTED && !muster_registry_is_unknown(rc))))
        fail_msg("%s", muster_rc_name(rc));
    return rc;
}

/* --- Steps --- */

static enum muster_rc session_begin(struct scene *scene, struct muster_registry *registry)
{
    scene->session.data = scene;
    return scene_await(scene, muster_session_open(&scene->session, registry, TTL_S,
                                                  registry_pair_soon(&scene->f), on_opened,
                                                  on_session_lost));
}

static void session_end(struct scene *scene)
{
    muster_session_close(&scene->session, on_session_closed);
    assert_int_equal(scene_await(scene, MUSTER_OK), MUSTER_OK);
}

static enum muster_rc lock_take(struct scene *scene)
{
    const struct muster_lock_options options = {.name = registry_pair_bytes_of(NAME),
                                                .deadline_ns = registry_pair_soon(&scene->f)};

    scene->lock.data = scene;
    return scene_await(scene,
                       muster_lock_start(&scene->lock, &scene->session, &options, on_locked, NULL));
}

static enum muster_rc lock_give_back(struct scene *scene)
{
    return scene_await(scene, muster_lock_stop(&scene->lock, on_unlocked));
}

static enum muster_rc election_win(struct scene *scene)
{
    const struct muster_election_options options = {.name = registry_pair_bytes_of(NAME),
                                                    .value = registry_pair_bytes_of("me"),
                                                    .deadline_ns = registry_pair_soon(&scene->f)};

    scene->election.data = scene;
    return scene_await(scene, muster_election_start(&scene->election, &scene->session, &options,
                                                    on_elected, NULL));
}

static enum muster_rc election_resign(struct scene *scene)
{
    return scene_await(scene, muster_election_stop(&scene->election, on_resigned));
}

static const struct row {
    const char *name;
    enum muster_rc (*take)(struct scene *scene);
    enum muster_rc (*give_back)(struct scene *scene);
    unsigned failing; /* the step in which something fails */
} rows[] = {
    {"session", lock_take, lock_give_back, 0},
    {"lock", lock_take, lock_give_back, 1},
    {"unlock", lock_take, lock_give_back, 2},
    {"election", election_win, election_resign, 1},
    {"resignation", election_win, election_resign, 2},
};

static bool fails_calls; /* else memory */

static void scene_open(struct scene *scene, struct torture *torture)
{
    struct muster_registry_options options = {.endpoints = NULL};
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    scene->torture = torture;
    registry_pair_open(&scene->f);
    muster_mem_limited_init(&scene->mem, careful_mem(), 0);
    scene->env = *scene->f.env;
    scene->env.mem = &scene->mem.mem;
    options.endpoints = scene->f.outside != NULL ? scene->f.outside : scene->f.endpoints;
    assert_int_equal(muster_registry_open(&scene->env, &options, &scene->registry, &error),
                     MUSTER_OK);
    muster_registry_set_data(scene->registry, &scene->is_closed);
}

static void scene_close(struct scene *scene)
{
    muster_registry_close(scene->registry, on_closed);
    test_env_run_until(scene->f.env, test_env_is_true, &scene->is_closed);
    assert_int_equal(muster_mem_limited_fini(&scene->mem), 0);
    registry_pair_close(&scene->f);
}

static void scene_arm(struct scene *scene, const struct row *row, unsigned step)
{
    if (row->failing != step)
        return;
    if (fails_calls)
        torture_arm_calls(scene->torture);
    else
        torture_arm_limited(scene->torture, &scene->mem);
}

static void run_queue(struct torture *torture, const void *data)
{
    const struct row *row = data;
    size_t count = torture_count_descriptors();
    struct scene scene;

    scene_open(&scene, torture);
    scene_arm(&scene, row, 0);
    if (session_begin(&scene, scene.registry) == MUSTER_OK) {
        scene_arm(&scene, row, 1);
        if (row->take(&scene) == MUSTER_OK) {
            scene_arm(&scene, row, 2);
            (void)row->give_back(&scene);
        }
        session_end(&scene);
    }

    assert_int_equal(session_begin(&scene, scene.f.registry), MUSTER_OK);
    assert_int_equal(row->take(&scene), MUSTER_OK);
    assert_int_equal(row->give_back(&scene), MUSTER_OK);
    session_end(&scene);
    scene_close(&scene);
    assert_int_equal(torture_count_descriptors(), count);
}

static void rows_run(unsigned variants)
{
    fails_calls = variants > 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        torture_run(&(struct torture_scenario){.name = rows[i].name,
                                               .run = run_queue,
                                               .data = &rows[i],
                                               .variant_count = variants,
                                               .runs_max = RUNS_MAX});
}

static void a_step_without_memory_stops_nobody(void **state)
{
    (void)state;
    rows_run(0);
}

static void a_step_whose_system_calls_fail_stops_nobody(void **state)
{
    (void)state;
    rows_run(TORTURE_CALL_VARIANTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_step_without_memory_stops_nobody, torture_tell),
        cmocka_unit_test_teardown(a_step_whose_system_calls_fail_stops_nobody, torture_tell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
