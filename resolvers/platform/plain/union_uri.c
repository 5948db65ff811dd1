/* A union by URI: "tf_config:|static:worker=a:1?task_type=worker&task_id=0". '|' parts the members;
 * parentheses enclose a member that has a '|' or options of its own. Options at the end belong to
 * the union where it knows their names, else to the last member. */
#include <muster/platforms.h>

#include "resolvers/core/uri_options.h"
#include "resolvers/platform/plain/union_resolver.h"
#include "resolvers/platform/schemes.h"
#include "runtime/value/text.h"

#include <string.h>

#define UNION         "union:"
#define NESTED_MAX    16 /* unions within unions; more is a slip, and each costs stack */
#define PARENS_OPEN   '('
#define PARENS_CLOSED ')'

struct union_uri_values {
    struct muster_resolver_options common;
};

static const struct muster_uri_row option_rows[] = {
    MUSTER_URI_COMMON(struct union_uri_values, common)};
static const struct muster_uri_table option_table = {"union", option_rows,
                                                     sizeof(option_rows) / sizeof(option_rows[0])};

/* A union's URI under way. */
struct union_parsing {
    struct muster_env *env;
    muster_scheme_open_fn *open_member; /* takes a whole URI; its options are never NULL */
    struct muster_resolver *members[MUSTER_UNION_MEMBERS_MAX];
    size_t count;
    struct muster_text options; /* the union's own: "task_type=worker&task_id=0" */
    struct muster_error *error;
};

/* A member may be a union in parentheses, and each level of them is a level of recursion: bound it.
 * */
static enum muster_rc check_nesting(const char *text, struct muster_error *ret_error)
{
    unsigned depth = 0;

    for (; *text != '\0'; text++) {
        depth += *text == PARENS_OPEN;
        depth -= *text == PARENS_CLOSED && depth > 0;
        if (depth > NESTED_MAX)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "a union takes at most %d parentheses within another",
                                    NESTED_MAX);
    }
    return MUSTER_OK;
}

/* Whether "name=value" is an option of the union itself. */
static bool is_union_option(const char *option, size_t length)
{
    size_t name_length = 0;

    while (name_length < length && option[name_length] != '=')
        name_length++;
    for (size_t i = 0; i < option_table.row_count; i++) {
        if (strlen(option_rows[i].name) == name_length &&
            memcmp(option_rows[i].name, option, name_length) == 0)
            return true;
    }
    return false;
}

/* The options after the last member: those of the union itself go to parsing->options, the others
 * to the member. */
static void share_options(struct union_parsing *parsing, const char *options,
                          struct muster_text *member)
{
    char separator = '?';

    while (*options != '\0') {
        size_t length = strcspn(options, "&");

        if (is_union_option(options, length)) {
            muster_text_add(&parsing->options, options, length);
            muster_text_add_string(&parsing->options, "&");
        } else {
            muster_text_add(member, &separator, 1);
            muster_text_add(member, options, length);
            separator = '&';
        }
        options += length + (options[length] == '&');
    }
}

static enum muster_rc member_open(struct union_parsing *parsing, const char *uri)
{
    static const struct muster_resolver_options no_options;
    enum muster_rc rc;

    MUSTER_ASSERT(parsing->count < MUSTER_UNION_MEMBERS_MAX);
    if (uri[0] == '\0')
        return muster_error_set(parsing->error, MUSTER_INVALID_ARGUMENT,
                                "member %zu of the union is empty; a union is written as "
                                "union:URI|URI",
                                parsing->count + 1);
    rc = parsing->open_member(parsing->env, uri, &no_options, &parsing->members[parsing->count],
                              parsing->error);
    parsing->count += rc == MUSTER_OK; /* a member that failed gave nothing to discard */
    return rc;
}

/* "(URI)", of the last member with the options of the union after it. */
static enum muster_rc read_enclosed(struct union_parsing *parsing, char *text, bool is_last)
{
    char *behind = text + (muster_uri_find(text, "?") - text);

