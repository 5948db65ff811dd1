/* Rules over identities and methods: deny first, then allow, else refuse (gRPC A43). It is an
 * interceptor of a server, so it judges each call once its headers are there, by the identity that
 * TLS has proved; authorization_parse.c makes the rules from a policy. Rules do not change after
 * they are made. */
#include <muster/authorization.h>

#include <stdio.h>
#include <string.h>

#include <muster/hash.h>

#include "net/tls/name_pattern.h"

#define LOGGED_MAX 256 /* callers of whose refusal the log knows; then the oldest are told again */

struct rule {
    struct muster_list node;
    char *name;
    char **principals, **methods; /* NULL after the last */
};

struct muster_authorization {
    struct muster_env *env;
    struct muster_list deny, allow;
    char *job; /* with a slash at its end */
    struct muster_interceptor interceptor;
    uint64_t logged[LOGGED_MAX];
    size_t logged_count;
};

static void texts_free(struct muster_mem *mem, char **texts)
{
    for (char **text = texts; text != NULL && *text != NULL; text++)
        muster_mem_free(mem, *text);
    muster_mem_free(mem, texts);
}

static char **texts_copy(struct muster_mem *mem, const char *const *texts, size_t count)
{
    char **copy = muster_mem_alloc_zero(mem, count + 1, sizeof(*copy));

    for (size_t i = 0; copy != NULL && i < count; i++) {
        copy[i] = muster_mem_strdup(mem, texts[i]);
        if (copy[i] == NULL) {
            texts_free(mem, copy);
            return NULL;
        }
    }
    return copy;
}

static void rule_free(struct muster_mem *mem, struct rule *rule)
{
    muster_mem_free(mem, rule->name);
    texts_free(mem, rule->principals);
    texts_free(mem, rule->methods);
    muster_mem_free(mem, rule);
}

static bool rule_add(struct muster_mem *mem, struct muster_list *rules,
                     const struct muster_authorization_rule *from)
{
    struct rule *rule = muster_mem_alloc_zero(mem, 1, sizeof(*rule));

    if (rule == NULL)
        return false;
    rule->name = muster_mem_strdup(mem, from->name != NULL ? from->name : "");
    rule->principals = texts_copy(mem, from->principals, from->principal_count);
    rule->methods = texts_copy(mem, from->methods, from->method_count);
    if (rule->name == NULL || rule->principals == NULL || rule->methods == NULL) {
        rule_free(mem, rule);
        return false;
    }
    muster_list_append(rules, &rule->node);
    return true;
}

/* Judging. */

/* No principals in a rule mean anybody, also a caller without a certificate (A43). */
static bool has_principal(const struct rule *rule, const struct muster_identity *identity)
{
    for (char **pattern = rule->principals; *pattern != NULL; pattern++)
        if (muster_identity_matches(identity, *pattern))
            return true;
    return rule->principals[0] == NULL;
}

/* No paths in a rule mean every method (A43). */
static bool has_method(const struct rule *rule, const char *method)
{
    for (char **pattern = rule->methods; *pattern != NULL; pattern++)
        if (muster_name_matches(method, *pattern, strncmp))
            return true;
    return rule->methods[0] == NULL;
}

static const struct rule *find_rule(const struct muster_list *rules,
                                    const struct muster_identity *identity, const char *method)
{
    MUSTER_LIST_EACH(rules, rule, struct rule, node) {
        if (has_method(rule, method) && has_principal(rule, identity))
            return rule;
    }
    return NULL;
}

/* The slash at the end of `job` keeps out names that only begin with it ("job-1" and "job-10"). */
static bool is_of_job(const struct muster_authorization *authorization,
                      const struct muster_identity *identity)
{
    return authorization->job != NULL && identity != NULL && identity->spiffe_id != NULL &&
           strncmp(identity->spiffe_id, authorization->job, strlen(authorization->job)) == 0;
}

