/* Words of threads: which ends of threads are the death of a process. */
#include "collective/board/board_internal.h"
#include "test_env.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <string.h>
#include <unistd.h>

struct world {
    struct test_env test;
    struct muster_board *board;
    const struct muster_board_page *page; /* as peers see it */
};

/* A thread that stays until it is let go. */
struct writer {
    struct muster_board *board;
    pthread_t thread;
    pthread_barrier_t entered, leaving;
    bool is_abrupt; /* ends without the C library's knowledge, as in a death */
};

/* The next lock finds the mark of a holder that has died since the caller looked. */
static bool is_next_lock_marked;

/* The thread sanitizer's wrapper is linked into this program, so RTLD_NEXT skips it. It must see the
 * lock, or it reports the unlock as that of an unlocked mutex. */
int __interceptor_pthread_mutex_trylock(pthread_mutex_t *mutex) __attribute__((weak));

__attribute__((visibility("default"))) int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    int (*next)(pthread_mutex_t * mutex) = __interceptor_pthread_mutex_trylock;
    void *symbol = dlsym(RTLD_NEXT, "pthread_mutex_trylock");

    if (next == NULL)
        memcpy(&next, &symbol, sizeof(next));
    if (is_next_lock_marked)
        __atomic_store_n((uint32_t *)(void *)mutex, FUTEX_OWNER_DIED, __ATOMIC_SEQ_CST);
    is_next_lock_marked = false;
    return next(mutex);
}

static void open_world(struct world *world)
{
    struct muster_member self = {.incarnation = {.bytes = {1}}};
    struct muster_board_options options = {
        .env = &world->test.env, .job = "test_board_liveness", .self = &self};
    struct muster_error error;

    memset(world, 0, sizeof(*world));
    self.pid = getpid();
    memcpy(&self.incarnation.bytes[8], &self.pid, sizeof(self.pid));
    test_env_open(&world->test);
    assert_int_equal(muster_board_system_open(&options, &world->board, &error), MUSTER_OK);
    world->page = muster_board_map(muster_board_system_of(world->board)->segment.fd,
                                   muster_board_system_of(world->board)->segment.bytes);
    assert_non_null(world->page);
}

static void close_world(struct world *world)
{
    muster_board_close(world->board);
    world->board = NULL;
    test_env_close(&world->test);
}

/* As the kernel marks the word of a thread that it has ended. */
static void mark_word(struct writer *writer)
{
    pthread_key_t key = muster_board_system_of(writer->board)->key;
    struct muster_board_word *word = pthread_getspecific(key);

    if (word == NULL)
        return;
    pthread_setspecific(key, NULL);
    __atomic_store_n((uint32_t *)(void *)&word->mutex, FUTEX_OWNER_DIED, __ATOMIC_SEQ_CST);
}

static void *write_board(void *data)
{
    struct writer *writer = data;

    muster_board_enter(writer->board);
    muster_board_enter(writer->board);
    pthread_barrier_wait(&writer->entered);
    pthread_barrier_wait(&writer->leaving);
    if (writer->is_abrupt)
        mark_word(writer);
    return NULL;
}

static void writer_start(struct writer *writer, struct world *world, bool is_abrupt)
{
    writer->board = world->board;
    writer->is_abrupt = is_abrupt;
    pthread_barrier_init(&writer->entered, NULL, 2);
    pthread_barrier_init(&writer->leaving, NULL, 2);
    assert_int_equal(pthread_create(&writer->thread, NULL, write_board, writer), 0);
    pthread_barrier_wait(&writer->entered);
}

static void writer_stop(struct writer *writer)
{
    pthread_barrier_wait(&writer->leaving);
    pthread_join(writer->thread, NULL);
    pthread_barrier_destroy(&writer->entered);
    pthread_barrier_destroy(&writer->leaving);
}

static struct world world;

static int world_set_up(void **state)
{
    (void)state;
    open_world(&world);
    return 0;
}

