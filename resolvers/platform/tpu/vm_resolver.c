/* A TPU slice as a cluster: variables first, then the metadata server. GKE sets the variables in
 * its pods, and a TPU VM by itself has the metadata. The rules for ids, slices and the coordinator
 * are those of JAX's cloud_tpu_cluster.py. */
#include <muster/tpu.h>

#include <stdio.h>
#include <string.h>

#include "resolvers/core/cluster_answer.h"
#include "resolvers/core/resolver_internal.h"
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/schemes.h"
#include "resolvers/platform/tpu/metadata_watch.h"
#include "resolvers/platform/tpu/vm_query.h"
#include "resolvers/platform/tpu/vm_text.h"
#include "resolvers/spec/task_address.h"

#define JOB           "worker"
#define ADDRESS_BYTES 272
#define WATCH_INTERVAL_NS                                                                          \
    (60 * MUSTER_NS_PER_S) /* the metadata server tells of changes in between */

struct tpu_vm_resolver {
    struct muster_resolver resolver;
    uint16_t port;
    uint16_t coordinator_port;
    struct muster_metadata_watch watch;
    bool is_stopping; /* waits for the watch */
    /* The last answer of the metadata server. */
    bool is_known;
    bool has_task_id;
    int64_t task_id;
    uint32_t world_size;
    /* Sources of the last answer; NULL: it did not have that. */
    const char *hosts_source, *worker_id_source, *coordinator_source;
};

/* A question that waits for the metadata server. */
struct tpu_vm_question {
    struct muster_resolve *resolve;
    struct muster_tpu_vm_query query;
};

static struct tpu_vm_resolver *tpu_vm_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct tpu_vm_resolver, resolver);
}

/* Variables. */

static void read_variable(struct muster_env *env, const char *name, struct muster_tpu_vm_text *text)
{
    const char *value = muster_vars_get(env->vars, name);

    if (text->value == NULL && value != NULL && value[0] != '\0')
        *text = (struct muster_tpu_vm_text){value, name};
}

static void read_variables(struct muster_env *env, struct muster_tpu_vm_texts *ret_texts)
{
    *ret_texts = (struct muster_tpu_vm_texts){.are_endpoints = false};
    read_variable(env, "TPU_PROCESS_ADDRESSES", &ret_texts->hosts);
    read_variable(env, "TPU_WORKER_HOSTNAMES", &ret_texts->hosts);
    read_variable(env, "TPU_WORKER_ID", &ret_texts->worker_id);
    read_variable(env, "MEGASCALE_NUM_SLICES", &ret_texts->num_slices);
    read_variable(env, "MEGASCALE_SLICE_ID", &ret_texts->slice_id);
    read_variable(env, "MEGASCALE_COORDINATOR_ADDRESS", &ret_texts->coordinator);
}

/* TPU_SKIP_MDS_QUERY is a variable of libtpu and JAX: the metadata server must not be asked. */
static bool may_query_server(struct muster_env *env)
{
    const char *skip = muster_vars_get(env->vars, "TPU_SKIP_MDS_QUERY");

    return skip == NULL || skip[0] == '\0';
}

/* Constant texts: they outlive the variables and the answer that they name. */
static void remember_sources(struct tpu_vm_resolver *own, const struct muster_tpu_vm_texts *texts)
{
    own->hosts_source = texts->hosts.source;
    own->worker_id_source = texts->worker_id.source;
    own->coordinator_source = texts->coordinator.source;
}

/* Answers. */

/* The coordinator of several slices is on the first worker of slice 0:
 * MEGASCALE_COORDINATOR_ADDRESS names its host, with the port of another service, which is replaced
 * by ours. */
static enum muster_rc format_coordinator(struct tpu_vm_resolver *own,
                                         const struct muster_tpu_vm *vm, char text[ADDRESS_BYTES],
                                         struct muster_error *ret_error)
{
    if (vm->coordinator == NULL && vm->slice_id > 0)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "MEGASCALE_COORDINATOR_ADDRESS is not set: nothing tells slice %u "
                                "where slice 0 is",
                                vm->slice_id);
    if (vm->coordinator == NULL)
        snprintf(text, ADDRESS_BYTES, "%.*s:%u",
                 (int)(strrchr(vm->addresses[0], ':') - vm->addresses[0]), vm->addresses[0],
                 own->coordinator_port);
    else
        snprintf(text, ADDRESS_BYTES, "%s:%u", vm->coordinator, own->coordinator_port);
    return MUSTER_OK;
}

