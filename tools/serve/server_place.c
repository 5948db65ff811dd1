/* A resolver is asked once, before the server opens: a task of TensorFlow's cluster cannot change its place. */
#include "serve/server_place.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resolve/ask.h"

#define CPU_BYTES    (256 << 20) /* as TensorFlow's server says of its CPU */
#define REMEDY_BYTES 220

static enum muster_rc add_devices(struct server_place *place, const char *type, size_t type_bytes,
                                  int64_t count, struct muster_error *ret_error)
{
    if (count < 0 || (uint64_t)count > SERVER_DEVICES_MAX - place->device_count)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "a task has at most %d devices",
                                SERVER_DEVICES_MAX);
    for (uint32_t number = 0; number < (uint32_t)count; number++) {
        size_t at = place->device_count++;

        (void)snprintf(place->types[at], sizeof(place->types[at]), "%.*s", (int)type_bytes, type);
        place->devices[at] = (struct muster_server_device){
            .type = place->types[at],
            .number = number,
            .memory_limit_bytes = strcmp(place->types[at], "CPU") == 0 ? CPU_BYTES : 0};
    }
    return MUSTER_OK;
}

static bool is_type(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!isupper((unsigned char)text[i]) && text[i] != '_')
            return false;
    return bytes > 0 && bytes < sizeof(((struct server_place *)NULL)->types[0]);
}

static bool has_type(const struct server_place *place, const char *type, size_t type_bytes)
{
    for (size_t i = 0; i < place->device_count; i++)
        if (strlen(place->types[i]) == type_bytes && memcmp(place->types[i], type, type_bytes) == 0)
            return true;
    return false;
}

enum muster_rc server_place_add_devices(struct server_place *place, const char *text,
                                        struct muster_error *ret_error)
{
    for (const char *at = text;; at++) {
        size_t type_bytes = strcspn(at, ":,");
        const char *digits = at + type_bytes + (at[type_bytes] == ':');
        size_t count_bytes = strspn(digits, "0123456789");
        enum muster_rc rc;

        if (!is_type(at, type_bytes) || at[type_bytes] != ':' || count_bytes == 0 ||
            count_bytes > 9 || (digits[count_bytes] != ',' && digits[count_bytes] != '\0'))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "must be TYPE:COUNT,… such as CPU:1,GPU:4, got \"%.80s\"",
                                    text);
        if (has_type(place, at, type_bytes))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "must name each type once, with the number of its devices, "
                                    "got %.*s twice",
                                    (int)type_bytes, at);
        rc = add_devices(place, at, type_bytes, strtol(digits, NULL, 10), ret_error);
        at = digits + count_bytes;
        if (rc != MUSTER_OK || *at == '\0')
            return rc;
    }
}

/* Accelerators of which a platform knows nothing are no reason not to serve. */
static enum muster_rc add_accelerators(struct server_place *place, struct muster_resolver *resolver,
                                       struct muster_error *ret_error)
{
    struct muster_accelerators found = {.kind_count = 0};
    struct muster_error error;
    enum muster_rc rc = add_devices(place, "CPU", 3, 1, ret_error);

    (void)resolve_ask_accelerators(resolver, &found, &error);
    for (size_t i = 0; i < found.kind_count && rc == MUSTER_OK; i++)
        if (strcmp(found.kinds[i].kind, "CPU") != 0)
            rc = add_devices(place, found.kinds[i].kind, strlen(found.kinds[i].kind),
                             found.kinds[i].count, ret_error);
    return rc;
}

struct asking {
    struct server_place *place;
    const char *uri;
};

static enum muster_rc read_place(void *data, struct muster_resolver *resolver,
                                 const struct muster_cluster_spec *cluster,
                                 struct muster_error *ret_error)
{
    const struct asking *asking = data;
    struct server_place *place = asking->place;
    char remedy[REMEDY_BYTES], *type = NULL;
    bool has_id = false;
    int64_t id = 0;
    enum muster_rc rc = muster_resolver_task_type(resolver, &type, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_resolver_task_id(resolver, &has_id, &id, ret_error);
    if (rc == MUSTER_OK && (type == NULL || !has_id || id < 0 || id > INT32_MAX))
        rc = muster_error_set(
            ret_error, MUSTER_NOT_FOUND,
            "the resolver does not name the task of this process; name it, %s",
            muster_resolver_task_remedy(asking->uri, cluster, sizeof(remedy), remedy));
    if (rc == MUSTER_OK &&
        muster_cluster_spec_format(cluster, muster_mem_system(), &place->cluster) != MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    if (rc == MUSTER_OK) {
        (void)snprintf(place->job, sizeof(place->job), "%s", type);
        place->task = (int32_t)id;
        if (place->device_count == 0)
            rc = add_accelerators(place, resolver, ret_error);
    }
    muster_mem_free(resolver->env->mem, type);
    return rc;
}

enum muster_rc server_place_ask(struct server_place *place, const char *uri,
                                struct muster_error *ret_error)
{
    struct asking asking = {.place = place, .uri = uri};

    return resolve_ask(uri, read_place, &asking, ret_error);
}

void server_place_fini(struct server_place *place)
{
    muster_mem_free(muster_mem_system(), place->cluster);
    place->cluster = NULL;
}