static int world_tear_down(void **state)
{
    (void)state;
    if (world.board != NULL)
        close_world(&world);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

static void who_never_wrote_is_not_dead(void **state)
{
    (void)state;

    assert_false(muster_board_page_is_dead(world.page));
    close_world(&world);
    assert_false(muster_board_page_is_dead(world.page));
}

static void who_closes_its_board_is_not_dead(void **state)
{
    (void)state;

    muster_board_enter(world.board);
    muster_board_enter(world.board);
    assert_int_equal(world.page->word_count, 1);
    assert_false(muster_board_page_is_dead(world.page));
    close_world(&world);

    assert_false(muster_board_page_is_dead(world.page));
}

static void a_thread_that_ends_kills_nobody(void **state)
{
    struct writer writer;
    (void)state;

    writer_start(&writer, &world, false);
    writer_stop(&writer);
    assert_false(muster_board_page_is_dead(world.page));

    muster_board_enter(world.board);
    assert_false(muster_board_page_is_dead(world.page));
    assert_int_equal(world.page->word_count, 1); /* the word is used again */
}

static void of_two_threads_the_other_keeps_it_alive(void **state)
{
    struct writer first, second;
    (void)state;

    writer_start(&first, &world, true);
    writer_start(&second, &world, true);
    assert_int_equal(world.page->word_count, 2);
    writer_stop(&first);
    assert_false(muster_board_page_is_dead(world.page));
    writer_stop(&second);

    assert_true(muster_board_page_is_dead(world.page));
}

static void who_ended_before_the_death_does_not_hide_it(void **state)
{
    struct writer early, last;
    (void)state;

    writer_start(&early, &world, false);
    writer_start(&last, &world, true);
    writer_stop(&early);
    assert_false(muster_board_page_is_dead(world.page));
    writer_stop(&last);

    assert_true(muster_board_page_is_dead(world.page));
}

/* Its words have said that it is dead, so they say nothing any more. */
static void a_process_that_outlives_the_marks_of_its_threads_is_alive(void **state)
{
    struct writer writer;
    (void)state;

    writer_start(&writer, &world, true);
    writer_stop(&writer);
    assert_true(muster_board_page_is_dead(world.page));
    muster_board_enter(world.board);

    assert_false(muster_board_page_is_dead(world.page));
}

/* So it stays when the thread that saw the mark ends like the first. */
static void a_process_that_has_outlived_a_mark_is_never_taken_for_dead(void **state)
{
    struct writer first, second;
    (void)state;

    writer_start(&first, &world, true);
    writer_stop(&first);
    writer_start(&second, &world, true);
    assert_int_equal(world.page->is_incomplete, 1);
    writer_stop(&second);

    assert_false(muster_board_page_is_dead(world.page));
}

static void more_threads_than_words_are_never_taken_for_dead(void **state)
{
    struct writer writers[MUSTER_BOARD_WORDS + 1];
    (void)state;

    for (unsigned i = 0; i <= MUSTER_BOARD_WORDS; i++)
        writer_start(&writers[i], &world, true);
    for (unsigned i = 0; i <= MUSTER_BOARD_WORDS; i++)
        writer_stop(&writers[i]);

    assert_false(muster_board_page_is_dead(world.page));
}

/* The lock has wiped out the mark and is held: the thread keeps the word, and gives it back at the end. */
static void a_word_that_is_marked_at_its_taking_is_taken(void **state)
{
    const struct muster_board_word *word;
    (void)state;

    word = &world.page->words[0];
    is_next_lock_marked = true;
    muster_board_enter(world.board);
    assert_int_equal(world.page->word_count, 1);
    assert_int_equal(word->state, MUSTER_WORD_HELD);
    assert_int_equal(world.page->is_incomplete, 1); /* for the mark that is lost */
    assert_false(muster_board_page_is_dead(world.page));
    close_world(&world);

    assert_int_equal(word->state, MUSTER_WORD_RELEASED);
    assert_int_equal(
        __atomic_load_n((const uint32_t *)(const void *)&word->mutex, __ATOMIC_ACQUIRE), 0);
}

static void a_thread_may_outlive_the_board(void **state)
{
    struct writer writer;
    (void)state;

    open_world(&world);
    writer_start(&writer, &world, false);
    close_world(&world);
    writer_stop(&writer);

    assert_false(muster_board_page_is_dead(world.page));
    open_world(&world); /* the C library's list of robust mutexes is whole */
    muster_board_enter(world.board);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(who_never_wrote_is_not_dead),
        CASE(who_closes_its_board_is_not_dead),
        CASE(a_thread_that_ends_kills_nobody),
        CASE(of_two_threads_the_other_keeps_it_alive),
        CASE(who_ended_before_the_death_does_not_hide_it),
        CASE(a_process_that_outlives_the_marks_of_its_threads_is_alive),
        CASE(a_process_that_has_outlived_a_mark_is_never_taken_for_dead),
        CASE(more_threads_than_words_are_never_taken_for_dead),
        CASE(a_word_that_is_marked_at_its_taking_is_taken),
        cmocka_unit_test(a_thread_may_outlive_the_board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
