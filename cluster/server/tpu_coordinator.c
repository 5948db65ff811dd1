/* A muster_server as the coordinator of a Cloud TPU's cluster. The resolver, which is below this folder, calls it
 * through a pointer. */
#include <muster/tpu_coordinator.h>

#include <muster/cluster_spec.h>

static enum muster_rc cluster_build(struct muster_env *env, const char *job,
                                    struct muster_cluster_spec **ret_cluster)
{
    struct muster_cluster_spec_builder builder;
    enum muster_rc rc;

    muster_cluster_spec_builder_init(&builder, env->mem, false);
    muster_cluster_spec_builder_add_job(&builder, job);
    muster_cluster_spec_builder_add_task(&builder, 0, "0.0.0.0:0");
    rc = muster_cluster_spec_build(&builder, ret_cluster);
    muster_cluster_spec_builder_fini(&builder);
    return rc;
}

static enum muster_rc server_start(const struct muster_tpu_coordinator *coordinator,
                                   const struct muster_cluster_spec *cluster,
                                   struct muster_server **ret_server,
                                   struct muster_error *ret_error)
{
    struct muster_server_options options = {.cluster = cluster};
    struct muster_server *server = NULL;
    enum muster_rc rc;

    if (coordinator->options != NULL) {
        options.bind_host = coordinator->options->bind_host;
        options.devices = coordinator->options->devices;
        options.device_count = coordinator->options->device_count;
        options.rpc = coordinator->options->rpc;
        options.coordination = coordinator->options->coordination;
    }
    rc = muster_server_open(coordinator->env, &options, &server, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_server_start(server, ret_error);
    if (rc != MUSTER_OK) {
        muster_server_free(server);
        return rc;
    }
    *ret_server = server;
    return MUSTER_OK;
}

enum muster_rc muster_tpu_coordinator_start(void *coordinator, uint16_t *ret_port,
                                            struct muster_error *ret_error)
{
    struct muster_tpu_coordinator *own = coordinator;
    struct muster_cluster_spec *cluster = NULL;
    enum muster_rc rc = MUSTER_OK;

    if (own->server == NULL) {
        rc = cluster_build(own->env, own->job != NULL ? own->job : MUSTER_TPU_COORDINATOR_JOB,
                           &cluster);
        if (rc != MUSTER_OK)
            return muster_error_set(ret_error, rc, "no memory for the coordinator's cluster");
        rc = server_start(own, cluster, &own->server, ret_error);
        muster_cluster_spec_unref(cluster);
    }
    if (rc == MUSTER_OK)
        *ret_port = muster_server_address(own->server)->port;
    return rc;
}
