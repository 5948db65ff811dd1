/* A question to the TPU resolver: the node, the coordinator's address, the devices, then the
 * answer. */
#include "resolvers/platform/tpu/question.h"

#include <stdio.h>
#include <string.h>

#include <muster/tpu.h>

#include "resolvers/core/resolver_internal.h"
#include "resolvers/platform/tpu/text.h"
#include "resolvers/platform/tpu/worker_status.h"
#include "resolvers/spec/task_address.h"
#include "runtime/loop/deadline.h"

#define ADDRESS_BYTES MUSTER_TPU_ADDRESS_BYTES

/* A question under way. */
struct tpu_question {
    struct muster_resolve *resolve;
    struct muster_tpu_resolver *own;
    struct muster_tpu_query query;
    struct muster_worker_status status;
    struct muster_tpu_node *node;
    bool is_status_open;
    bool is_cancelled;
};

static struct muster_mem *mem_of(const struct tpu_question *question)
{
    return question->resolve->resolver->env->mem;
}

/* The end of every question that was not answered on the spot. impl is cleared first, so that a
 * late cancellation finds nothing. */
static void question_finish(struct tpu_question *question, enum muster_rc rc)
{
    struct muster_resolve *resolve = question->resolve;

    MUSTER_ASSERT(!question->is_status_open);
    muster_tpu_node_unref(question->node);
    resolve->impl = NULL;
    muster_mem_free(mem_of(question), question);
    muster_resolve_finish(resolve, rc);
}

static enum muster_rc no_memory(struct tpu_question *question)
{
    return muster_error_set(&question->resolve->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
}

/* The cluster. */

const char *muster_tpu_resolver_job(const struct muster_tpu_resolver *own)
{
    const char *set = own->resolver.task_type;
    const char *coordinator = own->options.coordinator_name;

    return set == NULL || (coordinator != NULL && strcmp(set, coordinator) == 0) ? own->job_name
                                                                                 : set;
}

static bool is_listed(const struct tpu_question *question)
{
    return !muster_tpu_client_is_local(question->own->client);
}

/* TensorFlow 2 wants READY; tf.contrib looks at what the API tells, health included. */
static enum muster_rc check_ready(struct tpu_question *question)
{
    struct muster_tpu_client *client = question->own->client;

    if (!muster_tpu_client_has_api(client))
        return MUSTER_OK;
    return muster_tpu_node_check(question->node, muster_tpu_client_name(client),
                                 question->own->options.client.is_tf1, &question->resolve->error);
}

/* Address i of the node at its place in texts. */
static const char *format_address(const struct tpu_question *question, size_t i, char *texts)
{
    const struct muster_tpu_endpoint *endpoint = &question->node->endpoints[i];
    char *text = texts + i * ADDRESS_BYTES;

    return muster_task_address_format(endpoint->host, endpoint->port, ADDRESS_BYTES, text) ? text
                                                                                           : "";
}

/* A local TPU has an empty cluster: the process and its cores are one task. */
static enum muster_rc build_cluster(struct tpu_question *question,
                                    struct muster_cluster_spec **ret_spec)
{
    struct muster_tpu_resolver *own = question->own;
    size_t count = is_listed(question) ? question->node->endpoint_count : 0;
    const char *coordinator = own->options.coordinator_address != NULL
                                  ? own->options.coordinator_address
                                  : own->coordinator;
    struct muster_cluster_spec_builder builder;
    char *texts = muster_mem_alloc(mem_of(question), count * ADDRESS_BYTES);
    enum muster_rc rc;

    if (texts == NULL)
        return no_memory(question);
    muster_cluster_spec_builder_init(&builder, mem_of(question), false);
    if (is_listed(question))
        muster_cluster_spec_builder_add_job(&builder, muster_tpu_resolver_job(own));
    for (size_t i = 0; i < count; i++)
        muster_cluster_spec_builder_add_task(&builder, (int32_t)i,
                                             format_address(question, i, texts));
    if (is_listed(question) && own->options.coordinator_name != NULL && coordinator != NULL) {
        muster_cluster_spec_builder_add_job(&builder, own->options.coordinator_name);
        muster_cluster_spec_builder_add_task(&builder, 0, coordinator);
    }
    rc = muster_cluster_spec_build(&builder, ret_spec);
    muster_cluster_spec_builder_fini(&builder);
    muster_mem_free(mem_of(question), texts);
    return rc == MUSTER_OK ? MUSTER_OK : no_memory(question);
}

/* The master. */

/* The task that is asked for in full; else the own one, which is the first worker where no id is
 * set. */
static enum muster_rc find_master(struct tpu_question *question,
                                  const struct muster_cluster_spec *spec)
{
    struct muster_resolve *resolve = question->resolve;
    struct muster_resolver *resolver = resolve->resolver;
    const struct muster_task_query *query = &resolve->query;
    bool is_named = query->task_type != NULL && query->has_task_id;
    const char *own_type =
        resolver->task_type != NULL ? resolver->task_type : muster_tpu_resolver_job(question->own);
    const char *address = NULL;
    enum muster_rc rc =
        muster_cluster_spec_task_address(spec, is_named ? query->task_type : own_type,
                                         is_named                ? query->task_id
                                         : resolver->has_task_id ? resolver->task_id
                                                                 : 0,
                                         &address, &resolve->error);

    if (rc == MUSTER_OK)
        rc = muster_master_url_format(mem_of(question), "grpc", address, &resolve->master,
                                      &resolve->error);
    return rc;
}

/* A question for accelerators needs a master, too (TensorFlow lists the devices of the master). */
static enum muster_rc question_answer(struct tpu_question *question)
{
    struct muster_resolve *resolve = question->resolve;
    struct muster_cluster_spec *spec = NULL;
    enum muster_rc rc = build_cluster(question, &spec);

