/* Slurm's host lists ("hostlist" of scontrol show hostnames): names with ranges in brackets,
 * several groups to a name. A list is measured first and expanded after that, so that a short text
 * cannot ask for more memory than MUSTER_SLURM_HOSTS_MAX names. */
#include "resolvers/platform/slurm/text.h"

#include <muster/platforms.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/value/array.h"

#define NAME_BYTES_MAX 255 /* of a host name in DNS (RFC 1035 2.3.4) */
#define GROUPS_MAX     8   /* each is a level of recursion */
#define DIGITS_MAX     15  /* such a number does not overflow 64 bits */
#define BLANKS         " \t\n"
#define SEPARATORS     "," BLANKS

/* "08-10" or "7". The width of the start is kept, as Slurm does: 08, 09, 10. */
struct host_range {
    uint64_t first, last;
    int width;
};

static bool read_number(const char **at, uint64_t *ret_value, int *ret_digits)
{
    uint64_t value = 0;
    int digits = 0;

    for (; isdigit((unsigned char)**at) && digits <= DIGITS_MAX; (*at)++, digits++)
        value = value * 10 + (uint64_t)(**at - '0');
    *ret_value = value;
    *ret_digits = digits;
    return digits > 0 && digits <= DIGITS_MAX;
}

/* *at is after '[' or ','; afterwards after the range. */
static bool read_range(const char **at, struct host_range *ret_range)
{
    int digits;

    if (!read_number(at, &ret_range->first, &ret_range->width))
        return false;
    ret_range->last = ret_range->first;
    if (**at == '-') {
        (*at)++;
        if (!read_number(at, &ret_range->last, &digits))
            return false;
    }
    return **at == ',' || **at == ']';
}

/* How many names a bracket group stands for, at most MUSTER_SLURM_HOSTS_MAX + 1; *at goes from
 * after '[' to after ']'. */
static bool measure_group(const char **at, uint64_t *ret_count)
{
    struct host_range range;

    *ret_count = 0;
    do {
        if (!read_range(at, &range))
            return false;
        if (range.last >= range.first)
            *ret_count += range.last - range.first + 1;
        if (*ret_count > MUSTER_SLURM_HOSTS_MAX)
            *ret_count = MUSTER_SLURM_HOSTS_MAX + 1;
        (*at)++;
    } while ((*at)[-1] == ',');
    return true;
}

static enum muster_rc bad_list(const char *list, const char *at, const char *cause,
                               struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "bad host list '%.80s' at character %td: %s", list, at - list + 1,
                            cause);
}

/* Check one element, from *at to after it, and count its hosts. */
static enum muster_rc measure_element(const char *list, const char **at, uint64_t *ret_count,
                                      struct muster_error *ret_error)
{
    const char *start = *at;
    unsigned groups = 0;

    *ret_count = 1;
    while (**at != '\0' && strchr(SEPARATORS, **at) == NULL) {
        const char *group = *at;
        uint64_t count;

        (*at)++;
        if (*group == ']')
            return bad_list(list, group, "']' without '['", ret_error);
        if ((unsigned char)*group < ' ' || *group == 0x7f)
            return bad_list(list, group, "a control character", ret_error);
        if (*group != '[')
            continue;
        groups++;
        if (!measure_group(at, &count))
            return bad_list(list, group, "brackets must hold numbers and ranges such as [01-12,15]",
                            ret_error);
        *ret_count *= count;
        if (*ret_count > MUSTER_SLURM_HOSTS_MAX)
            *ret_count = MUSTER_SLURM_HOSTS_MAX + 1;
    }
    if (groups > GROUPS_MAX)
        return bad_list(list, start, "more than 8 bracket groups", ret_error);
    return MUSTER_OK;
}

static enum muster_rc add_name(struct muster_slurm_hosts *hosts, const char *name,
                               struct muster_error *ret_error)
{
    char **names = muster_array_reserve(hosts->mem, hosts->names, hosts->count, &hosts->capacity,
                                        sizeof(names[0]));
    char *copy = NULL;

