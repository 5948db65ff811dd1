/* The surroundings of a case: a played server, files, and the values of its placeholders. */
#include "cases.h"

#include "fake_cloud.h"

#include <muster/address.h>
#include <muster/stream.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FREE_PORTS 4
#define TEXT_BYTES 4096

struct case_cloud {
    struct fake_cloud *server; /* NULL: the case has no "http" */
    char folder[64];           /* of the files; "" without */
    json_t *values;            /* placeholder -> text */
    const json_t *files;       /* of the case */
};

/* A port of loopback that nobody listens on, most likely for the length of the case. */
static unsigned free_port(struct case_run *run)
{
    struct fake_cloud_options options = {.listen = NULL};
    struct fake_cloud *cloud = NULL;
    unsigned port = 0;

    if (fake_cloud_open(run->env, &options, &cloud, NULL) != MUSTER_OK)
        return 0;
    port = (unsigned)strtoul(strrchr(fake_cloud_hostport(cloud), ':') + 1, NULL, 10);
    fake_cloud_close_wait(cloud);
    return port;
}

static void set_value(struct case_cloud *cloud, const char *name, const char *value)
{
    json_object_set_new(cloud->values, name, json_string(value));
}

static void set_server_values(struct case_cloud *cloud)
{
    const char *hostport = fake_cloud_hostport(cloud->server);
    char host[256];

    snprintf(host, sizeof(host), "%.*s", (int)(strrchr(hostport, ':') - hostport), hostport);
    set_value(cloud, "base", fake_cloud_base(cloud->server));
    set_value(cloud, "hostport", hostport);
    set_value(cloud, "host", host);
    set_value(cloud, "port", strrchr(hostport, ':') + 1);
}

/* text with every {{name}} replaced; an unknown one stays. Gives. */
static json_t *fill_text(const struct case_cloud *cloud, const char *text)
{
    char *out = calloc(1, strlen(text) + TEXT_BYTES);
    size_t length = 0, room = strlen(text) + TEXT_BYTES;
    json_t *filled;

    while (out != NULL && *text != '\0') {
        const char *end = strncmp(text, "{{", 2) == 0 ? strstr(text, "}}") : NULL;
        char name[128] = "";
        const char *value = NULL;

        if (end != NULL && (size_t)(end - text) < sizeof(name)) {
            memcpy(name, text + 2, (size_t)(end - text) - 2);
            value = json_string_value(json_object_get(cloud->values, name));
        }
        if (value != NULL && length + strlen(value) + 1 < room) {
            memcpy(out + length, value, strlen(value));
            length += strlen(value);
            text = end + 2;
        } else {
            out[length++] = *text++;
        }
        if (length + 1 >= room)
            break;
    }
    filled = out != NULL ? json_stringn(out, length) : NULL;
    free(out);
    return filled;
}

/* A copy with all placeholders filled in. Gives. */
static json_t *fill_cloud(const struct case_cloud *cloud, const json_t *value)
{
    json_t *copy, *member;
    const char *name;
    size_t i;

    switch (json_typeof(value)) {
    case JSON_STRING:
        return fill_text(cloud, json_string_value(value));
    case JSON_ARRAY:
        copy = json_array();
        json_array_foreach((json_t *)(uintptr_t)value, i, member)
            json_array_append_new(copy, fill_cloud(cloud, member));
        return copy;
    case JSON_OBJECT:
        copy = json_object();
        json_object_foreach((json_t *)(uintptr_t)value, name, member)
            json_object_set_new(copy, name, fill_cloud(cloud, member));
        return copy;
    default:
        return json_deep_copy(value);
    }
}

static void path_of(const struct case_cloud *cloud, const char *name, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s", cloud->folder, name);
}

