/* The names of a registry's jobs. They only grow here, until the reader finds that nothing is left
 * of one: a key that comes back later adds the name again. */
#include "jobs/jobs_names.h"

#include <stdlib.h>
#include <string.h>

#define JOBS_MAX 1000 /* of one registry that are shown: the list is searched name by name */

bool jobs_names_init(struct jobs_names *names)
{
    *names = (struct jobs_names){.at = calloc(JOBS_MAX, sizeof(names->at[0]))};
    return names->at != NULL;
}

void jobs_names_fini(struct jobs_names *names)
{
    free(names->at);
}

void jobs_names_add(struct jobs_names *names, const char *name, size_t length)
{
    char text[JOB_KEY_BYTES];

    if (length == 0 || length >= sizeof(text) || names->count == JOBS_MAX)
        return;
    memcpy(text, name, length);
    text[length] = '\0';
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->at[i], text) == 0)
            return;
    memcpy(names->at[names->count++], text, length + 1);
}

void jobs_names_take(struct jobs_names *names, const struct muster_bytes *key)
{
    size_t prefix = strlen(JOB_KEYS_PREFIX);
    const char *name = (const char *)key->data + prefix, *slash;

    if (key->size <= prefix)
        return;
    slash = memchr(name, '/', key->size - prefix);
    if (slash != NULL)
        jobs_names_add(names, name, (size_t)(slash - name));
}

void jobs_names_drop(struct jobs_names *names, size_t i)
{
    MUSTER_ASSERT(i < names->count);
    names->count--;
    memmove(names->at[i], names->at[i + 1], (names->count - i) * sizeof(names->at[0]));
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

void jobs_names_sort(struct jobs_names *names)
{
    qsort(names->at, names->count, sizeof(names->at[0]), compare_names);
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!changes[i].is_delete)
            jobs_names_take(watch->data, &changes[i].kv.key);
}

/* After the end of a watch revision 0 makes the next read take all names anew, and the read after
 * it watches from there on. */
static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct jobs_names *names = watch->data;

    (void)rc;
    names->is_watched = false;
    names->revision = 0;
}

/* The watch begins after the revision of the read, so no key falls between the two. */
bool jobs_names_are_watched(struct jobs_names *names, struct muster_registry *client)
{
    const struct muster_bytes prefix = {.data = JOB_KEYS_PREFIX, .size = strlen(JOB_KEYS_PREFIX)};

    if (names->is_watched || names->revision == 0)
        return names->is_watched;
    names->watch = (struct muster_registry_watch){.data = names};
    names->is_watched =
        muster_registry_watch_start(&names->watch, client, prefix, MUSTER_REGISTRY_PREFIX,
                                    names->revision + 1, on_changes, on_watch_end) == MUSTER_OK;
    return names->is_watched;
}
