/* A worker's place in the memory of its launcher. */
#include "runtime/system/host_place.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "assertion_count.h"
#include "test_env.h"
#include "uninstrumented.h"

#define BYTES 8192

static int fd;
static struct muster_host_place *places; /* the launcher's */

static int set_up(void **state)
{
    pthread_mutexattr_t attributes;
    void *memory;

    (void)state;
    fd = memfd_create(MUSTER_HOST_PLACES_NAME, MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    places = memory;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    for (size_t i = 0; i < 2; i++)
        pthread_mutex_init(&places[i].life, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    munmap((void *)places, BYTES);
    close(fd);
    return 0;
}

static struct muster_host_place *open_at(const char *offset)
{
    char name[80];

    snprintf(name, sizeof(name), "/proc/%d/fd/%d:%s", (int)getpid(), fd, offset);
    return muster_host_place_open(name);
}

static void the_launcher_reads_what_is_written_at_the_place(void **state)
{
    static const char *const offsets[] = {"0", "64", "4096", "8128"};

    (void)state;
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        struct muster_host_place *place = open_at(offsets[i]);
        size_t at = (size_t)atoi(offsets[i]) / sizeof(places[0]);

        assert_non_null(place);
        atomic_store(&place->begun_step, i + 8);
        atomic_store(&place->committed_step, i + 7);
        muster_host_place_close(place);
        assert_int_equal(atomic_load(&places[at].begun_step), i + 8);
        assert_int_equal(atomic_load(&places[at].committed_step), i + 7);
    }
}

static void a_place_that_is_not_there_is_none(void **state)
{
    static const char *const names[] = {
        NULL, "", ":", "/nowhere:0", "/proc/self:0", "/dev/null:0", "/proc/self/fd/999999:0"};
    static const char *const offsets[] = {"8192", "8", "-1", "", "0x10", "99999999999999999999"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_null(muster_host_place_open(names[i]));
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
        assert_null(open_at(offsets[i]));
    muster_host_place_close(NULL);
}

static void a_file_of_somebody_else_is_none(void **state)
{
    char path[] = "/tmp/muster-place-XXXXXX", name[80];
    int file = mkstemp(path), other = memfd_create("muster-places2", MFD_CLOEXEC);

    (void)state;
    assert_true(file >= 0 && ftruncate(file, BYTES) == 0);
    assert_true(other >= 0 && ftruncate(other, BYTES) == 0);
    snprintf(name, sizeof(name), "%s:0", path);
    assert_null(muster_host_place_open(name));
    snprintf(name, sizeof(name), "/proc/self/fd/%d:0", other);
    assert_null(muster_host_place_open(name));
    close(file);
    close(other);
    assert_int_equal(unlink(path), 0);
}

/* --- the life of the process --- */

static uint32_t word_at(size_t i)
{
    return __atomic_load_n((const uint32_t *)(const void *)&places[i].life, __ATOMIC_ACQUIRE);
}

static void check_life(uint32_t word, uint32_t life_state)
{
    assert_int_equal(word_at(0), word);
    assert_int_equal(atomic_load(&places[0].life_state), life_state);
}

static void a_place_is_held_until_its_close(void **state)
{
    struct muster_host_place *place = open_at("0"), *other = open_at("64");

    (void)state;
    muster_host_place_hold(place);
    check_life((uint32_t)gettid(), MUSTER_HOST_LIFE_HELD);
    muster_host_place_hold(other); /* a thread holds one at a time */
    assert_int_equal(word_at(1), 0);
    muster_host_place_close(other);
    muster_host_place_close(place);
    check_life(0, MUSTER_HOST_LIFE_RELEASED);
    place = open_at("0"); /* the next strategy of the process */
    muster_host_place_hold(place);
    check_life((uint32_t)gettid(), MUSTER_HOST_LIFE_HELD);
    muster_host_place_close(place);
    muster_host_place_hold(NULL);
}

static void *place_hold(void *place)
{
    muster_host_place_hold(place);
    return NULL;
}

static void a_thread_that_ends_is_no_death(void **state)
{
    struct muster_host_place *place = open_at("0");
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, place_hold, place), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_life(0, MUSTER_HOST_LIFE_RELEASED);
    muster_host_place_close(place);
}

static void *close_it(void *place)
{
    muster_host_place_close(place);
    return NULL;
}

static void a_close_by_another_thread_leaves_it_mapped(void **state)
{
    struct muster_host_place *place = open_at("0");
    pthread_t thread;

    (void)state;
    muster_host_place_hold(place);
    assert_int_equal(pthread_create(&thread, NULL, close_it, place), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_life((uint32_t)gettid(), MUSTER_HOST_LIFE_RELEASED);
    atomic_store(&place->begun_step, 9); /* the list of the thread's mutexes still leads there */
    muster_host_place_close(place);
    check_life(0, MUSTER_HOST_LIFE_RELEASED);
}

/* The thread of the fork ends as a thread does, by its destructors. */
static void a_fork_that_ends_is_no_death(void **state)
{
    struct muster_host_place *place = open_at("0");
    pid_t pid;

    (void)state;
    if (HAS_THREAD_SANITIZER)
        skip_with_reason("ThreadSanitizer does not let the thread of a fork end");
    muster_host_place_hold(place);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        pthread_exit(NULL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    check_life((uint32_t)gettid(), MUSTER_HOST_LIFE_HELD);
    muster_host_place_close(place);
}

static void a_killed_process_leaves_a_mark(void **state)
{
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        muster_host_place_hold(open_at("0"));
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    check_life(FUTEX_OWNER_DIED, MUSTER_HOST_LIFE_HELD);
}

#define PLACE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(a_place_is_held_until_its_close),
        PLACE_TEST(a_thread_that_ends_is_no_death),
        PLACE_TEST(a_close_by_another_thread_leaves_it_mapped),
        PLACE_TEST(a_fork_that_ends_is_no_death),
        PLACE_TEST(a_killed_process_leaves_a_mark),
        PLACE_TEST(a_file_of_somebody_else_is_none),
        PLACE_TEST(the_launcher_reads_what_is_written_at_the_place),
        PLACE_TEST(a_place_that_is_not_there_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
