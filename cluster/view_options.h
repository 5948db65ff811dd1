/* The options that a view carries for all strategies, against those that a process was given. */
#ifndef MUSTER_CLUSTER_VIEW_OPTIONS_H
#define MUSTER_CLUSTER_VIEW_OPTIONS_H

#include <muster/view.h>

/** One option, as both sides have it, for people. */
struct muster_option_difference {
    const char *name; /* "bytes_per_pack" */
    char asked[32], agreed[32];
};

/** The first option that is asked for (not zero) and otherwise in the view; false: none. */
bool muster_view_differs(const struct muster_view *view,
                         const struct muster_communication_options *asked, bool asks_reproducible,
                         struct muster_option_difference *ret_difference);

#endif
