/* The options that a view carries for all strategies, against those that a process was given. */
#ifndef MUSTER_CLUSTER_VIEW_OPTIONS_H
#define MUSTER_CLUSTER_VIEW_OPTIONS_H

#include <muster/view.h>

/** The options that a process was given. */
struct muster_view_demands {
    struct muster_communication_options communication; /* zeros: takes what the view has */
    bool is_reproducible;                              /* so, too */
    enum muster_data_protection data_protection;       /* must be the same */
};

/** One option, as both sides have it, for people. */
struct muster_option_difference {
    const char *name; /* "bytes_per_pack" */
    char asked[32], agreed[32];
    bool may_be_unset; /* then the view's counts */
};

/** The first option that is otherwise in the view than demanded; false: none. */
bool muster_view_differs(const struct muster_view *view, const struct muster_view_demands *demands,
                         struct muster_option_difference *ret_difference);

#endif
