# How the tests are compiled: GoogleTest, the flags of test code, and precompiled headers. Compiling
# them takes most of the time of a check.

# Debian has GoogleTest as libraries for its own architecture, and as sources for all others.
set(CAIRN_GOOGLETEST_SOURCES "" CACHE PATH
  "GoogleTest's sources, where there is no library of it for the machine that is built for")
if(CAIRN_GOOGLETEST_SOURCES)
  set(INSTALL_GTEST OFF)
  add_subdirectory(${CAIRN_GOOGLETEST_SOURCES} ${PROJECT_BINARY_DIR}/googletest
    EXCLUDE_FROM_ALL SYSTEM)
else()
  find_package(GTest REQUIRED)
endif()

# These flags are only for the code of the tests, after all other flags. The objects of the library
# do not get them. Most tests take longer to compile than to run, and -O0 takes two thirds of -O1.
set(CAIRN_TEST_FLAGS "-O0" CACHE STRING "More compiler flags for the code of the tests")
add_library(cairn_test_flags INTERFACE)
separate_arguments(flags UNIX_COMMAND "${CAIRN_TEST_FLAGS}")
target_compile_options(cairn_test_flags INTERFACE ${flags})

# These spend most of their time in loops of their own.
set(CAIRN_OPTIMIZED_TESTS arithmetic block footprint parallel pool_model sequence
  stepped_misuse tlsf_model trace_columns)

# cairn_optimize_loops(file...): compiles those that are named above with -O1, and so without the
# precompiled headers, which have the flags of all others.
function(cairn_optimize_loops)
  foreach(source ${ARGN})
    cmake_path(GET source STEM name)
    string(REGEX REPLACE "_test$" "" name ${name})
    if(name IN_LIST CAIRN_OPTIMIZED_TESTS)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -O1
        SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# A test that an emulator cannot run skips itself and prints the reason. A test that starts a
# program built here starts it with CAIRN_TEST_EMULATOR, which is empty unless the build is for
# another machine.
if(CMAKE_CROSSCOMPILING)
  target_compile_definitions(cairn_test_flags INTERFACE CAIRN_TEST_EMULATED=1
    CAIRN_TEST_EMULATOR="${CMAKE_CROSSCOMPILING_EMULATOR}")
else()
  target_compile_definitions(cairn_test_flags INTERFACE CAIRN_TEST_EMULATED=0
    CAIRN_TEST_EMULATOR="")
endif()

# The headers of GoogleTest and of the C++ library are the larger part of the text of each test.
# ccache does not cache compilations with precompiled headers, unless its option sloppiness allows
# it, and saves more time than precompiled headers do. So with ccache they are off.
set(headers ON)
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
  set(headers OFF)
endif()
option(CAIRN_TEST_HEADERS "Precompile the headers that most tests include" ${headers})

# cairn_precompiled_headers(TARGET OWNER): lets TARGET use the headers that OWNER has precompiled.
# Both must have equal flags.
function(cairn_precompiled_headers target owner)
  if(CAIRN_TEST_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

# cairn_precompile(OWNER LIBRARIES target... HEADERS header...)
# precompiles headers with the flags of the LIBRARIES.
function(cairn_precompile owner)
  cmake_parse_arguments(arg "" "" "LIBRARIES;HEADERS" ${ARGN})
  if(CAIRN_TEST_HEADERS)
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cc CONTENT "")
    add_library(${owner} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cc)
    target_link_libraries(${owner} PRIVATE ${arg_LIBRARIES})
    target_precompile_headers(${owner} PRIVATE ${arg_HEADERS})
  endif()
endfunction()

cairn_precompile(cairn_test_headers
  LIBRARIES cairn_core cairn_flags cairn_test_flags GTest::gtest
  HEADERS <gtest/gtest.h> <algorithm> <atomic> <map> <memory> <random> <set> <string> <thread>
          <vector>)

# Linked by each program of cases.
add_library(cairn_test_main STATIC test_main.cc)
target_link_libraries(cairn_test_main PUBLIC cairn_test_flags GTest::gtest PRIVATE cairn_flags)
