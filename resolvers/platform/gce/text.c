/* Pages of instances, and instances, as values (Compute Engine API v1:
 * InstanceGroupsListInstances, Instance). Pure: group.c fetches the texts. */
#include "resolvers/platform/gce/text.h"

#include <string.h>

#include <muster/json.h>

#include "resolvers/spec/task_address.h"
#include "runtime/value/array.h"

void muster_gce_instances_init(struct muster_gce_instances *instances, struct muster_mem *mem)
{
    *instances = (struct muster_gce_instances){.mem = mem};
}

void muster_gce_instances_fini(struct muster_gce_instances *instances)
{
    for (size_t i = 0; i < instances->count; i++)
        muster_mem_free(instances->mem, instances->names[i]);
    muster_mem_free(instances->mem, instances->names);
    muster_mem_free(instances->mem, instances->page_token);
    *instances = (struct muster_gce_instances){.mem = instances->mem};
}

static enum muster_rc add_name(struct muster_gce_instances *instances, const char *name,
                               struct muster_error *ret_error)
{
    char **names;

    if (instances->count == MUSTER_GCE_INSTANCES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "the instance group has more than %d instances",
                                MUSTER_GCE_INSTANCES_MAX);
    names = muster_array_reserve(instances->mem, instances->names, instances->count,
                                 &instances->capacity, sizeof(names[0]));
    if (names == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    instances->names = names;
    instances->names[instances->count] = muster_mem_strdup(instances->mem, name);
    if (instances->names[instances->count] == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    instances->count++;
    return MUSTER_OK;
}

/* An item names its instance by the URL "https://…/instances/a"; its last part is enough, because
 * the group's zone is that of all its instances. */
static enum muster_rc add_item(struct muster_gce_instances *instances,
                               const struct muster_json *item, struct muster_error *ret_error)
{
    const char *url = muster_json_text(muster_json_member(item, "instance"));
    const char *slash = url != NULL ? strrchr(url, '/') : NULL;
    const char *name = slash != NULL ? slash + 1 : url;

    if (name == NULL || name[0] == '\0')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "an item of the instance group names no instance");
    return add_name(instances, name, ret_error);
}

/* A group without instances has no "items"; the last page has no "nextPageToken". */
static enum muster_rc add_items(struct muster_gce_instances *instances,
                                const struct muster_json *root, struct muster_error *ret_error)
{
    const struct muster_json *items = muster_json_member(root, "items");
    const struct muster_json *token = muster_json_member(root, "nextPageToken");
    enum muster_rc rc = MUSTER_OK;

    if (muster_json_kind(root) != MUSTER_JSON_OBJECT ||
        (muster_json_kind(items) != MUSTER_JSON_ARRAY &&
         muster_json_kind(items) != MUSTER_JSON_NULL))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the answer is not a list of instances");
    for (size_t i = 0; i < muster_json_count(items) && rc == MUSTER_OK; i++)
        rc = add_item(instances, muster_json_at(items, i), ret_error);
    if (rc != MUSTER_OK)
        return rc;
    muster_mem_free(instances->mem, instances->page_token);
    instances->page_token = muster_mem_strdup(
        instances->mem, muster_json_text(token) != NULL ? muster_json_text(token) : "");
    if (instances->page_token == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    return MUSTER_OK;
}

enum muster_rc muster_gce_instances_add_page(struct muster_gce_instances *instances,
                                             const char *text, size_t size,
                                             struct muster_error *ret_error)
{
    struct muster_json *root = NULL;
    struct muster_error bad;
    enum muster_rc rc = muster_json_parse(text, size, &root, &bad);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "the list of instances: %s", bad.text);
    rc = add_items(instances, root, ret_error);
    muster_json_free(root);
    return rc;
}

enum muster_rc muster_gce_instance_ip(const char *text, size_t size, size_t ip_bytes, char *ret_ip,
                                      struct muster_error *ret_error)
{
    struct muster_json *root = NULL;
    struct muster_error bad;
    const char *ip;
    enum muster_rc rc = muster_json_parse(text, size, &root, &bad);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "an instance: %s", bad.text);
    /* The internal address: tasks talk within the VPC, and an instance may have no other. */
    ip = muster_json_text(muster_json_member(
        muster_json_at(muster_json_member(root, "networkInterfaces"), 0), "networkIP"));
    if (ip == NULL || !muster_host_is_plausible(ip) || strlen(ip) >= ip_bytes)
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "instance '%.63s' has no networkInterfaces[0].networkIP",
                              muster_json_text(muster_json_member(root, "name")) != NULL
                                  ? muster_json_text(muster_json_member(root, "name"))
                                  : "?");
    else
        memcpy(ret_ip, ip, strlen(ip) + 1);
    muster_json_free(root);
    return rc;
}
