#!/usr/bin/env bash
# A program outside the tree builds against the installed library through pkg-config and through find_package, also one that
# has stubs made of its service.
set -euo pipefail
. "$(dirname "$0")/../lib/guard.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

grep -q '^MUSTER_SANITIZE:[A-Z]*=$' "$MUSTER_BINARY_DIR/CMakeCache.txt" || sanitize=$(sed -n 's/^MUSTER_SANITIZE:[A-Z]*=//p' "$MUSTER_BINARY_DIR/CMakeCache.txt")
flags=${sanitize:+-fsanitize=$sanitize}
cmake --install "$MUSTER_BINARY_DIR" --prefix "$work/usr" >/dev/null
cat >"$work/main.c" <<'C'
#include <muster/muster.h>
#include <stdio.h>
int main(void)
{
    struct muster_address address;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    if (muster_address_parse("[::1]:80", &address, NULL) != MUSTER_OK)
        return 1;
    puts(muster_address_format(&address, text));
    return 0;
}
C

export PKG_CONFIG_PATH="$work/usr/lib/pkgconfig:$(echo "$work"/usr/lib/*/pkgconfig)"
# shellcheck disable=SC2046
${CC:-cc} -std=c17 $flags "$work/main.c" $(pkg-config --cflags --libs muster) -o "$work/one"
export LD_LIBRARY_PATH="$work/usr/lib:$(dirname "$(find "$work/usr" -name libmuster.so)")"
[ "$("$work/one")" = "[::1]:80" ] || { echo "program built through pkg-config answered wrongly"; exit 1; }

cat >"$work/greeter.proto" <<'P'
syntax = "proto3";
package greet;
message Name { string name = 1; }
message Greeting { string text = 1; }
service Greeter { rpc Greet(Name) returns (Greeting); }
P
cat >"$work/greeter.c" <<'C'
#include <muster/muster.h>
#include <stdio.h>
#include "greeter.muster.h"

static void on_greet(struct muster_rpc *rpc, const Greet__Name *request)
{
    Greet__Greeting greeting;
    char text[64];

    greet__greeting__init(&greeting);
    snprintf(text, sizeof(text), "hello %s", request->name);
    greeting.text = text;
    (void)greet_greeter_greet_reply(rpc, &greeting);
}

static void on_greeted(struct greet_greeter_greet_call *call, enum muster_rc rc, const Greet__Greeting *response)
{
    puts(rc == MUSTER_OK ? response->text : call->stub.call.status.text);
    muster_loop_stop(call->data);
}

int main(void)
{
    const struct greet_greeter_handlers handlers = {.greet = {.on_request = on_greet}};
    struct muster_call_options options = {0};
    struct greet_greeter_greet_call call = {0};
    struct muster_rpc_server *server;
    struct muster_channel *channel;
    struct muster_address address;
    struct muster_error error;
    struct muster_env *env;
    Greet__Name name;
    char text[MUSTER_ADDRESS_TEXT_BYTES], who[] = "stranger";

    if (muster_env_system_open(NULL, &env) != MUSTER_OK || muster_net_system_open(env, &env->net) != MUSTER_OK ||
        muster_address_parse("127.0.0.1:0", &address, &error) != MUSTER_OK ||
        muster_rpc_server_open(env, NULL, &server) != MUSTER_OK ||
        greet_greeter_service_add(server, &handlers, NULL) != MUSTER_OK ||
        muster_rpc_server_listen(server, &address, &address, &error) != MUSTER_OK ||
        muster_channel_open(env, muster_address_format(&address, text), NULL, &channel, &error) != MUSTER_OK)
        return 1;
    greet__name__init(&name);
    name.name = who;
    call.data = env->loop;
    options.deadline_ns = muster_loop_after_ns(env->loop, 60 * MUSTER_NS_PER_S);
    if (greet_greeter_greet_start(&call, channel, &options, &name, on_greeted) != MUSTER_OK)
        return 1;
    muster_loop_run(env->loop);
    muster_channel_close(channel, NULL);
    muster_rpc_server_close(server, 0, NULL);
    for (int turn = 0; turn < 8; turn++)
        muster_loop_turn(env->loop, 0);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return 0;
}
C
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(muster 0.1 REQUIRED)
add_executable(two main.c)
target_link_libraries(two muster::muster)
add_executable(greeter greeter.c)
muster_generate(greeter greeter.proto)
target_link_libraries(greeter muster::muster protobuf-c)
CMAKE
cmake -S "$work" -B "$work/b" -G Ninja -DCMAKE_PREFIX_PATH="$work/usr" -DCMAKE_C_FLAGS="$flags" >/dev/null
cmake --build "$work/b" >/dev/null
[ "$("$work/b/two")" = "[::1]:80" ] || { echo "program built through find_package answered wrongly"; exit 1; }
[ "$("$work/b/greeter")" = "hello stranger" ] || { echo "the stubs of an installed library answered wrongly"; exit 1; }

# By hand, with a well-known type and an optional field.
cat >"$work/when.proto" <<'P'
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message When { google.protobuf.Timestamp at = 1; optional int32 count = 2; }
P
cat >"$work/when.c" <<'C'
#include "when.pb-c.h"
int main(void)
{
    Google__Protobuf__Timestamp at;
    When when;
    google__protobuf__timestamp__init(&at);
    when__init(&when);
    when.at = &at;
    when.has_count = 1;
    return when__get_packed_size(&when) == 4 ? 0 : 1;
}
C
protoc --plugin="protoc-gen-muster=$work/usr/bin/protoc-gen-muster" --muster_out="$work" --muster_opt=messages \
    -I "$work" -I "$(pkg-config --variable=protodir muster)" "$work/when.proto"
# shellcheck disable=SC2046
${CC:-cc} -std=c17 $flags "$work/when.c" "$work/when.pb-c.c" $(pkg-config --cflags --libs muster) -lprotobuf-c -o "$work/when"
"$work/when" || { echo "well-known types of an installed library answered wrongly"; exit 1; }
echo "installed library works through pkg-config and find_package"
