/* Credentials of a file: the exchange of what it holds for a token, and of that for another
 * account's. net/http/credentials.c asks by the table of operations and caches the token; one fetch
 * runs at a time, so the request's texts are fields. Secrets are overwritten as soon as their
 * request is over. */
#include "net/auth/credentials_exchange.h"

#include <stdio.h>
#include <string.h>

#include "net/stream/base64.h"
#include "net/auth/credentials_file.h"
#include "net/http/credentials_internal.h"
#include "net/auth/credentials_jwt.h"
#include "net/http/failure.h"
#include "net/http/url.h"
#include "runtime/loop/deadline.h"
#include "runtime/value/text.h"

/* An answer holds a token or an error, some KiB at most. */
#define ANSWER_BYTES_MAX (256u << 10)
/* The caller's deadline bounds all of them. */
#define ATTEMPTS_MAX      3
#define GRANT_JWT         "urn:ietf:params:oauth:grant-type:jwt-bearer"
#define GRANT_EXCHANGE    "urn:ietf:params:oauth:grant-type:token-exchange"
#define ACCESS_TOKEN_TYPE "urn:ietf:params:oauth:token-type:access_token"
#define FORM_TYPE         "application/x-www-form-urlencoded"

struct exchange {
    struct muster_credentials credentials;
    struct muster_credentials_file file;
    struct muster_http_tls tls;
    struct muster_http_call call;
    struct muster_http_header headers[2];
    char *scope;
    char *ca_file;         /* or NULL */
    char *body;            /* of the request that runs */
    char *proof;           /* the secret in it: assertion or subject token */
    char *authorization;   /* header of the request that runs */
    bool is_impersonating; /* the second request runs */
};

static void secret_forget(struct exchange *exchange, char **secret)
{
    if (*secret != NULL)
        explicit_bzero(*secret, strlen(*secret));
    muster_mem_free(exchange->credentials.env->mem, *secret);
    *secret = NULL;
}

static void forget_request(struct exchange *exchange)
{
    secret_forget(exchange, &exchange->body);
    secret_forget(exchange, &exchange->proof);
    secret_forget(exchange, &exchange->authorization);
}

/* has_asked: the failure is the token server's, and the words say what to do about it. Everything
 * of the request is forgotten before the owner hears of it, because it may fetch again at once. */
static void exchange_fail(struct exchange *exchange, enum muster_rc rc, const char *detail,
                          bool has_asked)
{
    static const struct muster_http_remedies remedies = {
        .missing = "is token_uri a token server?",
        .untrusted = "renew it, or name its authority in SSL_CERT_FILE",
        .unreachable = "check the network and token_uri",
        .malformed = "is token_uri a token server?",
    };
    struct muster_error error;

    (void)muster_error_set(&error, rc, "%s: %s", exchange->credentials.text, detail);
    if (has_asked)
        muster_http_failure_explain(&exchange->call, &remedies, &error);
    forget_request(exchange);
    muster_credentials_failed(&exchange->credentials, &error);
}

/* Forms (RFC 6749 appendix B). */

static void add_field(struct muster_text *form, const char *name, const char *value)
{
    if (value == NULL)
        return;
    if (form->count > 0)
        muster_text_add(form, "&", 1);
    muster_text_add_string(form, name);
    muster_text_add(form, "=", 1);
    muster_http_url_add_encoded(form, value, "");
}

/* RFC 7523 2.1: the account signs for itself. The time is the wall clock's, which the token server
 * compares with its own. */
static enum muster_rc add_assertion(struct exchange *exchange, struct muster_text *form,
                                    struct muster_error *ret_error)
{
    struct muster_env *env = exchange->credentials.env;
    const struct muster_credentials_file *file = &exchange->file;
    const struct muster_jwt jwt = {
        .issuer = file->client_email,
        .scope = exchange->scope,
        .audience = file->token_url,
        .key_id = file->private_key_id,
        .key_pem = file->private_key,
        .wall_ns = muster_host_wall_ns(env->host),
    };
    enum muster_rc rc = muster_jwt_sign(&jwt, env->mem, &exchange->proof, ret_error);

    add_field(form, "grant_type", GRANT_JWT);
    add_field(form, "assertion", exchange->proof);
    return rc;
}

