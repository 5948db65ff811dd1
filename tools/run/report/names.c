/* Lists of task names with blanks between, as a view's losses and joins are kept: small, copied as
 * a whole, and cut at RUN_NAMES_BYTES. */
#include "run/report/names.h"

#include <stdio.h>
#include <string.h>

const char *run_names_first(struct run_names *names, const char list[RUN_NAMES_BYTES])
{
    memcpy(names->text, list, sizeof(names->text));
    names->rest = NULL;
    return strtok_r(names->text, " ", &names->rest);
}

const char *run_names_next(struct run_names *names)
{
    return strtok_r(NULL, " ", &names->rest);
}

bool run_names_contain(const char list[RUN_NAMES_BYTES], const char *name)
{
    struct run_names names;

    for (const char *one = run_names_first(&names, list); one != NULL; one = run_names_next(&names))
        if (strcmp(one, name) == 0)
            return true;
    return false;
}

bool run_names_copy(char list[RUN_NAMES_BYTES], const struct muster_json *array)
{
    if (list[0] != '\0' || muster_json_count(array) == 0)
        return false;
    for (size_t i = 0; i < muster_json_count(array); i++) {
        const char *name = muster_json_text(muster_json_at(array, i));
        size_t length = strlen(list);

        if (name != NULL)
            snprintf(list + length, RUN_NAMES_BYTES - length, "%s%s", i > 0 ? " " : "", name);
    }
    return true;
}
