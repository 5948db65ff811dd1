# Debian 12 packages; tools/install-dependencies installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
foreach(pair event:libevent_core event_http:libevent event_pthreads:libevent_pthreads jansson:jansson xxhash:libxxhash
        protobuf_c:libprotobuf-c nghttp2:libnghttp2 openssl:openssl curl:libcurl zlib:zlib cares:libcares
        yaml:yaml-0.1 sqlite:sqlite3 zstd:libzstd)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 name)
  list(GET pair 1 module)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
endforeach()
find_program(PROTOC protoc REQUIRED)
find_program(PROTOC_GEN_C NAMES protoc-gen-c REQUIRED)

# Security updates of 2023 and 2024 (CVE-2023-44487, CVE-2024-28182) brought these two; Debian 12 and Ubuntu 24.04 have them.
include(CheckSymbolExists)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::nghttp2)
foreach(symbol nghttp2_option_set_stream_reset_rate_limit nghttp2_option_set_max_continuations)
  check_symbol_exists(${symbol} nghttp2/nghttp2.h HAVE_${symbol})
  if(NOT HAVE_${symbol})
    unset(HAVE_${symbol} CACHE) # else the answer would stay after the update
    message(FATAL_ERROR "libnghttp2-dev lacks ${symbol}, which guards against floods: install its security update "
                        "(apt-get update && apt-get install --only-upgrade libnghttp2-dev)")
  endif()
endforeach()
# Libraries for x86-64 have it, unless their distribution has left it out.
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::xxhash)
check_symbol_exists(XXH3_128bits_dispatch xxh_x86dispatch.h HAVE_XXH3_128bits_dispatch)
unset(CMAKE_REQUIRED_LIBRARIES)
