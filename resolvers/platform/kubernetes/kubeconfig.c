/* The context of a kubeconfig: cluster and user, found over several files. The rules are those of
 * kubectl ("Organizing Cluster Access Using kubeconfig Files"): KUBECONFIG lists files, the first
 * one that sets a value wins, and relative paths start at the file that names them. server.c makes
 * a connection of the result. */
#include "resolvers/platform/kubernetes/kubeconfig.h"

#include <stdlib.h>
#include <string.h>

#include "net/stream/base64.h"
#include "resolvers/platform/kubernetes/yaml.h"

#define FILE_BYTES_MAX   (1u << 20) /* larger is not a kubeconfig */
#define HOME_KUBECONFIG  "/.kube/config"
#define NAME_BYTES_SHOWN "%.60s"

/* The files as values, and what is being filled in. */
struct kubeconfig_reader {
    struct muster_mem *mem;
    const struct muster_kubeconfig_file *files;
    struct muster_json *roots[MUSTER_KUBECONFIG_FILES_MAX];
    size_t file_count;
    struct muster_kubeconfig *config;
    struct muster_error *error;
};

/* A named entry ("clusters" -> {name, cluster}) and the file that it stands in. */
struct kubeconfig_entry {
    const struct muster_json *body;
    const char *path;
    const char *kind;
    const char *name;
};

/* Overwrite a secret before its memory is reused; volatile keeps the compiler from dropping the
 * writes. */
static void free_secret(struct muster_mem *mem, char *secret)
{
    if (secret != NULL) {
        volatile char *byte = secret;

        while (*byte != '\0')
            *byte++ = '\0';
    }
    muster_mem_free(mem, secret);
}

void muster_kubeconfig_fini(struct muster_kubeconfig *config)
{
    struct muster_mem *mem = config->mem;

    if (mem == NULL)
        return;
    muster_mem_free(mem, config->context);
    muster_mem_free(mem, config->server);
    muster_mem_free(mem, config->server_name);
    muster_mem_free(mem, config->ca_file);
    muster_mem_free(mem, config->ca_pem);
    muster_mem_free(mem, config->cert_file);
    muster_mem_free(mem, config->cert_pem);
    muster_mem_free(mem, config->key_file);
    free_secret(mem, config->key_pem);
    free_secret(mem, config->token);
    muster_mem_free(mem, config->token_file);
    muster_mem_free(mem, config->username);
    *config = (struct muster_kubeconfig){.mem = NULL};
}

static enum muster_rc no_memory(struct kubeconfig_reader *reader)
{
    return muster_error_set(reader->error, MUSTER_RESOURCE_EXHAUSTED, "no memory for kubeconfig");
}

/* The first entry of that name in `list` ("clusters") over all files. */
static bool find_entry(const struct kubeconfig_reader *reader, const char *list, const char *kind,
                       const char *name, struct kubeconfig_entry *ret_entry)
{
    for (size_t f = 0; f < reader->file_count; f++) {
        const struct muster_json *entries = muster_json_member(reader->roots[f], list);

        for (size_t i = 0; i < muster_json_count(entries); i++) {
            const struct muster_json *entry = muster_json_at(entries, i);
            const char *its_name = muster_json_text(muster_json_member(entry, "name"));

            if (its_name != NULL && strcmp(its_name, name) == 0) {
                *ret_entry = (struct kubeconfig_entry){.body = muster_json_member(entry, kind),
                                                       .path = reader->files[f].path,
                                                       .kind = kind,
                                                       .name = name};
                return true;
            }
        }
    }
    return false;
}

/* A member that is text; "" and null count as not given. */
static enum muster_rc text_of(struct kubeconfig_reader *reader,
                              const struct kubeconfig_entry *entry, const char *member,
                              const char **ret_text)
{
    const struct muster_json *value = muster_json_member(entry->body, member);

    *ret_text = muster_json_text(value);
    if (*ret_text != NULL && (*ret_text)[0] == '\0')
        *ret_text = NULL;
    if (*ret_text == NULL && muster_json_kind(value) != MUSTER_JSON_NULL &&
        muster_json_kind(value) != MUSTER_JSON_TEXT)
        return muster_error_set(reader->error, MUSTER_INVALID_ARGUMENT,
                                "%.80s: %s of %s '" NAME_BYTES_SHOWN "' must be text, got %s",
                                entry->path, member, entry->kind, entry->name,
                                muster_json_kind_name(value));
    return MUSTER_OK;
}

