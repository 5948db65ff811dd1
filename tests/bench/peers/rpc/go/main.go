// bench.Echo on grpc-go. usage: rpc_go PORT
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"

	"rpc_go/echo"
)

type server struct {
	echo.UnimplementedEchoServer
}

func (server) Unary(_ context.Context, in *echo.Msg) (*echo.Msg, error) {
	return &echo.Msg{Payload: in.Payload}, nil
}

func (server) Up(_ context.Context, in *echo.Msg) (*echo.Req, error) {
	return &echo.Req{Size: int32(len(in.Payload))}, nil
}

func (server) Down(_ context.Context, in *echo.Req) (*echo.Msg, error) {
	return &echo.Msg{Payload: make([]byte, in.Size)}, nil
}

func main() {
	port := "0"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	grpcServer := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.MaxConcurrentStreams(1000))
	echo.RegisterEchoServer(grpcServer, server{})
	fmt.Printf("listening %s\n", listener.Addr())
	if err := grpcServer.Serve(listener); err != nil {
		os.Exit(1)
	}
}