static enum muster_rc answer_master(struct tpu_vm_resolver *own, struct muster_resolve *resolve,
                                    const struct muster_tpu_vm *vm)
{
    struct muster_mem *mem = own->resolver.env->mem;
    const char *layer = muster_resolve_rpc_layer(resolve), *address = vm->addresses[0];
    char coordinator[ADDRESS_BYTES];
    enum muster_rc rc = MUSTER_OK;

    if (vm->num_slices > 1) {
        rc = format_coordinator(own, vm, coordinator, &resolve->error);
        address = coordinator;
    }
    if (rc == MUSTER_OK)
        rc = muster_master_url_format(mem, layer, address, &resolve->master, &resolve->error);
    return rc;
}

/* A task named in full is looked up; for any other question the coordinator is the master. */
static enum muster_rc vm_answer(struct tpu_vm_resolver *own, struct muster_resolve *resolve,
                                const struct muster_tpu_vm *vm)
{
    struct muster_cluster_spec *spec = NULL;
    enum muster_rc rc;

    if (resolve->what == MUSTER_RESOLVE_NUM_ACCELERATORS)
        return muster_resolve_answer_own_devices(resolve);
    if (resolve->what == MUSTER_RESOLVE_MASTER &&
        (resolve->query.task_type == NULL || !resolve->query.has_task_id))
        return answer_master(own, resolve, vm);
    rc = muster_tpu_vm_cluster(vm, JOB, &spec, &resolve->error);
    return rc == MUSTER_OK ? muster_resolve_answer_cluster(resolve, spec) : rc;
}

static enum muster_rc answer_texts(struct tpu_vm_resolver *own, struct muster_resolve *resolve,
                                   const struct muster_tpu_vm_texts *texts)
{
    struct muster_tpu_vm vm;
    enum muster_rc rc =
        muster_tpu_vm_init(&vm, own->resolver.env->mem, texts, own->port, &resolve->error);

    if (rc != MUSTER_OK)
        return rc;
    remember_sources(own, texts);
    own->is_known = true;
    own->has_task_id = muster_tpu_vm_task_id(&vm, &own->task_id);
    own->world_size = (uint32_t)vm.count * vm.num_slices;
    rc = vm_answer(own, resolve, &vm);
    muster_tpu_vm_fini(&vm);
    return rc;
}

/* Questions. */

static void question_end(struct tpu_vm_question *question, enum muster_rc rc)
{
    struct muster_resolve *resolve = question->resolve;

    resolve->impl = NULL;
    muster_tpu_vm_query_fini(&question->query);
    muster_mem_free(resolve->resolver->env->mem, question);
    muster_resolve_finish(resolve, rc);
}

static void on_query(struct muster_tpu_vm_query *query, enum muster_rc rc)
{
    struct tpu_vm_question *question = query->data;
    struct muster_resolve *resolve = question->resolve;
    struct muster_tpu_vm_texts texts;

    read_variables(resolve->resolver->env, &texts);
    muster_tpu_vm_query_tell(query, &texts);
    if (rc != MUSTER_OK)
        resolve->error = query->error;
    else if (texts.hosts.value == NULL)
        rc = muster_error_set(&resolve->error, MUSTER_INVALID_ARGUMENT,
                              "worker-network-endpoints of the metadata server is empty");
    else
        rc = answer_texts(tpu_vm_of(resolve->resolver), resolve, &texts);
    question_end(question, rc);
}

static void query_server(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct tpu_vm_question *question =
        muster_mem_alloc_zero(resolver->env->mem, 1, sizeof(*question));
    enum muster_rc rc;

    if (question == NULL) {
        rc = muster_error_set(&resolve->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
        muster_resolve_finish(resolve, rc);
        return;
    }
    question->resolve = resolve;
    question->query.data = question;
    resolve->impl = question;
    rc = muster_tpu_vm_query_start(&question->query, resolver->env, resolve->deadline_ns, on_query);
    if (rc != MUSTER_OK) {
        resolve->error = question->query.error;
        question_end(question, rc);
    }
}

static void tpu_vm_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct muster_tpu_vm_texts texts;
    enum muster_rc rc;

    read_variables(resolver->env, &texts);
    if (texts.hosts.value == NULL && may_query_server(resolver->env)) {
        query_server(resolver, resolve);
        return;
    }
    if (texts.hosts.value == NULL)
        rc = muster_error_set(&resolve->error, MUSTER_FAILED_PRECONDITION,
                              "TPU_WORKER_HOSTNAMES is not set, and TPU_SKIP_MDS_QUERY forbids to "
                              "ask the metadata server: set one, or unset the other");
    else
        rc = answer_texts(tpu_vm_of(resolver), resolve, &texts);
    muster_resolve_finish(resolve, rc);
}

