/* A credential: its files, its generations, and its count of users. The files are read again from
 * time to time, because certificates are short-lived and rotated on disk; new connections use the
 * new generation, and a file that cannot be used leaves the former one in place. */
#include <muster/tls.h>

#include <string.h>

#include <muster/hash.h>

#include "net/tls/tls_internal.h"

#define FILE_BYTES_MAX     (1u << 20) /* several times a system's bundle of roots */
#define RELOAD_INTERVAL_NS (60 * MUSTER_NS_PER_S) /* certificates live an hour or longer */
#define REFUSAL_LOG_NS     MUSTER_NS_PER_S /* a peer that tries in a loop must not fill the log */

/* The text of one kind of material, read from its file or as given. Owned. */
struct loaded {
    char *cert, *key, *ca;
};

/* A private key must not stay in freed memory, which the next user of it may show to others. */
static void text_wipe(struct muster_mem *mem, char *text)
{
    if (text == NULL)
        return;
    explicit_bzero(text, strlen(text));
    muster_mem_free(mem, text);
}

/* All three are wiped, because one file may hold certificate and key. */
static void loaded_fini(struct loaded *loaded, struct muster_mem *mem)
{
    text_wipe(mem, loaded->cert);
    text_wipe(mem, loaded->key);
    text_wipe(mem, loaded->ca);
}

/* A pipe or a device holds its bytes once, and would be empty, or block the loop, when it is looked
 * at again. */
static enum muster_rc load_one(const struct muster_env *env, const char *file, const char *pem,
                               char **ret_text, struct muster_error *ret_error)
{
    size_t bytes = 0;
    enum muster_rc rc;

    if (file == NULL && pem == NULL)
        return MUSTER_OK;
    if (file == NULL) {
        *ret_text = muster_mem_strdup(env->mem, pem);
        if (*ret_text == NULL)
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "TLS: no memory");
        return MUSTER_OK;
    }
    if (muster_files_is_special(env->files, file))
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "%.150s is not a regular file: TLS reads it again from time to time", file);
    rc = muster_files_read(env->files, env->mem, file, FILE_BYTES_MAX, ret_text, &bytes);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "%.150s cannot be read: %s", file,
                                muster_rc_text(rc));
    return MUSTER_OK;
}

static enum muster_rc load_files(const struct muster_tls *tls, struct loaded *loaded,
                                 struct muster_error *ret_error)
{
    const struct muster_tls_options *options = &tls->options;
    enum muster_rc rc =
        load_one(tls->env, options->cert_file, options->cert_pem, &loaded->cert, ret_error);

    if (rc == MUSTER_OK)
        rc = load_one(tls->env, options->key_file, options->key_pem, &loaded->key, ret_error);
    if (rc == MUSTER_OK)
        rc = load_one(tls->env, options->ca_file, options->ca_pem, &loaded->ca, ret_error);
    return rc;
}

/* The content tells whether a file has changed: times of files do not when a secret is mounted anew
 * (Kubernetes swaps a symbolic link). */
static uint64_t hash_of(const struct loaded *loaded)
{
    const char *texts[] = {loaded->cert, loaded->key, loaded->ca};
    uint64_t hash = 0;

    for (size_t i = 0; i < 3; i++)
        if (texts[i] != NULL)
            hash = muster_hash64(texts[i], strlen(texts[i]), hash);
    return hash;
}

static const char *name_of(const char *file, const char *otherwise)
{
    return file != NULL ? file : otherwise;
}

static enum muster_rc context_of(const struct muster_tls *tls, const struct loaded *loaded,
                                 struct muster_tls_context **ret_context,
                                 struct muster_error *ret_error)
{
    struct muster_vars *vars = tls->env->vars;
    const struct muster_tls_material material = {
        .cert_pem = loaded->cert,
        .key_pem = loaded->key,
        .ca_pem = loaded->ca,
        .cert_name = name_of(tls->options.cert_file, "cert_pem"),
        .key_name = name_of(tls->options.key_file, "key_pem"),
        .ca_name = name_of(tls->options.ca_file, "ca_pem"),
        .is_ca_text = tls->options.ca_file == NULL,
        .is_root_named = vars != NULL && (muster_vars_get(vars, "SSL_CERT_FILE") != NULL ||
                                          muster_vars_get(vars, "SSL_CERT_DIR") != NULL),
        .version_min = tls->options.version_min,
    };

    return muster_tls_context_new(tls->env->mem, &material, ret_context, ret_error);
}

uint64_t muster_tls_now_s(const struct muster_env *env)
{
    return env->host != NULL ? muster_host_wall_ns(env->host) / MUSTER_NS_PER_S : 0;
}

