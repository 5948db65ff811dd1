/* Add 1 to each of four rows, a hundred times: counter_params HOST:PORT [JOB], with the address of a
 * server, of servers that share a job any one. Any number of processes may do it at once; each push
 * counts. */
#include <stdio.h>
#include <muster/env.h>
#include <muster/params.h>
#include <muster/runtime.h>
#include <muster/stream.h>

#define TIMEOUT_NS (30 * MUSTER_NS_PER_S)

static enum muster_rc rows_count(struct muster_params *params, struct muster_error *ret_error)
{
    static const struct muster_params_schema schema = {.name = "counters",
                                                       .row_elements = 1,
                                                       .wire_dtype = MUSTER_F32,
                                                       .optimizer = MUSTER_PARAMS_ADD};
    static const uint64_t keys[] = {1, 2, 3, 4};
    float ones[] = {1, 1, 1, 1}, totals[4];
    struct muster_params_table *table;
    enum muster_rc rc = muster_params_table(params, &schema, TIMEOUT_NS, &table, ret_error);

    for (int i = 0; rc == MUSTER_OK && i < 100; i++)
        rc = muster_params_push(table, &(struct muster_params_rows){keys, ones, 4}, TIMEOUT_NS,
                                ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_pull(table, &(struct muster_params_rows){keys, totals, 4}, TIMEOUT_NS,
                                ret_error);
    if (rc == MUSTER_OK)
        printf("totals %d %d %d %d\n", (int)totals[0], (int)totals[1], (int)totals[2],
               (int)totals[3]);
    return rc;
}

int main(int argc, char **argv)
{
    struct muster_params_options options = {.server = argc > 1 ? argv[1] : "127.0.0.1:7300",
                                            .job = argc > 2 ? argv[2] : NULL};
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_env *env;
    struct muster_runtime *runtime;
    struct muster_params *params;

    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK ||
        muster_runtime_open(&(struct muster_runtime_options){.env = env}, &runtime) != MUSTER_OK) {
        fprintf(stderr, "counter_params: no loop, network or runtime (memory, descriptors)\n");
        return 1;
    }
    enum muster_rc rc = muster_params_connect(runtime, &options, TIMEOUT_NS, &params, &error);
    if (rc == MUSTER_OK) {
        enum muster_rc counted = rows_count(params, &error);

        rc = muster_params_disconnect(params, TIMEOUT_NS, counted == MUSTER_OK ? &error : NULL);
        rc = counted != MUSTER_OK ? counted : rc;
    }
    if (rc != MUSTER_OK)
        fprintf(stderr, "counter_params: %s\n", error.text);
    muster_runtime_close(runtime);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return rc == MUSTER_OK ? 0 : 1;
}
