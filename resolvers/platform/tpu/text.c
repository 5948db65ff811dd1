/* Endpoints, times and discovery documents of Cloud TPU, parsed. Pure: the texts come from
 * variables and from the API, and may be anything. */
#include "resolvers/platform/tpu/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "net/http/url.h"
#include "resolvers/spec/task_address.h"
#include "runtime/value/text.h"

#define SCHEME "grpc://"

/* Days since 1970 of a civil date (Gregorian). */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400, year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

    return era * 146097 + day_of_era - 719468;
}

/* RFC 3339 to the second; a fraction and the 'Z' after it do not matter to a 90 s limit. */
bool muster_tpu_time_parse(const char *text, uint64_t *ret_ns)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd";
    int fields[6] = {0};
    size_t field = 0;
    int64_t seconds;

    for (size_t i = 0; i < sizeof(form) - 1; i++) {
        if (form[i] == 'd' && isdigit((unsigned char)text[i]) != 0)
            fields[field] = fields[field] * 10 + (text[i] - '0');
        else if (form[i] != 'd' && text[i] == form[i])
            field++;
        else
            return false;
    }
    if (fields[0] < 1970 || fields[1] < 1 || fields[1] > 12 || fields[2] < 1 || fields[2] > 31 ||
        fields[3] > 23 || fields[4] > 59 || fields[5] > 60)
        return false;
    seconds = days_of(fields[0], fields[1], fields[2]) * 86400 + fields[3] * 3600 + fields[4] * 60 +
              fields[5];
    *ret_ns = (uint64_t)seconds * MUSTER_NS_PER_S;
    return true;
}

static bool read_port(const char *text, uint16_t *ret_port)
{
    char *end = NULL;
    long value = isdigit((unsigned char)text[0]) != 0 ? strtol(text, &end, 10) : 0;

    if (value < 1 || value > UINT16_MAX || *end != '\0')
        return false;
    *ret_port = (uint16_t)value;
    return true;
}

/* One part of a list, NUL-terminated and ours to cut. TensorFlow splits at ':' and has no IPv6;
 * here brackets hold an address with a port, and several ':' without them are an address alone. */
static bool read_endpoint(char *part, struct muster_tpu_endpoint *endpoint)
{
    char *host = part, *colon, *bracket;

    if (strncmp(host, SCHEME, sizeof(SCHEME) - 1) == 0)
        host += sizeof(SCHEME) - 1;
    endpoint->port = MUSTER_TPU_PORT;
    colon = strchr(host, ':');
    if (host[0] == '[') {
        bracket = strchr(++host, ']');
        if (bracket == NULL || (bracket[1] != ':' && bracket[1] != '\0'))
            return false;
        colon = bracket[1] == ':' ? bracket + 1 : NULL;
        *bracket = '\0';
    } else if (colon != NULL && strchr(colon + 1, ':') != NULL) {
        colon = NULL; /* an IPv6 address without port */
    }
    if (colon != NULL) {
        *colon = '\0';
        if (!read_port(colon + 1, &endpoint->port))
            return false;
    }
    if (strlen(host) >= sizeof(endpoint->host) || !muster_host_is_plausible(host))
        return false;
    memcpy(endpoint->host, host, strlen(host) + 1);
    return true;
}

