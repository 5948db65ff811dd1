/* Both values are watched: a maintenance that the machine does not survive is announced by the first, 60 s before, and
 * the end of a Spot machine by the second, 30 s before (Google's "Query VM metadata"). A live migration is none. */
#include "resolvers/platform/tpu/maintenance.h"

#include <string.h>

static bool is_value(const struct muster_metadata_watch *watch, const char *value)
{
    size_t length = strlen(value);

    return strncmp(watch->value, value, length) == 0 &&
           watch->value[length + strspn(watch->value + length, " \r\n")] == '\0';
}

static void on_event(struct muster_metadata_watch *watch)
{
    struct muster_maintenance *maintenance = watch->data;

    if (is_value(watch, "TERMINATE_ON_HOST_MAINTENANCE"))
        maintenance->on_notice(maintenance, "TERMINATE_ON_HOST_MAINTENANCE");
}

static void on_preempted(struct muster_metadata_watch *watch)
{
    struct muster_maintenance *maintenance = watch->data;

    if (is_value(watch, "TRUE"))
        maintenance->on_notice(maintenance, "PREEMPTED");
}

static void on_off(struct muster_metadata_watch *watch)
{
    struct muster_maintenance *maintenance = watch->data;

    if (maintenance->event.state == MUSTER_METADATA_WATCH_OFF &&
        maintenance->preempted.state == MUSTER_METADATA_WATCH_OFF)
        maintenance->on_off(maintenance);
}

static void watch_init(struct muster_metadata_watch *watch, struct muster_env *env,
                       const char *path, struct muster_maintenance *maintenance,
                       muster_metadata_watch_fn *on_change)
{
    muster_metadata_watch_init(watch, env, path);
    watch->data = maintenance;
    watch->on_change = on_change;
    watch->on_off = on_off;
}

void muster_maintenance_init(struct muster_maintenance *maintenance, struct muster_env *env)
{
    watch_init(&maintenance->event, env, "instance/maintenance-event", maintenance, on_event);
    watch_init(&maintenance->preempted, env, "instance/preempted", maintenance, on_preempted);
}

void muster_maintenance_start(struct muster_maintenance *maintenance)
{
    muster_metadata_watch_start(&maintenance->event);
    muster_metadata_watch_start(&maintenance->preempted);
}

void muster_maintenance_stop(struct muster_maintenance *maintenance)
{
    muster_metadata_watch_stop(&maintenance->event);
    muster_metadata_watch_stop(&maintenance->preempted);
}

void muster_maintenance_fini(struct muster_maintenance *maintenance)
{
    muster_metadata_watch_fini(&maintenance->event);
    muster_metadata_watch_fini(&maintenance->preempted);
}
