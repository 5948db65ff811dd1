/* Answers that wait to be sent, of all connections: refusals first, then ends, and service for those
 * who read. */
#include "rpc_attack.h"

#include "net/grpc/status.h"

#define BUDGET  (8 * MIB)
#define CROWD   40
#define ASKED   10 /* MiB, by each */
#define CALM    11 /* ENHANCE_YOUR_CALM */
#define TEXT    "unsent_answers"
#define READING 0x7fff0000

static const uint32_t no_window[1][2] = {{4, 0}};

static int set_up(void **state)
{
    const struct muster_rpc_server_options options = {.unsent_max_bytes = BUDGET};

    return rpc_stand_set_up_with(state, &options);
}

static struct rpc_raw *staller_open(struct rpc_stand *stand)
{
    struct rpc_raw *raw = rpc_raw_connect(stand);

    rpc_raw_greet(raw, no_window, 1);
    return raw;
}

static unsigned refused_count(const struct rpc_raw *raw, unsigned asked)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < asked; i++)
        count += rpc_raw_status(raw, 2 * i + 1) == MUSTER_RESOURCE_EXHAUSTED;
    return count;
}

/* One call after another, each on a stream of its own. */
static void ask_often(struct rpc_raw *raw, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        rpc_raw_ask(raw, 2 * i + 1, "/t/Give");
}

/* All of the crowd ask, each for ASKED answers of a MiB. */
static void crowd_asks(struct rpc_stand *stand, struct rpc_raw **crowd, const char *path)
{
    for (unsigned i = 0; i < CROWD; i++)
        crowd[i] = staller_open(stand);
    for (unsigned k = 0; k < ASKED; k++) {
        for (unsigned i = 0; i < CROWD; i++)
            rpc_raw_ask(crowd[i], 2 * k + 1, path);
    }
    rpc_stand_advance(stand, 0);
}

static unsigned expelled_count(struct rpc_raw *const *crowd)
{
    unsigned count = 0;

    for (unsigned i = 0; i < CROWD; i++)
        count += rpc_raw_goaway_code(crowd[i]) == CALM && rpc_raw_has_goaway_text(crowd[i], TEXT);
    return count;
}

static unsigned crowd_refused(struct rpc_raw *const *crowd)
{
    unsigned count = 0;

    for (unsigned i = 0; i < CROWD; i++)
        count += refused_count(crowd[i], ASKED);
    return count;
}

static void a_crowd_is_refused_then_ended(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *bystander = rpc_raw_open(stand), *crowd[CROWD];
    size_t before = stand->test.mem.held_bytes;
    uint32_t stream = 1;

    stand->test.mem.held_peak_bytes = before;
    crowd_asks(stand, crowd, "/t/Give");
    assert_int_equal(crowd_refused(crowd),
                     CROWD * ASKED - BUDGET / MIB + 1); /* with gRPC's prefix 7 fit */
    assert_int_equal(expelled_count(crowd), 0);
    rpc_raw_check_served(bystander, stream);

    for (unsigned i = 0; i < 12; i++) {
        rpc_stand_advance(stand, MUSTER_NS_PER_S / 4);
        rpc_raw_check_served(bystander, stream += 2);
    }
    assert_in_range(expelled_count(crowd), 1, BUDGET / MIB); /* until there is room, and no more */
    assert_true(stand->test.mem.held_peak_bytes - before < BUDGET + 8 * MIB);
    rpc_raw_ask(bystander, stream + 2, "/t/Give");
    rpc_stand_advance(stand, 0);
    assert_int_equal(rpc_raw_data_bytes(bystander, stream + 2), 65535 - 7 * (stream / 2 + 1));
}

static void lent_answers_count(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *crowd[CROWD];

    crowd_asks(stand, crowd, "/t/Lend");

    assert_int_equal(crowd_refused(crowd), CROWD * ASKED - BUDGET / MIB + 1);
    rpc_stand_advance(stand, 3 * MUSTER_NS_PER_S);
    assert_in_range(expelled_count(crowd), 1, BUDGET / MIB);
}

