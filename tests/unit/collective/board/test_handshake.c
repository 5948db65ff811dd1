/* Strangers at a board: some are served and their boards mapped, the others are refused and nothing of theirs
 * stays here. */
#include "board_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRANGERS 256u

static struct board_scene scene;

static int scene_tear_down(void **state)
{
    (void)state;
    if (scene.board != NULL)
        board_scene_close(&scene);
    return 0;
}

#define CASE(name) cmocka_unit_test_teardown(name, scene_tear_down)

/* --- Cases: who is let in --- */

static void who_is_expected_is_served_whichever_side_dials(void **state)
{
    (void)state;
    for (unsigned dials = 0; dials < 2; dials++) {
        board_scene_open_met(&scene, dials);
        board_scene_say_hello(&scene);
        board_scene_check_ready(&scene);

        assert_int_equal(scene.peer->memory_bytes, 8192);
        assert_true(scene.peer->can_read_memory || scene.peer->read_why.sys != 0);
        assert_false(board_scene_has_hung_up(&scene));
        board_scene_close(&scene);
    }
}

static void who_comes_before_it_is_wanted_waits(void **state)
{
    (void)state;
    board_scene_open(&scene, false);
    board_scene_knock(&scene);
    board_scene_say_hello(&scene);
    board_scene_say_type(&scene, MUSTER_BOARD_SHARES_END);
    assert_false(board_scene_has_hung_up(&scene));
    board_scene_ask_for_peer(&scene);
    board_scene_say_type(&scene, MUSTER_BOARD_MAPPED);

    assert_true(scene.peer->is_ready);
}

static const char job_without_end[] = "j";

/* One that fills the message is the same as the board's but for the end. */
static void say_job(const char *job)
{
    size_t size = sizeof(scene.hello.job);

    if (job != job_without_end) {
        snprintf(scene.hello.job, size, "%s", job);
        return;
    }
    memset(scene.hello.job, 'j', size);
    memset(board_scene_system_of(&scene)->job, 'j', size - 1);
}

