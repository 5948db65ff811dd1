/* The world keeps its own rules: order, clocks, death, cuts, determinism. */
#include "tests/sim/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "tests/sim/faults.h"
#include "tests/sim/profile.h"

#define PORT 1000

/* A world of two hosts and a process on each that accepts on PORT and can connect to the other. */
struct process {
    struct muster_env *env;
    struct muster_connect connect;
    struct muster_listener *listener;
    struct muster_stream *stream;
    struct muster_stream_read read;
    struct muster_stream_write write;
    struct iovec iov;
    char received[64];
    unsigned connect_count, read_count, write_count, exit_count;
    enum muster_rc connect_rc, read_rc;
    struct muster_process_watch watch;
    struct muster_timer timer;
    unsigned expire_count;
    uint64_t expired_ns;
};

struct fixture {
    struct sim_world *world;
    struct sim_host *hosts[2];
    struct sim_node *nodes[2];
};

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct process *process = read->data;

    process->read_count++;
    process->read_rc = rc;
}

static void on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    struct process *process = write->data;

    (void)rc;
    process->write_count++;
}

static void start_read(struct process *process, size_t count)
{
    process->read.data = process;
    assert_int_equal(muster_stream_receive_into(&process->read, process->stream, process->received,
                                                count, count, on_read),
                     MUSTER_OK);
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct process *process = listener->data;

    process->stream = stream;
}

static void on_connect(struct muster_connect *connect, enum muster_rc rc)
{
    struct process *process = connect->data;

    process->connect_count++;
    process->connect_rc = rc;
    if (rc == MUSTER_OK)
        process->stream = connect->stream;
}

static void start_process(struct sim_node *node, struct muster_env *env, void *data)
{
    struct process *process = muster_mem_alloc_zero(env->mem, 1, sizeof(*process));
    struct muster_address address = sim_host_address(sim_node_host(node), PORT);

    (void)data;
    process->env = env;
    sim_node_set_program(node, process);
    assert_int_equal(muster_listener_open(env->net, &address, NULL, on_accept, process,
                                          &process->listener, NULL),
                     MUSTER_OK);
}

static struct sim_node *start_on(struct fixture *fixture, unsigned host)
{
    return sim_node_start(fixture->world,
                          &(struct sim_node_options){.name = sim_host_name(fixture->hosts[host]),
                                                     .host = fixture->hosts[host],
                                                     .start = start_process});
}

static struct process *process_at(struct fixture *fixture, unsigned i)
{
    return sim_node_program(fixture->nodes[i]);
}

static void run_ms(struct fixture *fixture, uint64_t ms)
{
    assert_true(sim_run_for(fixture->world, ms * MUSTER_NS_PER_MS));
}

static int open_fixture(void **state)
{
    static struct fixture fixture;

    fixture.world = sim_world_open(11, NULL);
    fixture.hosts[0] = sim_host_add(fixture.world, "first");
    fixture.hosts[1] = sim_host_add(fixture.world, "second");
    fixture.nodes[0] = start_on(&fixture, 0);
    fixture.nodes[1] = start_on(&fixture, 1);
    run_ms(&fixture, 1);
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    struct fixture *fixture = *state;

    (void)sim_world_close(fixture->world);
    return 0;
}

static void begin_connect(struct fixture *fixture, uint64_t timeout_ms)
{
    struct process *client = process_at(fixture, 0);
    struct muster_address address = sim_host_address(fixture->hosts[1], PORT);

    sim_enter(fixture->nodes[0]);
    client->connect.data = client;
    assert_int_equal(
        muster_connect_start(&client->connect, client->env->net, &address, NULL,
                             muster_loop_after_ns(client->env->loop, timeout_ms * MUSTER_NS_PER_MS),
                             on_connect),
        MUSTER_OK);
    sim_leave(fixture->nodes[0]);
}

static void connect_both(struct fixture *fixture)
{
    begin_connect(fixture, 1000);
    run_ms(fixture, 5);
    assert_int_equal(process_at(fixture, 0)->connect_rc, MUSTER_OK);
    assert_non_null(process_at(fixture, 0)->stream);
    assert_non_null(process_at(fixture, 1)->stream);
}

