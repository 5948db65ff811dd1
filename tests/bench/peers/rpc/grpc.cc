// bench.Echo on gRPC C++, callback API. usage: grpc PORT
#include <cstdio>
#include <cstdlib>
#include <string>

#include <grpcpp/grpcpp.h>

#include "echo.grpc.pb.h"

class Echo final : public bench::Echo::CallbackService {
    grpc::ServerUnaryReactor *Unary(grpc::CallbackServerContext *context, const bench::Msg *request,
                                    bench::Msg *reply) override
    {
        reply->set_payload(request->payload());
        return done(context);
    }
    grpc::ServerUnaryReactor *Up(grpc::CallbackServerContext *context, const bench::Msg *request,
                                 bench::Req *reply) override
    {
        reply->set_size(static_cast<int>(request->payload().size()));
        return done(context);
    }
    grpc::ServerUnaryReactor *Down(grpc::CallbackServerContext *context, const bench::Req *request,
                                   bench::Msg *reply) override
    {
        reply->mutable_payload()->resize(static_cast<size_t>(request->size()));
        return done(context);
    }
    static grpc::ServerUnaryReactor *done(grpc::CallbackServerContext *context)
    {
        auto *reactor = context->DefaultReactor();
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }
};

int main(int argc, char **argv)
{
    Echo echo;
    int port = 0;
    grpc::ServerBuilder builder;

    builder.AddListeningPort(std::string("127.0.0.1:") + (argc > 1 ? argv[1] : "0"),
                             grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(&echo);
    auto server = builder.BuildAndStart();
    if (server == nullptr)
        return 1;
    std::printf("listening 127.0.0.1:%d\n", port);
    std::fflush(stdout);
    server->Wait();
}