static void who_has_stalled_longest_goes_first(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *late = staller_open(stand), *early = staller_open(stand), *full;

    ask_often(early, 4);
    rpc_stand_advance(stand, 10 * MUSTER_NS_PER_S);
    ask_often(late, 3);
    rpc_stand_advance(stand, 10 * MUSTER_NS_PER_S);
    assert_int_equal(rpc_raw_goaway_code(early), -1); /* nobody needs the room */
    full = staller_open(stand);
    ask_often(full, 8);
    rpc_stand_advance(stand, MUSTER_NS_PER_S / 4);

    assert_int_equal(rpc_raw_goaway_code(early), CALM);
    assert_int_equal(rpc_raw_goaway_code(late), -1);
    assert_int_equal(rpc_raw_goaway_code(full), -1);
}

/* In whatever order they came. */
static void of_those_that_stalled_together_the_one_with_most_goes(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *first = staller_open(stand), *heavy = staller_open(stand);
    struct rpc_raw *last = staller_open(stand);

    ask_often(first, 2);
    ask_often(heavy, 4); /* one of them finds no room */
    ask_often(last, 2);
    rpc_stand_advance(stand, 5 * MUSTER_NS_PER_S / 4);

    assert_int_equal(rpc_raw_goaway_code(heavy), CALM);
    assert_int_equal(rpc_raw_goaway_code(first), -1);
    assert_int_equal(rpc_raw_goaway_code(last), -1);
}

/* Less than half its share: another one takes the room. */
static void who_has_little_is_not_ended(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *little = staller_open(stand), *other = staller_open(stand), *full;

    ask_often(little, 1);
    ask_often(other, 1);
    rpc_stand_advance(stand, 10 * MUSTER_NS_PER_S);
    full = staller_open(stand);
    ask_often(full, 8);
    rpc_stand_advance(stand, 3 * MUSTER_NS_PER_S);

    assert_int_equal(rpc_raw_goaway_code(full), CALM);
    assert_true(full->played.is_closed); /* it had a second to read the farewell */
    assert_int_equal(rpc_raw_goaway_code(little), -1);
    assert_int_equal(rpc_raw_goaway_code(other), -1);
}

static void a_client_that_reads_is_not_ended(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *reader = staller_open(stand), *staller = staller_open(stand);
    unsigned refused = 0;

    rpc_raw_window(reader, 0, READING);
    ask_often(reader, 5);
    ask_often(staller, 8);
    for (unsigned i = 0; i < 20; i++) {
        for (uint32_t k = 0; k < 5; k++)
            rpc_raw_window(reader, 2 * k + 1, 16 * KIB);
        rpc_stand_advance(stand, MUSTER_NS_PER_S / 4);
    }
    refused = refused_count(staller, 8);

    assert_true(refused > 0);
    assert_int_equal(rpc_raw_goaway_code(reader), -1);
    assert_int_equal(rpc_raw_goaway_code(staller), CALM);
}

static void a_single_byte_of_window_now_and_then_is_not_reading(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *dribbler = staller_open(stand);

    ask_often(dribbler, 9);
    for (unsigned i = 0; i < 12; i++) {
        for (uint32_t k = 0; k < 9; k++)
            rpc_raw_window(dribbler, 2 * k + 1, 1);
        rpc_stand_advance(stand, MUSTER_NS_PER_S / 8);
    }

    assert_int_equal(rpc_raw_goaway_code(dribbler), CALM);
}

static void a_socket_that_is_not_read_is_ended(void **state)
{
    struct rpc_stand *stand = *state;
    struct rpc_raw *stuck = rpc_raw_open(stand), *bystander;

    rpc_raw_window(stuck, 0, READING);
    stuck->played.is_stuck = true;
    ask_often(stuck, 9);
    rpc_stand_advance(stand, 2 * MUSTER_NS_PER_S);
    bystander = rpc_raw_open(stand);

    rpc_raw_check_served(bystander, 1);
    assert_true(stuck->played.is_closed);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_stand_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_crowd_is_refused_then_ended),
        CASE(lent_answers_count),
        CASE(who_has_stalled_longest_goes_first),
        CASE(of_those_that_stalled_together_the_one_with_most_goes),
        CASE(who_has_little_is_not_ended),
        CASE(a_client_that_reads_is_not_ended),
        CASE(a_single_byte_of_window_now_and_then_is_not_reading),
        CASE(a_socket_that_is_not_read_is_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
