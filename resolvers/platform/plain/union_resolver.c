/* Several resolvers as one (TensorFlow's UnionResolver). The union owns its members and closes them
 * when it stops. Its cluster is joined of all members (cluster_join.c); everything else is the
 * first member's, unless the union was given its own task or RPC layer. */
#include <muster/platforms.h>

#include "resolvers/platform/plain/union_resolver.h"
#include "resolvers/core/name_list.h"
#include "resolvers/core/resolver_internal.h"
#include "resolvers/spec/spec_internal.h"
#include "resolvers/spec/task_address.h"

#include <string.h>

#include "runtime/loop/deadline.h"

struct union_resolver {
    struct muster_resolver resolver;
    struct muster_resolver **members;
    size_t member_count;
    size_t open_count; /* members not yet closed */
    char source[200];
};

/* A question to the union, and its parts: the questions to members. */
struct union_question {
    struct muster_resolve *resolve;
    size_t part_count;
    size_t open_count;
    struct muster_resolve parts[];
};

static struct union_resolver *union_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct union_resolver, resolver);
}

static struct muster_mem *mem_of(const struct union_question *question)
{
    return question->resolve->resolver->env->mem;
}

/* The error of the first member that failed, in their order, however early another one failed: the
 * same fault gives the same text each time. */
static enum muster_rc first_failure(const struct union_question *question)
{
    struct union_resolver *own = union_of(question->resolve->resolver);

    for (size_t i = 0; i < question->part_count; i++) {
        const struct muster_resolve *part = &question->parts[i];

        if (part->rc != MUSTER_OK && question->part_count == 1)
            question->resolve->error = part->error;
        else if (part->rc != MUSTER_OK)
            muster_error_set(&question->resolve->error, part->rc,
                             "member %zu of the union (%s): %s", i + 1,
                             muster_resolver_name(own->members[i]), part->error.text);
        if (part->rc != MUSTER_OK)
            return part->rc;
    }
    return MUSTER_OK;
}

static enum muster_rc join_clusters(const struct union_question *question,
                                    struct muster_cluster_spec **ret_spec)
{
    struct muster_cluster_spec *specs[MUSTER_UNION_MEMBERS_MAX];

    for (size_t i = 0; i < question->part_count; i++)
        specs[i] = question->parts[i].cluster_spec;
    return muster_cluster_spec_join(mem_of(question), specs, question->part_count, ret_spec,
                                    &question->resolve->error);
}

/* The address of a task in the joined cluster, for a question that names the task in full. */
static enum muster_rc find_master(const struct union_question *question)
{
    struct muster_resolve *resolve = question->resolve;
    const struct muster_task_query *query = &resolve->query;
    struct muster_cluster_spec *spec = NULL;
    const char *address = NULL;
    enum muster_rc rc = join_clusters(question, &spec);

    if (rc == MUSTER_OK)
        rc = muster_cluster_spec_task_address(spec, query->task_type, query->task_id, &address,
                                              &resolve->error);
    if (rc == MUSTER_OK)
        rc = muster_master_url_format(mem_of(question), muster_resolve_rpc_layer(resolve), address,
                                      &resolve->master, &resolve->error);
    muster_cluster_spec_unref(spec);
    return rc;
}

/* Results move from the parts to the question; what is left in a part is freed by
 * question_finish. */
static enum muster_rc take_answers(struct union_question *question)
{
    struct muster_resolve *resolve = question->resolve;
    enum muster_rc rc = first_failure(question);

    if (rc != MUSTER_OK)
        return rc;
    if (resolve->what == MUSTER_RESOLVE_CLUSTER_SPEC)
        return join_clusters(question, &resolve->cluster_spec);
    if (question->parts[0].what == MUSTER_RESOLVE_CLUSTER_SPEC)
        return find_master(question);
    resolve->master = question->parts[0].master;
    question->parts[0].master = NULL;
    resolve->accelerators = question->parts[0].accelerators;
    return MUSTER_OK;
}

