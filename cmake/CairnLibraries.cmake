# cairn_add_libraries(SUFFIX HARDENED CORE sources... NAMES sources...)
#
# One build of the sources as four libraries, which lie at the top of the build directory:
#   libcairn<SUFFIX>.so, .a         the cairn_ names only
#   libcairn-malloc<SUFFIX>.so, .a  also the names of libc and C++ (the NAMES sources)
# HARDENED, 0 none, 1 light or 2 full, is the value of the compile definition CAIRN_HARDENED.
#
# The sources are compiled once, position independent, for the shared and the static form: a
# static library has to fit into a position independent executable too.
function(cairn_add_libraries suffix hardened)
  cmake_parse_arguments(arg "" "" "CORE;NAMES" ${ARGN})
  cairn_add_objects(cairn_core${suffix} ${hardened} ${arg_CORE})
  cairn_add_objects(cairn_names${suffix} ${hardened} ${arg_NAMES})
  cairn_add_library(cairn${suffix} cairn${suffix} cairn_core${suffix})
  cairn_add_library(cairn-malloc${suffix} malloc${suffix}
                    cairn_names${suffix} cairn_core${suffix})

  # A program that names no function of the heap itself, only its libraries do, must still get
  # the library where it is linked statically or with --as-needed.
  foreach(target cairn-malloc${suffix} cairn-malloc${suffix}-static)
    target_link_options(${target} INTERFACE LINKER:-u,malloc LINKER:-u,_Znwm)
  endforeach()
endfunction()

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

# The number of the binary interface, which is that of the soname and of Debian's packages. It is
# raised when programs that were linked before would not run any more.
set(CAIRN_ABI 1)

# The shared library TARGET and the static one TARGET-static from object libraries, known to
# users as cairn::EXPORT_NAME and cairn::EXPORT_NAME-static.
function(cairn_add_library target export_name)
  set(objects)
  foreach(part ${ARGN})
    list(APPEND objects $<TARGET_OBJECTS:${part}>)
  endforeach()

  add_library(${target} SHARED ${objects})
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE C
    VERSION ${CAIRN_ABI}.${PROJECT_VERSION}
    SOVERSION ${CAIRN_ABI})
  cairn_shared_link_options(${target})

  add_library(${target}-static STATIC ${objects})
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