enum muster_rc muster_tpu_endpoints_parse(struct muster_mem *mem, const char *text,
                                          struct muster_tpu_endpoint **ret_endpoints,
                                          size_t *ret_count, struct muster_error *ret_error)
{
    size_t count = 1, used = 0;
    char *copy = muster_mem_strdup(mem, text), *rest = copy;
    struct muster_tpu_endpoint *endpoints;

    for (const char *at = text; *at != '\0'; at++)
        count += *at == ',' && at[1] != '\0'; /* a comma at the end begins nothing */
    endpoints = muster_mem_alloc_zero(mem, count, sizeof(*endpoints));
    if (copy == NULL || endpoints == NULL) {
        muster_mem_free(mem, copy);
        muster_mem_free(mem, endpoints);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    }
    while (used < count) {
        char *comma = strchr(rest, ',');
        size_t offset = (size_t)(rest - copy);

        if (comma != NULL)
            *comma = '\0';
        if (!read_endpoint(rest, &endpoints[used++])) {
            muster_mem_free(mem, copy);
            muster_mem_free(mem, endpoints);
            return muster_error_set(
                ret_error, MUSTER_INVALID_ARGUMENT,
                "'%.*s' is not a TPU endpoint of the form grpc://host:port",
                (int)strcspn(text + offset, ",") < 80 ? (int)strcspn(text + offset, ",") : 80,
                text + offset);
        }
        rest = comma != NULL ? comma + 1 : rest;
    }
    muster_mem_free(mem, copy);
    *ret_endpoints = endpoints;
    *ret_count = count;
    return MUSTER_OK;
}

/* Add text with each `name` replaced by value. */
static void add_replaced(struct muster_text *out, const char *text, const char *name,
                         const char *value)
{
    const char *found;

    while ((found = strstr(text, name)) != NULL) {
        muster_text_add(out, text, (size_t)(found - text));
        muster_text_add_string(out, value);
        text = found + strlen(name);
    }
    muster_text_add_string(out, text);
}

static char *replace_all(struct muster_mem *mem, const char *text, const char *name,
                         const char *value)
{
    struct muster_text out;
    char *result = NULL;

    muster_text_init(&out, mem);
    add_replaced(&out, text, name, value);
    if (muster_text_take(&out, &result, NULL) != MUSTER_OK)
        muster_text_fini(&out);
    return result;
}

char *muster_tpu_discovery_url_format(struct muster_mem *mem, const char *url, const char *version)
{
    char *first = replace_all(mem, url, "{apiVersion}", version);
    char *second = first != NULL ? replace_all(mem, first, "{api}", "tpu") : NULL;

    muster_mem_free(mem, first);
    return second;
}

static const struct muster_json *find_member(const struct muster_json *value,
                                             const char *const *names)
{
    for (; *names != NULL; names++)
        value = muster_json_member(value, *names);
    return value;
}

/* rootUrl + servicePath + the path of projects.locations.nodes.get ("v1/{+name}"), as Google's
 * discovery documents describe a method. {+name} is reserved expansion (RFC 6570 3.2.3): the '/' of
 * the resource name stay. */
enum muster_rc muster_tpu_discovery_parse(struct muster_mem *mem, const char *text, size_t size,
                                          const char *resource_name, char **ret_url,
                                          struct muster_error *ret_error)
{
    static const char *const to_method[] = {"resources", "projects", "resources", "locations",
                                            "resources", "nodes",    "methods",   "get",
                                            "path",      NULL};
    struct muster_json *root = NULL;
    struct muster_error bad;
    struct muster_text url;
    const char *root_url, *service_path, *path;
    enum muster_rc rc = muster_json_parse(text, size, &root, &bad);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "the discovery document of the TPU API: %s",
                                bad.text);
    root_url = muster_json_text(muster_json_member(root, "rootUrl"));
    service_path = muster_json_text(muster_json_member(root, "servicePath"));
    path = muster_json_text(find_member(root, to_method));
    muster_text_init(&url, mem);
    if (root_url == NULL || path == NULL || strstr(path, "{+name}") == NULL) {
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "the discovery document of the TPU API names no rootUrl or no "
                              "projects.locations.nodes.get");
    } else {
        muster_text_add_string(&url, root_url);
        muster_text_add_string(&url, service_path != NULL ? service_path : "");
        add_replaced(&url, path, "{+name}", resource_name);
        rc = muster_text_take(&url, ret_url, NULL);
        if (rc != MUSTER_OK)
            muster_error_set(ret_error, rc, "no memory");
    }
    muster_text_fini(&url);
    muster_json_free(root);
    return rc;
}