/* The file is read at each fetch, because another program renews it. */
static enum muster_rc read_subject(struct exchange *exchange, struct muster_error *ret_error)
{
    struct muster_env *env = exchange->credentials.env;
    const char *path = exchange->file.subject_file;
    const char *token = NULL;
    struct muster_error detail = {.text = ""};
    struct muster_json *root = NULL;
    char *text = NULL;
    size_t bytes = 0;
    enum muster_rc rc = muster_files_read(env->files, env->mem, path,
                                          MUSTER_CREDENTIALS_FILE_BYTES_MAX, &text, &bytes);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "subject token file %s: %s", path,
                                muster_rc_text(rc));
    rc = muster_subject_token_read(&exchange->file, text, bytes, &root, &token, &detail);
    if (rc == MUSTER_OK) {
        exchange->proof = muster_mem_strdup(env->mem, token);
        rc = exchange->proof != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
    } else {
        (void)muster_error_set(ret_error, rc, "subject token file %s: %s", path, detail.text);
    }
    muster_json_free(root);
    explicit_bzero(text, bytes);
    muster_mem_free(env->mem, text);
    return rc;
}

/* RFC 8693 2.1: a token of another party is exchanged. When another account is impersonated
 * afterwards, the first token only has to allow that, so it has the default scope. */
static enum muster_rc add_subject(struct exchange *exchange, struct muster_text *form,
                                  struct muster_error *ret_error)
{
    const struct muster_credentials_file *file = &exchange->file;
    enum muster_rc rc = read_subject(exchange, ret_error);

    add_field(form, "grant_type", GRANT_EXCHANGE);
    add_field(form, "audience", file->audience);
    add_field(form, "scope",
              file->impersonation_url != NULL ? MUSTER_SCOPE_DEFAULT : exchange->scope);
    add_field(form, "requested_token_type", ACCESS_TOKEN_TYPE);
    add_field(form, "subject_token", exchange->proof);
    add_field(form, "subject_token_type", file->subject_token_type);
    return rc;
}

static enum muster_rc fill_form(struct exchange *exchange, struct muster_text *form,
                                struct muster_error *ret_error)
{
    const struct muster_credentials_file *file = &exchange->file;

    switch (file->kind) {
    case MUSTER_CREDENTIALS_SERVICE_ACCOUNT:
        return add_assertion(exchange, form, ret_error);
    case MUSTER_CREDENTIALS_EXTERNAL_ACCOUNT:
        return add_subject(exchange, form, ret_error);
    default:
        add_field(form, "grant_type", "refresh_token");
        add_field(form, "client_id", file->client_id);
        add_field(form, "client_secret", file->client_secret);
        add_field(form, "refresh_token", file->refresh_token);
        return MUSTER_OK;
    }
}

/* "Basic base64(id:secret)": how an external account's client shows itself (RFC 6749 2.3.1). */
static char *basic_of(struct muster_mem *mem, const char *id, const char *secret)
{
    size_t size = strlen(id) + 1 + strlen(secret);
    char *plain = muster_mem_alloc(mem, size + 1);
    char *text = muster_mem_alloc(mem, sizeof("Basic ") + muster_base64_encoded_bytes(size) + 3);
    size_t count;

    if (plain == NULL || text == NULL) {
        muster_mem_free(mem, plain);
        muster_mem_free(mem, text);
        return NULL;
    }
    (void)stpcpy(stpcpy(stpcpy(plain, id), ":"), secret);
    count = (size_t)(stpcpy(text, "Basic ") - text);
    count += muster_base64_encode(plain, size, text + count);
    /* HTTP's Basic wants padded base64 (RFC 7617), which muster_base64_encode leaves out. */
    for (size_t i = size; i % 3 != 0; i++)
        text[count++] = '=';
    text[count] = '\0';
    explicit_bzero(plain, size);
    muster_mem_free(mem, plain);
    return text;
}

/* Requests. */

static void on_call(struct muster_http_call *call, enum muster_rc rc);

static void exchange_send(struct exchange *exchange, const char *url, const char *content_type,
                          uint64_t deadline_ns)
{
    struct muster_http_request *request = &exchange->call.request;

    exchange->headers[0] =
        (struct muster_http_header){.name = "Content-Type", .value = content_type};
    exchange->headers[1] =
        (struct muster_http_header){.name = "Authorization", .value = exchange->authorization};
    request->method = "POST";
    request->url = url;
    request->headers = exchange->headers;
    request->header_count = exchange->authorization != NULL ? 2 : 1;
    request->body = exchange->body;
    request->body_bytes = strlen(exchange->body);
    request->deadline_ns = muster_deadline_inherit(exchange->credentials.env->loop, deadline_ns);
    if (muster_http_call_start(&exchange->call, exchange->credentials.env, on_call) != MUSTER_OK)
        exchange_fail(exchange, request->error.rc, request->error.text, false);
}