    if (rc == MUSTER_OK && resolve->what == MUSTER_RESOLVE_CLUSTER_SPEC) {
        resolve->cluster_spec = spec;
        return MUSTER_OK;
    }
    if (rc == MUSTER_OK)
        rc = find_master(question, spec);
    if (resolve->what == MUSTER_RESOLVE_NUM_ACCELERATORS) {
        muster_mem_free(mem_of(question), resolve->master);
        resolve->master = NULL;
    }
    muster_cluster_spec_unref(spec);
    return rc;
}

/* The accelerators. */

/* TensorFlow's answer is {TPU: cores of one host}, 0 where there are none. */
static enum muster_rc count_cores(struct tpu_question *question, const char *const *names,
                                  size_t count)
{
    struct muster_accelerators *found = &question->resolve->accelerators;
    struct muster_tpu_system system;
    enum muster_rc rc =
        muster_tpu_system_init(&system, mem_of(question), names, count, &question->resolve->error);

    if (rc != MUSTER_OK)
        return rc;
    found->kind_count = 1;
    snprintf(found->kinds[0].kind, sizeof(found->kinds[0].kind), "TPU");
    found->kinds[0].count = system.num_of_cores_per_host;
    muster_tpu_system_fini(&system);
    return MUSTER_OK;
}

static void on_status(struct muster_worker_status *status, enum muster_rc rc)
{
    struct tpu_question *question = status->data;

    question->is_status_open = false;
    if (rc != MUSTER_OK)
        question->resolve->error = status->error;
    else
        rc = count_cores(question, (const char *const *)status->devices, status->device_count);
    muster_worker_status_fini(status);
    question_finish(question, rc);
}

/* Without a list of devices from the caller, the workers list theirs. */
static void ask_workers(struct tpu_question *question)
{
    size_t count = question->node->endpoint_count;
    char *texts = muster_mem_alloc(mem_of(question), count * ADDRESS_BYTES);
    const char **addresses = muster_mem_alloc_zero(mem_of(question), count, sizeof(char *));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (texts != NULL && addresses != NULL) {
        for (size_t i = 0; i < count; i++)
            addresses[i] = format_address(question, i, texts);
        question->status.data = question;
        rc =
            muster_worker_status_start(&question->status, question->resolve->resolver->env,
                                       addresses, count, question->resolve->deadline_ns, on_status);
        question->is_status_open = rc == MUSTER_OK;
    }
    muster_mem_free(mem_of(question), texts);
    muster_mem_free(mem_of(question), addresses);
    if (rc != MUSTER_OK)
        question_finish(question,
                        muster_error_set(&question->resolve->error, rc,
                                         "cannot ask the workers of the TPU for their devices"));
}

static void count_accelerators(struct tpu_question *question)
{
    struct muster_resolver *resolver = question->resolve->resolver;
    const char *const *names = NULL;
    size_t count = 0;
    enum muster_rc rc = is_listed(question) ? question_answer(question) : MUSTER_OK;

    if (rc != MUSTER_OK) {
        question_finish(question, rc);
        return;
    }
    if (resolver->list_devices == NULL && is_listed(question) &&
        question->node->endpoint_count > 0) {
        ask_workers(question);
        return;
    }
    if (resolver->list_devices != NULL)
        resolver->list_devices(resolver->list_devices_data, &names, &count);
    question_finish(question, count_cores(question, names, count));
}

/* The coordinator, then the end. */

/* The node and the coordinator are known: answer, or list devices first. */
static void question_settle(struct tpu_question *question)
{
    if (question->resolve->what == MUSTER_RESOLVE_NUM_ACCELERATORS)
        count_accelerators(question);
    else
        question_finish(question, question_answer(question));
}

/* This machine's address and the port of the server that we start. */
static enum muster_rc start_coordinator(struct tpu_question *question, const char *ip)
{
    struct muster_tpu_resolver *own = question->own;
    uint16_t port = 0;
    char *text;
    enum muster_rc rc;

