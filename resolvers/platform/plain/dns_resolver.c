/* A cluster in DNS: the services of an SRV name (RFC 2782), "dns:_muster._tcp.example.org", or the
 * addresses of a host, "dns:workers.example.org:2222". Priorities and weights of SRV records do not
 * matter: every target is a task. Kubernetes serves both forms for a headless service. */
#include "net/stream/dns.h"

#include "resolvers/core/cluster_answer.h"
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/schemes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB_DEFAULT   "worker"
#define ADDRESS_BYTES (MUSTER_HOST_TEXT_BYTES + 8) /* ":65535" */

/* Options of the URI. */
struct dns_uri_values {
    struct muster_resolver_options common;
    const char *job;
    const char *self;
    const char *server;
};

struct dns_resolver {
    struct muster_resolver resolver;
    struct muster_dns *dns;
    char *job;
    char *self; /* address of this process; NULL: not known */
    char *name;
    uint16_t port; /* 0: name is that of a service */
    bool has_own;
    int64_t own_index; /* of self in the last answer */
    char source[MUSTER_HOST_TEXT_BYTES + 16];
};

/* A question: one of the two queries, SRV or addresses. */
struct dns_question {
    struct muster_resolve *resolve;
    struct muster_dns_srv srv;
    struct muster_lookup lookup;
};

static struct dns_resolver *dns_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct dns_resolver, resolver);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Addresses are sorted, so that all members number the tasks alike: servers rotate the order of
 * records. */
static enum muster_rc build_spec(struct dns_resolver *own, char (*addresses)[ADDRESS_BYTES],
                                 size_t count, struct muster_cluster_spec **ret_spec)
{
    struct muster_cluster_spec_builder builder;
    enum muster_rc rc;

    qsort(addresses, count, sizeof(addresses[0]), compare_texts);
    own->has_own = false;
    muster_cluster_spec_builder_init(&builder, own->resolver.env->mem, false);
    muster_cluster_spec_builder_add_job(&builder, own->job);
    for (size_t i = 0; i < count; i++) {
        muster_cluster_spec_builder_add_task(&builder, (int32_t)i, addresses[i]);
        if (own->self != NULL && strcmp(own->self, addresses[i]) == 0) {
            own->has_own = true;
            own->own_index = (int64_t)i;
        }
    }
    rc = muster_cluster_spec_build(&builder, ret_spec);
    muster_cluster_spec_builder_fini(&builder);
    return rc;
}

/* SRV records name hosts and ports, and a host may move: its name stays the address. A host's own
 * records give addresses only, and the port is the URI's. */
static void format_all(const struct dns_question *question, char (*addresses)[ADDRESS_BYTES],
                       size_t count, bool is_service)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    for (size_t i = 0; i < count; i++) {
        const struct muster_dns_service *service = &question->srv.services[i];

        if (is_service)
            snprintf(addresses[i], ADDRESS_BYTES, "%s:%u", service->target, service->port);
        else
            snprintf(addresses[i], ADDRESS_BYTES, "%s",
                     muster_address_format(&question->lookup.addresses[i], text));
    }
}

/* An answer that fills the array may have been cut, and a cluster that lacks tasks would pass for a
 * whole one: refuse it. */
static enum muster_rc take_answer(struct dns_question *question)
{
    struct muster_resolve *resolve = question->resolve;
    struct dns_resolver *own = dns_of(resolve->resolver);
    struct muster_mem *mem = own->resolver.env->mem;
    bool is_service = own->port == 0;
    size_t count = is_service ? question->srv.service_count : question->lookup.address_count;
    char(*addresses)[ADDRESS_BYTES] = muster_mem_alloc(mem, count * ADDRESS_BYTES);
    struct muster_cluster_spec *spec = NULL;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (!is_service && count == MUSTER_LOOKUP_ADDRESSES_MAX) {
        muster_error_set(&resolve->error, rc,
                         "%.120s has %d addresses or more, and more than that are not read: give "
                         "it an SRV name",
                         own->name, MUSTER_LOOKUP_ADDRESSES_MAX);
    } else if (addresses != NULL) {
        format_all(question, addresses, count, is_service);
        rc = build_spec(own, addresses, count, &spec);
    }
    if (rc == MUSTER_OK)
        rc = muster_resolve_answer_cluster(resolve, spec);
    muster_mem_free(mem, addresses);
    return rc;
}

