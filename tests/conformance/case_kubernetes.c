/* Cases of the Kubernetes resolver. */
#include "cases.h"

#include <muster/platforms.h>

#include <string.h>

#define JOBS_MAX      16
#define SELECTORS_MAX 64

struct mapping {
    struct muster_kubernetes_job jobs[JOBS_MAX];
    const char *selectors[SELECTORS_MAX];
    size_t job_count;
    size_t selector_count;
};

/* {"worker": ["job-name=a"]}; texts belong to the case. */
static void read_mapping(const json_t *map, struct mapping *mapping)
{
    const char *name;
    json_t *selectors, *selector;
    size_t i;

    json_object_foreach((json_t *)(uintptr_t)map, name, selectors)
    {
        struct muster_kubernetes_job *job = &mapping->jobs[mapping->job_count];

        if (mapping->job_count == JOBS_MAX)
            return;
        mapping->job_count++;
        job->name = name;
        job->selectors = &mapping->selectors[mapping->selector_count];
        json_array_foreach(selectors, i, selector)
        {
            if (mapping->selector_count == SELECTORS_MAX || !json_is_string(selector))
                return;
            mapping->selectors[mapping->selector_count++] = json_string_value(selector);
            job->selector_count++;
        }
    }
}

static enum muster_rc read_location(const json_t *location,
                                    enum muster_kubernetes_location *ret_location,
                                    struct muster_error *ret_error)
{
    const char *name = case_text(location);

    if (location == NULL || (name != NULL && strcmp(name, "WITHIN_CLUSTER") == 0))
        *ret_location = MUSTER_KUBERNETES_WITHIN_CLUSTER;
    else if (name != NULL && strcmp(name, "OFF_CLUSTER") == 0)
        *ret_location = MUSTER_KUBERNETES_OFF_CLUSTER;
    else
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "no such location");
    return MUSTER_OK;
}

enum muster_rc case_open_kubernetes(struct case_run *run,
                                    const struct muster_resolver_options *common,
                                    struct muster_resolver **ret_resolver,
                                    struct muster_error *ret_error)
{
    struct mapping mapping = {.job_count = 0};
    struct muster_kubernetes_resolver_options options = {.common = *common, .jobs = mapping.jobs};
    enum muster_rc rc =
        read_location(case_argument(run->one, "executable_location"), &options.location, ret_error);

    if (rc == MUSTER_OK)
        rc = case_read_port(case_argument(run->one, "tf_server_port"), 0, &options.port, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    read_mapping(case_argument(run->one, "job_to_label_mapping"), &mapping);
    options.job_count = mapping.job_count;
    options.api_server = case_text(case_argument(run->one, "api_server"));
    options.token = case_text(case_argument(run->one, "token"));
    options.token_file = case_text(case_argument(run->one, "token_file"));
    options.ca_file = case_text(case_argument(run->one, "ca_file"));
    if (json_is_null(case_argument(run->one, "rpc_layer")))
        options.common.rpc_layer = "";
    return muster_kubernetes_resolver_open(run->env, &options, ret_resolver, ret_error);
}
