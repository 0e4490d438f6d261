# Install rules: headers, libraries, the CMake package (cairn::cairn and cairn::malloc, also with
# -static), pkg-config files, and the documents for users. The documents keep the folders of the
# sources, so that docs/NAME.md in a header is found below share/doc/cairn.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY CAIRN_LIBRARIES)
install(TARGETS ${libraries} EXPORT cairn)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ TYPE INCLUDE)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md TYPE DOC)
file(GLOB documents CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
list(FILTER documents EXCLUDE REGEX "/index\\.md$")
install(FILES ${documents} DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/reference ${PROJECT_SOURCE_DIR}/docs/pictures
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(FILES ${PROJECT_SOURCE_DIR}/docs/dev/COMPATIBILITY.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs/dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples TYPE DOC)
# The check of the convention of cairn/scope.h.
install(PROGRAMS ${PROJECT_SOURCE_DIR}/dev/check_t_scope.py
  DESTINATION ${CMAKE_INSTALL_DATADIR}/cairn)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
install(EXPORT cairn NAMESPACE cairn:: FILE cairn-targets.cmake DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/cairn-config-version.cmake
  COMPATIBILITY SameMajorVersion)
configure_file(${CMAKE_CURRENT_LIST_DIR}/cairn-config.cmake
  ${PROJECT_BINARY_DIR}/package/cairn-config.cmake COPYONLY)
install(FILES
  ${PROJECT_BINARY_DIR}/package/cairn-config.cmake
  ${PROJECT_BINARY_DIR}/package/cairn-config-version.cmake
  DESTINATION ${package_dir})

# The .pc files compute their prefix from their own place, so an installed tree can be moved.
file(RELATIVE_PATH pc_prefix
  /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
foreach(pc cairn cairn-malloc)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${pc}.pc.in ${PROJECT_BINARY_DIR}/package/${pc}.pc
    @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/package/${pc}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