/* Without a wall clock nothing has: the system's judges at the handshake. */
static bool has_expired(const struct muster_tls *tls, const struct muster_tls_context *context)
{
    uint64_t expires_s = muster_tls_context_expires_s(context);

    return expires_s != 0 && expires_s < muster_tls_now_s(tls->env);
}

/* Options. */

static bool copy_text(struct muster_mem *mem, const char **text)
{
    if (*text == NULL)
        return true;
    *text = muster_mem_strdup(mem, *text);
    return *text != NULL;
}

static void free_text(struct muster_mem *mem, const char *text)
{
    text_wipe(mem, (char *)(uintptr_t)text);
}

static void options_free(struct muster_tls *tls)
{
    struct muster_tls_options *options = &tls->options;
    struct muster_mem *mem = tls->env->mem;
    const char *texts[] = {options->cert_file, options->cert_pem, options->key_file,
                           options->key_pem,   options->ca_file,  options->ca_pem};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        free_text(mem, texts[i]);
    for (size_t i = 0; options->peer_names != NULL && i < options->peer_name_count; i++)
        free_text(mem, options->peer_names[i]);
    muster_mem_free(mem, (void *)(uintptr_t)options->peer_names);
}

/* After a failure the texts that are ours, and only they, are not NULL. */
static enum muster_rc options_copy(struct muster_tls *tls, const struct muster_tls_options *from)
{
    struct muster_mem *mem = tls->env->mem;
    struct muster_tls_options *options = &tls->options;
    const char **names = NULL;
    const char **to[] = {&options->cert_file, &options->cert_pem, &options->key_file,
                         &options->key_pem,   &options->ca_file,  &options->ca_pem};
    const char *texts[] = {from->cert_file, from->cert_pem, from->key_file,
                           from->key_pem,   from->ca_file,  from->ca_pem};

    options->is_peer_required = from->is_peer_required;
    options->version_min = from->version_min;
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
        *to[i] = texts[i];
        if (!copy_text(mem, to[i]))
            return MUSTER_RESOURCE_EXHAUSTED;
    }
    if (from->peer_name_count == 0)
        return MUSTER_OK;
    names = muster_mem_alloc_zero(mem, from->peer_name_count, sizeof(*names));
    if (names == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    options->peer_names = names;
    for (size_t i = 0; i < from->peer_name_count; i++) {
        names[i] = from->peer_names[i];
        if (!copy_text(mem, &names[i]))
            return MUSTER_RESOURCE_EXHAUSTED;
        options->peer_name_count++;
    }
    return MUSTER_OK;
}

/* Settings that would be ignored are refused: a half configured credential would secure less than
 * its user believes. */
static enum muster_rc options_check(const struct muster_tls_options *options,
                                    struct muster_error *ret_error)
{
    bool has_cert = options->cert_file != NULL || options->cert_pem != NULL;
    bool has_key = options->key_file != NULL || options->key_pem != NULL;

    if ((options->cert_file != NULL && options->cert_pem != NULL) ||
        (options->key_file != NULL && options->key_pem != NULL) ||
        (options->ca_file != NULL && options->ca_pem != NULL))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "certificate, key and roots come each as a file or as PEM text, "
                                "not as both");
    if (has_cert != has_key)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                has_cert ? "a certificate needs its private key: set key_file"
                                         : "a private key needs its certificate: set cert_file");
    if (options->is_peer_required && options->ca_file == NULL && options->ca_pem == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "to demand certificates of clients, name the roots that they are "
                                "issued under: set ca_file");
    return MUSTER_OK;
}

/* Reloading. */

static bool has_files(const struct muster_tls *tls)
{
    return tls->options.cert_file != NULL || tls->options.key_file != NULL ||
           tls->options.ca_file != NULL;
}

/* A credential of texts alone cannot change. */
static void timer_start(struct muster_tls *tls)
{
    if (has_files(tls) && tls->reload_interval_ns != UINT64_MAX)
        muster_timer_start(&tls->reload_timer, tls->env->loop,
                           muster_loop_after_ns(tls->env->loop, tls->reload_interval_ns));
}

static void on_reload_due(struct muster_timer *timer)
{
    struct muster_tls *tls = timer->data;
    enum muster_rc rc;

    timer_start(tls);
    rc = muster_tls_reload(tls, NULL);
    (void)rc; /* a failure is logged, the former is kept, and the timer tries again */
}

/* An expired certificate is used if there is no better one, with a warning: the peer may not mind,
 * and if it does its text says so. It never takes the place of one that still holds. */
