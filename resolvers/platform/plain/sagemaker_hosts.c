/* SM_HOSTS, a JSON list of host names, as a configuration of a cluster and a task (TensorFlow's
 * SageMakerClusterResolver). Pure. Names are sorted, because SageMaker lists them in any order, and
 * every host must number the tasks alike. */
#include "resolvers/platform/plain/sagemaker_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_TEXT_BYTES 300 /* a host name is at most 255 characters */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names, sorted. Gives the array; the texts belong to list. */
static enum muster_rc sort_names(struct muster_mem *mem, const struct muster_json *list,
                                 const char ***ret_names, struct muster_error *ret_error)
{
    size_t count = muster_json_count(list);
    const char **names = NULL;

    if (muster_json_kind(list) != MUSTER_JSON_ARRAY)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "SM_HOSTS must be a list of host names, got %s",
                                muster_json_kind_name(list));
    if (count <= MUSTER_SAGEMAKER_HOSTS_MAX)
        names = muster_mem_alloc_zero(mem, count, sizeof(names[0]));
    if (names == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "SM_HOSTS has %zu hosts, above the limit of %d (or of memory)",
                                count, MUSTER_SAGEMAKER_HOSTS_MAX);
    for (size_t i = 0; i < count; i++) {
        names[i] = muster_json_text(muster_json_at(list, i));
        if (names[i] == NULL || names[i][0] == '\0' || strlen(names[i]) > 255) {
            muster_mem_free(mem, names);
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "SM_HOSTS[%zu] must be the name of a host, got %s", i,
                                    muster_json_kind_name(muster_json_at(list, i)));
        }
    }
    qsort(names, count, sizeof(names[0]), compare_names);
    *ret_names = names;
    return MUSTER_OK;
}

static struct muster_json *make_task(size_t index)
{
    struct muster_json *task = muster_json_object_new();

    if (muster_json_set(task, "type", muster_json_text_new("worker")) &&
        muster_json_set(task, "index", muster_json_integer_new((int64_t)index)))
        return task;
    muster_json_free(task);
    return NULL;
}

static struct muster_json *make_cluster(const char *const *names, size_t count, uint16_t port)
{
    struct muster_json *cluster = muster_json_object_new();
    struct muster_json *worker = muster_json_array_new();
    char address[ADDRESS_TEXT_BYTES];

    for (size_t i = 0; i < count; i++) {
        snprintf(address, sizeof(address), "%s:%u", names[i], (unsigned)port);
        if (!muster_json_append(worker, muster_json_text_new(address))) {
            muster_json_free(worker);
            worker = NULL;
        }
    }
    if (muster_json_set(cluster, "worker", worker))
        return cluster;
    muster_json_free(cluster);
    return NULL;
}

/* An empty object when the current host is not in the list, as TensorFlow does. */
static enum muster_rc make_config(struct muster_mem *mem,
                                  const struct muster_sagemaker_hosts *hosts,
                                  const struct muster_json *list, struct muster_json **ret_config,
                                  struct muster_error *ret_error)
{
    struct muster_json *config = muster_json_object_new();
    size_t count = muster_json_count(list);
    const char **names = NULL;
    enum muster_rc rc = sort_names(mem, list, &names, ret_error);
    size_t index = 0;

    while (rc == MUSTER_OK && index < count && strcmp(names[index], hosts->current) != 0)
        index++;
    if (config == NULL ||
        (rc == MUSTER_OK && index < count &&
         (!muster_json_set(config, "cluster", make_cluster(names, count, hosts->port)) ||
          !muster_json_set(config, "task", make_task(index)))))
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for SM_HOSTS");
    muster_mem_free(mem, names);
    if (rc == MUSTER_OK)
        *ret_config = config;
    else
        muster_json_free(config);
    return rc;
}

enum muster_rc muster_sagemaker_hosts_parse(struct muster_mem *mem,
                                            const struct muster_sagemaker_hosts *hosts,
                                            struct muster_json **ret_config,
                                            struct muster_error *ret_error)
{
    struct muster_json *list = NULL;
    struct muster_error bad;
    enum muster_rc rc;

    if (hosts->hosts[0] == '\0')
        list = muster_json_array_new();
    else if (muster_json_parse(hosts->hosts, strlen(hosts->hosts), &list, &bad) != MUSTER_OK)
        return muster_error_set(ret_error, bad.rc,
                                "SM_HOSTS: %s (it should be like [\"algo-1\", \"algo-2\"])",
                                bad.text);
    rc = make_config(mem, hosts, list, ret_config, ret_error);
    muster_json_free(list);
    return rc;
}