    if (names != NULL) {
        hosts->names = names;
        copy = muster_mem_strdup(hosts->mem, name);
    }
    if (copy == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for %zu hosts",
                                hosts->count + 1);
    hosts->names[hosts->count++] = copy;
    return MUSTER_OK;
}

/* The element under way; the name grows from the left. */
struct host_expansion {
    struct muster_slurm_hosts *hosts;
    struct muster_error *error;
    char name[NAME_BYTES_MAX + 1];
};

/* `at` points into an element that was measured, `length` characters of the name stand. Goes down
 * once per bracket group. */
static enum muster_rc expand_element(struct host_expansion *expansion, const char *at,
                                     size_t length)
{
    enum muster_rc rc = MUSTER_OK;
    struct host_range range;

    for (; *at != '[' && *at != '\0' && strchr(SEPARATORS, *at) == NULL; at++) {
        if (length == NAME_BYTES_MAX)
            return muster_error_set(expansion->error, MUSTER_INVALID_ARGUMENT,
                                    "a host name above %d characters", NAME_BYTES_MAX);
        expansion->name[length++] = *at;
    }
    expansion->name[length] = '\0';
    if (*at != '[')
        return add_name(expansion->hosts, expansion->name, expansion->error);
    do {
        const char *end = strchr(at, ']') + 1;

        at++;
        (void)read_range(&at, &range);
        for (uint64_t value = range.first; value <= range.last && rc == MUSTER_OK; value++) {
            size_t room = sizeof(expansion->name) - length;
            int added = snprintf(expansion->name + length, room, "%0*" PRIu64, range.width, value);

            if ((size_t)added >= room)
                return muster_error_set(expansion->error, MUSTER_INVALID_ARGUMENT,
                                        "a host name above %d characters", NAME_BYTES_MAX);
            rc = expand_element(expansion, end, length + (size_t)added);
        }
    } while (*at == ',' && rc == MUSTER_OK);
    return rc;
}

/* Blanks separate hosts as a comma does, with one comma among them at most: a list that ends in a
 * comma is whole, a host that is missing between two commas is an error. */
static const char *skip_separator(const char *at)
{
    at += strspn(at, BLANKS);
    if (*at == ',')
        at++;
    return at + strspn(at, BLANKS);
}

static enum muster_rc parse_list(struct muster_slurm_hosts *hosts, const char *text,
                                 struct muster_error *ret_error)
{
    struct host_expansion expansion = {.hosts = hosts, .error = ret_error};
    const char *at = text + strspn(text, BLANKS);
    enum muster_rc rc = MUSTER_OK;

    while (*at != '\0' && rc == MUSTER_OK) {
        const char *element = at;
        uint64_t count;

        if (*at == ',')
            return bad_list(text, at, "a host must stand before ','", ret_error);
        rc = measure_element(text, &at, &count, ret_error);
        if (rc == MUSTER_OK && hosts->count + count > MUSTER_SLURM_HOSTS_MAX)
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                    "the host list '%.80s' has more than %d hosts", text,
                                    MUSTER_SLURM_HOSTS_MAX);
        if (rc == MUSTER_OK && count > 0)
            rc = expand_element(&expansion, element, 0);
        at = skip_separator(at);
    }
    return rc;
}

enum muster_rc muster_slurm_hosts_parse(struct muster_slurm_hosts *hosts, struct muster_mem *mem,
                                        const char *text, struct muster_error *ret_error)
{
    struct muster_slurm_hosts parsed = {.mem = mem};
    enum muster_rc rc = parse_list(&parsed, text, ret_error);

    if (rc == MUSTER_OK)
        *hosts = parsed;
    else
        muster_slurm_hosts_fini(&parsed);
    return rc;
}

void muster_slurm_hosts_fini(struct muster_slurm_hosts *hosts)
{
    for (size_t i = 0; i < hosts->count; i++)
        muster_mem_free(hosts->mem, hosts->names[i]);
    muster_mem_free(hosts->mem, hosts->names);
    hosts->names = NULL;
    hosts->count = 0;
}