static enum muster_rc copy_text(struct kubeconfig_reader *reader,
                                const struct kubeconfig_entry *entry, const char *member,
                                char **ret_copy)
{
    const char *text;
    enum muster_rc rc = text_of(reader, entry, member, &text);

    if (rc != MUSTER_OK || text == NULL)
        return rc;
    *ret_copy = muster_mem_strdup(reader->mem, text);
    return *ret_copy != NULL ? MUSTER_OK : no_memory(reader);
}

/* A path; a relative one starts in the folder of the kubeconfig. */
static enum muster_rc copy_path(struct kubeconfig_reader *reader,
                                const struct kubeconfig_entry *entry, const char *member,
                                char **ret_path)
{
    const char *text, *slash = strrchr(entry->path, '/');
    size_t folder_bytes = slash != NULL ? (size_t)(slash - entry->path) + 1 : 0;
    enum muster_rc rc = text_of(reader, entry, member, &text);
    char *path;

    if (rc != MUSTER_OK || text == NULL)
        return rc;
    if (text[0] == '/')
        folder_bytes = 0;
    path = muster_mem_alloc(reader->mem, folder_bytes + strlen(text) + 1);
    if (path == NULL)
        return no_memory(reader);
    memcpy(path, entry->path, folder_bytes);
    memcpy(path + folder_bytes, text, strlen(text) + 1);
    *ret_path = path;
    return MUSTER_OK;
}

/* The Base64 of a PEM text. Checked here, because the error can name file and user; OpenSSL would
 * only tell of a bad certificate. A NUL inside would cut the text, so it is refused, too. */
static enum muster_rc copy_pem(struct kubeconfig_reader *reader,
                               const struct kubeconfig_entry *entry, const char *member,
                               char **ret_pem)
{
    const char *text;
    enum muster_rc rc = text_of(reader, entry, member, &text);
    size_t size = 0;
    char *pem;

    if (rc != MUSTER_OK || text == NULL)
        return rc;
    pem = muster_mem_alloc(reader->mem, muster_base64_decoded_bytes_max(strlen(text)) + 1);
    if (pem == NULL)
        return no_memory(reader);
    rc = muster_base64_decode(text, strlen(text), pem, &size);
    pem[rc == MUSTER_OK ? size : 0] = '\0';
    if (rc != MUSTER_OK || strlen(pem) != size || strstr(pem, "-----BEGIN ") == NULL) {
        pem[0] = '\0';
        muster_mem_free(reader->mem, pem);
        return muster_error_set(reader->error, MUSTER_INVALID_ARGUMENT,
                                "%.80s: %s of %s '" NAME_BYTES_SHOWN
                                "' is not Base64 of a PEM text",
                                entry->path, member, entry->kind, entry->name);
    }
    *ret_pem = pem;
    return MUSTER_OK;
}

static enum muster_rc need_entry(struct kubeconfig_reader *reader,
                                 const struct kubeconfig_entry *context, const char *list,
                                 const char *kind, struct kubeconfig_entry *ret_entry)
{
    const char *name;
    enum muster_rc rc = text_of(reader, context, kind, &name);

    if (rc != MUSTER_OK)
        return rc;
    if (name == NULL)
        return muster_error_set(reader->error, MUSTER_INVALID_ARGUMENT,
                                "%.80s: context '" NAME_BYTES_SHOWN "' names no %s", context->path,
                                context->name, kind);
    if (!find_entry(reader, list, kind, name, ret_entry))
        return muster_error_set(reader->error, MUSTER_INVALID_ARGUMENT,
                                "%.80s: context '" NAME_BYTES_SHOWN "' names %s '" NAME_BYTES_SHOWN
                                "', which is not among the %s",
                                context->path, context->name, kind, name, list);
    return MUSTER_OK;
}

