/* Project and zone of this machine: as the caller names them, else from the metadata server
 * (project/project-id and instance/zone of Google's "VM metadata" pages). The GCE and the TPU
 * resolver need both for every URL of their APIs. Values that are found stay, because a machine
 * keeps its place. */
#include "resolvers/platform/gce/google_place.h"

#include <string.h>

#define NAME_BYTES_MAX 256 /* Google's names have at most 63 characters, with a domain some more */

static void place_finish(struct muster_google_place *place, enum muster_rc rc)
{
    MUSTER_ASSERT(place->is_active); /* done fires exactly once */
    place->is_active = false;
    place->done(place, rc);
}

static void on_all_known(struct muster_task *task)
{
    place_finish(task->data, MUSTER_OK);
}

static void request_next(struct muster_google_place *place);

/* The value is the part after the last slash: "projects/123/zones/us-central1-b". */
static enum muster_rc take_value(struct muster_google_place *place, const char *text)
{
    char **field = place->project == NULL ? &place->project : &place->zone;
    const char *slash = strrchr(text, '/');
    const char *name = slash != NULL ? slash + 1 : text;
    size_t length = strcspn(name, " \t\r\n");

    if (length == 0 || length > NAME_BYTES_MAX ||
        name[length + strspn(name + length, " \t\r\n")] != '\0')
        return muster_error_set(&place->error, MUSTER_INVALID_ARGUMENT,
                                "the metadata server %.80s gives no name for the %s",
                                muster_metadata_host(place->env),
                                field == &place->project ? "project" : "zone");
    *field = muster_mem_strndup(place->env->mem, name, length);
    if (*field == NULL)
        return muster_error_set(&place->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    return MUSTER_OK;
}

/* Add a remedy, unless the error of the metadata server ends with one, which stands after "; ". */
static void explain_failure(struct muster_google_place *place, enum muster_rc rc)
{
    struct muster_error error = place->error;

    if (strstr(error.text, "; ") == NULL)
        muster_error_set(&place->error, rc, "%.210s; name it yourself", error.text);
}

static void on_value(struct muster_metadata_get *get, enum muster_rc rc)
{
    struct muster_google_place *place = get->data;

    if (rc == MUSTER_OK)
        rc = take_value(place, get->text);
    else
        place->error = get->error;
    if (rc != MUSTER_OK)
        explain_failure(place, rc);
    if (rc != MUSTER_OK)
        place_finish(place, rc);
    else if (place->project != NULL && place->zone != NULL)
        place_finish(place, MUSTER_OK);
    else
        request_next(place);
}

/* A request that cannot be started fails by a task: `done` must not come inside
 * muster_google_place_start. */
static void on_refused(struct muster_task *task)
{
    struct muster_google_place *place = task->data;

    place_finish(place, place->error.rc);
}

/* First the project, then the zone: take_value relies on this order. */
static void request_next(struct muster_google_place *place)
{
    const char *path = place->project == NULL ? "project/project-id" : "instance/zone";
    enum muster_rc rc =
        muster_metadata_get_start(&place->get, place->env, path, place->deadline_ns, on_value);

    if (rc == MUSTER_OK)
        return;
    place->error = place->get.error;
    place->error.rc = rc;
    muster_task_init(&place->task, on_refused, place);
    muster_task_post(&place->task, place->env->loop);
}

enum muster_rc muster_google_place_init(struct muster_google_place *place, struct muster_env *env,
                                        const char *project, const char *zone)
{
    *place = (struct muster_google_place){.env = env};
    muster_metadata_get_init(&place->get, place);
    muster_task_init(&place->task, on_all_known, place);
    if (project != NULL && project[0] != '\0')
        place->project = muster_mem_strdup(env->mem, project);
    if (zone != NULL && zone[0] != '\0')
        place->zone = muster_mem_strdup(env->mem, zone);
    if ((project != NULL && project[0] != '\0' && place->project == NULL) ||
        (zone != NULL && zone[0] != '\0' && place->zone == NULL)) {
        muster_google_place_fini(place);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    return MUSTER_OK;
}

void muster_google_place_fini(struct muster_google_place *place)
{
    if (place->env == NULL)
        return;
    muster_metadata_get_fini(&place->get);
    muster_mem_free(place->env->mem, place->project);
    muster_mem_free(place->env->mem, place->zone);
    *place = (struct muster_google_place){.env = NULL};
}

void muster_google_place_start(struct muster_google_place *place, uint64_t deadline_ns,
                               muster_google_place_fn *done)
{
    MUSTER_ASSERT(!place->is_active);
    place->done = done;
    place->deadline_ns = deadline_ns;
    place->is_active = true;
    place->error = (struct muster_error){.rc = MUSTER_OK};
    if (place->project == NULL || place->zone == NULL) {
        request_next(place);
        return;
    }
    muster_task_init(&place->task, on_all_known, place);
    muster_task_post(&place->task, place->env->loop);
}

void muster_google_place_cancel(struct muster_google_place *place)
{
    if (place->is_active && (place->project == NULL || place->zone == NULL))
        muster_metadata_get_cancel(&place->get);
}
