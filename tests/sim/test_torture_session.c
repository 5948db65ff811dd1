/* Sessions, locks and elections of a process whose allocations fail in turn: each callback comes
 * once, an error says why, and what the process has left stands in nobody's way. */
#include <string.h>

#include <muster/locks.h>
#include <muster/registry_server.h>

#include "torture.h"

#include "tests/sim/world.h"

#define SEED    UINT64_C(11)
#define PORT    2379
#define TTL_S   60                    /* longer than memory ever lacks */
#define WAIT_NS (5 * MUSTER_NS_PER_S) /* for the session, the lock, the word */
#define NEED_NS (2 * MUSTER_NS_PER_S) /* the other one gives its lock back after so long */
#define END_NS  (300 * MUSTER_NS_PER_S)
#define QUEUE   "/t/queue"

struct row {
    const char *name;
    bool is_election;
    bool is_held;            /* by the other one, for a while */
    bool is_late;            /* memory fails from the end of the wait on */
    bool is_registry_hungry; /* instead of who asks */
};

/* A process, its session, and its place in the queue. */
struct person {
    struct scene *scene;
    struct sim_node *node;
    struct muster_registry *registry;
    struct muster_session session;
    struct muster_lock lock;
    struct muster_election election;
    struct muster_election_watch watch;
    unsigned opened, lost, closed, done, place_lost, stopped, proclaimed, client_closed;
    enum muster_rc opened_rc, done_rc, proclaimed_rc;
    bool was_started, was_set;
    char word[16]; /* as last seen */
};

