/* Offers of bytes and wants: matched by step and key, each once. */
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include "cluster/server/buffer_rendezvous.h"

struct want {
    struct muster_buffer_take take;
    unsigned answers;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
    const struct muster_server_buffer *buffer;
};

struct offer {
    struct muster_server_buffer buffer;
    unsigned answers;
    enum muster_rc rc;
};

/* Static: what still waits when a case is over is told of the end. */
static struct fixture {
    struct test_env test;
    struct muster_buffer_rendezvous rendezvous;
    struct want wants[4];
    struct offer offers[4];
} fixture;

static int set_up(void **state)
{
    (void)state;
    test_env_open(&fixture.test);
    muster_buffer_rendezvous_init(&fixture.rendezvous, fixture.test.env.loop);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    muster_buffer_rendezvous_end(&fixture.rendezvous, MUSTER_CANCELLED, "over");
    test_env_turn(&fixture.test.env, 2);
    test_env_close(&fixture.test);
    return 0;
}

static void on_ready(struct muster_buffer_take *take, enum muster_rc rc, const char *text,
                     struct muster_server_buffer *buffer)
{
    struct want *want = MUSTER_CONTAINER_OF(take, struct want, take);

    want->answers++;
    want->rc = rc;
    (void)snprintf(want->text, sizeof(want->text), "%s", text != NULL ? text : "");
    want->buffer = buffer;
    if (buffer != NULL)
        muster_buffer_taken(&fixture.rendezvous, buffer, MUSTER_OK);
}

static void on_taken(struct muster_server_buffer *buffer, enum muster_rc rc)
{
    struct offer *offer = MUSTER_CONTAINER_OF(buffer, struct offer, buffer);

    offer->answers++;
    offer->rc = rc;
}

static void take_bytes(struct want *want, int64_t step_id, const char *key)
{
    *want = (struct want){.take = {.step_id = step_id, .key = key, .on_ready = on_ready}};
    muster_buffer_take(&fixture.rendezvous, &want->take);
}

static void offer_it(struct offer *offer, int64_t step_id, const char *key)
{
    *offer = (struct offer){.buffer = {.step_id = step_id, .key = key, .on_taken = on_taken}};
    assert_int_equal(muster_buffer_offer(&fixture.rendezvous, &offer->buffer), MUSTER_OK);
    test_env_turn(&fixture.test.env, 2);
}

static void steps_do_not_mix(void **state)
{
    struct want *wants = fixture.wants;
    struct offer *offers = fixture.offers;

    (void)state;
    take_bytes(&wants[0], 1, "key");
    take_bytes(&wants[1], 2, "key");
    offer_it(&offers[0], 2, "key");
    offer_it(&offers[1], 3, "key");
    take_bytes(&wants[2], 3, "key");

    assert_int_equal(wants[0].answers, 0);
    assert_ptr_equal(wants[1].buffer, &offers[0].buffer);
    assert_int_equal(offers[0].answers, 1);
    assert_ptr_equal(wants[2].buffer, &offers[1].buffer);
}

static void a_second_that_waits_is_refused(void **state)
{
    struct want *first = &fixture.wants[0], *second = &fixture.wants[1];
    struct offer *offer = &fixture.offers[0];

    (void)state;
    take_bytes(first, 0, "key");
    take_bytes(second, 0, "key");
    offer_it(offer, 0, "key");

    assert_int_equal(second->rc, MUSTER_INTERNAL);
    assert_string_equal(second->text, "Second consumer arrived for key key");
    assert_ptr_equal(first->buffer, &offer->buffer);
}

static void who_went_away_leaves_its_place(void **state)
{
    struct want *first = &fixture.wants[0], *second = &fixture.wants[1];
    struct offer *offer = &fixture.offers[0];

    (void)state;
    take_bytes(first, 0, "key");
    muster_buffer_drop(&fixture.rendezvous, &first->take);
    take_bytes(second, 0, "key");
    offer_it(offer, 0, "key");

    assert_int_equal(first->answers, 0);
    assert_ptr_equal(second->buffer, &offer->buffer);
}

static void after_the_end_all_end_so(void **state)
{
    struct want *waiting = &fixture.wants[0], *late = &fixture.wants[1];
    struct offer *lying = &fixture.offers[0], *coming = &fixture.offers[1];

    (void)state;
    take_bytes(waiting, 0, "wanted");
    offer_it(lying, 0, "offered");
    muster_buffer_rendezvous_end(&fixture.rendezvous, MUSTER_UNAVAILABLE, "peer lost");
    take_bytes(late, 0, "offered");
    offer_it(coming, 0, "wanted");

    assert_int_equal(waiting->rc, MUSTER_UNAVAILABLE);
    assert_string_equal(waiting->text, "peer lost");
    assert_int_equal(lying->rc, MUSTER_UNAVAILABLE);
    assert_int_equal(late->rc, MUSTER_UNAVAILABLE);
    assert_string_equal(late->text, "peer lost");
    assert_int_equal(coming->answers, 1);
    assert_int_equal(coming->rc, MUSTER_UNAVAILABLE);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest buffer_rendezvous[] = {
        CASE(steps_do_not_mix),
        CASE(a_second_that_waits_is_refused),
        CASE(who_went_away_leaves_its_place),
        CASE(after_the_end_all_end_so),
    };
    return cmocka_run_group_tests(buffer_rendezvous, NULL, NULL);
}
