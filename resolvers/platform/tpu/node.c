/* TPU nodes read from the API's JSON (Cloud TPU API: projects.locations.nodes), and whether they
 * can be used again. Members that are missing are NULL or none: versions of the API differ in
 * them. */
#include <muster/tpu.h>

#include <stdlib.h>
#include <string.h>

#include "resolvers/spec/task_address.h"
#include "resolvers/platform/tpu/text.h"

static const char *text_of(const struct muster_json *object, const char *name)
{
    return muster_json_text(muster_json_member(object, name));
}

static const char *text_or_empty(const struct muster_json *object, const char *name)
{
    const char *text = text_of(object, name);

    return text != NULL ? text : "";
}

/* The API writes ports as numbers and as texts. */
static bool read_port(const struct muster_json *port, uint16_t *ret_port)
{
    const char *text = muster_json_text(port);
    char *end = NULL;
    long long value = muster_json_integer(port);

    if (muster_json_kind(port) == MUSTER_JSON_NULL)
        value = MUSTER_TPU_PORT;
    else if (text != NULL)
        value = strtoll(text, &end, 10);
    if ((text != NULL && (end == text || *end != '\0')) || value < 1 || value > UINT16_MAX)
        return false;
    *ret_port = (uint16_t)value;
    return true;
}

static enum muster_rc read_endpoint(const struct muster_json *from,
                                    struct muster_tpu_endpoint *endpoint,
                                    struct muster_error *ret_error)
{
    const char *ip = text_of(from, "ipAddress");

    if (ip == NULL || !muster_host_is_plausible(ip) || strlen(ip) >= sizeof(endpoint->host))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a network endpoint of the TPU node has no ipAddress");
    if (!read_port(muster_json_member(from, "port"), &endpoint->port))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "network endpoint %.60s of the TPU node has no valid port", ip);
    memcpy(endpoint->host, ip, strlen(ip) + 1);
    return MUSTER_OK;
}

/* networkEndpoints, which count alone where they are; else the one address at the top; else none
 * yet. */
static enum muster_rc read_endpoints(struct muster_tpu_node *node, struct muster_error *ret_error)
{
    const struct muster_json *list = muster_json_member(node->root, "networkEndpoints");
    bool is_listed = muster_json_kind(list) == MUSTER_JSON_ARRAY;
    bool is_at_top = !is_listed && text_of(node->root, "ipAddress") != NULL;
    size_t count = is_listed ? muster_json_count(list) : is_at_top ? 1 : 0;
    struct muster_tpu_endpoint *endpoints;
    enum muster_rc rc = MUSTER_OK;

    if (count > MUSTER_TPU_WORKERS_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "a TPU node of %zu workers is refused", count);
    endpoints = muster_mem_alloc_zero(node->mem, count, sizeof(*endpoints));
    if (endpoints == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a TPU node");
    node->endpoints = endpoints;
    node->endpoint_count = count;
    node->has_address = is_listed || is_at_top;
    for (size_t i = 0; i < count && rc == MUSTER_OK; i++)
        rc = read_endpoint(is_listed ? muster_json_at(list, i) : node->root, &endpoints[i],
                           ret_error);
    return rc;
}

/* Symptoms: OUT_OF_MEMORY and the like, with the time at which the API has seen them. */
static enum muster_rc read_symptoms(struct muster_tpu_node *node, struct muster_error *ret_error)
{
    const struct muster_json *list = muster_json_member(node->root, "symptoms");
    size_t count = muster_json_count(list);
    struct muster_tpu_symptom *symptoms =
        muster_mem_alloc_zero(node->mem, count, sizeof(*symptoms));

    if (symptoms == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a TPU node");
    node->symptoms = symptoms;
    node->has_symptoms = muster_json_kind(list) == MUSTER_JSON_ARRAY;
    for (size_t i = 0; node->has_symptoms && i < count; i++) {
        const struct muster_json *from = muster_json_at(list, i);

        symptoms[i] = (struct muster_tpu_symptom){
            .type = text_or_empty(from, "symptomType"),
            .create_time = text_or_empty(from, "createTime"),
            .worker_id = text_or_empty(from, "workerId"),
            .details = text_or_empty(from, "details"),
        };
        node->symptom_count = i + 1;
    }
    return MUSTER_OK;
}

/* Texts point into node->root, which lives as long as the node. */
static enum muster_rc read_node(struct muster_tpu_node *node, struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (muster_json_kind(node->root) != MUSTER_JSON_OBJECT)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "the answer of the TPU API must be an object that tells of a node, got %s",
            muster_json_kind_name(node->root));
    node->state = text_of(node->root, "state");
    node->health = text_of(node->root, "health");
    node->accelerator_type = text_of(node->root, "acceleratorType");
    node->runtime_version = text_of(node->root, "tensorflowVersion");
    if (node->runtime_version == NULL)
        node->runtime_version = text_of(node->root, "runtimeVersion");
    rc = read_endpoints(node, ret_error);
    return rc == MUSTER_OK ? read_symptoms(node, ret_error) : rc;
}

enum muster_rc muster_tpu_node_parse(struct muster_mem *mem, const char *text, size_t size,
                                     struct muster_tpu_node **ret_node,
                                     struct muster_error *ret_error)
{
    struct muster_tpu_node *node = muster_mem_alloc_zero(mem, 1, sizeof(*node));
    struct muster_error bad;
    enum muster_rc rc;