static void fixture_say(struct fixture *fixture, unsigned from, const char *text)
{
    struct process *sender = process_at(fixture, from);

    sim_enter(fixture->nodes[from]);
    sender->write.data = sender;
    sender->iov = (struct iovec){.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    assert_int_equal(
        muster_stream_submit(&sender->write, sender->stream, &sender->iov, 1, on_write), MUSTER_OK);
    sim_leave(fixture->nodes[from]);
}

static void listen_for(struct fixture *fixture, unsigned at, size_t count)
{
    process_at(fixture, at)->read_count = 0;
    sim_enter(fixture->nodes[at]);
    start_read(process_at(fixture, at), count);
    sim_leave(fixture->nodes[at]);
}

/* Order. */

static void append_one(void *data)
{
    strcat(data, "1");
}

static void append_two(void *data)
{
    strcat(data, "2");
}

static void actions_of_one_time_run_in_the_order_they_were_asked_for(void **state)
{
    struct fixture *fixture = *state;
    uint64_t now_ns = sim_world_now_ns(fixture->world);
    char text[8] = "";

    sim_at(fixture->world, now_ns + 20, append_two, text);
    sim_at(fixture->world, now_ns + 10, append_one, text);
    sim_at(fixture->world, now_ns + 20, append_one, text);
    sim_at(fixture->world, now_ns + 20, append_two, text);
    run_ms(fixture, 1);

    assert_string_equal(text, "1212");
}

static void on_expire(struct muster_timer *timer)
{
    struct process *owner = timer->data;

    owner->expire_count++;
    owner->expired_ns = muster_loop_now_ns(owner->env->loop);
}

static void start_timer(struct fixture *fixture, uint64_t delay_ms)
{
    struct process *owner = process_at(fixture, 0);

    sim_enter(fixture->nodes[0]);
    muster_timer_init(&owner->timer, on_expire, owner);
    muster_timer_start(&owner->timer, owner->env->loop,
                       muster_loop_after_ns(owner->env->loop, delay_ms * MUSTER_NS_PER_MS));
    sim_leave(fixture->nodes[0]);
}

static void a_timer_fires_once_at_its_time(void **state)
{
    struct fixture *fixture = *state;

    start_timer(fixture, 10);
    run_ms(fixture, 9);
    assert_int_equal(process_at(fixture, 0)->expire_count, 0);
    run_ms(fixture, 2);
    assert_int_equal(process_at(fixture, 0)->expire_count, 1);
    assert_true(process_at(fixture, 0)->expired_ns >= process_at(fixture, 0)->timer.due_ns);
    run_ms(fixture, 50);

    assert_int_equal(process_at(fixture, 0)->expire_count, 1);
}

static void a_fast_clock_fires_early(void **state)
{
    struct fixture *fixture = *state;

    sim_drift(fixture->nodes[0], 100000); /* ten per cent */
    start_timer(fixture, 1000);
    run_ms(fixture, 905);
    assert_int_equal(process_at(fixture, 0)->expire_count, 0);
    run_ms(fixture, 10);

    assert_int_equal(process_at(fixture, 0)->expire_count, 1);
}

static void a_paused_process_does_nothing_and_catches_up(void **state)
{
    struct fixture *fixture = *state;

    connect_both(fixture);
    start_timer(fixture, 5);
    listen_for(fixture, 0, 3);
    sim_pause(fixture->nodes[0]);
    fixture_say(fixture, 1, "abc");
    run_ms(fixture, 100);
    assert_int_equal(process_at(fixture, 0)->expire_count, 0);
    assert_int_equal(process_at(fixture, 0)->read_count, 0);
    assert_int_equal(process_at(fixture, 1)->write_count, 1);
    sim_resume(fixture->nodes[0]);
    run_ms(fixture, 1);

    assert_int_equal(process_at(fixture, 0)->expire_count, 1);
    assert_int_equal(process_at(fixture, 0)->read_count, 1);
}

static void on_never(struct muster_fd_watch *watch, unsigned ready)
{
    (void)watch;
    (void)ready;
}

static void real_descriptors_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct muster_fd_watch watch = {.on_ready = on_never, .wanted = MUSTER_FD_READ};

    assert_int_equal(muster_fd_watch_open(&watch, process_at(fixture, 0)->env->loop),
                     MUSTER_UNIMPLEMENTED);
}