static enum muster_rc read_cluster(struct kubeconfig_reader *reader,
                                   const struct kubeconfig_entry *cluster)
{
    struct muster_kubeconfig *config = reader->config;
    const struct muster_json *skip = muster_json_member(cluster->body, "insecure-skip-tls-verify");
    enum muster_rc rc = copy_text(reader, cluster, "server", &config->server);

    if (rc == MUSTER_OK)
        rc = copy_text(reader, cluster, "tls-server-name", &config->server_name);
    if (rc == MUSTER_OK)
        rc = copy_path(reader, cluster, "certificate-authority", &config->ca_file);
    if (rc == MUSTER_OK)
        rc = copy_pem(reader, cluster, "certificate-authority-data", &config->ca_pem);
    if (rc != MUSTER_OK)
        return rc;
    if (config->server == NULL ||
        (strncmp(config->server, "https://", 8) != 0 && strncmp(config->server, "http://", 7) != 0))
        return muster_error_set(reader->error, MUSTER_INVALID_ARGUMENT,
                                "%.80s: cluster '" NAME_BYTES_SHOWN
                                "' has no server of the form https://host:port",
                                cluster->path, cluster->name);
    for (size_t n = strlen(config->server); n > 0 && config->server[n - 1] == '/'; n--)
        config->server[n - 1] = '\0';
    config->is_insecure_skip_verify = muster_json_is_true(skip);
    return MUSTER_OK;
}

/* Plug-ins run a program named by the file: that is refused, with a remedy. Only a user without
 * credentials of another kind comes here, so a file that holds both still works. */
static enum muster_rc refuse_plugins(struct kubeconfig_reader *reader,
                                     const struct kubeconfig_entry *user)
{
    const struct muster_json *exec = muster_json_member(user->body, "exec");
    const struct muster_json *provider = muster_json_member(user->body, "auth-provider");
    const char *command = muster_json_text(muster_json_member(exec, "command"));
    const char *name = muster_json_text(muster_json_member(provider, "name"));

    if (muster_json_kind(exec) != MUSTER_JSON_NULL)
        return muster_error_set(reader->error, MUSTER_UNIMPLEMENTED,
                                "%.60s: user '%.40s' needs the exec plug-in '%.40s', which is not "
                                "run; use a token ('kubectl create token') or a client certificate",
                                user->path, user->name, command != NULL ? command : "");
    if (muster_json_kind(provider) != MUSTER_JSON_NULL)
        return muster_error_set(reader->error, MUSTER_UNIMPLEMENTED,
                                "%.60s: user '%.40s' needs the auth-provider '%.40s', which is "
                                "gone from Kubernetes; use a token ('kubectl create token') or a "
                                "client certificate",
                                user->path, user->name, name != NULL ? name : "");
    return MUSTER_OK;
}

static enum muster_rc read_user(struct kubeconfig_reader *reader,
                                const struct kubeconfig_entry *user)
{
    struct muster_kubeconfig *config = reader->config;
    enum muster_rc rc = copy_text(reader, user, "token", &config->token);

    if (rc == MUSTER_OK) /* kubectl: tokenFile wins over token; server.c chooses */
        rc = copy_path(reader, user, "tokenFile", &config->token_file);
    if (rc == MUSTER_OK)
        rc = copy_path(reader, user, "client-certificate", &config->cert_file);
    if (rc == MUSTER_OK)
        rc = copy_pem(reader, user, "client-certificate-data", &config->cert_pem);
    if (rc == MUSTER_OK)
        rc = copy_path(reader, user, "client-key", &config->key_file);
    if (rc == MUSTER_OK)
        rc = copy_pem(reader, user, "client-key-data", &config->key_pem);
    if (rc == MUSTER_OK)
        rc = copy_text(reader, user, "username", &config->username);
    if (rc != MUSTER_OK)
        return rc;
    if ((config->cert_pem == NULL && config->cert_file == NULL) !=
        (config->key_pem == NULL && config->key_file == NULL))
        return muster_error_set(
            reader->error, MUSTER_INVALID_ARGUMENT,
            "%.80s: user '" NAME_BYTES_SHOWN
            "' has a client certificate without key, or a key without one; give "
            "both",
            user->path, user->name);
    if (config->token == NULL && config->token_file == NULL && config->cert_pem == NULL &&
        config->cert_file == NULL && config->username == NULL)
        return refuse_plugins(reader, user);
    return MUSTER_OK;
}

