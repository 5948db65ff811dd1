/* A listening socket that outlives its process. */
#include "tools/serve/holder.c"

#include "test_env.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/wait.h>

#define KEEP_S 60

static char path[64];
static struct holder_name name;

static size_t count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static int set_up(void **state)
{
    struct muster_error error;
    int fd;

    (void)state;
    snprintf(path, sizeof(path), "/tmp/muster-test-holder-XXXXXX");
    fd = mkstemp(path);
    return fd >= 0 && holder_name_of(path, &name, &error) == MUSTER_OK ? close(fd) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static void without_a_holder_there_is_no_socket(void **state)
{
    size_t before = count_descriptors();

    (void)state;
    assert_int_equal(holder_take(&name), -1);
    assert_int_equal(count_descriptors(), before);
}

/* The owner is another process, whose death is what the holder waits for. */
static void the_socket_of_a_dead_owner_is_taken_once(void **state)
{
    size_t before = count_descriptors();
    struct stat of_owner, taken;
    int ready[2], status = -1, fd;
    pid_t owner;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    owner = fork();
    if (owner == 0) {
        int own = open(path, O_RDWR | O_CLOEXEC); /* any descriptor can be held */
        int life = holder_start(&name, own, KEEP_S);

        _exit(life >= 0 && write(ready[1], "", 1) == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(owner, &status, 0), owner);
    assert_int_equal(status, 0);
    close(ready[0]);
    close(ready[1]);

    fd = holder_take(&name);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &taken), 0);
    assert_int_equal(stat(path, &of_owner), 0);
    assert_true(taken.st_ino == of_owner.st_ino && taken.st_dev == of_owner.st_dev);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    close(fd);

    assert_int_equal(holder_take(&name), -1);
    assert_int_equal(count_descriptors(), before);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(without_a_holder_there_is_no_socket),
        CASE(the_socket_of_a_dead_owner_is_taken_once),
    };

    return cmocka_run_group_tests_name("holder", tests, NULL, NULL);
}