bool muster_authorization_is_allowed(const struct muster_authorization *authorization,
                                     const struct muster_identity *identity, const char *method)
{
    /* Deny wins over membership in the job, too: it is how one member is locked out. */
    if (find_rule(&authorization->deny, identity, method) != NULL)
        return false;
    return is_of_job(authorization, identity) ||
           find_rule(&authorization->allow, identity, method) != NULL;
}

/* Each caller gets one line, since a refused one may try again and again. A ring of hashes
 * remembers them: when it is full, the oldest is forgotten and may be logged once more. */
static void log_refusal(struct muster_authorization *authorization,
                        const struct muster_intercepted *call, const char *name)
{
    uint64_t hash = muster_hash64(name, strlen(name), 0);
    char peer[MUSTER_ADDRESS_TEXT_BYTES];

    for (size_t i = 0; i < LOGGED_MAX; i++) /* 0: nobody yet */
        if (authorization->logged[i] == hash)
            return;
    authorization->logged[authorization->logged_count++ % LOGGED_MAX] = hash;
    MUSTER_LOG(call->env, WARN, "call_not_allowed", "caller", name, "method", call->method, "peer",
               muster_address_format(muster_rpc_peer(call->rpc), peer));
}

static enum muster_rc on_start(struct muster_intercepted *call, struct muster_error *ret_error)
{
    struct muster_authorization *authorization = call->interceptor->data;
    const struct muster_identity *identity = muster_rpc_identity(call->rpc);
    const char *name = muster_identity_name(identity);

    if (muster_authorization_is_allowed(authorization, identity, call->method))
        return MUSTER_OK;
    log_refusal(authorization, call, name);
    return muster_error_set(ret_error, MUSTER_PERMISSION_DENIED, "%.110s%s may not call %.90s",
                            name, identity == NULL ? " (no certificate)" : "", call->method);
}

/* Life. */

static bool copy_options(struct muster_authorization *authorization,
                         const struct muster_authorization_options *options)
{
    struct muster_mem *mem = authorization->env->mem;
    size_t room;

    for (size_t i = 0; i < options->deny_count; i++)
        if (!rule_add(mem, &authorization->deny, &options->deny[i]))
            return false;
    for (size_t i = 0; i < options->allow_count; i++)
        if (!rule_add(mem, &authorization->allow, &options->allow[i]))
            return false;
    if (options->job == NULL)
        return true;
    room = strlen(options->job) + 2;
    authorization->job = muster_mem_alloc(mem, room);
    if (authorization->job != NULL)
        (void)snprintf(authorization->job, room, "%s/", options->job);
    return authorization->job != NULL;
}

enum muster_rc muster_authorization_new(struct muster_env *env,
                                        const struct muster_authorization_options *options,
                                        struct muster_authorization **ret_authorization)
{
    static const struct muster_authorization_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_authorization *authorization =
        muster_mem_alloc_zero(env->mem, 1, sizeof(*authorization));

    if (authorization == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    authorization->env = env;
    authorization->interceptor =
        (struct muster_interceptor){.data = authorization, .on_start = on_start};
    muster_list_init(&authorization->deny);
    muster_list_init(&authorization->allow);
    if (!copy_options(authorization, options)) {
        muster_authorization_free(authorization);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_authorization = authorization;
    return MUSTER_OK;
}

void muster_authorization_free(struct muster_authorization *authorization)
{
    struct muster_list *lists[2];
    struct muster_list *node;
    struct muster_mem *mem;

    if (authorization == NULL)
        return;
    mem = authorization->env->mem;
    lists[0] = &authorization->deny;
    lists[1] = &authorization->allow;
    for (size_t i = 0; i < 2; i++)
        while ((node = muster_list_pop(lists[i])) != NULL)
            rule_free(mem, MUSTER_CONTAINER_OF(node, struct rule, node));
    muster_mem_free(mem, authorization->job);
    muster_mem_free(mem, authorization);
}

const struct muster_interceptor *muster_authorization_interceptor(
    const struct muster_authorization *authorization)
{
    return &authorization->interceptor;
}
