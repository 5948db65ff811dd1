/* Sockets keep the contract of stream.h: TCP and unix; so does TLS over them. */
#include "tests/lib/stream_contract.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/lib/test_env.h"
#include "tests/lib/tls_net.h"

static struct test_env test;
static struct muster_address address;
static struct tls_net tls_net;

static void turn_loop(struct stream_contract *contract)
{
    muster_loop_turn(contract->env->loop, 0);
}

static void open_contract(struct stream_contract *contract)
{
    test_env_open(&test);
    assert_int_equal(muster_net_system_open(&test.env, &test.env.net), MUSTER_OK);
    *contract = (struct stream_contract){
        .env = &test.env,
        .address = address,
        .turn = turn_loop,
    };
}

static void open_prompt(struct stream_contract *contract)
{
    open_contract(contract);
    contract->is_prompt = true;
}

static void close_contract(struct stream_contract *contract)
{
    (void)contract;
    muster_net_system_close(test.env.net);
    test_env_close(&test);
}

static void open_secured(struct stream_contract *contract)
{
    open_contract(contract);
    tls_net_init(&tls_net, &test.env);
}

static void close_secured(struct stream_contract *contract)
{
    tls_net_fini(&tls_net);
    close_contract(contract);
}

int main(void)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    int failed_count;

    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    failed_count = stream_contract_run("tcp", open_contract, close_contract);
    failed_count += stream_contract_run("tcp, prompt", open_prompt, close_contract);
    snprintf(text, sizeof(text), "unix:@muster-stream-contract-%d", (int)getpid());
    assert_int_equal(muster_address_parse(text, &address, NULL), MUSTER_OK);
    failed_count += stream_contract_run("unix", open_contract, close_contract);
    failed_count += stream_contract_run("tls over unix", open_secured, close_secured);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    return failed_count + stream_contract_run("tls over tcp", open_secured, close_secured);
}
