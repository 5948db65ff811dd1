# cmake --install: headers, libraries, the command, a pkg-config file.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/muster DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS muster_static muster_shared ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