static void question_finish(struct union_question *question)
{
    struct muster_resolve *resolve = question->resolve;
    struct muster_mem *mem = mem_of(question);
    enum muster_rc rc = take_answers(question);

    for (size_t i = 0; i < question->part_count; i++) {
        muster_cluster_spec_unref(question->parts[i].cluster_spec);
        muster_mem_free(mem, question->parts[i].master);
    }
    resolve->impl = NULL;
    muster_mem_free(mem, question);
    muster_resolve_finish(resolve, rc);
}

/* A member refuses only what is misuse: it was closed although the union owns it. */
static void refuse_part(struct muster_resolve *part, enum muster_rc rc)
{
    struct union_question *question = part->data;

    part->rc = rc;
    if (part->error.rc == MUSTER_OK)
        muster_error_set(
            &part->error, rc,
            "the resolver has been closed before the union that owns it; close the union "
            "alone");
    question->open_count--;
}

static void on_part(struct muster_resolve *part, enum muster_rc rc)
{
    struct union_question *question = part->data;

    (void)rc; /* part->rc */
    MUSTER_ASSERT(question->open_count > 0);
    question->open_count--;
    if (question->open_count == 0)
        question_finish(question);
}

/* The cluster, and the master of a task named in full, need all members; other questions go to the
 * first member alone, as in TensorFlow. */
static void union_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct union_resolver *own = union_of(resolver);
    bool is_lookup = resolve->what == MUSTER_RESOLVE_MASTER && resolve->query.task_type != NULL &&
                     resolve->query.has_task_id;
    bool is_for_all = is_lookup || resolve->what == MUSTER_RESOLVE_CLUSTER_SPEC;
    size_t count = is_for_all ? own->member_count : 1;
    struct union_question *question = muster_mem_alloc_zero(
        resolver->env->mem, 1, sizeof(*question) + count * sizeof(question->parts[0]));

    if (question == NULL) {
        muster_error_set(&resolve->error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a question");
        muster_resolve_finish(resolve, MUSTER_RESOURCE_EXHAUSTED);
        return;
    }
    *question =
        (struct union_question){.resolve = resolve, .part_count = count, .open_count = count};
    resolve->impl = question;
    for (size_t i = 0; i < count; i++) {
        struct muster_resolve *part = &question->parts[i];
        enum muster_rc rc;

        part->data = question;
        part->what = is_for_all ? MUSTER_RESOLVE_CLUSTER_SPEC : resolve->what;
        part->query = resolve->query;
        if (resolve->what == MUSTER_RESOLVE_MASTER) /* named in part only: the member's own task */
            part->query = (struct muster_task_query){.rpc_layer = resolve->query.rpc_layer};
        part->deadline_ns = muster_deadline_inherit(resolver->env->loop, resolve->deadline_ns);
        rc = muster_resolve_start(part, own->members[i], on_part);
        if (rc != MUSTER_OK)
            refuse_part(part, rc);
    }
    if (question->open_count == 0) /* no part will end it */
        question_finish(question);
}

static void union_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct union_question *question = resolve->impl;

    (void)resolver;
    for (size_t i = 0; i < question->part_count; i++)
        if (question->parts[i].resolver != NULL) /* else it was refused */
            muster_resolve_cancel(&question->parts[i]);
}

static enum muster_rc union_task_type(struct muster_resolver *resolver, char **ret_text,
                                      struct muster_error *ret_error)
{
    return muster_resolver_task_type(union_of(resolver)->members[0], ret_text, ret_error);
}

static enum muster_rc union_task_id(struct muster_resolver *resolver, bool *ret_is_set,
                                    int64_t *ret_id, struct muster_error *ret_error)
{
    return muster_resolver_task_id(union_of(resolver)->members[0], ret_is_set, ret_id, ret_error);
}

static enum muster_rc union_rpc_layer(struct muster_resolver *resolver, char **ret_text,
                                      struct muster_error *ret_error)
{
    return muster_resolver_rpc_layer(union_of(resolver)->members[0], ret_text, ret_error);
}