    if (behind[-1] != PARENS_CLOSED || (*behind == '?' && !is_last))
        return muster_error_set(parsing->error, MUSTER_INVALID_ARGUMENT,
                                "union: expected '|' after the parentheses of '%.100s'; options of "
                                "the union stand at its end",
                                text);
    if (*behind == '?')
        muster_text_add_string(&parsing->options, behind + 1);
    behind[-1] = '\0';
    return member_open(parsing, text + 1);
}

/* A member, NUL-terminated and ours to cut. */
static enum muster_rc read_member(struct union_parsing *parsing, char *text, bool is_last)
{
    struct muster_text uri;
    char *options, *taken = NULL;
    enum muster_rc rc;

    while (strncmp(text, UNION, strlen(UNION)) == 0)
        text += strlen(UNION); /* its members stand in line with those after it */
    if (text[0] == PARENS_OPEN)
        return read_enclosed(parsing, text, is_last);
    options = text + (muster_uri_find(text, "?") - text);
    if (!is_last || *options == '\0')
        return member_open(parsing, text);
    muster_text_init(&uri, parsing->env->mem);
    muster_text_add(&uri, text, (size_t)(options - text));
    share_options(parsing, options + 1, &uri);
    rc = muster_text_take(&uri, &taken, NULL);
    if (rc == MUSTER_OK)
        rc = member_open(parsing, taken);
    else
        muster_error_set(parsing->error, rc, "no memory for a union");
    muster_text_fini(&uri);
    muster_mem_free(parsing->env->mem, taken);
    return rc;
}

static enum muster_rc read_members(struct union_parsing *parsing, char *text)
{
    enum muster_rc rc = check_nesting(text, parsing->error);

    for (bool is_last = text[0] == '\0'; !is_last && rc == MUSTER_OK;) {
        const char *end = muster_uri_find(text, "|");

        if (end == NULL)
            return muster_error_set(parsing->error, MUSTER_INVALID_ARGUMENT,
                                    "union: a '(' or '{' in '%.150s' is not closed", text);
        if (parsing->count == MUSTER_UNION_MEMBERS_MAX)
            return muster_error_set(parsing->error, MUSTER_INVALID_ARGUMENT,
                                    "a union has at most %d members", MUSTER_UNION_MEMBERS_MAX);
        is_last = *end == '\0';
        text[end - text] = '\0';
        rc = read_member(parsing, text, is_last);
        text += end - text + !is_last;
    }
    return rc;
}

static enum muster_rc read_options(struct union_parsing *parsing, struct muster_uri_options *texts,
                                   struct union_uri_values *values)
{
    char *text = NULL;
    enum muster_rc rc = muster_text_take(&parsing->options, &text, NULL);

    if (rc != MUSTER_OK)
        return muster_error_set(parsing->error, rc, "no memory for a union");
    rc = muster_uri_options_parse(texts, text, &option_table, values, parsing->error);
    muster_mem_free(parsing->env->mem, text);
    return rc;
}

enum muster_rc muster_union_resolver_open_uri(struct muster_env *env, const char *rest,
                                              const struct muster_resolver_options *options,
                                              muster_scheme_open_fn *open_member,
                                              struct muster_resolver **ret_resolver,
                                              struct muster_error *ret_error)
{
    struct union_parsing parsing = {.env = env, .open_member = open_member, .error = ret_error};
    struct union_uri_values values = {*options};
    struct muster_uri_options texts = {.mem = env->mem};
    char *copy = muster_mem_strdup(env->mem, rest);
    enum muster_rc rc;

    if (copy == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a union");
    muster_text_init(&parsing.options, env->mem);
    rc = read_members(&parsing, copy);
    if (rc == MUSTER_OK)
        rc = read_options(&parsing, &texts, &values);
    if (rc == MUSTER_OK) {
        struct muster_union_resolver_options own = {
            .common = values.common, .members = parsing.members, .member_count = parsing.count};

        rc = muster_union_resolver_open(env, &own, ret_resolver, ret_error);
    } else {
        muster_union_members_discard(parsing.members, parsing.count);
    }
    muster_text_fini(&parsing.options);
    muster_uri_options_fini(&texts);
    muster_mem_free(env->mem, copy);
    return rc;
}