    if (own->coordinator != NULL) /* another question has started it */
        return MUSTER_OK;
    text = muster_mem_alloc(
        mem_of(question),
        ADDRESS_BYTES); /* before the server starts: a failure after that would lose it */
    if (text == NULL)
        return no_memory(question);
    if (!muster_task_address_format(ip, port, ADDRESS_BYTES, text))
        rc = muster_error_set(&question->resolve->error, MUSTER_INVALID_ARGUMENT,
                              "the metadata server gives no address of this machine");
    else
        rc = own->options.start_server(own->options.start_server_data, &port,
                                       &question->resolve->error);
    if (rc != MUSTER_OK) {
        muster_mem_free(mem_of(question), text);
        return rc;
    }
    (void)muster_task_address_format(ip, port, ADDRESS_BYTES, text);
    own->coordinator = text;
    return MUSTER_OK;
}

/* A query may win against its cancellation: do not go on to the next one then. */
static enum muster_rc check_cancelled(struct tpu_question *question)
{
    if (!question->is_cancelled)
        return MUSTER_OK;
    return muster_error_set(&question->resolve->error, MUSTER_CANCELLED, "cancelled");
}

static void on_local_ip(struct muster_tpu_query *query, enum muster_rc rc)
{
    struct tpu_question *question = query->data;

    if (rc != MUSTER_OK)
        question->resolve->error = query->error;
    else
        rc = check_cancelled(question);
    if (rc == MUSTER_OK)
        rc = start_coordinator(question, query->text);
    muster_mem_free(mem_of(question), query->text);
    if (rc != MUSTER_OK)
        question_finish(question, rc);
    else
        question_settle(question);
}

/* Node and local address are asked one after the other, so one query struct serves both. */
static void question_query(struct tpu_question *question, enum muster_tpu_what what,
                           muster_tpu_query_fn *done)
{
    enum muster_rc rc;

    question->query.data = question;
    question->query.what = what;
    question->query.is_watch = muster_resolve_is_watch(question->resolve);
    question->query.deadline_ns = muster_deadline_inherit(question->resolve->resolver->env->loop,
                                                          question->resolve->deadline_ns);
    rc = muster_tpu_query_start(&question->query, question->own->client, done);
    if (rc != MUSTER_OK)
        question_finish(
            question, muster_error_set(&question->resolve->error, rc, "cannot ask about the TPU"));
}

static void on_node(struct muster_tpu_query *query, enum muster_rc rc)
{
    struct tpu_question *question = query->data;
    const struct muster_tpu_resolver_options *options = &question->own->options;

    question->node = query->node;
    query->node = NULL;
    if (rc != MUSTER_OK)
        question->resolve->error = query->error;
    else
        rc = check_cancelled(question);
    if (rc == MUSTER_OK)
        rc = check_ready(question);
    if (rc != MUSTER_OK)
        question_finish(question, rc);
    else if (options->coordinator_name != NULL && options->coordinator_address == NULL &&
             options->start_server != NULL && question->own->coordinator == NULL)
        question_query(question, MUSTER_TPU_LOCAL_IP, on_local_ip);
    else
        question_settle(question);
}

/* tf.contrib uses a name like localhost:1234 as it is. */
static bool answer_local_master(struct muster_tpu_resolver *own, struct muster_resolve *resolve)
{
    const char *name = muster_tpu_client_name(own->client);
    bool is_plain = strcmp(name, "local") == 0;
    size_t length = strcspn(name, ",");
    enum muster_rc rc = MUSTER_OK;

    if (resolve->what != MUSTER_RESOLVE_MASTER || !muster_tpu_client_is_local(own->client))
        return false;
    resolve->master = muster_mem_strndup(resolve->resolver->env->mem, name, is_plain ? 0 : length);
    if (resolve->master == NULL)
        rc = muster_error_set(&resolve->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    muster_resolve_finish(resolve, rc);
    return true;
}

void muster_tpu_question_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct muster_tpu_resolver *own =
        MUSTER_CONTAINER_OF(resolver, struct muster_tpu_resolver, resolver);
    struct tpu_question *question;

    if (answer_local_master(own, resolve))
        return;
    question = muster_mem_alloc_zero(resolver->env->mem, 1, sizeof(*question));
    if (question == NULL) {
        muster_resolve_finish(
            resolve, muster_error_set(&resolve->error, MUSTER_RESOURCE_EXHAUSTED, "no memory"));
        return;
    }
    question->resolve = resolve;
    question->own = own;
    resolve->impl = question;
    if (resolve->what == MUSTER_RESOLVE_NUM_ACCELERATORS && muster_tpu_client_is_local(own->client))
        count_accelerators(question);
    else
        question_query(question, MUSTER_TPU_NODE, on_node);
}

void muster_tpu_question_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct tpu_question *question = resolve->impl;

    (void)resolver;
    if (question == NULL)
        return;
    question->is_cancelled = true;
    if (question->is_status_open)
        muster_worker_status_cancel(&question->status);
    else
        muster_tpu_query_cancel(&question->query);
}
