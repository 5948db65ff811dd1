/* Servers that tell each other that they leave: only an acknowledgement says that the other one knows it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_job.h"
#include "params_peer.h"
#include "scene_case.h"

#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/server/registry/registration_internal.h"

/* The first of two servers says farewell to the second one, or to a server that the case plays. */
struct leaving {
    struct params_job job;
    struct muster_params_registration *registration; /* of the first */
    struct muster_params_peer *peer;                 /* the second, as the first knows it */
    struct params_host host;
};

static bool knows_the_other(void *data)
{
    struct leaving *leaving = data;

    leaving->peer = muster_params_peer_find(
        leaving->registration, &leaving->job.members[1].server->registration->record.server.id);
    return leaving->peer != NULL;
}

static void leaving_open(struct leaving *leaving)
{
    params_job_open(&leaving->job, 2, 1);
    leaving->registration = leaving->job.members[0].server->registration;
    test_env_run_until(leaving->job.env, knows_the_other, leaving);
    params_host_open(&leaving->host, leaving->job.env);
    leaving->host.map = NULL;
    leaving->host.hello.incarnation = leaving->peer->record.server.id;
}

static void leaving_close(struct leaving *leaving)
{
    params_host_close(&leaving->host);
    params_job_close(&leaving->job);
}

SCENE_CASES(struct leaving, leaving_open, leaving_close)

static void farewell_begin_to_the_host(struct leaving *leaving)
{
    char *address = leaving->peer->record.server.address;
    size_t bytes = strlen(leaving->host.address) + 1;

    assert_true(bytes <= sizeof(leaving->peer->record.server.address));
    memcpy(address, leaving->host.address, bytes);
    muster_params_farewells_send(leaving->registration);
    test_env_run_until(leaving->job.env, test_env_is_true, &leaving->host.peer.is_ready);
}

static bool is_over(void *data)
{
    return ((const struct muster_params_peer *)data)->farewell == NULL;
}

static void a_server_of_the_job_notes_a_farewell_and_acknowledges_it(void **state)
{
    struct leaving *leaving = *state;
    struct muster_params_registration *other = leaving->job.members[1].server->registration;

    muster_params_farewells_send(leaving->registration);
    test_env_run_until(leaving->job.env, is_over, leaving->peer);

    assert_true(leaving->peer->is_told);
    assert_true(
        muster_params_departure_has(&other->departures, &leaving->registration->record.server.id));
}

static void a_hello_alone_acknowledges_nothing(void **state)
{
    struct leaving *leaving = *state;

    farewell_begin_to_the_host(leaving);
    assert_int_equal(muster_peer_link_hello(leaving->host.peer.link)->purpose,
                     MUSTER_LINK_PARAMS_LEAVE);
    params_peer_close(&leaving->host.peer);
    test_env_run_until(leaving->job.env, is_over, leaving->peer);

    assert_false(leaving->peer->is_told);
    assert_int_equal(leaving->peer->unreached_count, 1);
}

static void another_message_acknowledges_nothing(void **state)
{
    static const struct muster_frame_header alive = {.channel = MUSTER_FRAME_PARAMS,
                                                     .type = MUSTER_PARAMS_ALIVE};
    struct leaving *leaving = *state;

    farewell_begin_to_the_host(leaving);
    params_peer_send(&leaving->host.peer, &alive, NULL);
    test_env_turn(leaving->job.env, 20);
    assert_false(leaving->peer->is_told);

    params_peer_send(
        &leaving->host.peer,
        &(struct muster_frame_header){.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_LEFT},
        NULL);
    test_env_run_until(leaving->job.env, is_over, leaving->peer);

    assert_true(leaving->peer->is_told);
}

/* The clock is not waited for: the attempt was begun earlier. */
static void a_server_that_stands_still_is_told_anew(void **state)
{
    struct leaving *leaving = *state;
    struct muster_peer_link *first;

    farewell_begin_to_the_host(leaving);
    first = leaving->peer->farewell;
    leaving->peer->farewell_ns = 0;
    muster_params_farewells_send(leaving->registration);
    assert_ptr_equal(leaving->peer->farewell, first);

    leaving->peer->acknowledged_ns = 0;
    leaving->host.peer.is_ready = false;
    muster_params_farewells_send(leaving->registration);

    test_env_run_until(leaving->job.env, test_env_is_true, &leaving->host.peer.is_ready);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_server_of_the_job_notes_a_farewell_and_acknowledges_it),
        CASE(a_hello_alone_acknowledges_nothing),
        CASE(another_message_acknowledges_nothing),
        CASE(a_server_that_stands_still_is_told_anew),
    };

    return cmocka_run_group_tests_name("params.server.registry.farewell", tests, NULL, NULL);
}
