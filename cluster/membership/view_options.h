/* The options that a view carries for all strategies, against those that a process was given. */
#ifndef MUSTER_CLUSTER_VIEW_OPTIONS_H
#define MUSTER_CLUSTER_VIEW_OPTIONS_H

#include <muster/view.h>

/** The options that a process was given. */
struct muster_view_demands {
    struct muster_communication_options communication; /* zeros: the view's values are taken */
    bool is_reproducible;                              /* false: the view's value is taken */
    enum muster_data_protection data_protection;       /* must be the view's */
    bool is_fixed_size;                                /* so must this */
};

/** An option with the values of both sides, as text for people. */
struct muster_option_difference {
    const char *name; /* "bytes_per_pack" */
    char asked[32], agreed[32];
    bool may_be_unset; /* the process may leave it unset, and take the view's value */
};

/** Find the first option in which the view differs from the demands. False: it differs in none. */
bool muster_view_differs(const struct muster_view *view, const struct muster_view_demands *demands,
                         struct muster_option_difference *ret_difference);

#endif
