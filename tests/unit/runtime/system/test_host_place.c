/* A worker's place in the memory of its launcher. */
#include "runtime/system/host_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test_env.h"

#define BYTES 8192

static int fd;
static struct muster_host_place *places; /* the launcher's */

static int set_up(void **state)
{
    void *memory;

    (void)state;
    fd = memfd_create(MUSTER_HOST_PLACES_NAME, MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    places = memory;
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
    static const char *const offsets[] = {"0", "16", "4096", "8176"};

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_of_somebody_else_is_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_launcher_reads_what_is_written_at_the_place, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_place_that_is_not_there_is_none, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
