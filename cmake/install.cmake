# cmake --install: headers, libraries, the command, a pkg-config file, a CMake package.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/muster DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The well-known types of protobuf: for protoc --proto_path, and as headers.
set(MUSTER_INSTALL_PROTODIR ${CMAKE_INSTALL_INCLUDEDIR}/muster-proto)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/proto/google ${CMAKE_BINARY_DIR}/gen/google DESTINATION ${MUSTER_INSTALL_PROTODIR}
        FILES_MATCHING PATTERN "*.proto" PATTERN "*.pb-c.h")
install(TARGETS muster_static muster_shared
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

# Relative, so that an installed tree can be moved.
file(RELATIVE_PATH MUSTER_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_SOURCE_DIR}/cmake/muster.pc.in ${CMAKE_BINARY_DIR}/muster.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/muster.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/muster)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/muster-config.cmake.in
                              ${CMAKE_BINARY_DIR}/muster-config.cmake INSTALL_DESTINATION ${package_dir}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_BINDIR
                              MUSTER_INSTALL_PROTODIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/muster-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/muster-config.cmake ${CMAKE_BINARY_DIR}/muster-config-version.cmake
        ${CMAKE_SOURCE_DIR}/cmake/muster-generate.cmake DESTINATION ${package_dir})
