# Cairn's port, as an overlay port: docs/INSTALL.md. The sources are those of the tree that the
# port lies in.
cmake_path(SET root NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../..")
if(NOT EXISTS "${root}/include/cairn/api.h")
  message(FATAL_ERROR "The port lies in packaging/vcpkg of Cairn's source tree; ${root} is none.")
endif()
set(SOURCE_PATH "${CURRENT_BUILDTREES_DIR}/src")
file(REMOVE_RECURSE "${SOURCE_PATH}")
foreach(part CMakeLists.txt LICENSE CHANGELOG.md cmake dev docs examples include src tools)
  file(COPY "${root}/${part}" DESTINATION "${SOURCE_PATH}")
endforeach()

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES hardened CAIRN_HARDENED_LIBRARIES)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS
  -DCAIRN_TESTS=OFF -DCAIRN_EXAMPLES=OFF -DCAIRN_BENCH=OFF -DCAIRN_WERROR=OFF -DCAIRN_INSTALL=ON
  ${FEATURE_OPTIONS})
vcpkg_cmake_install()

# The command `cairn` and the manual are packages of their own; here are libraries and headers.
foreach(part bin libexec share debug/bin debug/libexec debug/share debug/include)
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/${part}")
endforeach()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/cairn)
vcpkg_fixup_pkgconfig()
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
