/* Host lists, numbers and lines that describe a TPU slice, parsed. Pure. The texts are those of
 * GKE's variables (TPU_WORKER_HOSTNAMES, MEGASCALE_…) or of the metadata server; an error names its
 * source, because users can mend only that. */
#include "resolvers/platform/tpu/vm_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/address.h>

#include "resolvers/spec/spec_internal.h"

#define BLANKS        " \t\r\n"
#define HOST_BYTES    (MUSTER_HOST_TEXT_BYTES + 3) /* brackets and NUL */
#define ADDRESS_BYTES (HOST_BYTES + 6)

/* Launch scripts export variables that are empty: those count as not set. */
static bool is_told(const struct muster_tpu_vm_text *text)
{
    return text->value != NULL && text->value[0] != '\0';
}

/* Hosts. */

/* Blanks at both ends do not count. */
static const char *trim_blanks(const char *text, size_t *length)
{
    while (*length > 0 && strchr(BLANKS, text[*length - 1]) != NULL)
        --*length;
    while (*length > 0 && strchr(BLANKS, text[0]) != NULL) {
        text++;
        --*length;
    }
    return text;
}

static bool is_bare_ipv6(const char *text, size_t length)
{
    struct muster_address address;
    char bracketed[ADDRESS_BYTES];

    if (length > MUSTER_HOST_TEXT_BYTES || memchr(text, ':', length) == NULL)
        return false;
    snprintf(bracketed, sizeof(bracketed), "[%.*s]:1", (int)length, text);
    return muster_address_parse(bracketed, &address, NULL) == MUSTER_OK;
}

/* The third field of "unknown:unknown:10.0.0.1"; what has no colon is the host itself. */
static const char *skip_fields(const char *text, size_t *length)
{
    const char *end = text + *length, *colon = memchr(text, ':', *length);

    if (colon == NULL)
        return text;
    colon = memchr(colon + 1, ':', (size_t)(end - colon - 1));
    if (colon == NULL)
        return NULL;
    *length = (size_t)(end - colon - 1);
    return colon + 1;
}

/* "a", "a:8476", "[fd00::1]:8476", "fd00::1": the host, an IPv6 address in brackets. */
static bool read_host(const char *text, size_t length, char ret_host[HOST_BYTES])
{
    struct muster_endpoint endpoint;
    char copy[ADDRESS_BYTES];

    if (length == 0 || length >= sizeof(copy) || memchr(text, '/', length) != NULL)
        return false;
    if (is_bare_ipv6(text, length)) {
        snprintf(ret_host, HOST_BYTES, "[%.*s]", (int)length, text);
        return true;
    }
    snprintf(copy, sizeof(copy), "%.*s", (int)length, text);
    if (muster_endpoint_parse(copy, 1, &endpoint, NULL) != MUSTER_OK ||
        endpoint.address.family == MUSTER_ADDRESS_UNIX || endpoint.host[0] == '\0' ||
        strpbrk(endpoint.host, BLANKS) != NULL ||
        strcmp(endpoint.host, "unix") == 0) /* with a port it would be a socket's path */
        return false;
    snprintf(ret_host, HOST_BYTES, endpoint.address.family == MUSTER_ADDRESS_IPV6 ? "[%s]" : "%s",
             endpoint.host);
    return true;
}

static enum muster_rc add_host(struct muster_tpu_vm *vm, const struct muster_tpu_vm_texts *texts,
                               const char *entry, size_t length, struct muster_error *ret_error)
{
    const char *text = trim_blanks(entry, &length), *host = text;
    size_t host_length = length;
    char name[HOST_BYTES];

    if (texts->are_endpoints && !is_bare_ipv6(text, length))
        host = skip_fields(text, &host_length);
    if (host == NULL || !read_host(host, host_length, name))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s[%zu] must be %s, got '%.*s'", texts->hosts.source, vm->count,
                                texts->are_endpoints ? "id:id:ip or a host" : "a host or host:port",
                                (int)(length < 60 ? length : 60), text);
    vm->addresses[vm->count] = muster_mem_strdup(vm->mem, name);
    if (vm->addresses[vm->count] == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    vm->count++;
    return MUSTER_OK;
}

static enum muster_rc read_hosts(struct muster_tpu_vm *vm, const struct muster_tpu_vm_texts *texts,
                                 struct muster_error *ret_error)
{
    const char *at = texts->hosts.value;
    size_t count = 1;
    enum muster_rc rc = MUSTER_OK;

