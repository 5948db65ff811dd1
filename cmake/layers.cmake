# muster_layer(NAME DEPENDS lower… LIBS …): the static library of one folder. The link graph is the include rule.
set(MUSTER_LAYERS "" CACHE INTERNAL "")
set(MUSTER_LAYER_KIND STATIC)
if(MUSTER_MUTATE)
  set(MUSTER_LAYER_KIND SHARED)
endif()

# What tests/tools/mutate puts faults into tells which lines a test reaches.
function(muster_instrument target)
  if(MUSTER_MUTATE)
    target_compile_options(${target} PRIVATE --coverage)
    target_link_options(${target} PRIVATE --coverage)
  endif()
endfunction()

function(muster_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${name}/*.c)
  set(depends ${arg_DEPENDS})
  list(TRANSFORM depends PREPEND muster_)
  if(sources)
    add_library(muster_${name} ${MUSTER_LAYER_KIND} ${sources})
    muster_instrument(muster_${name})
    target_include_directories(muster_${name} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(muster_${name} PRIVATE muster_flags PUBLIC ${depends} ${arg_LIBS})
    set(MUSTER_LAYERS ${MUSTER_LAYERS} muster_${name} CACHE INTERNAL "")
  else()
    add_library(muster_${name} INTERFACE)
    target_link_libraries(muster_${name} INTERFACE ${depends} ${arg_LIBS})
  endif()
endfunction()

# A static library of what protoc-c makes of .proto files, in gen/; root is the folder that their names are relative to.
function(muster_message_library library root)
  set(out ${CMAKE_BINARY_DIR}/gen)
  set(generated "")
  foreach(proto ${ARGN})
    cmake_path(RELATIVE_PATH proto BASE_DIRECTORY ${root} OUTPUT_VARIABLE stem)
    string(REGEX REPLACE "\\.proto$" "" stem ${out}/${stem})
    cmake_path(GET stem PARENT_PATH folder)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(
      OUTPUT ${stem}.pb-c.c ${stem}.pb-c.h
      COMMAND ${PROTOC} --plugin=protoc-gen-c=${PROTOC_GEN_C} --proto_path=${root} --c_out=${out} ${proto}
      DEPENDS ${proto}
      VERBATIM)
    list(APPEND generated ${stem}.pb-c.c)
  endforeach()
  add_library(${library} ${MUSTER_LAYER_KIND} ${generated})
  target_include_directories(${library} SYSTEM PUBLIC ${out})
  target_link_libraries(${library} PUBLIC PkgConfig::protobuf_c)
  set(MUSTER_LAYERS ${MUSTER_LAYERS} ${library} CACHE INTERNAL "")
endfunction()

# proto/: our guard code, the messages of proto/*.proto (without the use of protobuf-c's service tables), and the well-known types
# of protobuf, whose symbols users call.
function(muster_proto_layer)
  file(GLOB protos CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/*.proto)
  file(GLOB well_known CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/google/protobuf/*.proto)
  muster_layer(proto DEPENDS runtime LIBS PkgConfig::protobuf_c)
  muster_message_library(muster_messages ${CMAKE_SOURCE_DIR} ${protos})
  muster_message_library(muster_well_known ${CMAKE_SOURCE_DIR}/proto ${well_known})
  set_target_properties(muster_well_known PROPERTIES C_VISIBILITY_PRESET default)
  target_link_libraries(muster_proto PUBLIC muster_messages muster_well_known)
endfunction()

# libmuster.a and libmuster.so of all layers; muster_all for whoever links the layers (tests).
function(muster_join)
  set(objects "")
  foreach(layer ${MUSTER_LAYERS})
    list(APPEND objects $<TARGET_OBJECTS:${layer}>)
  endforeach()
  set(external PkgConfig::event PkgConfig::event_http PkgConfig::event_pthreads PkgConfig::jansson PkgConfig::xxhash
      PkgConfig::protobuf_c PkgConfig::nghttp2 PkgConfig::openssl PkgConfig::curl PkgConfig::zlib PkgConfig::cares
      PkgConfig::yaml PkgConfig::sqlite PkgConfig::zstd Threads::Threads m)
  foreach(kind STATIC SHARED)
    string(TOLOWER muster_${kind} target)
    if(MUSTER_MUTATE) # nothing holds a second copy of a folder
      add_library(${target} INTERFACE)
      target_link_libraries(${target} INTERFACE muster_training)
      target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/include)
      continue()
    endif()
    add_library(${target} ${kind} ${objects})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME muster VERSION ${PROJECT_VERSION}
                          SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C)
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                               $<INSTALL_INTERFACE:include>)
    target_link_libraries(${target} PRIVATE ${external})
  endforeach()
  add_library(muster_all INTERFACE)
  target_link_libraries(muster_all INTERFACE muster_training)
endfunction()