static void exchange_fetch(struct muster_credentials *credentials, uint64_t deadline_ns)
{
    struct exchange *exchange = MUSTER_CONTAINER_OF(credentials, struct exchange, credentials);
    const struct muster_credentials_file *file = &exchange->file;
    struct muster_mem *mem = credentials->env->mem;
    struct muster_error error = {.text = "no memory"};
    struct muster_text form;
    size_t count;
    enum muster_rc rc;

    MUSTER_ASSERT(exchange->body == NULL && exchange->authorization == NULL);
    muster_text_init(&form, mem);
    rc = fill_form(exchange, &form, &error);
    if (rc == MUSTER_OK)
        rc = muster_text_take(&form, &exchange->body, &count);
    muster_text_fini(&form);
    if (rc == MUSTER_OK && file->kind == MUSTER_CREDENTIALS_EXTERNAL_ACCOUNT &&
        file->client_id != NULL && file->client_secret != NULL) {
        exchange->authorization = basic_of(mem, file->client_id, file->client_secret);
        rc = exchange->authorization != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
    }
    if (rc != MUSTER_OK) {
        exchange_fail(exchange, rc, error.text, false);
        return;
    }
    exchange->is_impersonating = false;
    exchange_send(exchange, file->token_url, FORM_TYPE, deadline_ns);
}

static void exchange_cancel(struct muster_credentials *credentials)
{
    struct exchange *exchange = MUSTER_CONTAINER_OF(credentials, struct exchange, credentials);

    muster_http_call_cancel(&exchange->call);
}

/* {"scope": [...], "lifetime": "3600s", "delegates": [...]} */
static enum muster_rc make_impersonation_body(struct exchange *exchange)
{
    const struct muster_credentials_file *file = &exchange->file;
    struct muster_text text;
    size_t count;
    enum muster_rc rc;

    muster_text_init(&text, exchange->credentials.env->mem);
    muster_text_add_string(&text, "{\"scope\":[");
    muster_text_add_json(&text, exchange->scope);
    muster_text_add_format(&text, "],\"lifetime\":\"%llds\",\"delegates\":[",
                           (long long)file->impersonation_s);
    for (size_t i = 0; i < muster_json_count(file->delegates); i++) {
        muster_text_add_string(&text, i > 0 ? "," : "");
        muster_text_add_json(&text, muster_json_text(muster_json_at(file->delegates, i)));
    }
    muster_text_add_string(&text, "]}");
    rc = muster_text_take(&text, &exchange->body, &count);
    muster_text_fini(&text);
    return rc;
}

static void exchange_impersonate(struct exchange *exchange, const char *token)
{
    struct muster_mem *mem = exchange->credentials.env->mem;
    size_t room = sizeof("Bearer ") + strlen(token);

    /* The first request's secrets go before the second is made from its answer. */
    MUSTER_ASSERT(!exchange->is_impersonating);
    forget_request(exchange);
    exchange->authorization = muster_mem_alloc(mem, room);
    if (exchange->authorization == NULL || make_impersonation_body(exchange) != MUSTER_OK) {
        if (exchange->authorization != NULL)
            /* The text was never written, but forgetting it measures its length. */
            exchange->authorization[0] = '\0';
        exchange_fail(exchange, MUSTER_RESOURCE_EXHAUSTED, "no memory", false);
        return;
    }
    snprintf(exchange->authorization, room, "Bearer %s", token);
    exchange->is_impersonating = true;
    exchange_send(exchange, exchange->file.impersonation_url, "application/json",
                  exchange->call.request.deadline_ns);
}

static const char *remedy_of(const struct exchange *exchange)
{
    if (exchange->is_impersonating)
        return "may it impersonate that account (roles/iam.serviceAccountTokenCreator)?";
    switch (exchange->file.kind) {
    case MUSTER_CREDENTIALS_SERVICE_ACCOUNT:
        return "is the key deleted, or this clock wrong?";
    case MUSTER_CREDENTIALS_AUTHORIZED_USER:
        return "run gcloud auth application-default login";
    default:
        return "does the pool's provider accept this subject token and audience?";
    }
}

/* A token server's answer may quote the request, and goes into an error's text. */
static void hide_secrets(struct exchange *exchange)
{
    char *answer = exchange->call.request.answer_text;

    if (answer == NULL)
        return;
    muster_http_redact_secret(answer, exchange->proof);
    muster_http_redact_secret(answer, exchange->file.client_secret);
    muster_http_redact_secret(answer, exchange->file.refresh_token);
}

/* 400 and 401 are how token servers say that they do not believe us (RFC 6749 5.2); what the user
 * can do then depends on the kind of file. */
static void exchange_refuse(struct exchange *exchange)
{
    const struct muster_http_request *request = &exchange->call.request;
    struct muster_error error = {.text = ""};
    bool is_told = request->status == 400 || request->status == 401 || request->status == 403;
    char text[MUSTER_ERROR_TEXT_BYTES * 2];
    enum muster_rc rc;

    hide_secrets(exchange);
    rc = muster_http_check(request, &error);
    if (request->status == 400)
        rc = MUSTER_UNAUTHENTICATED;
    if (is_told)
        snprintf(text, sizeof(text), "%.110s; %s", error.text, remedy_of(exchange));
    else
        snprintf(text, sizeof(text), "%s", error.text);
    exchange_fail(exchange, rc, text, !is_told);
}