static void tpu_vm_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct tpu_vm_question *question = resolve->impl;

    (void)resolver;
    if (question != NULL)
        muster_tpu_vm_query_cancel(&question->query);
}

/* Properties: the variables', where they tell the hosts; else the last answer's. */

static enum muster_rc tpu_vm_task_type(struct muster_resolver *resolver, char **ret_text,
                                       struct muster_error *ret_error)
{
    return muster_resolver_give_text(resolver, JOB, ret_text, ret_error);
}

struct tpu_vm_place {
    bool has_task_id;
    int64_t task_id;
    uint32_t world_size; /* 0: not known */
};

static enum muster_rc find_place(struct tpu_vm_resolver *own, struct tpu_vm_place *ret_place,
                                 struct muster_error *ret_error)
{
    struct muster_env *env = own->resolver.env;
    struct muster_tpu_vm_texts texts;
    struct muster_tpu_vm vm;
    enum muster_rc rc;

    read_variables(env, &texts);
    if (texts.hosts.value == NULL && own->is_known && may_query_server(env)) {
        *ret_place = (struct tpu_vm_place){own->has_task_id, own->task_id, own->world_size};
        return MUSTER_OK;
    }
    rc = muster_tpu_vm_init(&vm, env->mem, &texts, own->port, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    *ret_place = (struct tpu_vm_place){.world_size = (uint32_t)vm.count * vm.num_slices};
    /* TPU_WORKER_ID alone numbers workers within a slice, and there may be several slices: without
     * hosts it is the task id only if the metadata server may not be asked. */
    if (vm.count > 0 || !may_query_server(env))
        ret_place->has_task_id = muster_tpu_vm_task_id(&vm, &ret_place->task_id);
    remember_sources(own, &texts);
    muster_tpu_vm_fini(&vm);
    return MUSTER_OK;
}

static enum muster_rc tpu_vm_task_id(struct muster_resolver *resolver, bool *ret_is_set,
                                     int64_t *ret_id, struct muster_error *ret_error)
{
    struct tpu_vm_place place = {.has_task_id = false};
    enum muster_rc rc = find_place(tpu_vm_of(resolver), &place, ret_error);

    if (rc == MUSTER_OK) {
        *ret_is_set = place.has_task_id;
        *ret_id = place.task_id;
    }
    return rc;
}

static enum muster_rc tpu_vm_world_size(struct muster_resolver *resolver, bool *ret_is_set,
                                        uint32_t *ret_size, struct muster_error *ret_error)
{
    struct tpu_vm_place place = {.has_task_id = false};
    enum muster_rc rc = find_place(tpu_vm_of(resolver), &place, ret_error);

    if (rc == MUSTER_OK) {
        *ret_is_set = place.world_size > 0;
        *ret_size = place.world_size;
    }
    return rc;
}

static const char *tpu_vm_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    const struct tpu_vm_resolver *own = tpu_vm_of(resolver);

    switch (fact) {
    case MUSTER_FACT_MASTER:
        return own->coordinator_source != NULL ? own->coordinator_source : own->hosts_source;
    case MUSTER_FACT_CLUSTER_SPEC:
    case MUSTER_FACT_WORLD_SIZE:
        return own->hosts_source;
    case MUSTER_FACT_TASK_ID:
        return resolver->has_task_id ? NULL : own->worker_id_source;
    case MUSTER_FACT_NUM_ACCELERATORS:
        return "devices of this process";
    case MUSTER_FACT_TASK_TYPE:
    case MUSTER_FACT_RPC_LAYER:
        break;
    }
    return NULL;
}

/* Watches. */

static void on_change(struct muster_metadata_watch *watch)
{
    struct tpu_vm_resolver *own = watch->data;

    muster_resolver_changed(&own->resolver);
}

static void on_off(struct muster_metadata_watch *watch)
{
    struct tpu_vm_resolver *own = watch->data;

    if (own->is_stopping)
        muster_resolver_stopped(&own->resolver);
}

