# Runs the port without vcpkg, for dev/prove-languages: the functions of vcpkg that it calls, as far as
# it needs them, and as their documentation has them.
#
# usage: cmake -DOUT=DIRECTORY [-DFEATURES=hardened] -P stand_ins.cmake
cmake_minimum_required(VERSION 3.25)
set(PORT cairn)
set(CURRENT_BUILDTREES_DIR "${OUT}/buildtrees")
set(CURRENT_PACKAGES_DIR "${OUT}/packages")

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()

function(vcpkg_check_features)
  cmake_parse_arguments(arg "" "OUT_FEATURE_OPTIONS" "FEATURES" ${ARGN})
  list(GET arg_FEATURES 0 feature)
  list(GET arg_FEATURES 1 option)
  set(value OFF)
  if(feature IN_LIST FEATURES)
    set(value ON)
  endif()
  set(${arg_OUT_FEATURE_OPTIONS} "-D${option}=${value}" PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(arg "" "SOURCE_PATH" "OPTIONS" ${ARGN})
  foreach(type Release Debug)
    set(prefix "${CURRENT_PACKAGES_DIR}")
    if(type STREQUAL "Debug")
      string(APPEND prefix /debug)
    endif()
    run(${CMAKE_COMMAND} -S "${arg_SOURCE_PATH}" -B "${CURRENT_BUILDTREES_DIR}/${type}" -G Ninja
      -DCMAKE_BUILD_TYPE=${type} -DCMAKE_INSTALL_PREFIX=${prefix} -DCMAKE_INSTALL_LIBDIR=lib
      ${arg_OPTIONS})
  endforeach()
endfunction()

function(vcpkg_cmake_install)
  foreach(type Release Debug)
    run(${CMAKE_COMMAND} --build "${CURRENT_BUILDTREES_DIR}/${type}" --target install)
  endforeach()
endfunction()

# The configuration goes to share/PORT, and with it the targets of the debug build, which lies
# below debug/.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(arg "" "CONFIG_PATH" "" ${ARGN})
  set(share "${CURRENT_PACKAGES_DIR}/share/${PORT}")
  file(MAKE_DIRECTORY "${share}")
  file(GLOB files "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/*"
    "${CURRENT_PACKAGES_DIR}/debug/${arg_CONFIG_PATH}/*-debug.cmake")
  foreach(file ${files})
    file(READ "${file}" text)
    if(file MATCHES "-debug\\.cmake$")
      string(REPLACE "\${_IMPORT_PREFIX}/lib" "\${_IMPORT_PREFIX}/debug/lib" text "${text}")
    elseif(file MATCHES "-targets\\.cmake$")
      # One folder less above it than in lib/cmake/cairn.
      string(REPLACE "get_filename_component(_IMPORT_PREFIX \"\${CMAKE_CURRENT_LIST_FILE}\" PATH)\n"
        "get_filename_component(_IMPORT_PREFIX \"\${CMAKE_CURRENT_LIST_FILE}/..\" ABSOLUTE)\n"
        text "${text}")
      string(REGEX REPLACE "(_IMPORT_PREFIX\\}\" PATH\\)\n)get_filename_component[^\n]*\n" "\\1"
        text "${text}")
    endif()
    cmake_path(GET file FILENAME name)
    file(WRITE "${share}/${name}" "${text}")
  endforeach()
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib/cmake" "${CURRENT_PACKAGES_DIR}/debug/lib/cmake")
endfunction()

# The files find their prefix from where they lie: there is nothing to change.
function(vcpkg_fixup_pkgconfig)
  file(GLOB files "${CURRENT_PACKAGES_DIR}/lib/pkgconfig/*.pc")
  foreach(file ${files})
    file(STRINGS "${file}" prefix REGEX "^prefix=")
    if(NOT prefix MATCHES "pcfiledir")
      message(FATAL_ERROR "${file} holds a path: ${prefix}")
    endif()
  endforeach()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(arg "" "" "FILE_LIST" ${ARGN})
  file(INSTALL ${arg_FILE_LIST} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}"
    RENAME copyright)
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/cairn/portfile.cmake")
