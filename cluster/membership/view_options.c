/* The options that a view carries, against those that a process was given. Pure. Members with different
 * options would cut and protect their messages differently, so the first view fixes them and every process
 * is compared with that. */
#include "cluster/membership/view_options.h"

#include <muster/loop.h>

#include <stdio.h>

static void write_number(char to[32], uint64_t number)
{
    if (number == 0)
        snprintf(to, 32, "none");
    else
        snprintf(to, 32, "%llu", (unsigned long long)number);
}

static void write_seconds(char to[32], uint64_t time_ns)
{
    if (time_ns == 0)
        snprintf(to, 32, "none");
    else
        snprintf(to, 32, "%g s", (double)time_ns / (double)MUSTER_NS_PER_S);
}

/* An option that was not given (0) takes what the view has. */
static bool is_another(uint64_t asked, uint64_t agreed)
{
    return asked != 0 && asked != agreed;
}

static const char *protection_name(enum muster_data_protection protection)
{
    static const char *const names[] = {[MUSTER_DATA_PLAIN] = "plain",
                                        [MUSTER_DATA_ENCRYPTED] = "encrypted",
                                        [MUSTER_DATA_AUTHENTICATED] = "authenticated"};

    return names[protection];
}

bool muster_view_differs(const struct muster_view *view, const struct muster_view_demands *demands,
                         struct muster_option_difference *ret_difference)
{
    const struct muster_communication_options *asked = &demands->communication;
    const struct muster_communication_options *agreed = &view->communication;
    struct muster_option_difference found = {.may_be_unset = true};

    if (demands->data_protection != view->data_protection) {
        found = (struct muster_option_difference){.name = "data links (MUSTER_TLS_DATA)"};
        snprintf(found.asked, 32, "%s", protection_name(demands->data_protection));
        snprintf(found.agreed, 32, "%s", protection_name(view->data_protection));
    } else if (demands->is_fixed_size != view->is_fixed_size) {
        found = (struct muster_option_difference){.name = "is_fixed_size"};
        snprintf(found.asked, 32, "%s", demands->is_fixed_size ? "true" : "false");
        snprintf(found.agreed, 32, "%s", view->is_fixed_size ? "true" : "false");
    } else if (is_another(asked->implementation, agreed->implementation)) {
        found.name = "communication";
        snprintf(found.asked, 32, "%s", muster_communication_name(asked->implementation));
        snprintf(found.agreed, 32, "%s", muster_communication_name(agreed->implementation));
    } else if (is_another(asked->bytes_per_pack, agreed->bytes_per_pack)) {
        found.name = "bytes_per_pack";
        write_number(found.asked, asked->bytes_per_pack);
        write_number(found.agreed, agreed->bytes_per_pack);
    } else if (is_another(asked->timeout_ns, agreed->timeout_ns)) {
        found.name = "timeout";
        write_seconds(found.asked, asked->timeout_ns);
        write_seconds(found.agreed, agreed->timeout_ns);
    } else if (demands->is_reproducible && !view->plan.is_reproducible) {
        found = (struct muster_option_difference){
            .name = "reproducible", .asked = "view", .agreed = "no", .may_be_unset = true};
    }
    *ret_difference = found;
    return found.name != NULL;
}
