/* Rounds as a client hears of them: it tells all servers, those too that come back, before it goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_puppet_calls.h"

#include <string.h>

#define SERVERS 2u

static const struct muster_params_schema sums = {.name = "sums",
                                                 .row_elements = 1,
                                                 .wire_dtype = MUSTER_F32,
                                                 .optimizer = MUSTER_PARAMS_ADD,
                                                 .is_by_round = true};

struct scene {
    struct params_puppets puppets;
    struct muster_params_table *table;
    bool is_closed; /* the client */
};

static void scene_open(struct scene *scene)
{
    scene->is_closed = false;
    params_puppets_open(&scene->puppets, SERVERS);
    scene->puppets.clock_sources = 1;
    params_puppets_client(&scene->puppets, NULL);
    params_puppets_client_await(&scene->puppets);
    scene->table = params_puppets_table(&scene->puppets, &sums);
}

static void scene_close(struct scene *scene)
{
    if (!scene->is_closed)
        (void)params_puppets_client_close(&scene->puppets);
    params_puppets_close(&scene->puppets);
}

static void round_tell(struct scene *scene, uint32_t puppet, uint64_t number)
{
    const struct muster_params_round_source source = {.id = {{9}}, .weight = 0.5};
    const struct muster_params_round round = {
        .round = number, .table = 5 + puppet, .source_count = 1, .sources = &source};
    uint8_t bytes[256];
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_ROUND,
                                               .payload_bytes =
                                                   (uint32_t)muster_params_round_bytes(&round)};

    muster_params_round_pack(&round, bytes);
    params_puppet_send(&scene->puppets.list[puppet], &header, bytes);
}

static void frame_check(const struct params_puppet_frame *frame, uint32_t puppet, uint64_t number)
{
    struct muster_params_round round;
    struct muster_error error;

    assert_int_equal(frame->header.type, MUSTER_PARAMS_ROUND);
    assert_int_equal(
        muster_params_round_unpack(frame->payload, frame->header.payload_bytes, &round, &error),
        MUSTER_OK);
    assert_int_equal(round.round, number);
    assert_int_equal(round.table, 5 + puppet); /* as that server numbers it */
    assert_int_equal(round.source_count, 1);
    assert_int_equal(round.sources[0].id.bytes[0], 9);
    assert_true(round.sources[0].weight == 0.5);
}

static void all_servers_hear_of_a_round_from_the_client(void **state)
{
    struct scene scene;
    struct params_puppet_frame frame;

    (void)state;
    scene_open(&scene);
    for (uint64_t number = 0; number < 3; number++) {
        round_tell(&scene, 0, number);
        frame = params_puppet_await(&scene.puppets.list[1]);
        frame_check(&frame, 1, number);
        puppet_quiet_expect(&scene.puppets, 0);
        round_tell(&scene, 1, number); /* it is known */
        assert_int_equal(muster_params_table_round(scene.table), number + 1);
    }
    puppet_quiet_expect(&scene.puppets, 0);
    puppet_quiet_expect(&scene.puppets, 1);
    scene_close(&scene);
}

/* Answers what a new link asks until it is told of the round. */
static void link_await_round(struct scene *scene, uint32_t index, uint64_t number)
{
    struct params_puppet *puppet = &scene->puppets.list[index];

    for (;;) {
        struct params_puppet_frame frame = params_puppet_await(puppet);

        switch (frame.header.type) {
        case MUSTER_PARAMS_OPEN:
            params_puppet_opened(puppet, 10 + index, 1, 1);
            break;
        case MUSTER_PARAMS_TABLE:
            params_puppet_table_opened(puppet, &frame, 5 + index);
            break;
        case MUSTER_PARAMS_TICK:
            break;
        default:
            frame_check(&frame, index, number);
            return;
        }
    }
}

static void a_server_that_comes_back_is_told_again(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    round_tell(&scene, 0, 0);
    (void)params_puppet_expect(&scene.puppets.list[1], MUSTER_PARAMS_ROUND);
    params_puppet_hang_up(&scene.puppets.list[1]);
    link_await_round(&scene, 1, 0);
    params_puppet_hang_up(&scene.puppets.list[0]); /* the one that told it, too */
    link_await_round(&scene, 0, 0);
    scene_close(&scene);
}

/* The link that has no memory for the message is given up, and the next one begins with it. */
static void a_round_is_told_though_memory_ends(void **state)
{
    bool is_over = false;

    (void)state;
    for (uint64_t i = 1; !is_over; i++) {
        struct scene scene;
        struct muster_mem_limited *mem = &scene.puppets.test.mem;

        scene_open(&scene);
        round_tell(&scene, 0, 0);
        (void)params_puppet_expect(&scene.puppets.list[1], MUSTER_PARAMS_ROUND);
        params_puppet_hang_up(&scene.puppets.list[1]);
        (void)params_puppet_expect(&scene.puppets.list[1], MUSTER_PARAMS_OPEN);
        params_puppet_opened(&scene.puppets.list[1], 11, 1, 1);
        mem->fail_at = i;
        for (int turn = 0; turn < 4 && mem->fail_at != 0; turn++)
            test_env_turn(scene.puppets.env, 1);
        is_over = mem->fail_at != 0;
        mem->fail_at = 0;
        link_await_round(&scene, 1, 0);
        scene_close(&scene);
    }
}

/* The server would refuse it: the round before it is open. */
static void a_tick_waits_for_the_end_of_the_round_before(void **state)
{
    struct scene scene;
    struct params_call ticks[2] = {{.op = {.data = &ticks[0]}}, {.op = {.data = &ticks[1]}}};

    (void)state;
    scene_open(&scene);
    for (uint64_t clock = 1; clock <= 2; clock++)
        assert_int_equal(muster_params_tick_start(&ticks[clock - 1].op, scene.puppets.params, clock,
                                                  puppet_deadline(&scene.puppets), params_on_call),
                         MUSTER_OK);
    for (uint32_t i = 0; i < SERVERS; i++) {
        (void)params_puppet_expect(&scene.puppets.list[i], MUSTER_PARAMS_TICK);
        puppet_quiet_expect(&scene.puppets, i);
    }
    round_tell(&scene, 0, 0);
    (void)params_puppet_expect(&scene.puppets.list[1], MUSTER_PARAMS_ROUND);
    for (uint32_t i = 0; i < SERVERS; i++)
        (void)params_puppet_expect(&scene.puppets.list[i], MUSTER_PARAMS_TICK);
    scene.is_closed = true;
    (void)params_puppets_client_close(&scene.puppets); /* before the ticks, which are its own */
    assert_true(ticks[0].is_done && ticks[1].is_done);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_servers_hear_of_a_round_from_the_client),
        cmocka_unit_test(a_server_that_comes_back_is_told_again),
        cmocka_unit_test(a_round_is_told_though_memory_ends),
        cmocka_unit_test(a_tick_waits_for_the_end_of_the_round_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
