/* Followers of a server of a job: which servers they are, and the marks that are sent to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_job.h"

#include "params/server/followers/change.h"
#include "params/server/followers/follower.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(followers_are_those_that_have_a_copy),
        cmocka_unit_test(one_mark_serves_the_answers_of_a_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