/* Variables of a process do not change, so only the metadata server is watched. */
static void tpu_vm_watched(struct muster_resolver *resolver, bool is_watched)
{
    struct muster_tpu_vm_texts texts;

    read_variables(resolver->env, &texts);
    if (is_watched && texts.hosts.value == NULL && may_query_server(resolver->env))
        muster_metadata_watch_start(&tpu_vm_of(resolver)->watch);
    else
        muster_metadata_watch_stop(&tpu_vm_of(resolver)->watch);
}

/* Opening and closing. */

static void tpu_vm_stop(struct muster_resolver *resolver)
{
    struct tpu_vm_resolver *own = tpu_vm_of(resolver);

    own->is_stopping = true;
    if (own->watch.state == MUSTER_METADATA_WATCH_OFF)
        muster_resolver_stopped(resolver);
    else
        muster_metadata_watch_stop(&own->watch);
}

static void tpu_vm_close(struct muster_resolver *resolver)
{
    struct muster_mem *mem = resolver->env->mem;

    muster_metadata_watch_fini(&tpu_vm_of(resolver)->watch);
    muster_resolver_fini(resolver);
    muster_mem_free(mem, tpu_vm_of(resolver));
}

static const struct muster_resolver_ops tpu_vm_ops = {
    .name = "tpu_vm",
    .start = tpu_vm_start,
    .cancel = tpu_vm_cancel,
    .task_type = tpu_vm_task_type,
    .task_id = tpu_vm_task_id,
    .world_size = tpu_vm_world_size,
    .source = tpu_vm_source,
    .watched = tpu_vm_watched,
    .stop = tpu_vm_stop,
    .close = tpu_vm_close,
    .watch_interval_ns = WATCH_INTERVAL_NS,
    .default_rpc_layer = "grpc",
};

enum muster_rc muster_tpu_vm_resolver_open(struct muster_env *env,
                                           const struct muster_tpu_vm_resolver_options *options,
                                           struct muster_resolver **ret_resolver,
                                           struct muster_error *ret_error)
{
    static const struct muster_tpu_vm_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_resolver_options common = options->common;
    struct tpu_vm_resolver *own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (own != NULL) {
        own->port = options->port != 0 ? options->port : MUSTER_TPU_VM_PORT;
        own->coordinator_port = options->coordinator_port != 0 ? options->coordinator_port
                                                               : MUSTER_TPU_VM_COORDINATOR_PORT;
        if (common.environment == NULL)
            common.environment = "";
        rc = muster_resolver_init(&own->resolver, env, &tpu_vm_ops, &common);
    }
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, own);
        return muster_error_set(ret_error, rc, "no memory for a resolver of TPU VMs");
    }
    muster_metadata_watch_init(&own->watch, env, MUSTER_TPU_VM_ENDPOINTS_PATH);
    own->watch.data = own;
    own->watch.on_change = on_change;
    own->watch.on_off = on_off;
    *ret_resolver = &own->resolver;
    return MUSTER_OK;
}

/* The options after "tpu_vm:". */
struct tpu_vm_uri_values {
    struct muster_tpu_vm_resolver_options own;
    int64_t port;
    int64_t coordinator_port;
};

enum muster_rc muster_tpu_vm_resolver_open_uri(struct muster_env *env, const char *rest,
                                               const struct muster_resolver_options *options,
                                               struct muster_resolver **ret_resolver,
                                               struct muster_error *ret_error)
{
    static const struct muster_uri_row rows[] = {
        {"port", MUSTER_URI_NUMBER, offsetof(struct tpu_vm_uri_values, port), 1, UINT16_MAX},
        {"coordinator_port", MUSTER_URI_NUMBER,
         offsetof(struct tpu_vm_uri_values, coordinator_port), 1, UINT16_MAX},
        MUSTER_URI_COMMON(struct tpu_vm_uri_values, own.common),
    };
    static const struct muster_uri_table table = {"tpu_vm", rows, sizeof(rows) / sizeof(rows[0])};
    struct tpu_vm_uri_values values = {.own = {.common = *options}};
    struct muster_uri_options texts = {.mem = env->mem};
    enum muster_rc rc = muster_uri_options_parse(&texts, rest, &table, &values, ret_error);

    values.own.port = (uint16_t)values.port;
    values.own.coordinator_port = (uint16_t)values.coordinator_port;
    if (rc == MUSTER_OK)
        rc = muster_tpu_vm_resolver_open(env, &values.own, ret_resolver, ret_error);
    muster_uri_options_fini(&texts);
    return rc;
}
