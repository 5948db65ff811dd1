/* Cases of the GCE resolver. */
#include "cases.h"

#include <muster/platforms.h>

enum muster_rc case_open_gce(struct case_run *run, const struct muster_resolver_options *common,
                             struct muster_resolver **ret_resolver, struct muster_error *ret_error)
{
    struct muster_gce_resolver_options options = {
        .common = *common,
        .has_no_task_id = json_is_null(case_argument(run->one, "task_id")),
        .project = case_text(case_argument(run->one, "project")),
        .zone = case_text(case_argument(run->one, "zone")),
        .instance_group = case_text(case_argument(run->one, "instance_group")),
        .api_endpoint = case_text(case_argument(run->one, "api_endpoint")),
        .access_token = case_text(case_argument(run->one, "access_token")),
        .is_anonymous = case_argument(run->one, "access_token") == NULL,
    };
    enum muster_rc rc =
        case_read_port(case_argument(run->one, "port"), 0, &options.port, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (json_is_null(case_argument(run->one, "rpc_layer")))
        options.common.rpc_layer = "";
    return muster_gce_resolver_open(run->env, &options, ret_resolver, ret_error);
}