static void on_call(struct muster_http_call *call, enum muster_rc rc)
{
    struct exchange *exchange = call->data;
    const struct muster_http_request *request = &call->request;
    struct muster_env *env = exchange->credentials.env;
    struct muster_json *root = NULL;
    struct muster_error error = request->error;
    const char *token = NULL;
    uint64_t lifetime_ns = 0;

    if (rc == MUSTER_OK && muster_http_status_rc(request->status) != MUSTER_OK) {
        exchange_refuse(exchange);
        return;
    }
    if (rc == MUSTER_OK &&
        muster_json_parse(request->answer, request->answer_bytes, &root, NULL) != MUSTER_OK)
        rc = muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                              "the token server's answer is not JSON");
    if (rc == MUSTER_OK)
        rc = muster_token_answer_read(root, muster_host_wall_ns(env->host), &token, &lifetime_ns,
                                      &error);
    if (rc != MUSTER_OK) {
        exchange_fail(exchange, rc, error.text, true);
    } else if (exchange->file.impersonation_url != NULL && !exchange->is_impersonating) {
        exchange_impersonate(exchange, token);
    } else {
        forget_request(exchange);
        muster_credentials_fetched(&exchange->credentials, token, lifetime_ns);
    }
    muster_json_free(root);
}

/* Life. */

static void exchange_free(struct muster_credentials *credentials)
{
    struct exchange *exchange = MUSTER_CONTAINER_OF(credentials, struct exchange, credentials);
    struct muster_mem *mem = credentials->env->mem;

    muster_http_call_fini(&exchange->call);
    forget_request(exchange);
    muster_json_free(exchange->file.root);
    muster_mem_free(mem, exchange->scope);
    muster_mem_free(mem, exchange->ca_file);
    muster_credentials_fini(credentials);
    muster_mem_free(mem, exchange);
}

static void exchange_name(struct exchange *exchange, const char *path, const char *origin)
{
    const struct muster_credentials_file *file = &exchange->file;
    const char *kind = "user";

    if (file->kind == MUSTER_CREDENTIALS_SERVICE_ACCOUNT)
        kind = "service account";
    else if (file->kind == MUSTER_CREDENTIALS_EXTERNAL_ACCOUNT)
        kind = "external account";
    snprintf(exchange->credentials.text, sizeof(exchange->credentials.text),
             "%s%s%.48s from %.64s%s", kind, file->client_email != NULL ? " " : "",
             file->client_email != NULL ? file->client_email : "", path, origin);
}

static bool copy_texts(struct exchange *exchange, const struct muster_credentials_options *options)
{
    struct muster_mem *mem = exchange->credentials.env->mem;
    const char *project = exchange->file.project;

    exchange->scope = muster_mem_strdup(
        mem, options != NULL && options->scope != NULL ? options->scope : MUSTER_SCOPE_DEFAULT);
    if (options != NULL && options->ca_file != NULL) {
        exchange->ca_file = muster_mem_strdup(mem, options->ca_file);
        exchange->tls.ca_file = exchange->ca_file;
        if (exchange->ca_file == NULL)
            return false;
    }
    if (project != NULL) {
        exchange->credentials.project = muster_mem_strdup(mem, project);
        if (exchange->credentials.project == NULL)
            return false;
    }
    return exchange->scope != NULL;
}

enum muster_rc muster_credentials_exchange_open(struct muster_env *env, const char *path,
                                                const char *origin,
                                                struct muster_credentials_file *file,
                                                const struct muster_credentials_options *options,
                                                struct muster_credentials **ret_credentials)
{
    static const struct muster_credentials_ops ops = {
        .fetch = exchange_fetch, .cancel = exchange_cancel, .free = exchange_free};
    struct exchange *exchange = muster_mem_alloc_zero(env->mem, 1, sizeof(*exchange));

    if (exchange == NULL) {
        muster_json_free(file->root);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    muster_credentials_init(&exchange->credentials, env, &ops);
    exchange->file = *file;
    muster_http_call_init(&exchange->call, exchange);
    /* Asking for a token twice does no harm, so a failed POST may be sent again. */
    exchange->call.is_idempotent = true;
    exchange->call.retry.attempts_max = ATTEMPTS_MAX;
    exchange->call.request.source = "credentials";
    exchange->call.request.has_credentials = true;
    exchange->call.request.response_bytes_max = ANSWER_BYTES_MAX;
    exchange->call.request.tls = &exchange->tls;
    if (!copy_texts(exchange, options)) {
        exchange_free(&exchange->credentials);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    exchange_name(exchange, path, origin);
    *ret_credentials = &exchange->credentials;
    return MUSTER_OK;
}
