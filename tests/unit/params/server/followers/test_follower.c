/* Followers of a server of a job: which servers they are, and the marks that are sent to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "held_port.h"
#include "params_job.h"

#include "params/server/followers/change.h"
#include "params/server/followers/follower_internal.h"

#include <stdio.h>
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

/* --- Followers that are not reached --- */

static char unreached_reason[320], unreached_address[MUSTER_PARAMS_ADDRESS_BYTES];

static void note_unreached(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                           const char *event, const struct muster_field *fields, size_t count)
{
    (void)log;
    (void)wall_ns;
    if (strcmp(event, "params_replica_unreached") != 0)
        return;
    told_count++;
    assert_int_equal(level, MUSTER_LOG_WARN);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].name, "address") == 0)
            snprintf(unreached_address, sizeof(unreached_address), "%s", fields[i].text);
        if (strcmp(fields[i].name, "reason") == 0)
            snprintf(unreached_reason, sizeof(unreached_reason), "%s", fields[i].text);
    }
}

static struct muster_params_follower *follower_of(const struct params_job *job)
{
    return MUSTER_CONTAINER_OF(job->members[0].server->followers.next,
                               struct muster_params_follower, node);
}

static bool is_told(void *data)
{
    return told_count >= *(const unsigned *)data;
}

/* As if so much time had passed without a link. */
static void follower_age(struct muster_params_follower *follower, uint64_t age_ns)
{
    follower->away_ns -= age_ns;
    follower->told_ns -= follower->told_ns > age_ns ? age_ns : 0;
}

/* The second server has told the registry an address at which nobody listens. */
static void a_wrong_address_of_a_server_is_told_by_those_that_copy_to_it(void **state)
{
    static const struct muster_log_ops log_ops = {.write = note_unreached};
    struct muster_log log = {.ops = &log_ops, .level_max = MUSTER_LOG_WARN};
    char reach[MUSTER_ADDRESS_TEXT_BYTES];
    struct held_ports ports = {.count = 0};
    struct muster_address address;
    static struct params_job job;

    (void)state;
    held_ports_take(&ports, &address);
    params_job_prepare(&job, 2, 2);
    job.members[1].reach = muster_address_format(&address, reach);
    for (uint32_t i = 0; i < 2; i++)
        params_job_member_open(&job, i);
    params_job_await_map(&job);
    job.members[0].env.log = &log;
    told_count = 0;
    for (unsigned told = 1; told <= 2; told++) {
        follower_age(follower_of(&job), 10 * MUSTER_NS_PER_S);
        test_env_run_until(job.env, is_told, &told);
    }

    assert_string_equal(unreached_address, reach);
    assert_non_null(strstr(unreached_reason, "its --reach (or --listen) must be an address"));
    job.members[0].env.log = NULL;
    params_job_close(&job);
    held_ports_release(&ports);
}

/* It was met at this address. */
static void the_remedy_is_for_servers_that_were_never_met(void **state)
{
    static const struct muster_log_ops log_ops = {.write = note_unreached};
    struct muster_log log = {.ops = &log_ops, .level_max = MUSTER_LOG_WARN};
    struct muster_params_follower *follower;
    static struct params_job job;

    (void)state;
    params_job_open(&job, 2, 2);
    follower = follower_of(&job);
    test_env_run_until(job.env, test_env_is_true, &follower->is_met);
    job.members[0].env.log = &log;
    told_count = 0;
    for (unsigned i = 0; i < 2; i++) {
        muster_params_follower_break(follower, "the case ends its link");
        if (i == 0) /* it has just been met */
            assert_int_equal(told_count, 0);
        follower_age(follower, 10 * MUSTER_NS_PER_S);
    }

    assert_int_equal(told_count, 1);
    assert_string_equal(unreached_reason, "the case ends its link");
    job.members[0].env.log = NULL;
    params_job_close(&job);
}

/* --- Warnings --- */

static const char *const warnings[] = {"params_copy_full", "params_copy_differs"};
static char warned[2][MUSTER_PARAMS_ADDRESS_BYTES];

static void note_address(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                         const char *event, const struct muster_field *fields, size_t count)
{
    (void)log;
    (void)level;
    (void)wall_ns;
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; strcmp(event, warnings[i]) == 0 && j < count; j++) {
            if (strcmp(fields[j].name, "address") == 0)
                snprintf(warned[i], sizeof(warned[i]), "%s", fields[j].text);
        }
    }
}

static void warnings_name_the_address_of_the_copy(void **state)
{
    static const struct muster_log_ops log_ops = {.write = note_address};
    struct muster_log log = {.ops = &log_ops, .level_max = MUSTER_LOG_WARN};
    struct muster_params_follower *follower;
    static struct params_job job;

    (void)state;
    memset(warned, 0, sizeof(warned));
    params_job_open(&job, 2, 2);
    follower = follower_of(&job);
    job.members[0].env.log = &log;
    muster_params_copy_full(follower, 0);

    for (size_t i = 0; i < 2; i++)
        assert_string_equal(warned[i], job.members[1].address);
    memset(warned, 0, sizeof(warned));
    muster_params_copy_stale(follower, 1); /* until the next map drops both */
    assert_string_equal(warned[1], "");
    job.members[0].env.log = NULL;
    params_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(followers_are_those_that_have_a_copy),
        cmocka_unit_test(one_mark_serves_the_answers_of_a_turn),
        cmocka_unit_test(another_server_at_the_address_of_a_follower_is_sent_nothing),
        cmocka_unit_test(a_wrong_address_of_a_server_is_told_by_those_that_copy_to_it),
        cmocka_unit_test(the_remedy_is_for_servers_that_were_never_met),
        cmocka_unit_test(warnings_name_the_address_of_the_copy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
