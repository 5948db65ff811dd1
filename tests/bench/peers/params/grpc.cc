// muster.params.v1.Params on gRPC C++ (callback API) as most write it: Table, Push and Pull of rows in a hash table, without
// exactly-once, without recovery. usage: params_grpc PORT
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "params.grpc.pb.h"

namespace proto = muster::params::v1;

class Params final : public proto::Params::CallbackService {
    grpc::ServerUnaryReactor *Table(grpc::CallbackServerContext *context, const proto::TableRequest *request,
                                    proto::TableResponse *reply) override
    {
        std::lock_guard<std::mutex> guard(lock);
        elements = request->schema().row_elements();
        *reply->mutable_table()->mutable_schema() = request->schema();
        return finish(context, grpc::Status::OK);
    }
    grpc::ServerUnaryReactor *Push(grpc::CallbackServerContext *context, const proto::PushRequest *request,
                                   proto::PushResponse *reply) override
    {
        std::lock_guard<std::mutex> guard(lock);
        if (request->value_bytes().size() != request->keys_size() * elements * sizeof(float))
            return finish(context, grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "wrong size"));
        const char *from = request->value_bytes().data();
        for (uint64_t key : request->keys()) {
            std::vector<float> &row = rows[key];
            row.resize(elements);
            for (float &value : row) {
                float added;
                std::memcpy(&added, from, sizeof(added));
                value += added;
                from += sizeof(added);
            }
        }
        reply->set_applied(static_cast<uint32_t>(request->keys_size()));
        return finish(context, grpc::Status::OK);
    }
    grpc::ServerUnaryReactor *Pull(grpc::CallbackServerContext *context, const proto::PullRequest *request,
                                   proto::PullResponse *reply) override
    {
        std::lock_guard<std::mutex> guard(lock);
        std::string *bytes = reply->mutable_value_bytes();
        const size_t row_bytes = elements * sizeof(float);
        bytes->resize(request->keys_size() * row_bytes);
        char *to = &(*bytes)[0];
        for (uint64_t key : request->keys()) {
            auto row = rows.find(key);
            if (row != rows.end())
                std::memcpy(to, row->second.data(), row_bytes);
            to += row_bytes;
        }
        reply->set_row_elements(elements);
        return finish(context, grpc::Status::OK);
    }
    static grpc::ServerUnaryReactor *finish(grpc::CallbackServerContext *context, grpc::Status status)
    {
        auto *reactor = context->DefaultReactor();
        reactor->Finish(std::move(status));
        return reactor;
    }

    std::mutex lock;
    std::unordered_map<uint64_t, std::vector<float>> rows;
    uint32_t elements = 16;
};

int main(int argc, char **argv)
{
    Params params;
    int port = 0;
    grpc::ServerBuilder builder;

    builder.AddListeningPort(std::string("127.0.0.1:") + (argc > 1 ? argv[1] : "0"),
                             grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&params);
    auto server = builder.BuildAndStart();
    if (server == nullptr)
        return 1;
    std::printf("listening 127.0.0.1:%d\n", port);
    std::fflush(stdout);
    server->Wait();
}
