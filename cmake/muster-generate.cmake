# muster_generate(TARGET files.proto… [PROTO_PATH DIR] [OUT DIR] [ONLY_DESCRIPTORS] [NO_MESSAGES]): adds to TARGET what protoc-gen-c and
# protoc-gen-muster make of each file: "NAME.pb-c.h" (messages) and "NAME.muster.h" (stubs of its services), NAME being the
# path below PROTO_PATH (default: the current source folder; each file must be below it). OUT (default: the current build
# folder) becomes an include folder of TARGET. ONLY_DESCRIPTORS makes no stubs and no messages, only what reflection needs; NO_MESSAGES leaves
# the messages to somebody else.
# Of the user: the protobuf-c library is linked by TARGET itself; files that a .proto imports have to be listed as well.
function(muster_generate target)
  cmake_parse_arguments(arg "ONLY_DESCRIPTORS;NO_MESSAGES" "PROTO_PATH;OUT" "" ${ARGN})
  foreach(word ${arg_KEYWORDS_MISSING_VALUES})
    message(FATAL_ERROR "muster_generate: ${word} needs a value")
  endforeach()
  if(NOT arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "muster_generate(${target}): no .proto file is named")
  endif()
  if(NOT arg_PROTO_PATH)
    set(arg_PROTO_PATH ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  if(NOT arg_OUT)
    set(arg_OUT ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  cmake_path(ABSOLUTE_PATH arg_PROTO_PATH BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
  cmake_path(ABSOLUTE_PATH arg_OUT BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} NORMALIZE)
  file(MAKE_DIRECTORY ${arg_OUT})
  find_program(PROTOC protoc REQUIRED)
  find_program(PROTOC_GEN_C protoc-gen-c REQUIRED)
  foreach(proto ${arg_UNPARSED_ARGUMENTS})
    cmake_path(ABSOLUTE_PATH proto NORMALIZE)
    if(NOT proto MATCHES "\\.proto$")
      message(FATAL_ERROR "muster_generate: ${proto} is no .proto file")
    endif()
    cmake_path(IS_PREFIX arg_PROTO_PATH ${proto} is_below)
    if(NOT is_below)
      message(FATAL_ERROR "muster_generate: ${proto} is not below PROTO_PATH (${arg_PROTO_PATH}): name a folder above it")
    endif()
    cmake_path(RELATIVE_PATH proto BASE_DIRECTORY ${arg_PROTO_PATH} OUTPUT_VARIABLE stem)
    string(REGEX REPLACE "\\.proto$" "" stem ${arg_OUT}/${stem})
    set(outputs ${stem}.muster.c ${stem}.muster.h)
    set(messages "")
    set(options "")
    if(arg_ONLY_DESCRIPTORS)
      set(options --muster_opt=only_descriptors)
    elseif(NOT arg_NO_MESSAGES)
      set(messages --plugin=protoc-gen-c=${PROTOC_GEN_C} --c_out=${arg_OUT})
      list(APPEND outputs ${stem}.pb-c.c ${stem}.pb-c.h)
    endif()
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND ${PROTOC} --plugin=protoc-gen-muster=$<TARGET_FILE:muster::protoc-gen-muster> ${messages}
              --muster_out=${arg_OUT} ${options} --proto_path=${arg_PROTO_PATH} ${proto}
      DEPENDS ${proto} muster::protoc-gen-muster
      VERBATIM)
    target_sources(${target} PRIVATE ${outputs})
  endforeach()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${arg_OUT}>)
endfunction()
