/* gRPC's authorization policy in JSON (A43) becomes rules for authorization.c. It is strict: what
 * it does not know it refuses, because a rule that is left out may be the one that keeps somebody
 * out. */
#include <muster/authorization.h>

#include <stdio.h>
#include <string.h>

#include <muster/json.h>

/* Each call is held against all rules in turn, so their number is a cost of every call. */
#define RULES_MAX 256
#define TEXTS_MAX 1024 /* of a list */

/* The memory of a parse until the rules are copied. */
struct policy {
    struct muster_mem *mem;
    struct muster_authorization_rule rules[2][RULES_MAX]; /* deny, allow */
    size_t counts[2];
};

/* Members that are not known are refused. "headers" is part of A43, but not built here, and is told
 * apart. */
static enum muster_rc check_members(const struct muster_json *object, const char *const *known,
                                    const char *where, struct muster_error *ret_error)
{
    struct muster_json_walk walk;
    bool is_there;

    if (object != NULL && muster_json_kind(object) != MUSTER_JSON_OBJECT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "authorization policy: %s must be an object", where);
    for (is_there = muster_json_walk_first(&walk, object); is_there;
         is_there = muster_json_walk_next(&walk)) {
        size_t i = 0;

        while (known[i] != NULL && strcmp(known[i], walk.name) != 0)
            i++;
        if (known[i] == NULL)
            return muster_error_set(
                ret_error,
                strcmp(walk.name, "headers") == 0 ? MUSTER_UNIMPLEMENTED : MUSTER_INVALID_ARGUMENT,
                "authorization policy: \"%.60s\" in %s is not known", walk.name, where);
    }
    return MUSTER_OK;
}

static enum muster_rc read_texts(struct policy *policy, const struct muster_json *list,
                                 const char *name, const char *const **ret_texts, size_t *ret_count,
                                 struct muster_error *ret_error)
{
    size_t count = muster_json_count(list);
    const char **texts;

    if (list == NULL)
        return MUSTER_OK;
    if (muster_json_kind(list) != MUSTER_JSON_ARRAY || count > TEXTS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "authorization policy: %s must be a list of at most %d texts", name,
                                TEXTS_MAX);
    texts = muster_mem_alloc_zero(policy->mem, count, sizeof(*texts));
    if (texts == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    *ret_texts = texts;
    *ret_count = count;
    for (size_t i = 0; i < count; i++) {
        texts[i] = muster_json_text(muster_json_at(list, i));
        if (texts[i] == NULL || texts[i][0] == '\0')
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "authorization policy: %s must contain only non-empty strings",
                                    name);
    }
    return MUSTER_OK;
}

static enum muster_rc read_rule(struct policy *policy, const struct muster_json *value,
                                struct muster_authorization_rule *rule,
                                struct muster_error *ret_error)
{
    static const char *const of_rule[] = {"name", "source", "request", NULL};
    static const char *const of_source[] = {"principals", NULL};
    static const char *const of_request[] = {"paths", NULL};
    const struct muster_json *source = muster_json_member(value, "source");
    const struct muster_json *request = muster_json_member(value, "request");
    enum muster_rc rc = check_members(value, of_rule, "a rule", ret_error);

    if (rc == MUSTER_OK)
        rc = check_members(source, of_source, "source", ret_error);
    if (rc == MUSTER_OK)
        rc = check_members(request, of_request, "request", ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rule->name = muster_json_text(muster_json_member(value, "name"));
    if (rule->name == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "authorization policy: a rule must have a name");
    rc = read_texts(policy, muster_json_member(source, "principals"), "principals",
                    &rule->principals, &rule->principal_count, ret_error);
    if (rc == MUSTER_OK)
        rc = read_texts(policy, muster_json_member(request, "paths"), "paths", &rule->methods,
                        &rule->method_count, ret_error);
    return rc;
}

static enum muster_rc read_rules(struct policy *policy, const struct muster_json *list,
                                 size_t which, struct muster_error *ret_error)
{
    size_t count = muster_json_count(list);

    if (list != NULL && (muster_json_kind(list) != MUSTER_JSON_ARRAY || count > RULES_MAX))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "authorization policy: %s must be a list of at most %d rules",
                                which == 0 ? "deny_rules" : "allow_rules", RULES_MAX);
    for (size_t i = 0; i < count; i++) {
        enum muster_rc rc;

        /* The rule is counted before it is read, so that policy_free also frees what a half-read
         * rule has. */
        policy->counts[which]++;
        rc = read_rule(policy, muster_json_at(list, i), &policy->rules[which][i], ret_error);
        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

static enum muster_rc read_policy(struct policy *policy, const struct muster_json *root,
                                  struct muster_error *ret_error)
{
    static const char *const of_policy[] = {"name", "allow_rules", "deny_rules", NULL};
    enum muster_rc rc = check_members(root, of_policy, "the policy", ret_error);

    if (rc == MUSTER_OK && muster_json_count(muster_json_member(root, "allow_rules")) == 0)
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "authorization policy: allow_rules must have at least one rule: "
                              "without any it would refuse everybody");
    if (rc == MUSTER_OK)
        rc = read_rules(policy, muster_json_member(root, "deny_rules"), 0, ret_error);
    if (rc == MUSTER_OK)
        rc = read_rules(policy, muster_json_member(root, "allow_rules"), 1, ret_error);
    return rc;
}

static void policy_free(struct policy *policy)
{
    for (size_t which = 0; which < 2; which++)
        for (size_t i = 0; i < policy->counts[which]; i++) {
            muster_mem_free(policy->mem, (void *)(uintptr_t)policy->rules[which][i].principals);
            muster_mem_free(policy->mem, (void *)(uintptr_t)policy->rules[which][i].methods);
        }
    muster_mem_free(policy->mem, policy);
}

enum muster_rc muster_authorization_parse(struct muster_env *env, const char *text,
                                          struct muster_authorization **ret_authorization,
                                          struct muster_error *ret_error)
{
    struct muster_json *root = NULL;
    struct policy *policy;
    /* A member that stands twice is refused: two readers could take different ones of them. */
    enum muster_rc rc = muster_json_parse_unique(text, strlen(text), &root, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    policy = muster_mem_alloc_zero(env->mem, 1, sizeof(*policy));
    if (policy == NULL) {
        muster_json_free(root);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    }
    policy->mem = env->mem;
    rc = read_policy(policy, root, ret_error);
    if (rc == MUSTER_OK) {
        rc = muster_authorization_new(
            env,
            &(struct muster_authorization_options){.deny = policy->rules[0],
                                                   .deny_count = policy->counts[0],
                                                   .allow = policy->rules[1],
                                                   .allow_count = policy->counts[1]},
            ret_authorization);
        if (rc != MUSTER_OK)
            (void)muster_error_set(ret_error, rc, "out of memory");
    }
    policy_free(policy);
    muster_json_free(root);
    return rc;
}
