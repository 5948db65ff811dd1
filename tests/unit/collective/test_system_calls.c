/* Boards of two members in one process, while their system calls or their memory fail in turn: each is told
 * that the other is ready or why it is not, and what the system had is given back. */
#include "collective/board/board_internal.h"
#include "torture_calls.h"

#include <muster/collective.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BOARD_BYTES 10000u
#define VALUE       UINT64_C(0x1234567890abcdef)

struct side {
    struct muster_member member;
    struct muster_board *board;     /* NULL: it could not be opened */
    struct muster_board_peer *peer; /* NULL: nor connected */
    unsigned told, signalled;
};

struct scene {
    struct test_env test;
    struct side sides[2]; /* the first has the smaller incarnation: it connects */
    uint32_t share;       /* of the first; behind the outcome of connect */
};

static void on_peer(void *data, struct muster_board_peer *peer)
{
    struct side *side = data;

    assert_ptr_equal(peer, side->peer);
    assert_true(peer->is_ready || peer->is_failed);
    assert_true(!peer->is_failed || peer->why.text[0] != '\0');
    side->told++;
}

static void on_signal(void *data)
{
    struct side *side = data;

    side->signalled++;
}

static const struct muster_board_events events = {.on_peer = on_peer, .on_signal = on_signal};

static enum muster_rc open_side(struct scene *scene, unsigned i)
{
    struct side *side = &scene->sides[i];
    struct muster_board_options options = {.env = &scene->test.env,
                                           .job = "torture",
                                           .self = &side->member,
                                           .memory_bytes = BOARD_BYTES};
    struct muster_error error = {.text = ""};
    pid_t pid = getpid();
    enum muster_rc rc;

    *side = (struct side){.member.pid = pid};
    side->member.incarnation.bytes[0] = (uint8_t)(i + 1);
    memcpy(side->member.incarnation.bytes + 8, &pid, sizeof(pid)); /* cases run side by side */
    rc = muster_board_system_open(&options, &side->board, &error);
    if (rc != MUSTER_OK) {
        assert_int_not_equal(error.text[0], '\0');
        side->board = NULL;
        return rc;
    }
    side->board->events = &events;
    side->board->events_data = side;
    side->board->memory[BOARD_BYTES - 1] = (uint8_t)(i + 40);
    return MUSTER_OK;
}

static bool is_open(const struct scene *scene)
{
    return scene->sides[0].board != NULL && scene->sides[1].board != NULL;
}

static bool are_ready(const struct scene *scene)
{
    for (unsigned i = 0; i < 2; i++)
        if (scene->sides[i].peer == NULL || !scene->sides[i].peer->is_ready ||
            scene->sides[i].peer->is_failed)
            return false;
    return true;
}

/* The other side of one that has failed waits for it for 5 s. */
static bool is_outcome_known(void *data)
{
    const struct side *sides = ((const struct scene *)data)->sides;

    return (sides[0].told > 0 && sides[1].told > 0) || sides[0].peer->is_failed ||
           sides[1].peer->is_failed;
}

static void connect_sides(struct scene *scene)
{
    for (unsigned i = 0; i < 2; i++)
        if (muster_board_connect(scene->sides[i].board, &scene->sides[1 - i].member,
                                 &scene->sides[i].peer) != MUSTER_OK)
            scene->sides[i].peer = NULL;
    if (scene->sides[0].peer == NULL || scene->sides[1].peer == NULL)
        return; /* the other one would wait for it in vain */
    test_env_run_until(&scene->test.env, is_outcome_known, scene);
}

/* A read of the other's memory gives its value or fails; a failure must not report bytes as read. */
static void read_memory(struct scene *scene)
{
    uint64_t value = VALUE, found = 0;
    const struct muster_board_peer *peer = scene->sides[0].peer;

    if (muster_board_read_memory(peer, (uint64_t)(uintptr_t)&value, &found, sizeof(found)) ==
        MUSTER_OK)
        assert_true(found == VALUE);
    assert_int_equal(peer->memory[BOARD_BYTES - 1], 41);
}

static bool is_share_known(void *data)
{
    const struct scene *scene = data;

    return !are_ready(scene) || scene->sides[0].peer->refused_end > scene->share ||
           muster_board_is_share_mapped(scene->sides[0].board, scene->share, scene->sides[0].peer);
}

static bool is_signalled(void *data)
{
    const struct scene *scene = data;

    return !are_ready(scene) || scene->sides[1].signalled > 0;
}

/* A tensor of the first, which the second maps. */
static void share_tensor(struct scene *scene)
{
    struct muster_tensor tensor;
    const uint8_t *mapped;
    uint64_t offset = 0;

    if (muster_tensor_new(&scene->test.env, MUSTER_U8, 5, &tensor) != MUSTER_OK)
        return;
    memcpy(tensor.data, "share", 5);
    if (muster_board_find_share(scene->sides[0].board, tensor.data, 5, &scene->share, &offset)) {
        test_env_run_until(&scene->test.env, is_share_known, scene);
        mapped = muster_board_share_at(scene->sides[1].peer, scene->share, offset, 5);
        if (mapped != NULL)
            assert_memory_equal(mapped, "share", 5);
    }
    muster_tensor_free(&scene->test.env, &tensor);
}

static void play_call(struct scene *scene)
{
    struct muster_tensor early;
    enum muster_rc rc = muster_tensor_new(&scene->test.env, MUSTER_F32, 100, &early);

    for (unsigned i = 0; i < 2; i++)
        if (open_side(scene, i) != MUSTER_OK)
            break;
    if (is_open(scene))
        connect_sides(scene);
    if (are_ready(scene)) {
        read_memory(scene);
        share_tensor(scene);
    }
    if (are_ready(scene)) {
        muster_board_signal(scene->sides[0].board, scene->sides[0].peer);
        test_env_run_until(&scene->test.env, is_signalled, scene);
    }
    if (rc == MUSTER_OK)
        muster_tensor_free(&scene->test.env, &early);
}

static void close_sides(struct scene *scene)
{
    for (unsigned i = 0; i < 2; i++)
        muster_board_close(scene->sides[i].board);
}

static void run_scenario(struct torture *torture, const void *data)
{
    static struct scene scene;
    size_t count = torture_count_descriptors();
    bool is_of_calls = *(const bool *)data;

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    if (is_of_calls)
        torture_arm_calls(torture);
    else
        torture_arm_limited(torture, &scene.test.mem);
    play_call(&scene);
    torture_disarm(torture);
    close_sides(&scene);

    for (unsigned i = 0; i < 2; i++) /* at the same names */
        assert_int_equal(open_side(&scene, i), MUSTER_OK);
    connect_sides(&scene);
    assert_true(are_ready(&scene));
    close_sides(&scene);
    test_env_close(&scene.test);
    assert_int_equal(torture_count_descriptors(), count);
}

static void boards_are_ready_or_say_why_they_are_not(void **state)
{
    static const bool is_of_calls = true, is_of_memory = false;
    static const struct torture_scenario scenarios[] = {
        {"boards, system calls", run_scenario, &is_of_calls, TORTURE_CALL_VARIANTS, 0},
        {"boards, memory", run_scenario, &is_of_memory, 0, 0},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(boards_are_ready_or_say_why_they_are_not, torture_tell),
    };

    return cmocka_run_group_tests_name("system_calls", tests, NULL, NULL);
}
