/* PodList pages and watch events as values (Kubernetes API reference: PodList, WatchEvent). Pure:
 * list.c and watch.c fetch the texts. */
#include "resolvers/platform/kubernetes/pods.h"

#include <muster/json.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/value/array.h"

#define STATUS_GONE 410 /* in an ERROR event's Status: the server has dropped this version */

void muster_kubernetes_pods_init(struct muster_kubernetes_pods *pods, struct muster_mem *mem)
{
    *pods = (struct muster_kubernetes_pods){.mem = mem};
}

void muster_kubernetes_pods_fini(struct muster_kubernetes_pods *pods)
{
    for (size_t i = 0; i < pods->count; i++)
        muster_mem_free(pods->mem, (void *)(uintptr_t)pods->pods[i].name_space);
    muster_mem_free(pods->mem, pods->pods);
    muster_mem_free(pods->mem, pods->resource_version);
    muster_mem_free(pods->mem, pods->continue_mark);
    *pods = (struct muster_kubernetes_pods){.mem = pods->mem};
}

static const char *text_or_empty(const struct muster_json *object, const char *name)
{
    const char *text = muster_json_text(muster_json_member(object, name));

    return text != NULL ? text : "";
}

/* Append text and its NUL at *at; returns where it stands. */
static const char *put_text(char **at, const char *text)
{
    char *start = *at;
    size_t bytes = strlen(text) + 1;

    memcpy(start, text, bytes);
    *at += bytes;
    return start;
}

/* One block holds the texts of a pod; its first is the namespace. */
static bool copy_pod(struct muster_mem *mem, const struct muster_kubernetes_pod *from,
                     struct muster_kubernetes_pod *ret_pod)
{
    char *at =
        muster_mem_alloc(mem, strlen(from->name_space) + strlen(from->name) + strlen(from->phase) +
                                  strlen(from->host_ip) + strlen(from->pod_ip) + 5);

    if (at == NULL)
        return false;
    ret_pod->name_space = put_text(&at, from->name_space);
    ret_pod->name = put_text(&at, from->name);
    ret_pod->phase = put_text(&at, from->phase);
    ret_pod->host_ip = put_text(&at, from->host_ip);
    ret_pod->pod_ip = put_text(&at, from->pod_ip);
    return true;
}

static enum muster_rc add_pod(struct muster_kubernetes_pods *pods, const struct muster_json *item,
                              struct muster_error *ret_error)
{
    const struct muster_json *metadata = muster_json_member(item, "metadata");
    const struct muster_json *status = muster_json_member(item, "status");
    struct muster_kubernetes_pod pod = {
        .name_space = text_or_empty(metadata, "namespace"),
        .name = text_or_empty(metadata, "name"),
        .phase = text_or_empty(status, "phase"),
        .host_ip = text_or_empty(status, "hostIP"),
        .pod_ip = text_or_empty(status, "podIP"),
    };
    struct muster_kubernetes_pod *room;

    if (pod.name[0] == '\0')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "pod %zu of the list has no metadata.name", pods->count);
    room =
        muster_array_reserve(pods->mem, pods->pods, pods->count, &pods->capacity, sizeof(room[0]));
    if (room != NULL)
        pods->pods = room;
    if (room == NULL || !copy_pod(pods->mem, &pod, &room[pods->count]))
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for pods");
    pods->count++;
    return MUSTER_OK;
}

/* Replace *text by a copy. */
static bool keep_text(struct muster_mem *mem, char **text, const char *value)
{
    char *copy = muster_mem_strdup(mem, value);

    if (copy == NULL)
        return false;
    muster_mem_free(mem, *text);
    *text = copy;
    return true;
}

static enum muster_rc add_list(struct muster_kubernetes_pods *pods, const struct muster_json *root,
                               struct muster_error *ret_error)
{
    const struct muster_json *items = muster_json_member(root, "items");
    const struct muster_json *metadata = muster_json_member(root, "metadata");
    const char *mark = text_or_empty(metadata, "continue");
    enum muster_rc rc = MUSTER_OK;