/* Neither side of a connection believes them, and nothing of theirs is mapped. */
static void strangers_are_hung_up_on(void **state)
{
    static const struct {
        const char *name;
        const char *why; /* where the board has dialled */
        unsigned type;   /* 0: as it should be … */
        const char *job; /* … NULL: the same */
        uint8_t to_xor, magic_xor;
    } rows[] = {
        {"something else than a hello", "it does not begin with HELLO",
         .type = MUSTER_BOARD_SHARES_END},
        {"another job", "it belongs to another job", .job = "job2"},
        {"a job without end", "it belongs to another job", .job = job_without_end},
        {"for another process", "it looks for another process", .to_xor = 1},
        {"another protocol", "it has closed the connection", .magic_xor = 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (unsigned dials = 0; dials < 2; dials++) {
            board_scene_open_met(&scene, dials);
            if (rows[i].type != 0)
                scene.hello.type = rows[i].type;
            if (rows[i].job != NULL)
                say_job(rows[i].job);
            scene.hello.to.bytes[15] ^= rows[i].to_xor;
            scene.hello.magic ^= rows[i].magic_xor;
            board_scene_say_hello(&scene);

            if (!board_scene_has_hung_up(&scene) || scene.peer->memory != NULL ||
                scene.peer->is_failed != dials)
                fail_msg("%s, %u", rows[i].name, dials);
            if (dials)
                assert_string_equal(scene.peer->why.text, rows[i].why);
            assert_int_equal(board_scene_system_of(&scene)->unmatched_count, 0);
            board_scene_close(&scene);
        }
    }
}

static void another_user_is_not_served(void **state)
{
    (void)state;
    board_scene_set_uid_more(1);
    board_scene_open_met(&scene, false);
    assert_true(board_scene_has_hung_up(&scene));
    assert_int_equal(board_scene_system_of(&scene)->unmatched_count, 0);
    board_scene_close(&scene);

    board_scene_set_uid_more(1);
    board_scene_open_met(&scene, true);
    assert_true(scene.peer->is_failed);
    assert_int_equal(scene.peer->why.rc, MUSTER_PERMISSION_DENIED);
    assert_string_equal(scene.peer->why.text, "it belongs to another user");
    assert_true(board_scene_has_hung_up(&scene));
    board_scene_close(&scene);
}

/* The process that the board has dialled says to be a third one. */
static void who_answers_in_another_name_is_refused(void **state)
{
    (void)state;
    board_scene_open_met(&scene, true);
    scene.hello.from.bytes[15] ^= 1;
    board_scene_say_hello(&scene);

    assert_true(scene.peer->is_failed);
    assert_string_equal(scene.peer->why.text, "another process answers");
    assert_null(scene.peer->memory);
}

/* The first one counts: before it is wanted, and after. */
static void a_name_is_taken_once(void **state)
{
    (void)state;
    for (unsigned is_wanted = 0; is_wanted < 2; is_wanted++) {
        int first;

        board_scene_open(&scene, false);
        if (is_wanted)
            board_scene_ask_for_peer(&scene);
        board_scene_knock(&scene);
        board_scene_say_hello(&scene);
        first = scene.raw;
        board_scene_knock(&scene);
        board_scene_say_hello(&scene);
        assert_true(board_scene_has_hung_up(&scene));
        close(scene.raw);
        scene.raw = first;
        assert_false(board_scene_has_hung_up(&scene));
        if (!is_wanted)
            board_scene_ask_for_peer(&scene);
        board_scene_check_ready(&scene);

        assert_int_equal(board_scene_system_of(&scene)->unmatched_count, 0);
        board_scene_close(&scene);
    }
}

/* Behind a hello a stranger is not read; who goes on anyway is served in order. */
static void a_third_one_is_not_taken_for_the_wanted(void **state)
{
    (void)state;
    board_scene_open_met(&scene, false);
    scene.hello.from.bytes[15] ^= 1;
    board_scene_say_hello(&scene);

    assert_false(board_scene_has_hung_up(&scene)); /* somebody may ask for it yet */
    assert_int_equal(board_scene_system_of(&scene)->unmatched_count, 1);
    assert_false(scene.peer->is_failed);
    assert_null(scene.peer->memory);
}

static void strangers_are_bounded(void **state)
{
    int sockets[STRANGERS];

    (void)state;
    board_scene_open(&scene, false);
    for (unsigned i = 0; i < STRANGERS; i++) {
        board_scene_knock(&scene);
        sockets[i] = scene.raw;
    }
    assert_int_equal(board_scene_system_of(&scene)->unmatched_count, STRANGERS);
    board_scene_knock(&scene);
    assert_true(board_scene_has_hung_up(&scene));
    close(scene.raw);
    scene.raw = sockets[0];
    assert_false(board_scene_has_hung_up(&scene));

    /* A silent connection is not kept; the deadlines are moved, not waited for. */
    for (struct muster_list *node = board_scene_system_of(&scene)->unmatched.next;
         node != &board_scene_system_of(&scene)->unmatched; node = node->next) {
        struct muster_board_link *link = MUSTER_CONTAINER_OF(node, struct muster_board_link, node);

        assert_true(muster_timer_is_started(&link->timer));
        muster_timer_start(&link->timer, scene.test.env.loop, 0);
    }
    test_env_turn(&scene.test.env, 30);
    assert_int_equal(board_scene_system_of(&scene)->unmatched_count, 0);
    for (unsigned i = 1; i < STRANGERS; i++)
        close(sockets[i]);
}

/* --- Cases: what is mapped --- */

#define NOT_AS_IT_SAYS "its board does not match its HELLO"
#define NOT_MAPPED     "its board cannot be mapped, or others could write it"

static void a_board_that_is_not_what_it_says_is_not_used(void **state)
{
    static const struct {
        const char *name;
        const char *why;
        int fds_more, seals_off;
        int said_more, page_more, file_more; /* bytes: in the hello, in the page, in truth */
        uint64_t magic_xor;
        uint8_t incarnation_xor;
    } rows[] = {
        {"one file", NOT_AS_IT_SAYS, .fds_more = -1},
        {"no file", NOT_AS_IT_SAYS, .fds_more = -2},
        {"three files", "this process has no descriptor left", .fds_more = 1},
        {"no memory behind the page", NOT_AS_IT_SAYS, .said_more = -8192, .page_more = -8192,
         .file_more = -8192},
        {"more than there is", NOT_MAPPED, .said_more = 4096, .page_more = 4096},
        {"less than there is", NOT_MAPPED, .said_more = -4096, .page_more = -4096},
        {"another size inside", NOT_AS_IT_SAYS, .page_more = -1},
        {"no board", NOT_AS_IT_SAYS, .magic_xor = UINT64_C(1) << 63},
        {"the board of another", NOT_AS_IT_SAYS, .incarnation_xor = 1},
        {"no seal", NOT_MAPPED, .seals_off = SEALS},
        {"writable", NOT_MAPPED, .seals_off = F_SEAL_FUTURE_WRITE},
        {"may shrink", NOT_MAPPED, .seals_off = F_SEAL_SHRINK},
        {"may grow", NOT_MAPPED, .seals_off = F_SEAL_GROW},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        board_scene_open_met(&scene, false);
        scene.fd_count += (unsigned)rows[i].fds_more;
        scene.seals &= ~rows[i].seals_off;
        scene.hello.bytes += (uint64_t)rows[i].said_more;
        scene.page.segment_bytes += (uint64_t)rows[i].page_more;
        scene.file_bytes += (size_t)rows[i].file_more;
        scene.page.magic ^= rows[i].magic_xor;
        scene.page.incarnation.bytes[15] ^= rows[i].incarnation_xor;
        board_scene_say_hello(&scene);

        if (!scene.peer->is_failed || scene.peer->memory != NULL ||
            strcmp(scene.peer->why.text, rows[i].why) != 0)
            fail_msg("%s: %s", rows[i].name, scene.peer->why.text);
        assert_int_equal(scene.peer->why.rc, MUSTER_UNAVAILABLE);
        assert_int_equal(scene.told_count, 1);
        assert_true(board_scene_has_hung_up(&scene));
        muster_board_release(scene.board, scene.peer);
        board_scene_close(&scene);
    }
}

/* A word that is another's: the process of that number is not the peer. */
static void memory_of_another_process_is_not_read(void **state)
{
    (void)state;
    board_scene_open_met(&scene, false);
    scene.probe = 78;
    board_scene_say_hello(&scene);
    board_scene_check_ready(&scene);

    assert_false(scene.peer->can_read_memory);
    assert_true(scene.peer->read_why.rc == MUSTER_FAILED_PRECONDITION ||
                scene.peer->read_why.sys != 0); /* where no memory may be read */
    assert_int_equal(muster_board_read_memory(scene.peer, (uint64_t)(uintptr_t)&scene.probe,
                                              &scene.probe, sizeof(scene.probe)),
                     MUSTER_PERMISSION_DENIED);
}

static void the_user_may_forbid_reading(void **state)
{
    (void)state;
    assert_int_equal(setenv("MUSTER_READ_MEMORY", "off", 1), 0);
    board_scene_open_met(&scene, false);
    board_scene_say_hello(&scene);
    board_scene_check_ready(&scene);
    assert_int_equal(unsetenv("MUSTER_READ_MEMORY"), 0);

    assert_false(scene.peer->can_read_memory);
    assert_string_equal(scene.peer->read_why.text, "MUSTER_READ_MEMORY=off");
    assert_false(muster_board_reader_of(scene.peer, &(struct muster_board_reader){.pid = 0}));
}

static void what_follows_a_hello_once_is_refused_twice(void **state)
{
    static const unsigned types[] = {MUSTER_BOARD_HELLO, MUSTER_BOARD_SHARES_END};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        board_scene_open_ready(&scene);
        if (types[i] == MUSTER_BOARD_HELLO)
            board_scene_say_hello(&scene);
        else
            board_scene_say_type(&scene, types[i]);

        assert_true(scene.peer->is_failed);
        assert_int_equal(scene.peer->why.rc, MUSTER_INVALID_ARGUMENT);
        assert_string_equal(scene.peer->why.text, "it sent a message that is not valid here");
        board_scene_close(&scene);
    }
}

