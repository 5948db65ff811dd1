/* interop_client --server_port P --test_case NAME: the client of the official gRPC interop cases.
 * Exit code 0: the case passes. */
#include "interop_client.h"

#include <stdio.h>
#include <string.h>

#include <muster/stream.h>
#include <muster/tls.h>

#include "interop_flags.h"

static const struct interop_case cases[] = {
    {.name = "empty_unary", .run = interop_empty_unary},
    {.name = "large_unary", .run = interop_large_unary},
    {.name = "client_compressed_unary", .run = interop_client_compressed_unary},
    {.name = "server_compressed_unary", .run = interop_server_compressed_unary},
    {.name = "client_streaming", .run = interop_client_streaming},
    {.name = "client_compressed_streaming", .run = interop_client_compressed_streaming},
    {.name = "server_streaming", .run = interop_server_streaming},
    {.name = "server_compressed_streaming", .run = interop_server_compressed_streaming},
    {.name = "ping_pong", .run = interop_ping_pong},
    {.name = "empty_stream", .run = interop_empty_stream},
    {.name = "custom_metadata", .run = interop_custom_metadata},
    {.name = "status_code_and_message", .run = interop_status_code_and_message},
    {.name = "special_status_message", .run = interop_special_status_message},
    {.name = "unimplemented_method", .run = interop_unimplemented_method},
    {.name = "unimplemented_service", .run = interop_unimplemented_service},
    {.name = "cancel_after_begin", .run = interop_cancel_after_begin},
    {.name = "cancel_after_first_response", .run = interop_cancel_after_first_response},
    {.name = "timeout_on_sleeping_server", .run = interop_timeout_on_sleeping_server},
    {.name = "pick_first_unary", .run = interop_pick_first_unary},
    {.name = "very_large_request", .run = interop_very_large_request},
    {.name = "orca_per_rpc", .run = interop_orca_per_rpc},
    {.name = "orca_oob", .run = interop_orca_oob},
    {.name = "rpc_soak", .run = interop_rpc_soak},
    {.name = "channel_soak", .run = interop_channel_soak},
    /* against a strict peer that knows the case */
    {.name = "goaway", .run = interop_goaway},
    {.name = "rst_after_header", .run = interop_reset},
    {.name = "rst_during_data", .run = interop_reset},
    {.name = "rst_after_data", .run = interop_reset},
    {.name = "ping", .run = interop_large_unary},
    {.name = "max_streams", .run = interop_max_streams},
    {.name = "data_frame_padding", .run = interop_large_unary},
    {.name = "no_df_padding_sanity_test", .run = interop_large_unary},
    /* not run */
    {.name = "cacheable_unary", .reason = "gRPC has dropped the GET that it is about"},
    {.name = "compute_engine_creds", .reason = "it needs a machine and an account at Google"},
    {.name = "jwt_token_creds", .reason = "it needs an account at Google"},
    {.name = "oauth2_auth_token", .reason = "it needs an account at Google"},
    {.name = "per_rpc_creds", .reason = "it needs an account at Google"},
    {.name = "google_default_credentials", .reason = "it needs an account at Google"},
    {.name = "compute_engine_channel_credentials", .reason = "it needs a machine at Google"},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

#define AT(field) .offset = offsetof(struct interop_settings, field)

static const struct muster_option rows[] = {
    {.name = "server_host",
     .kind = MUSTER_OPTION_TEXT,
     AT(server_host),
     .fallback = "localhost",
     .value = "HOST",
     .help = "Where the server is."},
    {.name = "server_port",
     .kind = MUSTER_OPTION_NUMBER,
     AT(server_port),
     .fallback = "8080",
     .max = UINT16_MAX,
     .help = "Its port."},
    {.name = "test_case",
     .kind = MUSTER_OPTION_TEXT,
     AT(test_case),
     .fallback = "large_unary",
     .value = "NAME",
     .help = "The case; an unknown name shows all."},
    {.name = "server_host_override",
     .kind = MUSTER_OPTION_TEXT,
     AT(server_host_override),
     .value = "HOST",
     .help = "The server that is asked for: :authority, and the name in its certificate."},
    {.name = "use_tls", .kind = MUSTER_OPTION_FLAG, AT(is_tls), .help = "TLS."},
    {.name = "use_test_ca",
     .kind = MUSTER_OPTION_FLAG,
     AT(is_test_ca),
     .help = "Trust --ca_file, which must be given. It is trusted without this flag, too."},
    {.name = "ca_file",
     .kind = MUSTER_OPTION_TEXT,
     AT(ca_file),
     .value = "FILE",
     .help = "Certificates of the authorities to trust, PEM; without it, the system's."},
    {.name = "use_alts",
     .kind = MUSTER_OPTION_FLAG,
     AT(is_alts),
     .help = "Not spoken: ALTS is for Google's own hosts."},
    {.name = "additional_metadata",
     .kind = MUSTER_OPTION_TEXT,
     AT(additional_metadata),
     .value = "NAME:VALUE;…",
     .help = "Metadata of every call."},
    {.name = "custom_metadata",
     .kind = MUSTER_OPTION_TEXT,
     AT(additional_metadata),
     .value = "NAME:VALUE;…",
     .help = "The same."},
    {.name = "soak_iterations",
     .kind = MUSTER_OPTION_NUMBER,
     AT(soak_iterations),
     .fallback = "10",
     .min = 1,
     .max = 10000000,
     .help = "Calls of a soak case."},
    {.name = "soak_max_failures",
     .kind = MUSTER_OPTION_NUMBER,
     AT(soak_failures_max),
     .fallback = "0",
     .help = "So many of them may fail."},
    {.name = "soak_per_iteration_max_acceptable_latency_ms",
     .kind = MUSTER_OPTION_DURATION,
     AT(soak_latency_max_ns),
     .fallback = "1000",
     .unit = "ms",
     .help = "A call that takes longer has failed."},
    {.name = "soak_overall_timeout_seconds",
     .kind = MUSTER_OPTION_DURATION,
     AT(soak_timeout_ns),
     .fallback = "0",
     .unit = "s",
     .help = "No call begins after so long; 0: as long as all calls may take."},
    {.name = "soak_min_time_ms_between_rpcs",
     .kind = MUSTER_OPTION_DURATION,
     AT(soak_interval_ns),
     .fallback = "0",
     .unit = "ms",
     .help = "From the start of a call to the next one of the same thread."},
    {.name = "soak_request_size",
     .kind = MUSTER_OPTION_NUMBER,
     AT(soak_request_bytes),
     .fallback = "271828",
     .max = INTEROP_RECEIVE_BYTES,
     .help = "Payload bytes of a soak request."},
    {.name = "soak_response_size",
     .kind = MUSTER_OPTION_NUMBER,
     AT(soak_response_bytes),
     .fallback = "314159",
     .max = INTEROP_RECEIVE_BYTES,
     .help = "And of its response."},
    {.name = "soak_num_threads",
     .kind = MUSTER_OPTION_NUMBER,
     AT(soak_thread_count),
     .fallback = "1",
     .min = 1,
     .max = 64,
     .help = "So many calls at a time."},
    {.name = "default_service_account",
     .kind = MUSTER_OPTION_TEXT,
     AT(default_service_account),
     .help = "Not used: for cases in Google's cloud."},
    {.name = "oauth_scope",
     .kind = MUSTER_OPTION_TEXT,
     AT(oauth_scope),
     .help = "Not used: for cases in Google's cloud."},
    {.name = "service_account_key_file",
     .kind = MUSTER_OPTION_TEXT,
     AT(service_account_key_file),
     .help = "Not used: for cases in Google's cloud."},
    {.name = "service_config_json",
     .kind = MUSTER_OPTION_TEXT,
     AT(service_config_json),
     .help = "Not used: no case here needs a service config."},
};

static const struct muster_options options = {
    .command = "interop_client",
    .usage = "--server_port P --test_case NAME",
    .about = "Run one of the official gRPC interop cases against a server.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static void on_closed(struct muster_channel *channel)
{
    *(bool *)muster_channel_data(channel) = true;
}

void interop_channel_close(struct interop_client *client, struct muster_channel *channel)
{
    bool is_closed = false;

    if (channel == NULL)
        return;
    muster_channel_set_data(channel, &is_closed);
    muster_channel_close(channel, on_closed);
    while (!is_closed)
        muster_loop_turn(client->env->loop, UINT64_MAX);
}

struct muster_channel *interop_channel_open(struct interop_client *client)
{
    const struct interop_settings *settings = client->settings;
    const struct muster_channel_options channel_options = {
        .authority = settings->server_host_override,
        .receive_message_max_bytes = INTEROP_RECEIVE_BYTES,
        .tls = client->tls,
        .tls_server_name = settings->server_host_override};
    struct muster_channel *channel = NULL;
    struct muster_error error;
    char target[MUSTER_HOST_TEXT_BYTES + 8];

    (void)snprintf(target, sizeof(target), "%s:%u", settings->server_host,
                   (unsigned)settings->server_port);
    if (muster_channel_open(client->env, target, &channel_options, &channel, &error) != MUSTER_OK)
        (void)interop_check(client, false, "%s: %s", target, error.text);
    return channel;
}

/* "name:value;name:value" into entries. */
static bool take_metadata(struct interop_client *client, const char *text)
{
    char *at = client->additional_text;

    if (!interop_check(client, strlen(text) < sizeof(client->additional_text),
                       "--additional_metadata: more than %zu characters",
                       sizeof(client->additional_text) - 1))
        return false;
    memcpy(at, text, strlen(text) + 1);
    for (char *pair = strsep(&at, ";"); pair != NULL; pair = strsep(&at, ";")) {
        struct muster_metadata_entry *entry = &client->additional[client->additional_count];
        char *colon = strchr(pair, ':');

        if (!interop_check(client, colon != NULL, "--additional_metadata: '%s' has no ':'", pair) ||
            !interop_check(client, client->additional_count < INTEROP_ADDITIONAL_MAX,
                           "--additional_metadata: more than %d entries", INTEROP_ADDITIONAL_MAX))
            return false;
        *colon = '\0';
        *entry = (struct muster_metadata_entry){
            .name = pair, .value = colon + 1, .value_bytes = strlen(colon + 1)};
        client->additional_count++;
    }
    return true;
}

static const struct interop_case *find_case(const char *name)
{
    for (size_t i = 0; i < CASES; i++) {
        if (strcmp(cases[i].name, name) == 0)
            return &cases[i];
    }
    fprintf(stderr, "interop_client: --test_case %s: no such case; there are:\n", name);
    for (size_t i = 0; i < CASES; i++)
        fprintf(stderr, "%s%s%s\n", cases[i].name, cases[i].run == NULL ? " - not run: " : "",
                cases[i].run == NULL ? cases[i].reason : "");
    return NULL;
}

static bool open_tls(struct interop_client *client)
{
    const struct interop_settings *settings = client->settings;
    const struct muster_tls_options tls_options = {.ca_file = settings->ca_file};
    struct muster_error error = {.text = ""};

    if (!interop_check(client, !settings->is_alts, "--use_alts: not spoken here; leave it out") ||
        !interop_check(client, !settings->is_test_ca || settings->ca_file != NULL,
                       "--use_test_ca needs --ca_file: no authority comes with this program"))
        return false;
    return !settings->is_tls || interop_check(client,
                                              muster_tls_open(client->env, &tls_options,
                                                              &client->tls, &error) == MUSTER_OK,
                                              "--ca_file: %s", error.text);
}

static int run_case(struct interop_client *client, const struct interop_case *wanted)
{
    const struct interop_settings *settings = client->settings;
    bool is_right = interop_check(client, wanted->run != NULL, "not run: %s", wanted->reason) &&
                    open_tls(client) &&
                    (settings->additional_metadata == NULL ||
                     take_metadata(client, settings->additional_metadata));

    if (is_right)
        client->channel = interop_channel_open(client);
    is_right = is_right && client->channel != NULL && wanted->run(client);
    interop_channel_close(client, client->channel);
    muster_tls_close(client->tls);
    if (is_right && client->failure[0] == '\0') {
        printf("%s: passed\n", wanted->name);
        return 0;
    }
    fprintf(stderr, "%s: %s\n", wanted->name, client->failure);
    return 1;
}

int main(int argc, char **argv)
{
    struct interop_settings settings = {.server_host = NULL};
    struct interop_client client = {.settings = &settings};
    const struct interop_case *wanted;
    int code = 1;
    enum muster_rc rc;

    if (!interop_flags_parse(&options, argc, argv, &settings, &code))
        return code;
    wanted = find_case(settings.test_case);
    if (wanted == NULL)
        return 2;
    code = 1;
    rc = muster_env_system_open(NULL, &client.env);
    if (rc == MUSTER_OK)
        rc = muster_net_system_open(client.env, &client.env->net);
    if (rc == MUSTER_OK) {
        code = run_case(&client, wanted);
        muster_net_system_close(client.env->net);
    } else {
        fprintf(stderr, "interop_client: no event loop: %s\n", muster_rc_text(rc));
    }
    muster_env_system_close(client.env);
    return code;
}