/* Links. */

static void a_cut_holds_bytes_until_it_heals(void **state)
{
    struct fixture *fixture = *state;

    connect_both(fixture);
    listen_for(fixture, 1, 3);
    sim_cut(fixture->world, fixture->hosts[0], fixture->hosts[1], SIM_BOTH_WAYS);
    fixture_say(fixture, 0, "abc");
    run_ms(fixture, 3000);
    assert_int_equal(process_at(fixture, 1)->read_count, 0);
    sim_heal(fixture->world, fixture->hosts[0], fixture->hosts[1]);
    run_ms(fixture, 1000);

    assert_int_equal(process_at(fixture, 1)->read_count, 1);
    assert_memory_equal(process_at(fixture, 1)->received, "abc", 3);
}

static void a_one_way_cut_lets_the_other_way_pass(void **state)
{
    struct fixture *fixture = *state;

    connect_both(fixture);
    listen_for(fixture, 0, 3);
    listen_for(fixture, 1, 3);
    sim_cut(fixture->world, fixture->hosts[0], fixture->hosts[1], SIM_ONE_WAY);
    fixture_say(fixture, 0, "abc");
    fixture_say(fixture, 1, "xyz");
    run_ms(fixture, 1000);

    assert_int_equal(process_at(fixture, 0)->read_count, 1);
    assert_int_equal(process_at(fixture, 1)->read_count, 0);
}

static void connecting_through_a_cut_times_out(void **state)
{
    struct fixture *fixture = *state;

    sim_cut(fixture->world, fixture->hosts[0], fixture->hosts[1], SIM_BOTH_WAYS);
    begin_connect(fixture, 300);
    run_ms(fixture, 299);
    assert_int_equal(process_at(fixture, 0)->connect_count, 0);
    run_ms(fixture, 2);

    assert_int_equal(process_at(fixture, 0)->connect_count, 1);
    assert_int_equal(process_at(fixture, 0)->connect_rc, MUSTER_DEADLINE_EXCEEDED);
}

/* Death. */

static void a_killed_process_ends_its_streams_and_frees_its_port(void **state)
{
    struct fixture *fixture = *state;

    connect_both(fixture);
    listen_for(fixture, 0, 1);
    sim_kill(fixture->nodes[1]);
    assert_false(sim_node_is_alive(fixture->nodes[1]));
    run_ms(fixture, 10);
    assert_int_equal(process_at(fixture, 0)->read_count, 1);
    assert_int_equal(process_at(fixture, 0)->read_rc, MUSTER_UNAVAILABLE);
    fixture->nodes[1] = start_on(fixture, 1);
    run_ms(fixture, 1);
    connect_both(fixture);
}

static void what_was_sent_before_a_kill_still_arrives(void **state)
{
    struct fixture *fixture = *state;

    connect_both(fixture);
    listen_for(fixture, 1, 3);
    fixture_say(fixture, 0, "abc");
    assert_true(sim_run_for(fixture->world, 20 * MUSTER_NS_PER_US));
    assert_int_equal(process_at(fixture, 0)->write_count, 1);
    sim_kill(fixture->nodes[0]);
    run_ms(fixture, 10);

    assert_int_equal(process_at(fixture, 1)->read_rc, MUSTER_OK);
    assert_memory_equal(process_at(fixture, 1)->received, "abc", 3);
}

static void a_crashed_host_is_silent_until_it_boots(void **state)
{
    struct fixture *fixture = *state;

    connect_both(fixture);
    listen_for(fixture, 0, 1);
    sim_crash(fixture->hosts[1]);
    fixture_say(fixture, 0, "abc");
    run_ms(fixture, 20000);
    assert_int_equal(process_at(fixture, 0)->read_count, 0);
    sim_boot(fixture->hosts[1]);
    run_ms(fixture, 1000);

    assert_int_equal(process_at(fixture, 0)->read_count, 1);
    assert_int_equal(process_at(fixture, 0)->read_rc, MUSTER_UNAVAILABLE);
    assert_false(process_at(fixture, 0)->read.is_eof);
}