/* The end of a question. The question is freed before muster_resolve_finish, which only posts a
 * task. */
static void question_finish(struct dns_question *question, enum muster_rc rc,
                            const struct muster_error *cause)
{
    struct muster_resolve *resolve = question->resolve;
    struct dns_resolver *own = dns_of(resolve->resolver);

    if (rc == MUSTER_OK)
        rc = take_answer(question);
    else
        muster_error_set(&resolve->error, rc, "dns: %.200s", cause->text);
    resolve->impl = NULL;
    muster_mem_free(own->resolver.env->mem, question);
    muster_resolve_finish(resolve, rc);
}

static void on_services(struct muster_dns_srv *srv, enum muster_rc rc)
{
    question_finish(srv->data, rc, &srv->error);
}

static void on_addresses(struct muster_lookup *lookup, enum muster_rc rc)
{
    question_finish(lookup->data, rc, &lookup->error);
}

static enum muster_rc start_query(struct dns_resolver *own, struct dns_question *question)
{
    /* No deadline of its own: the deadline of the question cancels it. */
    question->srv.data = question;
    question->lookup.data = question;
    question->lookup.done = on_addresses;
    question->lookup.port = own->port;
    MUSTER_LOG(own->resolver.env, DEBUG, "dns_query", "name", own->name, "type",
               own->port == 0 ? "SRV" : "A, AAAA");
    if (own->port == 0)
        return muster_dns_srv_start(&question->srv, own->dns, own->name, UINT64_MAX, on_services);
    return muster_dns_lookup(own->dns, &question->lookup, own->name, UINT64_MAX);
}

static void dns_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct dns_resolver *own = dns_of(resolver);
    struct dns_question *question = muster_mem_alloc_zero(resolver->env->mem, 1, sizeof(*question));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (question != NULL) {
        question->resolve = resolve;
        resolve->impl = question;
        rc = start_query(own, question);
    }
    if (rc == MUSTER_OK)
        return;
    resolve->impl = NULL;
    muster_mem_free(resolver->env->mem, question);
    muster_error_set(&resolve->error, rc, "dns:%.80s cannot be asked: %s", own->name,
                     muster_rc_text(rc));
    muster_resolve_finish(resolve, rc);
}

static void dns_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct dns_resolver *own = dns_of(resolver);
    struct dns_question *question = resolve->impl;

    if (question == NULL)
        return;
    if (own->port == 0)
        muster_dns_srv_cancel(&question->srv);
    else
        muster_dns_lookup_cancel(own->dns, &question->lookup);
}

/* The own task is known once an answer has shown self= among the addresses. */
static enum muster_rc dns_task_type(struct muster_resolver *resolver, char **ret_text,
                                    struct muster_error *ret_error)
{
    struct dns_resolver *own = dns_of(resolver);
    char *text = NULL;

    if (own->has_own) {
        text = muster_mem_strdup(resolver->env->mem, own->job);
        if (text == NULL)
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    }
    *ret_text = text;
    return MUSTER_OK;
}

static enum muster_rc dns_task_id(struct muster_resolver *resolver, bool *ret_is_set,
                                  int64_t *ret_id, struct muster_error *ret_error)
{
    (void)ret_error;
    *ret_is_set = dns_of(resolver)->has_own;
    *ret_id = dns_of(resolver)->own_index;
    return MUSTER_OK;
}

static const char *dns_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    struct dns_resolver *own = dns_of(resolver);

    switch (fact) {
    case MUSTER_FACT_CLUSTER_SPEC:
    case MUSTER_FACT_MASTER:
        return own->source;
    case MUSTER_FACT_TASK_TYPE:
    case MUSTER_FACT_TASK_ID:
        return own->has_own ? "self= in the answer" : NULL;
    case MUSTER_FACT_NUM_ACCELERATORS:
        return "devices of this process";
    case MUSTER_FACT_RPC_LAYER:
    case MUSTER_FACT_WORLD_SIZE:
        break;
    }
    return NULL;
}