struct scene {
    const struct row *row;
    struct sim_world *world;
    struct sim_node *server_node;
    struct muster_registry_store *store;
    struct muster_registry_server *server;
    struct person hungry, other;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    bool is_server_closed;
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

/* --- What they are told --- */

static void check_error(enum muster_rc rc, const struct muster_error *error)
{
    assert_true(rc == MUSTER_OK || (error->rc == rc && error->text[0] != '\0'));
}

static void on_opened(struct muster_session *session, enum muster_rc rc)
{
    struct person *person = session->data;

    person->opened++;
    person->opened_rc = rc;
    check_error(rc, &session->error);
}

static void on_session_lost(struct muster_session *session)
{
    ((struct person *)session->data)->lost++;
}

static void on_session_closed(struct muster_session *session)
{
    ((struct person *)session->data)->closed++;
}

static void note_done(struct person *person, enum muster_rc rc, const struct muster_error *error)
{
    person->done++;
    person->done_rc = rc;
    check_error(rc, error);
}

static void on_locked(struct muster_lock *lock, enum muster_rc rc)
{
    note_done(lock->data, rc, &lock->error);
}

static void on_lock_lost(struct muster_lock *lock)
{
    ((struct person *)lock->data)->place_lost++;
}

static void on_unlocked(struct muster_lock *lock)
{
    ((struct person *)lock->data)->stopped++;
}

static void on_elected(struct muster_election *election, enum muster_rc rc)
{
    note_done(election->data, rc, &election->error);
}

static void on_election_lost(struct muster_election *election)
{
    ((struct person *)election->data)->place_lost++;
}

static void on_resigned(struct muster_election *election)
{
    ((struct person *)election->data)->stopped++;
}

static void on_proclaimed(struct muster_election *election, enum muster_rc rc)
{
    struct person *person = election->data;

    person->proclaimed++;
    person->proclaimed_rc = rc;
    check_error(rc, &election->error);
}

static void on_leader(struct muster_election_watch *watch, const struct muster_registry_kv *leader)
{
    struct person *person = watch->data;

    memset(person->word, 0, sizeof(person->word));
    if (leader != NULL && leader->value.size < sizeof(person->word))
        memcpy(person->word, leader->value.data, leader->value.size);
}

/* --- What they do, each in its own process --- */

static struct muster_loop *loop_of(struct person *person)
{
    return sim_node_env(person->node)->loop;
}

static uint64_t person_soon(struct person *person)
{
    return muster_loop_after_ns(loop_of(person), WAIT_NS);
}

static void run_for(struct person *person, uint64_t span_ns)
{
    (void)sim_run_for(person->scene->world, span_ns);
}

static bool open_session(struct person *person)
{
    enum muster_rc rc;

    sim_enter(person->node);
    person->session.data = person;
    rc = muster_session_open(&person->session, person->registry, TTL_S, person_soon(person),
                             on_opened, on_session_lost);
    assert_int_equal(person->opened, 0);
    sim_leave(person->node);
    if (rc != MUSTER_OK) {
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
        return false;
    }
    run_for(person, 2 * WAIT_NS);
    assert_int_equal(person->opened, 1);
    return person->opened_rc == MUSTER_OK;
}

/* Asks for the lock, or to be the leader, and does not wait. */
static void take_place(struct person *person)
{
    const struct muster_lock_options lock = {.name = bytes_of(QUEUE),
                                             .deadline_ns = person_soon(person)};
    const struct muster_election_options election = {
        .name = bytes_of(QUEUE), .value = bytes_of("first"), .deadline_ns = person_soon(person)};
    enum muster_rc rc;

    sim_enter(person->node);
    person->lock.data = person->election.data = person;
    if (person->scene->row->is_election)
        rc = muster_election_start(&person->election, &person->session, &election, on_elected,
                                   on_election_lost);
    else
        rc = muster_lock_start(&person->lock, &person->session, &lock, on_locked, on_lock_lost);
    assert_int_equal(person->done, 0);
    sim_leave(person->node);
    person->was_started = rc == MUSTER_OK;
    if (rc != MUSTER_OK && person->lost == 0) {
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
        check_error(rc, person->scene->row->is_election ? &person->election.error
                                                        : &person->lock.error);
    }
}

static bool has_place(const struct person *person)
{
    return person->done > 0 && person->done_rc == MUSTER_OK && person->place_lost == 0;
}

static void person_proclaim(struct person *person)
{
    enum muster_rc rc;

    sim_enter(person->node);
    rc = muster_election_proclaim_start(&person->election, bytes_of("second"), person_soon(person),
                                        on_proclaimed);
    assert_int_equal(person->proclaimed, 0);
    sim_leave(person->node);
    run_for(person, 2 * WAIT_NS);
    assert_int_equal(person->proclaimed, rc == MUSTER_OK);
    person->was_set = rc == MUSTER_OK && person->proclaimed_rc == MUSTER_OK;
}

static void give_back(struct person *person)
{
    enum muster_rc rc;

    sim_enter(person->node);
    rc = person->scene->row->is_election ? muster_election_stop(&person->election, on_resigned)
                                         : muster_lock_stop(&person->lock, on_unlocked);
    assert_int_equal(rc, MUSTER_OK);
    assert_int_equal(person->stopped, 0);
    sim_leave(person->node);
}

static bool is_true(void *data)
{
    return *(bool *)data;
}

static bool is_told(void *data)
{
    return *(unsigned *)data > 0;
}

static void await_told(struct person *person, unsigned *count)
{
    if (!sim_run_until(person->scene->world, is_told, count, END_NS))
        fail_msg("a callback does not come");
    run_for(person, MUSTER_NS_PER_S);
    assert_int_equal(*count, 1);
}

static void close_session(struct person *person)
{
    if (person->opened == 0 || person->opened_rc != MUSTER_OK)
        return;
    sim_enter(person->node);
    muster_session_close(&person->session, on_session_closed);
    sim_leave(person->node);
    await_told(person, &person->closed);
}

/* --- The scene --- */

static void run_server(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    const struct muster_registry_server_options options = {.listen = scene->endpoint};
    struct muster_error error;

    (void)node;
    assert_int_equal(
        muster_registry_server_open(env, scene->store, &options, &scene->server, &error),
        MUSTER_OK);
    muster_registry_server_set_data(scene->server, scene);
}

static void run_person(struct sim_node *node, struct muster_env *env, void *data)
{
    struct person *person = data;
    const struct muster_registry_options options = {.endpoints = person->scene->endpoint};
    struct muster_error error;

    (void)node;
    assert_int_equal(muster_registry_open(env, &options, &person->registry, &error), MUSTER_OK);
    muster_registry_set_data(person->registry, person);
}

static struct sim_node *start_node(struct scene *scene, const char *name, sim_main_fn *start,
                                   void *data)
{
    struct sim_host *host = sim_host_add(scene->world, name);
    struct muster_address address = sim_host_address(host, PORT);
    struct sim_node *node;

    if (scene->endpoint[0] == '\0')
        muster_address_format(&address, scene->endpoint);
    node = sim_node_start(
        scene->world,
        &(struct sim_node_options){.name = name, .host = host, .start = start, .data = data});
    (void)sim_run_for(scene->world, MUSTER_NS_PER_MS);
    return node;
}

static bool refuses_call(void *data)
{
    return torture_refuses(data);
}

static void open_scene(struct scene *scene, const struct row *row, struct torture *torture)
{
    const struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    scene->row = row;
    assert_int_equal(
        muster_registry_store_open(muster_mem_system(), &options, &scene->store, &error),
        MUSTER_OK);
    scene->world = sim_world_open(SEED, NULL);
    if (torture_is_traced())
        sim_world_set_trace(scene->world, stdout);
    scene->hungry.scene = scene->other.scene = scene;
    scene->server_node = start_node(scene, "registry", run_server, scene);
    scene->hungry.node = start_node(scene, "hungry", run_person, &scene->hungry);
    scene->other.node = start_node(scene, "other", run_person, &scene->other);
    sim_refuse(row->is_registry_hungry ? scene->server_node : scene->hungry.node, refuses_call,
               torture);
}

static void on_client_closed(struct muster_registry *registry)
{
    ((struct person *)muster_registry_data(registry))->client_closed++;
}

static void end_person(struct person *person)
{
    close_session(person);
    sim_enter(person->node);
    muster_registry_close(person->registry, on_client_closed);
    sim_leave(person->node);
    await_told(person, &person->client_closed);
    assert_true(person->lost <= 1 && person->place_lost <= 1);
    assert_int_equal(person->done, person->was_started);
    sim_exit(person->node); /* says what it has leaked */
}

static void on_server_closed(struct muster_registry_server *server)
{
    ((struct scene *)muster_registry_server_data(server))->is_server_closed = true;
}

static void close_scene(struct scene *scene)
{
    end_person(&scene->hungry);
    end_person(&scene->other);
    sim_enter(scene->server_node);
    muster_registry_server_close(scene->server, 0, on_server_closed);
    sim_leave(scene->server_node);
    assert_true(sim_run_until(scene->world, is_true, &scene->is_server_closed, END_NS));
    sim_exit(scene->server_node);
    if (sim_failure(scene->world) != NULL)
        fail_msg("%s", sim_failure(scene->world));
    assert_int_equal(sim_world_close(scene->world), 0);
    muster_registry_store_close(scene->store);
}

/* --- The scenarios --- */

static void play_place(struct scene *scene, struct torture *torture)
{
    struct person *hungry = &scene->hungry;

    if (!scene->row->is_late)
        torture_arm(torture);
    if (!open_session(hungry))
        return;
    take_place(hungry);
    run_for(hungry, NEED_NS);
    if (scene->row->is_held)
        give_back(&scene->other);
    run_for(hungry, 2 * WAIT_NS);
    if (scene->row->is_late)
        torture_arm(torture);
    if (scene->row->is_election && has_place(hungry))
        person_proclaim(hungry);
    if (!has_place(hungry))
        return;
    give_back(hungry);
    run_for(hungry, 2 * WAIT_NS);
    torture_disarm(torture);
    await_told(hungry, &hungry->stopped);
}

/* The other one has its turn while the hungry session lives: nothing is left of the hungry place.
 * */
static void other_has_its_turn(struct scene *scene)
{
    struct person *other = &scene->other;

    other->done = other->stopped = 0;
    take_place(other);
    await_told(other, &other->done);
    assert_int_equal(other->done_rc, MUSTER_OK);
    give_back(other);
    await_told(other, &other->stopped);
}

static void run_place(struct torture *torture, const void *data)
{
    struct scene scene;
    struct person *hungry = &scene.hungry;

    open_scene(&scene, data, torture);
    assert_true(open_session(&scene.other));
    if (scene.row->is_held) {
        take_place(&scene.other);
        await_told(&scene.other, &scene.other.done);
    }
    play_place(&scene, torture);
    torture_disarm(torture);
    run_for(hungry, 2 * WAIT_NS);

    if (torture->refused == 0)
        assert_int_equal(hungry->stopped, 1);
    if (hungry->was_started)
        assert_int_equal(hungry->done, 1);
    if (scene.row->is_held && scene.other.stopped == 0)
        give_back(&scene.other);
    run_for(hungry, MUSTER_NS_PER_S);
    other_has_its_turn(&scene);
    close_scene(&scene);
}

/* A watcher sees the last value, once there is memory. */
static void run_watch(struct torture *torture, const void *data)
{
    struct scene scene;
    struct person *hungry = &scene.hungry;
    enum muster_rc rc;

    open_scene(&scene, data, torture);
    assert_true(open_session(&scene.other));
    take_place(&scene.other);
    await_told(&scene.other, &scene.other.done);
    torture_arm(torture);
    sim_enter(hungry->node);
    hungry->watch.data = hungry;
    rc = muster_election_watch_start(&hungry->watch, hungry->registry, bytes_of(QUEUE), on_leader);
    sim_leave(hungry->node);
    run_for(hungry, MUSTER_NS_PER_S);
    person_proclaim(&scene.other);
    torture_disarm(torture);
    run_for(hungry, 4 * WAIT_NS);

    assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(hungry->word, rc == MUSTER_OK ? "second" : "");
    give_back(&scene.other);
    await_told(&scene.other, &scene.other.stopped);
    run_for(hungry, WAIT_NS);
    assert_string_equal(hungry->word, "");
    sim_enter(hungry->node);
    if (rc == MUSTER_OK)
        muster_election_watch_stop(&hungry->watch);
    sim_leave(hungry->node);
    close_scene(&scene);
}

static void who_has_no_memory_stands_in_nobodys_way(void **state)
{
    static const struct row places[] = {
        {.name = "lock"},
        {.name = "lock, held by another", .is_held = true},
        {.name = "lock, given back", .is_late = true},
        {.name = "election", .is_election = true},
        {.name = "election, led by another", .is_election = true, .is_held = true},
        {.name = "lock, at a hungry registry", .is_registry_hungry = true},
        {.name = "lock, given back to it", .is_late = true, .is_registry_hungry = true},
        {.name = "election, a word and the end", .is_election = true, .is_late = true},
    };
    static const struct row watches[] = {
        {.name = "election, looked on", .is_election = true},
    };

    (void)state;
    TORTURE_RUN_ROWS(run_place, places);
    TORTURE_RUN_ROWS(run_watch, watches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(who_has_no_memory_stands_in_nobodys_way, torture_tell),
    };

    return cmocka_run_group_tests_name("sim_torture_session", tests, NULL, NULL);
}
