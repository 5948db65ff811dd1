/* A client of parameters whose every push adds 1 to its own element of all rows: params_pulse SERVERS JOB ELEMENT
 * PUSHES [SOURCES]. So rows that are at one point of its pushes are equal in that element. It prints "begun" with the
 * first push and "done" with the last. With PUSHES 0 it compares the rows instead, and prints what the elements
 * are: "whole 5 7 0 0"; rows that differ are an error. With SOURCES it is one of so many that tick: each push is
 * a step. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <muster/env.h>
#include <muster/params.h>
#include <muster/runtime.h>
#include <muster/stream.h>

#define ROWS       256u
#define ELEMENTS   4u
#define TIMEOUT_NS (60 * MUSTER_NS_PER_S)
/* Between two pushes: about as long as a push, so that a cut meets pushes under way and the processors are not
 * taken from the servers that it waits for. */
#define PAUSE_NS ((long)(2 * MUSTER_NS_PER_MS))

static uint64_t keys[ROWS];
static float values[ROWS][ELEMENTS];
static const struct muster_params_rows rows = {keys, values, ROWS};

static enum muster_rc pushes_make(struct muster_params *params, struct muster_params_table *table,
                                  unsigned element, uint64_t pushes, bool is_ticking,
                                  struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < ROWS; i++)
        values[i][element] = 1;
    for (uint64_t i = 0; i < pushes && rc == MUSTER_OK; i++) {
        rc = muster_params_push(table, &rows, TIMEOUT_NS, ret_error);
        if (i == 0 && rc == MUSTER_OK)
            puts("begun");
        if (is_ticking && rc == MUSTER_OK)
            rc = muster_params_tick(params, i + 1, 1, TIMEOUT_NS, ret_error);
        fflush(stdout);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    if (rc == MUSTER_OK)
        puts("done");
    return rc;
}

static enum muster_rc rows_compare(struct muster_params_table *table,
                                   struct muster_error *ret_error)
{
    enum muster_rc rc = muster_params_pull(table, &rows, TIMEOUT_NS, ret_error);

    for (uint32_t i = 1; i < ROWS && rc == MUSTER_OK; i++) {
        for (unsigned j = 0; j < ELEMENTS && rc == MUSTER_OK; j++) {
            if (values[i][j] != values[0][j])
                rc = muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                      "element %u is %g in row %u and %g in row 0", j,
                                      (double)values[i][j], i, (double)values[0][j]);
        }
    }
    if (rc == MUSTER_OK)
        printf("whole %g %g %g %g\n", (double)values[0][0], (double)values[0][1],
               (double)values[0][2], (double)values[0][3]);
    return rc;
}

static enum muster_rc pulse_run(struct muster_runtime *runtime, char **words,
                                struct muster_error *ret_error)
{
    static const struct muster_params_schema schema = {.name = "pulse",
                                                       .row_elements = ELEMENTS,
                                                       .wire_dtype = MUSTER_F32,
                                                       .optimizer = MUSTER_PARAMS_ADD};
    char name[16];
    const struct muster_params_options options = {
        .server = words[0],
        .job = words[1],
        .source = name,
        .clock_sources = words[4] != NULL ? (uint32_t)strtoul(words[4], NULL, 10) : 0};
    uint64_t pushes = strtoull(words[3], NULL, 10);
    struct muster_params_table *table;
    struct muster_params *params;
    enum muster_rc rc, closed;

    snprintf(name, sizeof(name), "pulse:%.4s%s", words[2], pushes == 0 ? "?" : "");
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    rc = muster_params_connect(runtime, &options, TIMEOUT_NS, &params, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_table(params, &schema, TIMEOUT_NS, &table, ret_error);
    if (rc == MUSTER_OK && pushes > 0)
        rc = pushes_make(params, table, (unsigned)strtoul(words[2], NULL, 10) % ELEMENTS, pushes,
                         options.clock_sources > 0, ret_error);
    else if (rc == MUSTER_OK)
        rc = rows_compare(table, ret_error);
    closed = muster_params_disconnect(params, TIMEOUT_NS, rc == MUSTER_OK ? ret_error : NULL);
    return rc != MUSTER_OK ? rc : closed;
}

int main(int argc, char **argv)
{
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_runtime *runtime;
    struct muster_env *env;
    enum muster_rc rc;

    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: params_pulse SERVERS JOB ELEMENT PUSHES [SOURCES]\n");
        return 2;
    }
    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK ||
        muster_runtime_open(&(struct muster_runtime_options){.env = env}, &runtime) != MUSTER_OK)
        return 1;
    rc = pulse_run(runtime, argv + 1, &error);
    if (rc != MUSTER_OK)
        fprintf(stderr, "params_pulse: %s\n", error.text);
    muster_runtime_close(runtime);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return rc == MUSTER_OK ? 0 : 1;
}
