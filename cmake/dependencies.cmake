# Debian 12 packages; tools/install-dependencies installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
foreach(pair event:libevent_core event_http:libevent event_pthreads:libevent_pthreads jansson:jansson xxhash:libxxhash
        protobuf_c:libprotobuf-c nghttp2:libnghttp2 openssl:openssl curl:libcurl zlib:zlib cares:libcares
        yaml:yaml-0.1 sqlite:sqlite3)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 name)
  list(GET pair 1 module)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
endforeach()
find_program(PROTOC protoc REQUIRED)
find_program(PROTOC_GEN_C NAMES protoc-gen-c REQUIRED)