/* {{file:NAME}} must be known before the files are written, for they may name each other. */
static bool make_folder(struct case_run *run, struct case_cloud *cloud)
{
    const char *name;
    json_t *content;

    if (json_object_size(cloud->files) == 0)
        return true;
    snprintf(cloud->folder, sizeof(cloud->folder), "/tmp/muster-case.XXXXXX");
    if (mkdtemp(cloud->folder) == NULL) {
        cloud->folder[0] = '\0';
        case_fail(run, "no folder for the files of the case");
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)cloud->files, name, content)
    {
        char placeholder[128], path[256];

        snprintf(placeholder, sizeof(placeholder), "file:%s", name);
        path_of(cloud, name, path, sizeof(path));
        set_value(cloud, placeholder, path);
    }
    return true;
}

static void write_files(struct case_run *run, struct case_cloud *cloud)
{
    const char *name;
    json_t *content;

    json_object_foreach((json_t *)(uintptr_t)cloud->files, name, content)
    {
        json_t *filled = fill_cloud(cloud, content);
        char *text = json_is_string(filled) ? strdup(json_string_value(filled))
                                            : json_dumps(filled, JSON_ENCODE_ANY);
        char path[256];

        path_of(cloud, name, path, sizeof(path));
        if (text == NULL ||
            muster_files_write(run->env->files, path, text, strlen(text)) != MUSTER_OK)
            case_fail(run, "cannot write the file %s", name);
        free(text);
        json_decref(filled);
    }
}

static bool open_server(struct case_run *run, struct case_cloud *cloud)
{
    struct fake_cloud_options options = {.listen = NULL};
    struct muster_error error = {.text = ""};
    json_t *script;
    char *text;
    enum muster_rc rc = fake_cloud_open(run->env, &options, &cloud->server, &error);

    if (rc == MUSTER_OK)
        set_server_values(cloud);
    if (rc == MUSTER_OK && json_array_size(json_object_get(run->one, "http")) > 0) {
        script = fill_cloud(cloud, json_object_get(run->one, "http"));
        text = json_dumps(script, 0);
        rc = fake_cloud_script(cloud->server, text, &error);
        free(text);
        json_decref(script);
    }
    if (rc != MUSTER_OK)
        case_fail(run, "no server for the case: %s", error.text);
    return rc == MUSTER_OK;
}

/* A server of the product has chosen its port when it is asked for it: {{bound}} stays. */
static void set_free_ports(struct case_run *run, struct case_cloud *cloud)
{
    const bool has_http = json_object_get(run->one, "http") != NULL;
    const bool has_server = case_argument(run->one, "server_or_cluster_def") != NULL;

    for (unsigned i = 0; i < FREE_PORTS && (has_http || has_server); i++) {
        char name[16], port[16];

        snprintf(name, sizeof(name), "free%u", i);
        snprintf(port, sizeof(port), "%u", free_port(run));
        set_value(cloud, name, port);
        if (!has_http)
            continue;
        set_value(cloud, "bound", port);
        run->bound_port = (uint16_t)strtoul(port, NULL, 10);
    }
}

json_t *case_cloud_open(struct case_run *run, struct case_cloud **ret_cloud)
{
    struct case_cloud *cloud = calloc(1, sizeof(*cloud));

    if (cloud == NULL)
        return NULL;
    *ret_cloud = cloud;
    cloud->values = json_object();
    cloud->files = json_object_get(run->one, "files");
    set_free_ports(run, cloud);
    if (json_object_get(run->one, "http") != NULL && !open_server(run, cloud))
        return NULL;
    if (!make_folder(run, cloud))
        return NULL;
    write_files(run, cloud);
    return run->is_failed ? NULL : fill_cloud(cloud, run->one);
}

void case_cloud_close(struct case_run *run, struct case_cloud *cloud)
{
    const char *name;
    json_t *content;

    (void)run;
    if (cloud == NULL)
        return;
    if (cloud->server != NULL)
        fake_cloud_close_wait(cloud->server);
    if (cloud->folder[0] != '\0') {
        json_object_foreach((json_t *)(uintptr_t)cloud->files, name, content)
        {
            char path[256];

            path_of(cloud, name, path, sizeof(path));
            unlink(path);
        }
        rmdir(cloud->folder);
    }
    json_decref(cloud->values);
    free(cloud);
}
