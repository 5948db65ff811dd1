/* Shares that a stranger gives to a board: what is mapped, and what of it is shown. */
#include "board_scene.h"

#include <string.h>
#include <unistd.h>

#define SHARE_BYTES 8192u

/* Returns the type of the board's answer. */
static unsigned give_share(struct board_scene *scene, uint32_t number, uint64_t bytes, int seals,
                           unsigned fd_count)
{
    const struct muster_board_message share = {
        .magic = MUSTER_BOARD_MAGIC, .type = MUSTER_BOARD_SHARE, .share = number, .bytes = bytes};
    int fds[2] = {board_scene_memory_file("content", 8, SHARE_BYTES, seals), dup(0)};
    struct muster_board_message answer;
    unsigned type;

    while (board_scene_hear(scene, &answer) != 0) {
    }
    board_scene_say(scene, &share, fds, fd_count);
    type = board_scene_hear(scene, &answer);
    assert_int_equal(answer.share, number);
    close(fds[0]);
    close(fds[1]);
    return type;
}

static void a_share_that_is_not_what_it_says_is_not_mapped(void **state)
{
    static const struct {
        const char *name;
        uint32_t number;
        uint64_t bytes;
        int seals;
        unsigned fd_count;
        bool is_mapped;
    } rows[] = {
        {"as it should be", 6, SHARE_BYTES, SEALS, 1, true},
        {"sealed for good", 6, SHARE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, 1, true},
        {"the number of the one before", 5, SHARE_BYTES, SEALS, 1, false},
        {"a number before that", 4, SHARE_BYTES, SEALS, 1, false},
        {"no file", 6, SHARE_BYTES, SEALS, 0, false},
        {"two files", 6, SHARE_BYTES, SEALS, 2, false},
        {"nothing", 6, 0, SEALS, 1, false},
        {"less than there is", 6, SHARE_BYTES - 4096, SEALS, 1, false},
        {"more than there is", 6, SHARE_BYTES + 4096, SEALS, 1, false},
        {"as much as cannot be", 6, UINT64_MAX, SEALS, 1, false},
        {"writable", 6, SHARE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW, 1, false},
        {"may shrink", 6, SHARE_BYTES, F_SEAL_GROW | F_SEAL_FUTURE_WRITE, 1, false},
        {"may grow", 6, SHARE_BYTES, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE, 1, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct board_scene scene;
        unsigned answer, expected;

        board_scene_open_ready(&scene);
        assert_int_equal(give_share(&scene, 5, SHARE_BYTES, SEALS, 1), MUSTER_BOARD_SHARE_MAPPED);
        answer = give_share(&scene, rows[i].number, rows[i].bytes, rows[i].seals, rows[i].fd_count);
        expected = rows[i].is_mapped ? MUSTER_BOARD_SHARE_MAPPED : MUSTER_BOARD_SHARE_FAILED;

        if (answer != expected || scene.peer->is_failed ||
            (muster_board_share_at(scene.peer, 6, 0, 8) != NULL) != rows[i].is_mapped)
            fail_msg("%s: %u", rows[i].name, answer);
        assert_string_equal(muster_board_share_at(scene.peer, 5, 0, 8), "content");
        board_scene_close(&scene);
    }
}

static void nothing_outside_of_a_share_is_shown(void **state)
{
    static const struct {
        uint32_t share;
        uint64_t offset;
        size_t bytes;
        bool is_there;
    } rows[] = {
        {5, 0, SHARE_BYTES, true},
        {5, SHARE_BYTES - 1, 1, true},
        {5, 4, SHARE_BYTES - 4, true},
        {5, 0, SHARE_BYTES + 1, false},
        {5, 1, SHARE_BYTES, false},
        {5, SHARE_BYTES, 1, false},
        {5, UINT64_MAX, 2, false},
        {5, UINT64_MAX - SHARE_BYTES, SHARE_BYTES, false},
        {5, 1, SIZE_MAX, false},
        {4, 0, 1, false},
        {6, 0, 1, false},
    };
    struct board_scene scene;

    (void)state;
    board_scene_open_ready(&scene);
    assert_int_equal(give_share(&scene, 5, SHARE_BYTES, SEALS, 1), MUSTER_BOARD_SHARE_MAPPED);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint8_t *base = muster_board_share_at(scene.peer, 5, 0, 1);
        const uint8_t *at =
            muster_board_share_at(scene.peer, rows[i].share, rows[i].offset, rows[i].bytes);

        if (at != (rows[i].is_there ? base + rows[i].offset : NULL))
            fail_msg("row %zu", i);
    }
    board_scene_close(&scene);
}

/* Shares come, and go in any order. */
static void each_share_is_found_by_its_number(void **state)
{
    static const uint32_t numbers[] = {2, 3, 5, 8, 13, 21, 34, 55, 89};
    struct board_scene scene;
    size_t count = sizeof(numbers) / sizeof(numbers[0]);

    (void)state;
    for (size_t gone = 0; gone < count; gone++) {
        struct muster_board_message freed = {.magic = MUSTER_BOARD_MAGIC,
                                             .type = MUSTER_BOARD_SHARE_FREED};

        board_scene_open_ready(&scene);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(give_share(&scene, numbers[i], SHARE_BYTES, SEALS, 1),
                             MUSTER_BOARD_SHARE_MAPPED);
        freed.share = numbers[gone] + 100; /* there is no such */
        board_scene_say(&scene, &freed, NULL, 0);
        freed.share = numbers[gone];
        board_scene_say(&scene, &freed, NULL, 0);
        for (uint32_t number = 0; number < 100; number++) {
            bool is_there = false;

            for (size_t i = 0; i < count; i++)
                is_there = is_there || (numbers[i] == number && i != gone);
            if ((muster_board_share_at(scene.peer, number, 0, 1) != NULL) != is_there)
                fail_msg("share %u, without %u", number, numbers[gone]);
        }
        board_scene_close(&scene);
    }
}

/* The newest counts. */
static void a_share_that_the_peer_cannot_map_is_known(void **state)
{
    static const uint32_t numbers[] = {7, 0, 9};
    struct board_scene scene;

    (void)state;
    board_scene_open_ready(&scene);
    assert_int_equal(scene.peer->refused_end, 0);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const struct muster_board_message failed = {
            .magic = MUSTER_BOARD_MAGIC, .type = MUSTER_BOARD_SHARE_FAILED, .share = numbers[i]};

        board_scene_say(&scene, &failed, NULL, 0);
        assert_int_equal(scene.peer->refused_end, numbers[i] + 1);
    }
    assert_false(scene.peer->is_failed);
    board_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_that_is_not_what_it_says_is_not_mapped),
        cmocka_unit_test(nothing_outside_of_a_share_is_shown),
        cmocka_unit_test(each_share_is_found_by_its_number),
        cmocka_unit_test(a_share_that_the_peer_cannot_map_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
