fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = std::env::var("ECHO_PROTO")?;
    let folder = std::path::Path::new(&proto).parent().unwrap().to_path_buf();
    println!("cargo:rerun-if-env-changed=ECHO_PROTO");
    tonic_prost_build::configure().build_client(false).compile_protos(&[proto.into()], &[folder])?;
    Ok(())
}
