//! bench.Echo on tonic, one thread. usage: rpc_tonic PORT
use tonic::{Request, Response, Status};

mod bench {
    tonic::include_proto!("bench");
}
use bench::echo_server::{Echo, EchoServer};
use bench::{Msg, Req};

#[derive(Default)]
struct Server;

type Messages = tokio_stream::Empty<Result<Msg, Status>>;

#[tonic::async_trait]
impl Echo for Server {
    type SourceStream = Messages;

    async fn unary(&self, request: Request<Msg>) -> Result<Response<Msg>, Status> {
        Ok(Response::new(request.into_inner()))
    }
    async fn up(&self, request: Request<Msg>) -> Result<Response<Req>, Status> {
        let size = request.into_inner().payload.len() as i32;
        Ok(Response::new(Req { size, count: 1 }))
    }
    async fn down(&self, request: Request<Req>) -> Result<Response<Msg>, Status> {
        let payload = vec![0; request.into_inner().size as usize];
        Ok(Response::new(Msg { payload }))
    }
    async fn sink(&self, _: Request<tonic::Streaming<Msg>>) -> Result<Response<Req>, Status> {
        Err(Status::unimplemented("not measured"))
    }
    async fn source(&self, _: Request<Req>) -> Result<Response<Messages>, Status> {
        Err(Status::unimplemented("not measured"))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).unwrap_or("0".into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = format!("127.0.0.1:{port}").parse()?;
        let incoming = tonic::transport::server::TcpIncoming::bind(address)?.with_nodelay(Some(true));
        println!("listening {}", incoming.local_addr()?);
        let echo = EchoServer::new(Server).max_decoding_message_size(64 << 20);
        tonic::transport::Server::builder()
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20)
            .add_service(echo)
            .serve_with_incoming(incoming)
            .await?;
        Ok(())
    })
}
