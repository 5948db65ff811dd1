/* Followers of a server of a job: which servers they are, and the marks that are sent to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_job.h"

#include "params/server/followers/change.h"
#include "params/server/followers/follower_internal.h"

#include <string.h>

/* Each server sends changes to those that copy or learn what it leads, and to no other. */
static void followers_are_those_that_have_a_copy(void **state)
{
    (void)state;
    for (uint32_t replicas = 1; replicas <= 2; replicas++) {
        static struct params_job job;

        params_job_open(&job, 2, replicas);
        for (uint32_t i = 0; i < 2; i++) {
            const struct muster_params_server *server = job.members[i].server;
            uint32_t count = 0;

            MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
                assert_int_equal(follower->place, 1 - server->place);
                count++;
            }
            assert_int_equal(count, replicas - 1);
            assert_string_equal(server->map->servers[server->place].host_key,
                                muster_host_key(job.env->host));
        }
        params_job_close(&job);
    }
}

/* All answers of a turn wait for it; one that waits for a later record, or in a later turn, has its own. */
static void one_mark_serves_the_answers_of_a_turn(void **state)
{
    Muster__Params__V1__Schema schema = params_caller_schema("counters");
    struct muster_params_server *server;
    static struct params_job job;
    uint64_t count;

    (void)state;
    params_job_open(&job, 2, 2);
    params_job_dial(&job, 0);
    params_caller_become(&job.caller, "trainer"); /* both have its source in slot 0 */
    server = job.members[0].server;
    count = server->record_count;
    for (int i = 0; i < 3; i++)
        assert_int_equal(muster_params_mark_forward(server), MUSTER_OK);
    assert_int_equal(server->record_count, count + 1);
    assert_int_equal(muster_params_source_forward(server, 0), MUSTER_OK);
    assert_int_equal(muster_params_mark_forward(server), MUSTER_OK);
    assert_int_equal(server->record_count, count + 3);
    server->turn++;
    assert_int_equal(muster_params_mark_forward(server), MUSTER_OK);
    assert_int_equal(server->record_count, count + 4);

    assert_int_equal(params_caller_ask_table(&job.caller, &schema).rc, MUSTER_OK);
    params_job_close(&job);
}

static unsigned told_count;

static void count_refused(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                          const char *event, const struct muster_field *fields, size_t count)
{
    (void)log;
    (void)level;
    (void)wall_ns;
    (void)fields;
    (void)count;
    told_count += strcmp(event, "params_replica_refused") == 0;
}

struct stranger {
    const struct muster_params_follower *follower;
    unsigned attempts; /* to wait for */
    uint64_t attempted;
};

static bool has_been_reached(void *data)
{
    const struct stranger *stranger = data;

    return stranger->follower->is_met || stranger->follower->server->region->head->copy_links >=
                                             stranger->attempted + stranger->attempts;
}

/* Two servers may have been started with one address: pushes that the wrong one has acknowledged would be
 * lost with their primary. */
static void another_server_at_the_address_of_a_follower_is_sent_nothing(void **state)
{
    static const struct muster_log_ops log_ops = {.write = count_refused};
    struct muster_log log = {.ops = &log_ops, .level_max = MUSTER_LOG_WARN};
    struct stranger stranger = {.attempts = 4};
    struct muster_params_follower *follower;
    struct muster_error error;
    static struct params_job job;

    (void)state;
    params_job_open(&job, 3, 2);
    follower = MUSTER_CONTAINER_OF(job.members[0].server->followers.next,
                                   struct muster_params_follower, node);
    for (uint32_t i = 1; i < 3; i++) {
        const struct muster_params_server *server = job.members[i].server;

        if (server->place != follower->place)
            assert_int_equal(
                muster_address_parse(job.members[i].address, &follower->address, &error),
                MUSTER_OK);
    }
    stranger.follower = follower;
    stranger.attempted = follower->server->region->head->copy_links;
    job.members[0].env.log = &log;
    told_count = 0;
    muster_params_follower_break(follower, "the case ends its link");

    test_env_run_until(job.env, has_been_reached, &stranger);

    assert_false(follower->is_met);
    assert_int_equal(told_count, 1);
    job.members[0].env.log = NULL;
    params_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(followers_are_those_that_have_a_copy),
        cmocka_unit_test(one_mark_serves_the_answers_of_a_turn),
        cmocka_unit_test(another_server_at_the_address_of_a_follower_is_sent_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