static const char *union_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    struct union_resolver *own = union_of(resolver);
    struct muster_name_list sources = {
        .text = own->source, .bytes = sizeof(own->source), .separator = " + "};

    if ((fact == MUSTER_FACT_TASK_TYPE && resolver->task_type != NULL) ||
        (fact == MUSTER_FACT_TASK_ID && resolver->has_task_id) ||
        (fact == MUSTER_FACT_RPC_LAYER && resolver->rpc_layer != NULL))
        return NULL;
    if (fact != MUSTER_FACT_CLUSTER_SPEC)
        return muster_resolver_source(own->members[0], fact);
    for (size_t i = 0; i < own->member_count; i++)
        muster_name_list_add(&sources, muster_resolver_source(own->members[i], fact));
    return own->source;
}

static void on_member_closed(struct muster_resolver *member)
{
    struct union_resolver *own = member->data;

    MUSTER_ASSERT(own->open_count > 0);
    own->open_count--;
    if (own->open_count == 0)
        muster_resolver_stopped(&own->resolver);
}

/* Members close at their own time; the last of them stops the union. */
static void union_stop(struct muster_resolver *resolver)
{
    struct union_resolver *own = union_of(resolver);

    own->open_count = own->member_count;
    for (size_t i = 0; i < own->member_count; i++) {
        own->members[i]->data = own;
        muster_resolver_close(own->members[i], on_member_closed);
    }
}

static void union_close(struct muster_resolver *resolver)
{
    struct union_resolver *own = union_of(resolver);
    struct muster_mem *mem = resolver->env->mem;

    muster_resolver_fini(resolver);
    muster_mem_free(mem, own->members);
    muster_mem_free(mem, own);
}

static const struct muster_resolver_ops union_ops = {
    .name = "union",
    .start = union_start,
    .cancel = union_cancel,
    .task_type = union_task_type,
    .task_id = union_task_id,
    .rpc_layer = union_rpc_layer,
    .source = union_source,
    .stop = union_stop,
    .close = union_close,
    .is_empty_unset = true,
};

static enum muster_rc check_options(const struct muster_union_resolver_options *options,
                                    struct muster_error *ret_error)
{
    if (options->member_count == 0 || options->member_count > MUSTER_UNION_MEMBERS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a union must have 1 to %d members, got %zu",
                                MUSTER_UNION_MEMBERS_MAX, options->member_count);
    if (options->common.environment != NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a union has no environment of its own: set its first member's");
    for (size_t i = 0; i < options->member_count; i++) {
        if (options->members[i] == NULL)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "member %zu of the union must be a resolver, got NULL", i + 1);
    }
    return MUSTER_OK;
}

/* The environment is the first member's, as in TensorFlow; check_options refuses another one. */
static enum muster_rc union_new(struct muster_env *env,
                                const struct muster_union_resolver_options *options,
                                struct union_resolver **ret_own)
{
    struct muster_resolver_options common = options->common;
    struct union_resolver *own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));

    if (own == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    common.environment = muster_resolver_environment(options->members[0]);
    own->members = muster_mem_alloc_zero(env->mem, options->member_count, sizeof(own->members[0]));
    if (own->members == NULL ||
        muster_resolver_init(&own->resolver, env, &union_ops, &common) != MUSTER_OK) {
        muster_mem_free(env->mem, own->members);
        muster_mem_free(env->mem, own);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    own->member_count = options->member_count;
    memcpy(own->members, options->members, own->member_count * sizeof(own->members[0]));
    *ret_own = own;
    return MUSTER_OK;
}

void muster_union_members_discard(struct muster_resolver *const *members, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (members[i] != NULL && members[i]->ops->stop == NULL)
            members[i]->ops->close(members[i]);
        else if (members[i] != NULL)
            muster_resolver_close(members[i], NULL);
    }
}

enum muster_rc muster_union_resolver_open(struct muster_env *env,
                                          const struct muster_union_resolver_options *options,
                                          struct muster_resolver **ret_resolver,
                                          struct muster_error *ret_error)
{
    static const struct muster_union_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    struct union_resolver *own = NULL;
    enum muster_rc rc = check_options(options, ret_error);

    if (rc == MUSTER_OK) {
        rc = union_new(env, options, &own);
        if (rc != MUSTER_OK)
            muster_error_set(ret_error, rc, "no memory for a union of resolvers");
    }
    if (rc == MUSTER_OK) {
        *ret_resolver = &own->resolver;
        return MUSTER_OK;
    }
    muster_union_members_discard(options->members, options->member_count);
    return rc;
}