static void on_exit(struct muster_process_watch *watch)
{
    struct process *owner = watch->data;

    owner->exit_count++;
}

static enum muster_rc watch_pid(struct fixture *fixture, int64_t pid)
{
    struct process *owner = process_at(fixture, 0);
    enum muster_rc rc;

    owner->watch = (struct muster_process_watch){.data = owner, .on_exit = on_exit, .pid = pid};
    sim_enter(fixture->nodes[0]);
    rc = muster_process_watch_open(&owner->watch, owner->env->host);
    sim_leave(fixture->nodes[0]);
    return rc;
}

static void the_death_of_a_neighbour_is_told_once(void **state)
{
    struct fixture *fixture = *state;
    struct sim_node *neighbour =
        sim_node_start(fixture->world, &(struct sim_node_options){.name = "neighbour",
                                                                  .host = fixture->hosts[0],
                                                                  .start = start_process});

    sim_kill(neighbour); /* before its first turn: PORT is taken */
    assert_int_equal(watch_pid(fixture, sim_node_pid(neighbour)), MUSTER_NOT_FOUND);
    assert_int_equal(watch_pid(fixture, sim_node_pid(fixture->nodes[1])), MUSTER_NOT_FOUND);
    assert_int_equal(watch_pid(fixture, sim_node_pid(fixture->nodes[0])), MUSTER_OK);
    sim_enter(fixture->nodes[0]);
    muster_process_watch_close(&process_at(fixture, 0)->watch);
    sim_leave(fixture->nodes[0]);
}

static void start_empty(struct sim_node *node, struct muster_env *env, void *data)
{
    (void)node;
    (void)env;
    (void)data;
}

static void a_watched_death_comes_after_a_while(void **state)
{
    struct fixture *fixture = *state;
    struct sim_node *neighbour = sim_node_start(
        fixture->world, &(struct sim_node_options){
                            .name = "neighbour", .host = fixture->hosts[0], .start = start_empty});

    assert_int_equal(watch_pid(fixture, sim_node_pid(neighbour)), MUSTER_OK);
    run_ms(fixture, 10);
    assert_int_equal(process_at(fixture, 0)->exit_count, 0);
    sim_kill(neighbour);
    assert_int_equal(process_at(fixture, 0)->exit_count, 0);
    run_ms(fixture, 10);

    assert_int_equal(process_at(fixture, 0)->exit_count, 1);
}

static void a_kill_within_a_turn_leaves_half_a_message(void **state)
{
    struct fixture *fixture = *state;
    static char bulk[1 << 20];
    unsigned rounds;

    memset(bulk, 'x', sizeof(bulk) - 1);
    connect_both(fixture);
    fixture_say(fixture, 0, bulk);
    sim_kill_within(fixture->nodes[0], 3);
    for (rounds = 0; rounds < 100 && sim_node_is_alive(fixture->nodes[0]); rounds++)
        run_ms(fixture, 1);
    assert_false(sim_node_is_alive(fixture->nodes[0]));
    listen_for(fixture, 1, 64);
    run_ms(fixture, 10);

    assert_int_equal(process_at(fixture, 1)->read_count, 1);
}

static void leaving_memory_behind_is_a_failure(void **state)
{
    struct fixture *fixture = *state;

    sim_exit(fixture->nodes[0]);

    assert_non_null(strstr(sim_failure(fixture->world), "left 1 blocks"));
}

/* Files and variables. */

static void files_outlive_their_process(void **state)
{
    struct fixture *fixture = *state;
    struct muster_env *env = process_at(fixture, 0)->env;
    char *text = NULL;
    size_t count = 0;

    assert_int_equal(muster_files_write(env->files, "/state", "abc", 3), MUSTER_OK);
    sim_kill(fixture->nodes[0]);
    fixture->nodes[0] = start_on(fixture, 0);
    run_ms(fixture, 1);
    env = process_at(fixture, 0)->env;
    assert_int_equal(muster_files_read(env->files, env->mem, "/state", 2, &text, &count),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_files_read(env->files, env->mem, "/state", 100, &text, &count),
                     MUSTER_OK);

    assert_int_equal(count, 3);
    assert_string_equal(text, "abc");
    assert_int_equal(muster_files_read(env->files, env->mem, "/none", 100, &text, &count),
                     MUSTER_NOT_FOUND);
}

