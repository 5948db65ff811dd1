/* Device names ("/job:worker/replica:0/task:1/device:GPU:0") counted by kind, as TensorFlow's base
 * class does for num_accelerators. Parts of a name are compared whole: TensorFlow looks for
 * substrings, and its "/task:1" also finds "/task:11". */
#include "resolvers/core/resolver_internal.h"

#include <stdio.h>
#include <string.h>

/* The value of "/key:value" in a device name, which ends at '/', ':' or the end of the name. NULL:
 * the name has no such part. */
static const char *find_part(const char *name, const char *key, size_t *ret_length)
{
    size_t key_length = strlen(key);

    for (const char *at = strchr(name, '/'); at != NULL; at = strchr(at + 1, '/')) {
        if (strncmp(at + 1, key, key_length) == 0 && at[1 + key_length] == ':') {
            const char *value = at + 1 + key_length + 1;

            *ret_length = strcspn(value, "/:");
            return value;
        }
    }
    return NULL;
}

static bool has_part(const char *name, const char *key, const char *value)
{
    size_t length = 0;
    const char *found = find_part(name, key, &length);

    return found != NULL && length == strlen(value) && memcmp(found, value, length) == 0;
}

static bool is_kind(const char *kind, size_t length, const char *name)
{
    return length == strlen(name) && memcmp(kind, name, length) == 0;
}

static enum muster_rc count_kind(struct muster_accelerators *accelerators, const char *kind,
                                 size_t length, struct muster_error *ret_error)
{
    for (size_t i = 0; i < accelerators->kind_count; i++) {
        if (is_kind(kind, length, accelerators->kinds[i].kind)) {
            accelerators->kinds[i].count++;
            return MUSTER_OK;
        }
    }
    if (accelerators->kind_count == MUSTER_ACCELERATOR_KINDS_MAX ||
        length >= MUSTER_ACCELERATOR_KIND_TEXT_BYTES)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no room for accelerator kind '%.*s'", (int)length, kind);
    memcpy(accelerators->kinds[accelerators->kind_count].kind, kind, length); /* zeros after it */
    accelerators->kinds[accelerators->kind_count].count = 1;
    accelerators->kind_count++;
    return MUSTER_OK;
}

/* Without a list of devices the machine is asked, and it knows only its own task: other tasks have
 * 0. */
static enum muster_rc count_host_devices(struct muster_resolver *resolver, const char *task_type,
                                         const int64_t *task_id,
                                         struct muster_accelerators *ret_accelerators,
                                         struct muster_error *ret_error)
{
    char *own_type = NULL;
    bool has_own_id, is_other = false;
    int64_t own_id;
    uint32_t count;
    enum muster_rc rc = muster_resolver_task_type(resolver, &own_type, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_resolver_task_id(resolver, &has_own_id, &own_id, ret_error);
    if (rc == MUSTER_OK && task_type != NULL && task_id != NULL)
        is_other = own_type == NULL || strcmp(own_type, task_type) != 0 || !has_own_id ||
                   own_id != *task_id;
    muster_mem_free(resolver->env->mem, own_type);
    if (rc != MUSTER_OK)
        return rc;
    count = is_other ? 0 : muster_host_count_gpus(resolver->env->files);
    *ret_accelerators =
        (struct muster_accelerators){.kind_count = count > 0, .kinds = {{"GPU", count}}};
    return MUSTER_OK;
}

enum muster_rc muster_resolver_count_devices(struct muster_resolver *resolver,
                                             const char *task_type, const int64_t *task_id,
                                             struct muster_accelerators *ret_accelerators,
                                             struct muster_error *ret_error)
{
    struct muster_accelerators accelerators = {0};
    const char *const *names = NULL;
    enum muster_rc rc = MUSTER_OK;
    size_t count = 0;
    char id[24];

    if (resolver->list_devices == NULL)
        return count_host_devices(resolver, task_type, task_id, ret_accelerators, ret_error);
    resolver->list_devices(resolver->list_devices_data, &names, &count);
    if (task_id != NULL)
        snprintf(id, sizeof(id), "%lld", (long long)*task_id);
    for (size_t i = 0; i < count && rc == MUSTER_OK; i++) {
        size_t length = 0;
        const char *kind = find_part(names[i], "device", &length);

        if (kind == NULL || is_kind(kind, length, "CPU") || is_kind(kind, length, "XLA_CPU"))
            continue;
        if (task_type != NULL && task_id != NULL &&
            !(has_part(names[i], "job", task_type) && has_part(names[i], "task", id)))
            continue;
        rc = count_kind(&accelerators, kind, length, ret_error);
    }
    if (rc == MUSTER_OK)
        *ret_accelerators = accelerators;
    return rc;
}