/* A child of it may hold the socket open. */
static void the_end_of_its_process_is_the_end_of_a_peer(void **state)
{
    struct muster_process_watch *watch = NULL;

    (void)state;
    board_scene_open_ready(&scene);
    assert_false(muster_board_is_dead(scene.peer));
    watch = &muster_board_peer_system_of(scene.peer)->watch;
    assert_int_equal(watch->pid, getpid()); /* as the kernel says */
    muster_process_watch_close(watch);
    watch->on_exit(watch);
    board_scene_turn(&scene);

    assert_true(muster_board_is_dead(scene.peer));
    assert_true(scene.peer->is_failed);
    assert_string_equal(scene.peer->why.text, "its process has died");
    assert_int_equal(scene.told_count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_expected_is_served_whichever_side_dials),
        CASE(who_comes_before_it_is_wanted_waits),
        cmocka_unit_test(strangers_are_hung_up_on),
        cmocka_unit_test(another_user_is_not_served),
        CASE(who_answers_in_another_name_is_refused),
        cmocka_unit_test(a_name_is_taken_once),
        CASE(a_third_one_is_not_taken_for_the_wanted),
        CASE(strangers_are_bounded),
        cmocka_unit_test(a_board_that_is_not_what_it_says_is_not_used),
        CASE(memory_of_another_process_is_not_read),
        CASE(the_user_may_forbid_reading),
        cmocka_unit_test(what_follows_a_hello_once_is_refused_twice),
        CASE(the_end_of_its_process_is_the_end_of_a_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