/* Determinism. */

static void a_seed_repeats_itself_and_seeds_differ(void **state)
{
    const struct sim_profile *profile = sim_profile_find("streams");
    struct sim_run first, second, other;

    (void)state;
    assert_true(sim_run_twice(profile, 5, &first));
    assert_true(sim_run_once(profile, 5, &second));
    assert_true(sim_run_twice(profile, 6, &other));

    assert_true(first.hash == second.hash);
    assert_true(first.hash != other.hash);
    assert_true(first.faults > 0);
}

static void read_unset(struct sim_run *run, const struct sim_profile *profile)
{
    struct sim_world *world = sim_run_open(run);
    struct sim_host *host = sim_host_add(world, "host");
    struct sim_node *node = sim_node_start(
        world, &(struct sim_node_options){.name = "node", .host = host, .start = start_empty});
    struct muster_mem *mem = sim_node_env(node)->mem;
    volatile uint8_t *bytes = muster_mem_alloc(mem, 8);

    (void)profile;
    sim_note(world, "unset", bytes[3], 0, 0);
    sim_run_close(run, world, 0);
}

static void memory_that_was_never_set_is_seen(void **state)
{
    static const struct sim_profile profile = {.name = "unset", .run = read_unset};
    struct sim_run run;

    (void)state;
    assert_false(sim_run_twice(&profile, 1, &run));
    assert_non_null(strstr(run.failure, "two runs differ"));
    assert_true(sim_run_once(&profile, 1, &run));
}

static void fail_run(struct sim_run *run, const struct sim_profile *profile)
{
    (void)profile;
    (void)snprintf(run->failure, sizeof(run->failure), "broken");
}

static void a_run_that_fails_is_told(void **state)
{
    static const struct sim_profile profile = {.name = "fails", .run = fail_run};
    struct sim_run run;

    (void)state;
    assert_false(sim_run_once(&profile, 1, &run));
    assert_string_equal(run.failure, "broken");
    assert_false(sim_run_twice(&profile, 1, &run));
    assert_string_equal(run.failure, "broken");
}

static bool is_never(void *data)
{
    (void)data;
    return false;
}

static void fail_at_once(void *data)
{
    sim_fail(data, "event %d", 1);
}

static void an_oracle_ends_the_run(void **state)
{
    struct fixture *fixture = *state;

    start_timer(fixture, 1);
    sim_oracle_add(fixture->world, fail_at_once, fixture->world);
    assert_false(sim_run_until(fixture->world, is_never, NULL, MUSTER_NS_PER_S));

    assert_string_equal(sim_failure(fixture->world), "event 1");
    assert_false(sim_step(fixture->world));
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(actions_of_one_time_run_in_the_order_they_were_asked_for),
        CASE(a_timer_fires_once_at_its_time),
        CASE(a_fast_clock_fires_early),
        CASE(a_paused_process_does_nothing_and_catches_up),
        CASE(real_descriptors_are_refused),
        CASE(a_cut_holds_bytes_until_it_heals),
        CASE(a_one_way_cut_lets_the_other_way_pass),
        CASE(connecting_through_a_cut_times_out),
        CASE(a_killed_process_ends_its_streams_and_frees_its_port),
        CASE(what_was_sent_before_a_kill_still_arrives),
        CASE(a_crashed_host_is_silent_until_it_boots),
        CASE(the_death_of_a_neighbour_is_told_once),
        CASE(a_watched_death_comes_after_a_while),
        CASE(a_kill_within_a_turn_leaves_half_a_message),
        CASE(leaving_memory_behind_is_a_failure),
        CASE(files_outlive_their_process),
        CASE(an_oracle_ends_the_run),
        cmocka_unit_test(a_seed_repeats_itself_and_seeds_differ),
        cmocka_unit_test(memory_that_was_never_set_is_seen),
        cmocka_unit_test(a_run_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