/* The context to use: the one asked for, else the first current-context of the files. */
static enum muster_rc find_context(struct kubeconfig_reader *reader, const char *wanted,
                                   struct kubeconfig_entry *ret_context)
{
    const char *name = wanted;

    for (size_t f = 0; f < reader->file_count && name == NULL; f++) {
        name = muster_json_text(muster_json_member(reader->roots[f], "current-context"));
        if (name != NULL && name[0] == '\0')
            name = NULL;
    }
    if (name == NULL)
        return muster_error_set(reader->error, MUSTER_INVALID_ARGUMENT,
                                "%.80s has no current-context; name a context, or set one with "
                                "'kubectl config use-context'",
                                reader->files[0].path);
    if (!find_entry(reader, "contexts", "context", name, ret_context))
        return muster_error_set(reader->error, MUSTER_NOT_FOUND,
                                "%.80s has no context '" NAME_BYTES_SHOWN "'",
                                reader->files[0].path, name);
    reader->config->context = muster_mem_strdup(reader->mem, name);
    return reader->config->context != NULL ? MUSTER_OK : no_memory(reader);
}

static enum muster_rc read_context(struct kubeconfig_reader *reader, const char *wanted)
{
    struct kubeconfig_entry context, cluster, user;
    const char *user_name = NULL;
    enum muster_rc rc = find_context(reader, wanted, &context);

    if (rc == MUSTER_OK)
        rc = need_entry(reader, &context, "clusters", "cluster", &cluster);
    if (rc == MUSTER_OK)
        rc = read_cluster(reader, &cluster);
    if (rc == MUSTER_OK)
        rc = text_of(reader, &context, "user", &user_name);
    if (rc != MUSTER_OK || user_name == NULL) /* a server that asks for no credentials */
        return rc;
    rc = need_entry(reader, &context, "users", "user", &user);
    return rc == MUSTER_OK ? read_user(reader, &user) : rc;
}

static enum muster_rc parse_file(struct kubeconfig_reader *reader, size_t index)
{
    const struct muster_kubeconfig_file *file = &reader->files[index];
    struct muster_error bad;
    enum muster_rc rc = muster_yaml_parse(file->text, file->size, &reader->roots[index], &bad);

    if (rc != MUSTER_OK)
        return muster_error_set(reader->error, rc, "%.100s: %s", file->path, bad.text);
    reader->file_count = index + 1;
    if (muster_json_kind(reader->roots[index]) != MUSTER_JSON_OBJECT &&
        muster_json_kind(reader->roots[index]) != MUSTER_JSON_NULL)
        return muster_error_set(reader->error, MUSTER_INVALID_ARGUMENT,
                                "%.100s must be a kubeconfig, which is a mapping, got %s",
                                file->path, muster_json_kind_name(reader->roots[index]));
    return MUSTER_OK;
}

enum muster_rc muster_kubeconfig_parse(struct muster_mem *mem,
                                       const struct muster_kubeconfig_file *files,
                                       size_t file_count, const char *context,
                                       struct muster_kubeconfig *ret_config,
                                       struct muster_error *ret_error)
{
    struct muster_kubeconfig config = {.mem = mem};
    struct kubeconfig_reader reader = {
        .mem = mem, .files = files, .config = &config, .error = ret_error};
    enum muster_rc rc = MUSTER_OK;

    if (file_count > MUSTER_KUBECONFIG_FILES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "KUBECONFIG lists %zu files; at most %d are read", file_count,
                                MUSTER_KUBECONFIG_FILES_MAX);
    for (size_t i = 0; i < file_count && rc == MUSTER_OK; i++)
        rc = parse_file(&reader, i);
    if (rc == MUSTER_OK)
        rc = read_context(&reader, context);
    for (size_t i = 0; i < reader.file_count; i++)
        muster_json_free(reader.roots[i]);
    if (rc != MUSTER_OK) {
        muster_kubeconfig_fini(&config);
        return rc;
    }
    *ret_config = config;
    return MUSTER_OK;
}

