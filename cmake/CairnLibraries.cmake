# cairn_add_libraries(SUFFIX HARDENED CORE sources... NAMES sources... SHARED_NAMES sources...)
# builds the sources as four libraries at the top of the build directory:
#   libcairn<SUFFIX>.so, .a         the cairn_ names only
#   libcairn-malloc<SUFFIX>.so, .a  also the names of libc and C++ (the NAMES sources; the shared
#                                   library has the SHARED_NAMES sources, too)
# HARDENED (0 none, 1 light, 2 full) is the value of the compile definition CAIRN_HARDENED.
#
# The CORE sources are compiled once, position independent, for the shared and the static libraries,
# because a static library may be linked into a position independent executable. The NAMES sources
# are compiled for each of the two: see replaceable in src/base/compiler.h.
function(cairn_add_libraries suffix hardened)
  cmake_parse_arguments(arg "" "" "CORE;NAMES;SHARED_NAMES" ${ARGN})
  cairn_add_objects(cairn_core${suffix} ${hardened} ${arg_CORE})
  cairn_add_objects(cairn_names${suffix} ${hardened} ${arg_NAMES})
  cairn_add_objects(cairn_shared_names${suffix} ${hardened} ${arg_NAMES} ${arg_SHARED_NAMES})
  target_compile_definitions(cairn_shared_names${suffix} PRIVATE CAIRN_SHARED)
  cairn_add_library(cairn${suffix} cairn${suffix}
    SHARED cairn_core${suffix} STATIC cairn_core${suffix})
  cairn_add_library(cairn-malloc${suffix} malloc${suffix}
    SHARED cairn_shared_names${suffix} cairn_core${suffix}
    STATIC cairn_names${suffix} cairn_core${suffix})

  # A program may use no function of the heap itself, while its libraries do. It must get the
  # library even if it is linked statically or with --as-needed.
  foreach(target cairn-malloc${suffix} cairn-malloc${suffix}-static)
    target_link_options(${target} INTERFACE LINKER:-u,malloc LINKER:-u,_Znwm)
  endforeach()
endfunction()

# cairn_add_objects(TARGET HARDENED source...): compiles sources of the library.
function(cairn_add_objects target hardened)
  add_library(${target} OBJECT ${ARGN})
  target_link_libraries(${target} PRIVATE cairn_library_flags)
  target_include_directories(${target} PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${target} PUBLIC
    CAIRN_DEBUG=$<BOOL:${CAIRN_DEBUG}> CAIRN_HARDENED=${hardened}
    CAIRN_TEST_DELAYS=$<BOOL:${CAIRN_TEST_DELAYS}>)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# The number of the binary interface, in the soname and in the names of Debian's packages. It is
# incremented when programs that were linked with an earlier version would no longer run.
set(CAIRN_ABI 1)

# cairn_add_library(TARGET EXPORT_NAME SHARED object-library... STATIC object-library...)
# adds the shared library TARGET and the static library TARGET-static, each from its object
# libraries. Their names for users are cairn::EXPORT_NAME and cairn::EXPORT_NAME-static.
function(cairn_add_library target export_name)
  cmake_parse_arguments(arg "" "" "SHARED;STATIC" ${ARGN})
  list(TRANSFORM arg_SHARED REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  list(TRANSFORM arg_STATIC REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")

  add_library(${target} SHARED ${arg_SHARED})
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE C
    VERSION ${CAIRN_ABI}.${PROJECT_VERSION}
    SOVERSION ${CAIRN_ABI})
  cairn_shared_link_options(${target})

  add_library(${target}-static STATIC ${arg_STATIC})
  set_target_properties(${target}-static PROPERTIES LINKER_LANGUAGE C)

  foreach(form "" -static)
    set_target_properties(${target}${form} PROPERTIES
      OUTPUT_NAME ${target}
      EXPORT_NAME ${export_name}${form}
      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
      ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    target_include_directories(${target}${form} INTERFACE
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    add_library(cairn::${export_name}${form} ALIAS ${target}${form})
    set_property(GLOBAL APPEND PROPERTY CAIRN_LIBRARIES ${target}${form})
  endforeach()
endfunction()
