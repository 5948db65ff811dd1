/* Everything: for programs that prefer one include. */
#ifndef MUSTER_MUSTER_H
#define MUSTER_MUSTER_H

#include <muster/address.h>
#include <muster/authorization.h>
#include <muster/backend.h>
#include <muster/base.h>
#include <muster/channel.h>
#include <muster/cluster_spec.h>
#include <muster/collective.h>
#include <muster/command.h>
#include <muster/credentials.h>
#include <muster/env.h>
#include <muster/gpu.h>
#include <muster/hash.h>
#include <muster/http.h>
#include <muster/incarnation.h>
#include <muster/json.h>
#include <muster/list.h>
#include <muster/locks.h>
#include <muster/log.h>
#include <muster/loop.h>
#include <muster/mem.h>
#include <muster/metrics.h>
#include <muster/op_id.h>
#include <muster/options.h>
#include <muster/platforms.h>
#include <muster/proto.h>
#include <muster/registry.h>
#include <muster/registry_server.h>
#include <muster/resolver.h>
#include <muster/rpc.h>
#include <muster/runtime.h>
#include <muster/server.h>
#include <muster/static_group.h>
#include <muster/status.h>
#include <muster/strategy.h>
#include <muster/stream.h>
#include <muster/stub.h>
#include <muster/tls.h>
#include <muster/tpu.h>
#include <muster/trace.h>
#include <muster/view.h>

#endif