static enum muster_rc replace_context(struct muster_tls *tls, const struct loaded *loaded,
                                      struct muster_error *ret_error)
{
    struct muster_tls_context *context = NULL;
    enum muster_rc rc = context_of(tls, loaded, &context, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (tls->context != NULL && has_expired(tls, context) && !has_expired(tls, tls->context)) {
        muster_tls_context_free(context);
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the new certificate in %.120s has expired; the former is kept",
                                name_of(tls->options.cert_file, "cert_pem"));
    }
    if (has_expired(tls, context))
        MUSTER_LOG(tls->env, WARN, "tls_certificate_expired", "certificate",
                   name_of(tls->options.cert_file, "cert_pem"), "expired_s",
                   muster_tls_now_s(tls->env) - muster_tls_context_expires_s(context));
    muster_tls_context_free(tls->context);
    tls->context = context;
    tls->material_hash = hash_of(loaded);
    return MUSTER_OK;
}

/* Seconds left of the certificate's life; 0: over, or there is none. */
static uint64_t left_s(const struct muster_tls *tls)
{
    uint64_t expires_s = muster_tls_expires_s(tls);
    uint64_t now_s = muster_tls_now_s(tls->env);

    return expires_s > now_s ? expires_s - now_s : 0;
}

enum muster_rc muster_tls_reload(struct muster_tls *tls, struct muster_error *ret_error)
{
    struct loaded loaded = {.cert = NULL};
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = load_files(tls, &loaded, &error);

    if (rc == MUSTER_OK && hash_of(&loaded) != tls->material_hash) {
        rc = replace_context(tls, &loaded, &error);
        if (rc == MUSTER_OK)
            MUSTER_LOG(tls->env, INFO, "tls_reloaded", "certificate",
                       name_of(tls->options.cert_file, "none"), "left_s", left_s(tls));
    }
    loaded_fini(&loaded, tls->env->mem);
    if (rc == MUSTER_OK)
        return MUSTER_OK;
    MUSTER_LOG(tls->env, WARN, "tls_reload_failed", "reason", error.text);
    if (ret_error != NULL)
        *ret_error = error;
    return rc;
}

void muster_tls_log_refusal(struct muster_tls *tls, const struct muster_address *peer,
                            const struct muster_error *error)
{
    uint64_t now_ns = muster_loop_now_ns(tls->env->loop);
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    bool is_due = tls->refusal_logged_ns == 0 || now_ns - tls->refusal_logged_ns >= REFUSAL_LOG_NS;

    (void)muster_address_format(peer, text);
    if (error->rc == MUSTER_UNAUTHENTICATED && is_due) {
        tls->refusal_logged_ns = now_ns;
        MUSTER_LOG(tls->env, WARN, "tls_peer_refused", "peer", text, "reason", error->text);
    } else if (error->rc != MUSTER_CANCELLED) {
        MUSTER_LOG(tls->env, DEBUG, "tls_handshake_failed", "peer", text, "reason", error->text);
    }
}

/* Life. */

struct muster_tls *muster_tls_share(struct muster_tls *tls)
{
    MUSTER_ASSERT(tls->refs > 0);
    tls->refs++;
    return tls;
}

bool muster_tls_is_shared(const struct muster_tls *tls)
{
    return tls->refs > 1;
}

void muster_tls_close(struct muster_tls *tls)
{
    if (tls == NULL)
        return;
    MUSTER_ASSERT(tls->refs > 0);
    if (--tls->refs > 0)
        return;
    muster_timer_stop(&tls->reload_timer);
    muster_tls_context_free(tls->context);
    options_free(tls);
    muster_mem_free(tls->env->mem, tls);
}

enum muster_rc muster_tls_open(struct muster_env *env, const struct muster_tls_options *options,
                               struct muster_tls **ret_tls, struct muster_error *ret_error)
{
    static const struct muster_tls_options none = {0};

    if (options == NULL)
        options = &none;
    struct loaded loaded = {.cert = NULL};
    struct muster_tls *tls;
    enum muster_rc rc = options_check(options, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    tls = muster_mem_alloc_zero(env->mem, 1, sizeof(*tls));
    if (tls == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "TLS: no memory");
    tls->env = env;
    tls->refs = 1;
    tls->reload_interval_ns =
        options->reload_interval_ns != 0 ? options->reload_interval_ns : RELOAD_INTERVAL_NS;
    muster_timer_init(&tls->reload_timer, on_reload_due, tls);
    rc = options_copy(tls, options);
    if (rc != MUSTER_OK)
        (void)muster_error_set(ret_error, rc, "TLS: no memory");
    if (rc == MUSTER_OK)
        rc = load_files(tls, &loaded, ret_error);
    if (rc == MUSTER_OK)
        rc = replace_context(tls, &loaded, ret_error);
    loaded_fini(&loaded, env->mem);
    if (rc != MUSTER_OK) {
        muster_tls_close(tls);
        return rc;
    }
    timer_start(tls);
    *ret_tls = tls;
    return MUSTER_OK;
}

uint64_t muster_tls_expires_s(const struct muster_tls *tls)
{
    return muster_tls_context_expires_s(tls->context);
}
