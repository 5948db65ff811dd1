# muster_layer(NAME DEPENDS lower… LIBS …): the static library of one folder. The link graph is the include rule.
set(MUSTER_LAYERS "" CACHE INTERNAL "")

function(muster_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${name}/*.c)
  set(depends ${arg_DEPENDS})
  list(TRANSFORM depends PREPEND muster_)
  if(sources)
    add_library(muster_${name} STATIC ${sources})
    target_include_directories(muster_${name} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(muster_${name} PRIVATE muster_flags PUBLIC ${depends} ${arg_LIBS})
    set(MUSTER_LAYERS ${MUSTER_LAYERS} muster_${name} CACHE INTERNAL "")
  else()
    add_library(muster_${name} INTERFACE)
    target_link_libraries(muster_${name} INTERFACE ${depends} ${arg_LIBS})
  endif()
endfunction()

# proto/: our guard code plus the code that protoc-c makes of every .proto file (without its service tables' use).
function(muster_proto_layer)
  set(out ${CMAKE_BINARY_DIR}/gen)
  file(MAKE_DIRECTORY ${out}/proto)
  file(GLOB protos CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/*.proto)
  set(generated "")
  foreach(proto ${protos})
    get_filename_component(stem ${proto} NAME_WE)
    add_custom_command(
      OUTPUT ${out}/proto/${stem}.pb-c.c ${out}/proto/${stem}.pb-c.h
      COMMAND ${PROTOC} --plugin=protoc-gen-c=${PROTOC_GEN_C} --proto_path=${CMAKE_SOURCE_DIR}
              --c_out=${out} ${proto}
      DEPENDS ${proto}
      VERBATIM)
    list(APPEND generated ${out}/proto/${stem}.pb-c.c)
  endforeach()
  muster_layer(proto DEPENDS runtime LIBS PkgConfig::protobuf_c)
  if(generated)
    add_library(muster_messages STATIC ${generated})
    target_include_directories(muster_messages SYSTEM PUBLIC ${out})
    target_link_libraries(muster_messages PUBLIC PkgConfig::protobuf_c)
    get_target_property(kind muster_proto TYPE)
    if(kind STREQUAL "INTERFACE_LIBRARY")
      target_link_libraries(muster_proto INTERFACE muster_messages)
    else()
      target_link_libraries(muster_proto PUBLIC muster_messages)
    endif()
    set(MUSTER_LAYERS ${MUSTER_LAYERS} muster_messages CACHE INTERNAL "")
  endif()
endfunction()

# libmuster.a and libmuster.so of all layers; muster_all for whoever links the layers (tests).
function(muster_join)
  set(objects "")
  foreach(layer ${MUSTER_LAYERS})
    list(APPEND objects $<TARGET_OBJECTS:${layer}>)
  endforeach()
  set(external PkgConfig::event PkgConfig::event_http PkgConfig::event_pthreads PkgConfig::jansson PkgConfig::xxhash
      PkgConfig::protobuf_c PkgConfig::nghttp2 PkgConfig::openssl PkgConfig::curl PkgConfig::zlib PkgConfig::cares
      PkgConfig::yaml PkgConfig::sqlite Threads::Threads m)
  foreach(kind STATIC SHARED)
    string(TOLOWER muster_${kind} target)
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
