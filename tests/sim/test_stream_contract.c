/* Simulated streams keep the contract of stream.h, in calm and in bad networks; so does TLS over
 * them. */
#include "tests/lib/stream_contract.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "tests/lib/tls_net.h"
#include "tests/sim/world.h"

static struct sim_conditions conditions;
static struct tls_net tls_net;

static void contract_enter(struct stream_contract *contract)
{
    sim_enter(contract->data);
}

static void contract_leave(struct stream_contract *contract)
{
    sim_leave(contract->data);
}

static void contract_turn(struct stream_contract *contract)
{
    (void)sim_step(sim_node_world(contract->data));
}

static void node_start(struct sim_node *node, struct muster_env *env, void *data)
{
    (void)node;
    (void)env;
    (void)data;
}

static void open_contract(struct stream_contract *contract)
{
    struct sim_world *world = sim_world_open(7, &conditions);
    struct sim_host *host = sim_host_add(world, "host");
    struct sim_node *node = sim_node_start(
        world, &(struct sim_node_options){.name = "both", .host = host, .start = node_start});

    (void)sim_step(world);
    contract->data = node;
    contract->env = sim_node_env(node);
    contract->address = sim_host_address(host, 0);
    contract->enter = contract_enter;
    contract->leave = contract_leave;
    contract->turn = contract_turn;
}

static void close_contract(struct stream_contract *contract)
{
    struct sim_node *node = contract->data;
    struct sim_world *world = sim_node_world(node);

    sim_exit(node);
    assert_null(sim_failure(world));
    assert_int_equal(sim_world_close(world), 0);
}

static void open_secured(struct stream_contract *contract)
{
    open_contract(contract);
    sim_enter(contract->data);
    tls_net_init(&tls_net, contract->env);
    sim_leave(contract->data);
}

static void close_secured(struct stream_contract *contract)
{
    sim_enter(contract->data);
    tls_net_fini(&tls_net);
    sim_leave(contract->data);
    close_contract(contract);
}

int main(void)
{
    int failed_count;

    conditions = sim_conditions_calm;
    failed_count = stream_contract_run("calm", open_contract, close_contract);
    failed_count += stream_contract_run("tls, calm", open_secured, close_secured);
    conditions.split_permille = 600;
    conditions.segment_bytes_max = 20000;
    conditions.send_buffer_bytes = 3000;
    conditions.receive_buffer_bytes = 5000;
    conditions.jitter_permille = 900;
    failed_count += stream_contract_run("split", open_contract, close_contract);
    return failed_count + stream_contract_run("tls, split", open_secured, close_secured);
}
