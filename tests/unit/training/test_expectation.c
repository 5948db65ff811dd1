/* Tasks that come or go before the first view: the resolver's watch says how many it waits for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

static struct job_stage stage;
static char path[] = "/tmp/muster-expectation-XXXXXX";

/* Replaced whole, so that no half of it is read. */
static void write_cluster(const char *text)
{
    assert_int_equal(muster_files_write(muster_files_system(), path, text, strlen(text)),
                     MUSTER_OK);
}

static void on_closed(struct muster_resolver *resolver)
{
    *(bool *)resolver->data = true;
}

static void who_goes_before_the_first_view_is_not_waited_for(void **state)
{
    struct muster_strategy *strategy;
    char uri[128];
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    write_cluster("{\"worker\": [\"127.0.0.1:0\", \"127.0.0.2:0\"]}");
    snprintf(uri, sizeof(uri), "file:%s?task_type=worker&task_id=0", path);
    job_stage_open(&stage, 0, 2);
    setenv("MUSTER_RESOLVER", uri, 1);
    strategy = job_strategy_open();
    unsetenv("MUSTER_RESOLVER");
    assert_true(strategy->expectation.is_watching);
    write_cluster("{\"worker\": [\"127.0.0.1:0\"]}");
    assert_int_equal(job_begin(strategy), 1);
    assert_int_equal(muster_strategy_size(strategy), 1);
    assert_false(strategy->expectation.is_watching); /* the registry alone says who is there now */
    job_commit(strategy);
    muster_strategy_close(strategy);
    job_stage_close(&stage);
    unlink(path);
}

/* The resolver is on a loop of the program's own, which the case itself does not turn. */
static void an_opened_resolver_is_watched_on_its_own_loop(void **state)
{
    struct muster_strategy_options options = {.registry = NULL};
    struct muster_env *env = NULL;
    struct muster_strategy *strategy = NULL;
    struct muster_error error;
    char uri[128];
    bool is_closed = false;
    int fd;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/muster-expectation-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_cluster("{\"worker\": [\"127.0.0.1:0\", \"127.0.0.2:0\"]}");
    snprintf(uri, sizeof(uri), "file:%s?task_type=worker&task_id=0", path);
    job_stage_open(&stage, 0, 2);
    assert_int_equal(muster_env_system_open(NULL, &env), MUSTER_OK);
    assert_int_equal(muster_resolver_open(env, uri, NULL, &options.opened_resolver, &error),
                     MUSTER_OK);
    assert_int_equal(muster_strategy_open(&options, &strategy, &error), MUSTER_OK);
    assert_true(strategy->expectation.is_watching);
    write_cluster("{\"worker\": [\"127.0.0.1:0\"]}");
    assert_int_equal(job_begin(strategy), 1);
    assert_int_equal(muster_strategy_size(strategy), 1);
    assert_false(strategy->expectation.is_watching);
    job_commit(strategy);
    muster_strategy_close(strategy);
    options.opened_resolver->data = &is_closed;
    muster_resolver_close(options.opened_resolver, on_closed);
    while (!is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
    muster_env_system_close(env);
    job_stage_close(&stage);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_goes_before_the_first_view_is_not_waited_for),
        cmocka_unit_test(an_opened_resolver_is_watched_on_its_own_loop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
