/* The policies of a channel, found by the method of a call: sorted once when the channel opens,
 * searched for each call. gRPC's service_config.md has the order: the method, then its service,
 * then all. */
#include "net/grpc/client/method_policy.h"

#include <stdlib.h>
#include <string.h>

#include "net/grpc/client/retry.h"

/* The policy's method as a path; "" stands for all methods. */
static const char *path_of(const struct muster_method_policy *policy)
{
    return policy->method != NULL ? policy->method : "";
}

static int compare_methods(const void *a, const void *b)
{
    return strcmp(path_of(a), path_of(b));
}

/* "", "/service/" or "/service/method". */
static bool is_path(const char *path)
{
    const char *slash;

    if (path[0] == '\0')
        return true;
    slash = path[0] == '/' ? strchr(path + 1, '/') : NULL;
    return slash != NULL && slash > path + 1 && strchr(slash + 1, '/') == NULL;
}

static enum muster_rc policy_check(const struct muster_method_policy *policy,
                                   struct muster_error *ret_error)
{
    struct muster_error error;
    enum muster_rc rc = muster_retry_policy_check(&policy->retry, &error);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "policy of \"%.100s\": %.120s", path_of(policy),
                                error.text);
    if (!is_path(path_of(policy)))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "method of a policy must be \"/package.Service/Method\", "
                                "\"/package.Service/\" or NULL, got \"%.100s\"",
                                path_of(policy));
    return MUSTER_OK;
}

static enum muster_rc policy_add(struct muster_method_policy_table *table, struct muster_mem *mem,
                                 const struct muster_method_policy *policy,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc = policy_check(policy, ret_error);
    const char *path = path_of(policy);
    char *copy;

    if (rc != MUSTER_OK)
        return rc;
    /* The options' texts are the caller's, or those of a service config that is freed. */
    copy = muster_mem_strndup(mem, path, strlen(path));
    if (copy == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    table->policies[table->count] = *policy;
    table->policies[table->count++].method = copy;
    return MUSTER_OK;
}

/* Two policies of one method would make the order of the options matter: refused. */
static enum muster_rc add_all(struct muster_method_policy_table *table, struct muster_mem *mem,
                              const struct muster_method_policy *policies, size_t count,
                              struct muster_error *ret_error)
{
    for (size_t i = 0; i < count; i++) {
        enum muster_rc rc = policy_add(table, mem, &policies[i], ret_error);

        if (rc != MUSTER_OK)
            return rc;
    }
    qsort(table->policies, table->count, sizeof(*table->policies), compare_methods);
    for (size_t i = 1; i < count; i++) {
        if (compare_methods(&table->policies[i - 1], &table->policies[i]) == 0)
            return muster_error_set(ret_error, MUSTER_ALREADY_EXISTS,
                                    "a method must have at most one policy, \"%.100s\" has two: "
                                    "keep one",
                                    table->policies[i].method);
    }
    return MUSTER_OK;
}

enum muster_rc muster_method_policy_table_init(struct muster_method_policy_table *table,
                                               struct muster_mem *mem,
                                               const struct muster_method_policy *policies,
                                               size_t count, struct muster_error *ret_error)
{
    enum muster_rc rc;

    memset(table, 0, sizeof(*table));
    if (count == 0)
        return MUSTER_OK;
    if (count > MUSTER_METHOD_POLICIES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "method policies must be at most %d, got %zu",
                                MUSTER_METHOD_POLICIES_MAX, count);
    table->policies = muster_mem_alloc_zero(mem, count, sizeof(*table->policies));
    if (table->policies == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    rc = add_all(table, mem, policies, count, ret_error);
    if (rc != MUSTER_OK)
        muster_method_policy_table_fini(table, mem);
    return rc;
}

void muster_method_policy_table_fini(struct muster_method_policy_table *table,
                                     struct muster_mem *mem)
{
    for (size_t i = 0; i < table->count; i++)
        muster_mem_free(mem, (void *)(uintptr_t)table->policies[i].method);
    muster_mem_free(mem, table->policies);
    memset(table, 0, sizeof(*table));
}

/* The policy of the first `bytes` of path. strncmp alone would also find longer methods, hence the
 * look at the byte after. */
static const struct muster_method_policy *find_policy(
    const struct muster_method_policy_table *table, const char *path, size_t bytes)
{
    size_t low = 0, high = table->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *method = table->policies[middle].method;
        int order = strncmp(method, path, bytes);

        if (order == 0)
            order = method[bytes] == '\0' ? 0 : 1;
        if (order == 0)
            return &table->policies[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const struct muster_method_policy *muster_method_policy_table_find(
    const struct muster_method_policy_table *table, const char *method)
{
    const struct muster_method_policy *policy;
    /* "/a.B/C" is looked up as itself, as "/a.B/" and as "". */
    const char *slash = strrchr(method, '/');

    if (table->count == 0)
        return NULL;
    policy = find_policy(table, method, strlen(method));
    if (policy == NULL && slash != NULL)
        policy = find_policy(table, method, (size_t)(slash - method) + 1);
    return policy != NULL ? policy : find_policy(table, method, 0);
}