    for (const char *c = at; *c != '\0'; c++)
        count += *c == ',';
    if (count > MUSTER_TPU_VM_HOSTS_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "%s has more than %d hosts",
                                texts->hosts.source, MUSTER_TPU_VM_HOSTS_MAX);
    vm->addresses = muster_mem_alloc_zero(vm->mem, count, sizeof(char *));
    if (vm->addresses == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    while (rc == MUSTER_OK && vm->count < count) {
        size_t length = strcspn(at, ",");

        rc = add_host(vm, texts, at, length, ret_error);
        at += length + 1;
    }
    return rc;
}

/* Ports. */

struct tpu_port_place {
    char *host;
    size_t index;
};

static int compare_places(const void *a, const void *b)
{
    const struct tpu_port_place *left = a, *right = b;
    int order = strcmp(left->host, right->host);

    return order != 0 ? order : (left->index > right->index) - (left->index < right->index);
}

/* On success the old text is the caller's to free. */
static enum muster_rc add_port(struct muster_tpu_vm *vm, const struct tpu_port_place *place,
                               size_t port, const char *source, struct muster_error *ret_error)
{
    char text[ADDRESS_BYTES];
    char *address;

    if (port > UINT16_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s names host '%.60s' so often that no port is left for it",
                                source, place->host);
    snprintf(text, sizeof(text), "%s:%u", place->host, (unsigned)port);
    address = muster_mem_strdup(vm->mem, text);
    if (address == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    vm->addresses[place->index] = address;
    return MUSTER_OK;
}

/* "host" becomes "host:port"; of several on one host each has its own port. */
static enum muster_rc add_ports(struct muster_tpu_vm *vm, const char *source, uint16_t port,
                                struct muster_error *ret_error)
{
    struct tpu_port_place *places = muster_mem_alloc_zero(vm->mem, vm->count, sizeof(places[0]));
    enum muster_rc rc = MUSTER_OK;
    size_t first = 0, done = 0; /* first of this host */

    if (places == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    for (size_t i = 0; i < vm->count; i++)
        places[i] = (struct tpu_port_place){vm->addresses[i], i};
    qsort(places, vm->count, sizeof(places[0]), compare_places);
    for (; done < vm->count && rc == MUSTER_OK; done += rc == MUSTER_OK) {
        if (strcmp(places[done].host, places[first].host) != 0)
            first = done;
        rc = add_port(vm, &places[done], port + (done - first), source, ret_error);
    }
    for (size_t i = 0; i < done; i++)
        muster_mem_free(vm->mem, places[i].host);
    muster_mem_free(vm->mem, places);
    return rc;
}

/* Numbers. */

static enum muster_rc read_number(const struct muster_tpu_vm_text *text, uint32_t min, uint32_t max,
                                  uint32_t *ret_value, struct muster_error *ret_error)
{
    int64_t value = 0;

    if (!is_told(text))
        return MUSTER_OK;
    if (!muster_integer_parse(text->value, &value) || value < min || value > max)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be a whole number from %u to %u, got %.60s", text->source,
                                min, max, text->value);
    *ret_value = (uint32_t)value;
    return MUSTER_OK;
}

/* One slice needs no id. With several, a missing one must not become 0: two slices would then claim
 * the same tasks. */
static enum muster_rc read_slices(struct muster_tpu_vm *vm, const struct muster_tpu_vm_texts *texts,
                                  struct muster_error *ret_error)
{
    enum muster_rc rc;

    vm->num_slices = 1;
    rc = read_number(&texts->num_slices, 1, MUSTER_TPU_VM_SLICES_MAX, &vm->num_slices, ret_error);
    if (rc == MUSTER_OK && vm->num_slices > 1)
        rc = read_number(&texts->slice_id, 0, vm->num_slices - 1, &vm->slice_id, ret_error);
    if (rc == MUSTER_OK && vm->num_slices > 1 && !is_told(&texts->slice_id))
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "%s=%u, but MEGASCALE_SLICE_ID is not set: nothing tells which "
                                "slice this is",
                                texts->num_slices.source, vm->num_slices);
    return rc;
}

static enum muster_rc read_place(struct muster_tpu_vm *vm, const struct muster_tpu_vm_texts *texts,
                                 struct muster_error *ret_error)
{
    uint32_t last = vm->count > 0 ? (uint32_t)vm->count - 1 : MUSTER_TPU_VM_HOSTS_MAX - 1;
    enum muster_rc rc = read_number(&texts->worker_id, 0, last, &vm->worker_id, ret_error);