/* The texts of the files to read. */
struct kubeconfig_texts {
    struct muster_kubeconfig_file files[MUSTER_KUBECONFIG_FILES_MAX];
    char *owned[MUSTER_KUBECONFIG_FILES_MAX];
    size_t count;
};

static enum muster_rc add_file(struct muster_env *env, struct kubeconfig_texts *texts,
                               const char *path, struct muster_error *ret_error)
{
    char *text = NULL;
    size_t size = 0;
    enum muster_rc rc;

    if (texts->count == MUSTER_KUBECONFIG_FILES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "KUBECONFIG lists more than %d files", MUSTER_KUBECONFIG_FILES_MAX);
    rc = muster_files_read(env->files, env->mem, path, FILE_BYTES_MAX, &text, &size);
    if (rc == MUSTER_NOT_FOUND) /* kubectl skips files of KUBECONFIG that are missing */
        return MUSTER_OK;
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "cannot read the kubeconfig %.100s: %s", path,
                                muster_rc_text(rc));
    texts->owned[texts->count] = text;
    texts->files[texts->count++] =
        (struct muster_kubeconfig_file){.path = path, .text = text, .size = size};
    return MUSTER_OK;
}

/* Read the files of a list "a:b:c", which is cut apart in place. */
static enum muster_rc add_list(struct muster_env *env, struct kubeconfig_texts *texts, char *list,
                               struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;
    char *rest = NULL;

    for (char *path = strtok_r(list, ":", &rest); path != NULL && rc == MUSTER_OK;
         path = strtok_r(NULL, ":", &rest))
        rc = add_file(env, texts, path, ret_error);
    return rc;
}

/* The paths to try, as one list; gives. kubectl's order: the one named, KUBECONFIG,
 * ~/.kube/config. */
static char *path_list(struct muster_env *env, const char *path)
{
    const char *variable = muster_vars_get(env->vars, "KUBECONFIG");
    const char *home = muster_vars_get(env->vars, "HOME");
    char *list;

    if (path != NULL)
        return muster_mem_strdup(env->mem, path);
    if (variable != NULL && variable[0] != '\0')
        return muster_mem_strdup(env->mem, variable);
    if (home == NULL)
        home = "";
    list = muster_mem_alloc(env->mem, strlen(home) + sizeof(HOME_KUBECONFIG));
    if (list != NULL) {
        memcpy(list, home, strlen(home));
        memcpy(list + strlen(home), HOME_KUBECONFIG, sizeof(HOME_KUBECONFIG));
    }
    return list;
}

enum muster_rc muster_kubeconfig_load(struct muster_env *env, const char *path, const char *context,
                                      struct muster_kubeconfig *ret_config,
                                      struct muster_error *ret_error)
{
    struct kubeconfig_texts texts = {.count = 0};
    char *list = path_list(env, path);
    char *shown = list != NULL ? muster_mem_strdup(env->mem, list) : NULL;
    enum muster_rc rc;

    if (shown == NULL)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for kubeconfig");
    else if (path != NULL)
        rc = add_file(env, &texts, list, ret_error);
    else
        rc = add_list(env, &texts, list, ret_error);
    if (rc == MUSTER_OK && texts.count == 0)
        rc = muster_error_set(ret_error, MUSTER_NOT_FOUND,
                              "no kubeconfig at %.120s; set KUBECONFIG, or run inside of a cluster",
                              shown);
    if (rc == MUSTER_OK)
        rc = muster_kubeconfig_parse(env->mem, texts.files, texts.count, context, ret_config,
                                     ret_error);
    for (size_t i = 0; i < texts.count; i++)
        free_secret(env->mem, texts.owned[i]); /* tokens and keys stand in the file in clear text */
    muster_mem_free(env->mem, list);
    muster_mem_free(env->mem, shown);
    return rc;
}
