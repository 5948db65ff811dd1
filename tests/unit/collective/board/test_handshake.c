/* Strangers at a board: some are served and their boards mapped, the others are refused and nothing of theirs
 * stays here. */
#include "board_scene.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STRANGERS 256u

/* --- Cases: who is let in --- */

static void who_is_expected_is_served_whichever_side_dials(void **state)
{
    (void)state;
    for (unsigned dials = 0; dials < 2; dials++) {
        struct board_scene scene;

        board_scene_open(&scene, dials);
        board_scene_ask_for_peer(&scene);
        if (dials)
            board_scene_be_dialled(&scene);
        else
            board_scene_knock(&scene);
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
    struct board_scene scene;

    (void)state;
    board_scene_open(&scene, false);
    board_scene_knock(&scene);
    board_scene_say_hello(&scene);
    board_scene_say_type(&scene, MUSTER_BOARD_SHARES_END);
    assert_false(board_scene_has_hung_up(&scene));
    board_scene_ask_for_peer(&scene);
    board_scene_say_type(&scene, MUSTER_BOARD_MAPPED);

    assert_true(scene.peer->is_ready);
    board_scene_close(&scene);
}

static void say_another_type(struct board_scene *scene)
{
    scene->hello.type = MUSTER_BOARD_SHARES_END;
}

static void say_another_job(struct board_scene *scene)
{
    snprintf(scene->hello.job, sizeof(scene->hello.job), "job2");
}

static void say_a_job_without_end(struct board_scene *scene)
{
    memset(scene->hello.job, 'j', sizeof(scene->hello.job));
    memset(board_scene_system_of(scene)->job, 'j', sizeof(scene->hello.job) - 1);
}

static void look_for_another(struct board_scene *scene)
{
    scene->hello.to.bytes[15] ^= 1;
}

static void say_another_magic(struct board_scene *scene)
{
    scene->hello.magic ^= 1;
}

/* Neither side of a connection believes them, and nothing of theirs is mapped. */
static void strangers_are_hung_up_on(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct board_scene *scene);
        const char *why; /* where the board has dialled */
    } rows[] = {
        {"something else than a hello", say_another_type, "it does not begin with HELLO"},
        {"another job", say_another_job, "it belongs to another job"},
        {"a job without end", say_a_job_without_end, "it belongs to another job"},
        {"for another process", look_for_another, "it looks for another process"},
        {"another protocol", say_another_magic, "it has closed the connection"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (unsigned dials = 0; dials < 2; dials++) {
            struct board_scene scene;

            board_scene_open(&scene, dials);
            board_scene_ask_for_peer(&scene);
            if (dials)
                board_scene_be_dialled(&scene);
            else
                board_scene_knock(&scene);
            rows[i].change(&scene);
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
    struct board_scene scene;

    (void)state;
    board_scene_set_uid_more(1);
    board_scene_open(&scene, false);
    board_scene_ask_for_peer(&scene);
    board_scene_knock(&scene);
    assert_true(board_scene_has_hung_up(&scene));
    assert_int_equal(board_scene_system_of(&scene)->unmatched_count, 0);
    board_scene_close(&scene);

    board_scene_set_uid_more(1);
    board_scene_open(&scene, true);
    board_scene_ask_for_peer(&scene);
    board_scene_be_dialled(&scene);
    assert_true(scene.peer->is_failed);
    assert_int_equal(scene.peer->why.rc, MUSTER_PERMISSION_DENIED);
    assert_string_equal(scene.peer->why.text, "it belongs to another user");
    assert_true(board_scene_has_hung_up(&scene));
    board_scene_close(&scene);
}

/* The process that the board has dialled says to be a third one. */
static void who_answers_in_another_name_is_refused(void **state)
{
    struct board_scene scene;

    (void)state;
    board_scene_open(&scene, true);
    board_scene_ask_for_peer(&scene);
    board_scene_be_dialled(&scene);
    scene.hello.from.bytes[15] ^= 1;
    board_scene_say_hello(&scene);

    assert_true(scene.peer->is_failed);
    assert_string_equal(scene.peer->why.text, "another process answers");
    assert_null(scene.peer->memory);
    board_scene_close(&scene);
}

/* The first one counts: before it is wanted, and after. */
static void a_name_is_taken_once(void **state)
{
    (void)state;
    for (unsigned is_wanted = 0; is_wanted < 2; is_wanted++) {
        struct board_scene scene;
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
    struct board_scene scene;

    (void)state;
    board_scene_open(&scene, false);
    board_scene_ask_for_peer(&scene);
    board_scene_knock(&scene);
    scene.hello.from.bytes[15] ^= 1;
    board_scene_say_hello(&scene);

    assert_false(board_scene_has_hung_up(&scene)); /* somebody may ask for it yet */
    assert_int_equal(board_scene_system_of(&scene)->unmatched_count, 1);
    assert_false(scene.peer->is_failed);
    assert_null(scene.peer->memory);
    board_scene_close(&scene);
}

static void strangers_are_bounded(void **state)
{
    struct board_scene scene;
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
    board_scene_close(&scene);
}

/* --- Cases: what is mapped --- */

static void give_one_file(struct board_scene *scene)
{
    scene->fd_count = 1;
}

static void give_no_file(struct board_scene *scene)
{
    scene->fd_count = 0;
}

static void give_three_files(struct board_scene *scene)
{
    scene->fd_count = 3;
}

static void have_the_first_page_only(struct board_scene *scene)
{
    scene->hello.bytes = scene->page.segment_bytes = scene->file_bytes = MUSTER_BOARD_PAGE_BYTES;
}

static void say_more_than_there_is(struct board_scene *scene)
{
    scene->hello.bytes = scene->page.segment_bytes = SEGMENT_BYTES + MUSTER_BOARD_PAGE_BYTES;
}

static void say_less_than_there_is(struct board_scene *scene)
{
    scene->hello.bytes = scene->page.segment_bytes = SEGMENT_BYTES - MUSTER_BOARD_PAGE_BYTES;
}

static void say_another_size_than_the_page(struct board_scene *scene)
{
    scene->page.segment_bytes--;
}

static void have_another_magic(struct board_scene *scene)
{
    scene->page.magic ^= UINT64_C(1) << 63;
}

static void be_of_another_incarnation(struct board_scene *scene)
{
    scene->page.incarnation.bytes[15] ^= 1;
}

static void seal_nothing(struct board_scene *scene)
{
    scene->seals = 0;
}

static void leave_it_writable(struct board_scene *scene)
{
    scene->seals = F_SEAL_SHRINK | F_SEAL_GROW;
}

static void leave_it_to_shrink(struct board_scene *scene)
{
    scene->seals = F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
}

static void leave_it_to_grow(struct board_scene *scene)
{
    scene->seals = F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE;
}

#define NOT_AS_IT_SAYS "its board does not match its HELLO"
#define NOT_MAPPED     "its board cannot be mapped, or others could write it"

static void a_board_that_is_not_what_it_says_is_not_used(void **state)
{
    static const struct {
        const char *name;
        void (*change)(struct board_scene *scene);
        const char *why;
    } rows[] = {
        {"one file", give_one_file, NOT_AS_IT_SAYS},
        {"no file", give_no_file, NOT_AS_IT_SAYS},
        {"three files", give_three_files, "this process has no descriptor left"},
        {"no memory behind the page", have_the_first_page_only, NOT_AS_IT_SAYS},
        {"more than there is", say_more_than_there_is, NOT_MAPPED},
        {"less than there is", say_less_than_there_is, NOT_MAPPED},
        {"another size inside", say_another_size_than_the_page, NOT_AS_IT_SAYS},
        {"no board", have_another_magic, NOT_AS_IT_SAYS},
        {"the board of another", be_of_another_incarnation, NOT_AS_IT_SAYS},
        {"no seal", seal_nothing, NOT_MAPPED},
        {"writable", leave_it_writable, NOT_MAPPED},
        {"may shrink", leave_it_to_shrink, NOT_MAPPED},
        {"may grow", leave_it_to_grow, NOT_MAPPED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct board_scene scene;

        board_scene_open(&scene, false);
        board_scene_ask_for_peer(&scene);
        board_scene_knock(&scene);
        rows[i].change(&scene);
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
    struct board_scene scene;

    (void)state;
    board_scene_open(&scene, false);
    board_scene_ask_for_peer(&scene);
    board_scene_knock(&scene);
    scene.probe = 78;
    board_scene_say_hello(&scene);
    board_scene_check_ready(&scene);

    assert_false(scene.peer->can_read_memory);
    assert_true(scene.peer->read_why.rc == MUSTER_FAILED_PRECONDITION ||
                scene.peer->read_why.sys != 0); /* where no memory may be read */
    assert_int_equal(muster_board_read_memory(scene.peer, (uint64_t)(uintptr_t)&scene.probe,
                                              &scene.probe, sizeof(scene.probe)),
                     MUSTER_PERMISSION_DENIED);
    board_scene_close(&scene);
}

static void what_follows_a_hello_once_is_refused_twice(void **state)
{
    static const unsigned types[] = {MUSTER_BOARD_HELLO, MUSTER_BOARD_SHARES_END};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct board_scene scene;

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
    struct board_scene scene;

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
    board_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_expected_is_served_whichever_side_dials),
        cmocka_unit_test(who_comes_before_it_is_wanted_waits),
        cmocka_unit_test(strangers_are_hung_up_on),
        cmocka_unit_test(another_user_is_not_served),
        cmocka_unit_test(who_answers_in_another_name_is_refused),
        cmocka_unit_test(a_name_is_taken_once),
        cmocka_unit_test(a_third_one_is_not_taken_for_the_wanted),
        cmocka_unit_test(strangers_are_bounded),
        cmocka_unit_test(a_board_that_is_not_what_it_says_is_not_used),
        cmocka_unit_test(memory_of_another_process_is_not_read),
        cmocka_unit_test(what_follows_a_hello_once_is_refused_twice),
        cmocka_unit_test(the_end_of_its_process_is_the_end_of_a_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