static void dns_close(struct muster_resolver *resolver)
{
    struct dns_resolver *own = dns_of(resolver);
    struct muster_mem *mem = resolver->env->mem;

    muster_resolver_fini(resolver);
    muster_dns_close(own->dns);
    muster_mem_free(mem, own->job);
    muster_mem_free(mem, own->self);
    muster_mem_free(mem, own->name);
    muster_mem_free(mem, own);
}

static const struct muster_resolver_ops dns_ops = {
    .name = "dns",
    .start = dns_start,
    .cancel = dns_cancel,
    .task_type = dns_task_type,
    .task_id = dns_task_id,
    .source = dns_source,
    .close = dns_close,
};

/* "_service._proto.domain" or "host:port"; cuts the text. */
static bool read_target(struct dns_resolver *own)
{
    struct muster_endpoint endpoint;

    if (own->name[0] == '_') {
        own->port = 0;
        snprintf(own->source, sizeof(own->source), "DNS SRV %s", own->name);
        return strlen(own->name) < MUSTER_HOST_TEXT_BYTES;
    }
    if (muster_endpoint_parse(own->name, 0, &endpoint, NULL) != MUSTER_OK || endpoint.port == 0 ||
        endpoint.host[0] == '\0')
        return false;
    own->port = endpoint.port;
    memcpy(own->name, endpoint.host, strlen(endpoint.host) + 1);
    snprintf(own->source, sizeof(own->source), "DNS A, AAAA %s", own->name);
    return true;
}

/* On failure all is released. */
static enum muster_rc open_values(struct muster_env *env, const char *target,
                                  const struct dns_uri_values *values,
                                  struct dns_resolver **ret_own)
{
    struct muster_dns_options options = {.servers = values->server};
    struct dns_resolver *own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (own == NULL ||
        muster_resolver_init(&own->resolver, env, &dns_ops, &values->common) != MUSTER_OK) {
        muster_mem_free(env->mem, own);
        return rc;
    }
    own->job = muster_mem_strdup(env->mem, values->job);
    own->name = muster_mem_strndup(env->mem, target, strcspn(target, "?"));
    own->self = values->self != NULL ? muster_mem_strdup(env->mem, values->self) : NULL;
    if (own->job != NULL && own->name != NULL && (own->self != NULL || values->self == NULL))
        rc = read_target(own) ? MUSTER_OK : MUSTER_INVALID_ARGUMENT;
    if (rc == MUSTER_OK)
        rc = muster_dns_open(env, &options, &own->dns);
    if (rc == MUSTER_OK)
        *ret_own = own;
    else
        dns_close(&own->resolver);
    return rc;
}

enum muster_rc muster_dns_resolver_open_uri(struct muster_env *env, const char *rest,
                                            const struct muster_resolver_options *options,
                                            struct muster_resolver **ret_resolver,
                                            struct muster_error *ret_error)
{
    static const struct muster_uri_row rows[] = {
        {"job", MUSTER_URI_TEXT, offsetof(struct dns_uri_values, job), 0, 0},
        {"self", MUSTER_URI_TEXT, offsetof(struct dns_uri_values, self), 0, 0},
        {"server", MUSTER_URI_TEXT, offsetof(struct dns_uri_values, server), 0, 0},
        MUSTER_URI_COMMON(struct dns_uri_values, common),
    };
    static const struct muster_uri_table table = {"dns", rows, sizeof(rows) / sizeof(rows[0])};
    struct dns_uri_values values = {.common = *options, .job = JOB_DEFAULT};
    struct muster_uri_options texts = {.mem = env->mem};
    struct dns_resolver *own = NULL;
    size_t length = strcspn(rest, "?");
    enum muster_rc rc = muster_uri_options_parse(&texts, rest + length + (rest[length] == '?'),
                                                 &table, &values, ret_error);

    if (rc == MUSTER_OK) {
        rc = open_values(env, rest, &values, &own);
        if (rc == MUSTER_OK)
            *ret_resolver = &own->resolver;
        else
            muster_error_set(ret_error, rc,
                             "dns:%.100s: %s; expected dns:_service._tcp.domain or dns:host:port",
                             rest, muster_rc_text(rc));
    }
    muster_uri_options_fini(&texts);
    return rc;
}