    vm->has_worker_id = is_told(&texts->worker_id) || vm->count == 1;
    if (rc != MUSTER_OK)
        return rc;
    rc = read_slices(vm, texts, ret_error);
    if (rc == MUSTER_OK && (uint64_t)vm->num_slices * vm->count > INT32_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%u slices of %zu workers are too many", vm->num_slices, vm->count);
    return rc;
}

static enum muster_rc read_coordinator(struct muster_tpu_vm *vm,
                                       const struct muster_tpu_vm_text *text,
                                       struct muster_error *ret_error)
{
    size_t length = is_told(text) ? strlen(text->value) : 0;
    const char *trimmed = trim_blanks(is_told(text) ? text->value : "", &length);
    char host[HOST_BYTES];

    if (!is_told(text))
        return MUSTER_OK;
    if (!read_host(trimmed, length, host))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be host:port, got %.60s", text->source, text->value);
    vm->coordinator = muster_mem_strdup(vm->mem, host);
    if (vm->coordinator == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    return MUSTER_OK;
}

enum muster_rc muster_tpu_vm_init(struct muster_tpu_vm *vm, struct muster_mem *mem,
                                  const struct muster_tpu_vm_texts *texts, uint16_t port,
                                  struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    *vm = (struct muster_tpu_vm){.mem = mem};
    if (is_told(&texts->hosts))
        rc = read_hosts(vm, texts, ret_error);
    if (rc == MUSTER_OK && vm->count > 0)
        rc = add_ports(vm, texts->hosts.source, port, ret_error);
    if (rc == MUSTER_OK)
        rc = read_place(vm, texts, ret_error);
    if (rc == MUSTER_OK)
        rc = read_coordinator(vm, &texts->coordinator, ret_error);
    if (rc != MUSTER_OK)
        muster_tpu_vm_fini(vm);
    return rc;
}

void muster_tpu_vm_fini(struct muster_tpu_vm *vm)
{
    if (vm->mem == NULL)
        return;
    for (size_t i = 0; i < vm->count; i++)
        muster_mem_free(vm->mem, vm->addresses[i]);
    muster_mem_free(vm->mem, vm->addresses);
    muster_mem_free(vm->mem, vm->coordinator);
    *vm = (struct muster_tpu_vm){.mem = NULL};
}

/* Workers of all slices are numbered slice by slice, as JAX's cloud_tpu_cluster does; all slices
 * are of one size. */
bool muster_tpu_vm_task_id(const struct muster_tpu_vm *vm, int64_t *ret_id)
{
    if (!vm->has_worker_id || (vm->num_slices > 1 && vm->count == 0))
        return false;
    *ret_id = (int64_t)vm->slice_id * (int64_t)vm->count + vm->worker_id;
    return true;
}

/* Only the own slice's workers are known by address; their indices are those within all slices. */
enum muster_rc muster_tpu_vm_cluster(const struct muster_tpu_vm *vm, const char *job,
                                     struct muster_cluster_spec **ret_spec,
                                     struct muster_error *ret_error)
{
    struct muster_cluster_spec_builder builder;
    enum muster_rc rc;

    muster_cluster_spec_builder_init(&builder, vm->mem, false);
    muster_cluster_spec_builder_add_job(&builder, job);
    for (size_t i = 0; i < vm->count; i++)
        muster_cluster_spec_builder_add_task(&builder, (int32_t)(vm->slice_id * vm->count + i),
                                             vm->addresses[i]);
    rc = muster_cluster_spec_build(&builder, ret_spec);
    if (rc != MUSTER_OK)
        (void)muster_error_set(ret_error, rc, "no memory for a cluster");
    muster_cluster_spec_builder_fini(&builder);
    return rc;
}

/* tpu-env. */

/* 'value' without its quotes. */
static void copy_value(const char *text, size_t length, size_t bytes, char *ret_value)
{
    const char *value = trim_blanks(text, &length);

    while (length > 0 && (value[0] == '\'' || value[0] == '"')) {
        value++;
        length--;
    }
    while (length > 0 && (value[length - 1] == '\'' || value[length - 1] == '"'))
        length--;
    snprintf(ret_value, bytes, "%.*s", (int)(length < bytes ? length : bytes), value);
}

bool muster_tpu_env_find(const char *tpu_env, const char *key, size_t bytes, char *ret_value)
{
    size_t key_length = strlen(key);

    while (*tpu_env != '\0') {
        size_t length = strcspn(tpu_env, "\n");
        const char *colon = memchr(tpu_env, ':', length);
        size_t name_length = colon != NULL ? (size_t)(colon - tpu_env) : 0;
        const char *name = trim_blanks(tpu_env, &name_length);

        if (colon != NULL && name_length == key_length && memcmp(name, key, key_length) == 0) {
            copy_value(colon + 1, (size_t)(tpu_env + length - colon - 1), bytes, ret_value);
            return true;
        }
        tpu_env += length + (tpu_env[length] == '\n');
    }
    return false;
}