    if (node == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a TPU node");
    node->mem = mem;
    node->ref_count = 1;
    rc = muster_json_parse(text, size, &node->root, &bad);
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "the TPU node: %s", bad.text);
    else
        rc = read_node(node, ret_error);
    if (rc != MUSTER_OK) {
        muster_tpu_node_unref(node);
        return rc;
    }
    *ret_node = node;
    return MUSTER_OK;
}

/* TensorFlow 2 asks for state READY alone; tf.contrib checks state and health, each only where the
 * API tells it. */
enum muster_rc muster_tpu_node_check(const struct muster_tpu_node *node, const char *name,
                                     bool is_tf1, struct muster_error *ret_error)
{
    bool is_ready = node->state != NULL ? strcmp(node->state, "READY") == 0 : is_tf1;
    bool is_healthy = node->health == NULL || strcmp(node->health, "HEALTHY") == 0;

    if (!is_ready)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "TPU %.80s is not READY: its state is %.40s; wait until it is, or "
                                "create it anew",
                                name, node->state != NULL ? node->state : "not told");
    if (is_tf1 && !is_healthy)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "TPU %.80s is unhealthy: %.60s", name, node->health);
    if (!node->has_address)
        return muster_error_set(
            ret_error, MUSTER_NOT_FOUND,
            "TPU %.80s is READY, but the API tells neither its networkEndpoints "
            "nor its ipAddress; create it anew, or name its workers as "
            "tpu=grpc://host:8470,host:8470",
            name);
    return MUSTER_OK;
}

struct muster_tpu_node *muster_tpu_node_ref(struct muster_tpu_node *node)
{
    MUSTER_ASSERT(node->ref_count > 0);
    node->ref_count++;
    return node;
}

void muster_tpu_node_unref(struct muster_tpu_node *node)
{
    if (node == NULL)
        return;
    MUSTER_ASSERT(node->ref_count > 0);
    if (--node->ref_count > 0)
        return;
    muster_json_free(node->root);
    muster_mem_free(node->mem, (void *)(uintptr_t)node->endpoints);
    muster_mem_free(node->mem, (void *)(uintptr_t)node->symptoms);
    muster_mem_free(node->mem, node);
}

static bool is_one_of(const char *text, const char *a, const char *b)
{
    return text != NULL && (strcmp(text, a) == 0 || strcmp(text, b) == 0);
}

/* cloud_tpu_client's recoverable(): a TPU that is gone does not come back, and a program that has
 * run out of memory just now would do so again. A symptom of exhausted memory blocks recovery for
 * MUSTER_TPU_OOM_COOL_NS, unless the caller ignores its kind; a time that cannot be read does not
 * block. */
bool muster_tpu_node_is_recoverable(const struct muster_tpu_node *node,
                                    const struct muster_tpu_recovery *recovery, uint64_t wall_ns)
{
    if (is_one_of(node->state, "TERMINATED", "PREEMPTED"))
        return false;
    for (size_t i = 0; i < node->symptom_count; i++) {
        const struct muster_tpu_symptom *symptom = &node->symptoms[i];
        bool is_runtime = strcmp(symptom->type, "OUT_OF_MEMORY") == 0;
        bool is_hbm = strcmp(symptom->type, "HBM_OUT_OF_MEMORY") == 0;
        uint64_t created_ns;

        if ((is_runtime && !recovery->is_runtime_oom_ignored) ||
            (is_hbm && !recovery->is_hbm_oom_ignored)) {
            if (muster_tpu_time_parse(symptom->create_time, &created_ns) &&
                (wall_ns < created_ns || wall_ns - created_ns < MUSTER_TPU_OOM_COOL_NS))
                return false;
        }
    }
    return true;
}
