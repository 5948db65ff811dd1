/* The devices that a program or a variable asks for, as text. */
#include "training/device_list.h"

#include <stdlib.h>
#include <string.h>

/* Adds the number at *at, which ends at a comma or with the text. */
static bool list_add(struct muster_device_list *list, const char **at)
{
    char *end = NULL;
    unsigned long gpu;

    if (**at < '0' || **at > '9' || list->count == MUSTER_REPLICAS_MAX)
        return false;
    gpu = strtoul(*at, &end, 10);
    if (gpu > INT16_MAX || (*end != '\0' && (*end != ',' || end[1] == '\0')))
        return false;
    list->gpus[list->count++] = (int)gpu;
    *at = *end == ',' ? end + 1 : end;
    return true;
}

enum muster_rc muster_device_list_parse(const char *text, const char *name,
                                        struct muster_device_list *ret_list,
                                        struct muster_error *ret_error)
{
    struct muster_device_list list = {.is_all = strcmp(text, "all") == 0};
    bool is_fine = list.is_all || text[0] == '\0' || strcmp(text, "cpu") == 0;

    for (const char *at = text; !is_fine && list_add(&list, &at);)
        is_fine = *at == '\0';
    if (!is_fine)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be all, cpu, or numbers of devices such as 0,2 (at most "
                                "%u), got \"%.80s\"",
                                name, MUSTER_REPLICAS_MAX, text);
    *ret_list = list;
    return MUSTER_OK;
}

const char *muster_device_list_variable(const struct muster_env *env)
{
    return muster_vars_get(env->vars, MUSTER_DEVICES_VARIABLE);
}

enum muster_rc muster_device_list_check(const struct muster_env *env,
                                        struct muster_error *ret_error)
{
    const char *text = muster_device_list_variable(env);
    struct muster_device_list list;

    return text != NULL ? muster_device_list_parse(text, MUSTER_DEVICES_VARIABLE, &list, ret_error)
                        : MUSTER_OK;
}