    /* An API server writes a list without pods as []. Something else in its place (a proxy's
     * answer) must not be taken for a cluster that has lost all of its tasks. */
    if (muster_json_kind(root) != MUSTER_JSON_OBJECT ||
        muster_json_kind(items) != MUSTER_JSON_ARRAY)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the answer is not a PodList: its 'items' must be an array, got %s",
                                items == NULL ? "nothing" : muster_json_kind_name(items));
    if (strlen(mark) >= MUSTER_KUBERNETES_TOKEN_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the continue mark of a PodList is longer than %d bytes",
                                MUSTER_KUBERNETES_TOKEN_BYTES_MAX);
    for (size_t i = 0; i < muster_json_count(items) && rc == MUSTER_OK; i++)
        rc = add_pod(pods, muster_json_at(items, i), ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (!keep_text(pods->mem, &pods->continue_mark, mark) ||
        !keep_text(pods->mem, &pods->resource_version, text_or_empty(metadata, "resourceVersion")))
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for pods");
    return MUSTER_OK;
}

enum muster_rc muster_kubernetes_pods_add_page(struct muster_kubernetes_pods *pods,
                                               const char *text, size_t size,
                                               struct muster_error *ret_error)
{
    struct muster_json *root = NULL;
    struct muster_error bad;
    enum muster_rc rc = muster_json_parse(text, size, &root, &bad);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "the list of pods: %s", bad.text);
    rc = add_list(pods, root, ret_error);
    muster_json_free(root);
    return rc;
}

/* TensorFlow sorts by metadata.name as text. Names are unique within a namespace only, and a
 * listing without a namespace spans all of them: the second key makes the order of tasks the same
 * on every member. */
static int compare_pods(const void *a, const void *b)
{
    const struct muster_kubernetes_pod *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order != 0 ? order : strcmp(x->name_space, y->name_space);
}

void muster_kubernetes_pods_sort(struct muster_kubernetes_pods *pods)
{
    if (pods->count > 1)
        qsort(pods->pods, pods->count, sizeof(pods->pods[0]), compare_pods);
}

/* The object of an ERROR event is a Status instead of a pod; its code is that of HTTP, which the
 * stream itself can no longer send because it began with 200. */
static bool kind_of(const struct muster_json *root, enum muster_kubernetes_event_kind *ret_kind)
{
    const char *type = text_or_empty(root, "type");
    const struct muster_json *code = muster_json_member(muster_json_member(root, "object"), "code");

    if (strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0 || strcmp(type, "DELETED") == 0)
        *ret_kind = MUSTER_KUBERNETES_EVENT_CHANGE;
    else if (strcmp(type, "BOOKMARK") == 0)
        *ret_kind = MUSTER_KUBERNETES_EVENT_BOOKMARK;
    else if (strcmp(type, "ERROR") == 0)
        *ret_kind = muster_json_integer(code) == STATUS_GONE ? MUSTER_KUBERNETES_EVENT_EXPIRED
                                                             : MUSTER_KUBERNETES_EVENT_FAILURE;
    else
        return false;
    return true;
}

enum muster_rc muster_kubernetes_event_parse(const char *text, size_t size,
                                             struct muster_kubernetes_event *ret_event,
                                             struct muster_error *ret_error)
{
    struct muster_json *root = NULL;
    struct muster_kubernetes_event event;
    struct muster_error bad;
    const char *version;
    enum muster_rc rc = muster_json_parse(text, size, &root, &bad);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "a watched event: %s", bad.text);
    version = text_or_empty(muster_json_member(muster_json_member(root, "object"), "metadata"),
                            "resourceVersion");
    if (!kind_of(root, &event.kind) || strlen(version) >= sizeof(event.resource_version)) {
        muster_json_free(root);
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a watched event of no known type");
    }
    memcpy(event.resource_version, version, strlen(version) + 1);
    muster_json_free(root);
    *ret_event = event;
    return MUSTER_OK;
}
