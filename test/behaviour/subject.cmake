# Tests of a whole process: the programs know nothing of Cairn and meet it only as their malloc.
#
# A program is run against one or more subjects:
#   PRELOAD  unchanged, with libcairn-malloc.so in LD_PRELOAD
#   STATIC   the same objects, linked with libcairn-malloc.a
#   HARDENED unchanged, with the two hardened libraries where they are built;
#            CAIRN_TEST_HARDENED says full or light
#   SYSTEM   unchanged, with the system's malloc: shows that what we expect is what the libc does
#
# Sanitizer builds have none of these tests: there malloc is the sanitizer's, and its runtime takes
# signals, address space and threads' ends for itself.
#
# CAIRN_TEST_PRELOAD may name any other malloc library, to see which tests another allocator fails.

set(CAIRN_SUBJECT_DIR ${CMAKE_CURRENT_LIST_DIR})
set(CAIRN_TEST_PRELOAD "" CACHE FILEPATH "Malloc library to test instead of our own")
if(CAIRN_TEST_PRELOAD)
  set(CAIRN_SUBJECT_LIBRARY ${CAIRN_TEST_PRELOAD})
elseif(TARGET cairn-malloc)
  set(CAIRN_SUBJECT_LIBRARY $<TARGET_FILE:cairn-malloc>)
else()
  set(CAIRN_SUBJECT_LIBRARY "")
endif()

# Where the plain libraries are built hardened, their tests get the variable that says so.
set(CAIRN_SUBJECT_HARDENED "")
if(NOT CAIRN_TEST_PRELOAD AND NOT CAIRN_HARDENING STREQUAL "off")
  set(CAIRN_SUBJECT_HARDENED ";CAIRN_TEST_HARDENED=${CAIRN_HARDENING}")
endif()

# Options of every program: the compiler must not fold away the calls under test, nor warn about
# deliberate errors.
function(cairn_subject_options target)
  target_link_libraries(${target} PRIVATE cairn_flags cairn_test_flags)
  target_compile_options(${target} PRIVATE -fno-builtin -g1
    -Wno-unused-result -Wno-deprecated-declarations)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE
      -Wno-free-nonheap-object -Wno-use-after-free -Wno-alloc-size-larger-than
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-mismatched-new-delete>)
  endif()
  target_include_directories(${target} PRIVATE ${CAIRN_SUBJECT_DIR})
  target_compile_features(${target} PRIVATE cxx_std_17)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
endfunction()

# Of the programs with GoogleTest, with the options of these programs: the precompiled headers, and
# the main function.
if(CAIRN_TEST_HEADERS AND NOT TARGET cairn_subject_headers)
  cairn_precompile(cairn_subject_headers LIBRARIES GTest::gmock GTest::gtest
    HEADERS <gmock/gmock.h> <gtest/gtest.h> <atomic> <string> <thread> <vector>)
  cairn_subject_options(cairn_subject_headers)
endif()
if(NOT TARGET cairn_subject_main)
  add_library(cairn_subject_main STATIC ${CAIRN_SUBJECT_DIR}/subject_main.cc)
  cairn_subject_options(cairn_subject_main)
  target_link_libraries(cairn_subject_main PUBLIC GTest::gmock GTest::gtest)
  cairn_precompiled_headers(cairn_subject_main cairn_subject_headers)
endif()

# Registers a test. Every program has its own guard against hanging, and ctest's limit is an
# additional one. An emulator runs on this machine and passes the environment on to the program.
function(cairn_subject_register test label environment)
  if(CMAKE_CROSSCOMPILING AND environment)
    list(JOIN environment "," environment)
    set(environment "QEMU_SET_ENV=${environment}")
  endif()
  set_tests_properties(${test} PROPERTIES
    LABELS ${label} TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
endfunction()

# cairn_subject_test(<name> LABEL <label> SOURCES <file>... [SUBJECTS PRELOAD STATIC HARDENED SYSTEM]
#                    [SYSTEM_FILTER <gtest filter>] [ARGUMENTS <argument>...] [PLAIN])
# SYSTEM_FILTER names the expectations that the system's malloc meets. PLAIN programs have a main
# of their own and no GoogleTest.
function(cairn_subject_test name)
  cmake_parse_arguments(ARG "PLAIN" "LABEL;SYSTEM_FILTER" "SOURCES;SUBJECTS;ARGUMENTS" ${ARGN})
  if(NOT ARG_SYSTEM_FILTER)
    set(ARG_SYSTEM_FILTER "*")
  endif()
  set(runtime "")
  if(NOT ARG_PLAIN)
    set(runtime cairn_subject_main)
  endif()

  add_executable(${name} ${ARG_SOURCES})
  cairn_subject_options(${name})
  cairn_optimize_loops(${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${runtime})
  cairn_needs(${ARG_LABEL} ${name})
  if(NOT ARG_PLAIN)
    cairn_precompiled_headers(${name} cairn_subject_headers)
  endif()

  if(PRELOAD IN_LIST ARG_SUBJECTS AND CAIRN_SUBJECT_LIBRARY)
    if(TARGET cairn-malloc)
      cairn_needs(${ARG_LABEL} cairn-malloc)
    endif()
    add_test(NAME ${ARG_LABEL}.${name}.preload COMMAND ${name} ${ARG_ARGUMENTS})
    cairn_subject_register(${ARG_LABEL}.${name}.preload ${ARG_LABEL}
      "LD_PRELOAD=${CAIRN_SUBJECT_LIBRARY};CAIRN_TEST_SUBJECT=${CAIRN_SUBJECT_LIBRARY}${CAIRN_SUBJECT_HARDENED}")
  endif()
  if(HARDENED IN_LIST ARG_SUBJECTS)
    foreach(pair "full;cairn-malloc-hardened" "light;cairn-malloc-hardened-light")
      list(GET pair 0 level)
      list(GET pair 1 library)
      if(TARGET ${library})
        set(test ${ARG_LABEL}.${name}.hardened_${level})
        set(preload LD_PRELOAD=$<TARGET_FILE:${library}>
                    CAIRN_TEST_SUBJECT=$<TARGET_FILE:${library}>)
        add_test(NAME ${test} COMMAND ${name} ${ARG_ARGUMENTS})
        cairn_needs(${ARG_LABEL} ${library})
        cairn_subject_register(${test} ${ARG_LABEL}
          "${preload};CAIRN_TEST_HARDENED=${level}")
      endif()
    endforeach()
  endif()
  if(SYSTEM IN_LIST ARG_SUBJECTS)
    add_test(NAME ${ARG_LABEL}.${name}.system COMMAND ${name} ${ARG_ARGUMENTS})
    cairn_subject_register(${ARG_LABEL}.${name}.system ${ARG_LABEL}
      "CAIRN_TEST_SUBJECT=system;GTEST_FILTER=${ARG_SYSTEM_FILTER}")
  endif()
  if(STATIC IN_LIST ARG_SUBJECTS AND TARGET cairn-malloc-static)
    add_executable(${name}_static $<TARGET_OBJECTS:${name}>)
    set(language C)
    if(ARG_SOURCES MATCHES "\\.cc(;|$)")
      set(language CXX)
    endif()
    set_target_properties(${name}_static PROPERTIES LINKER_LANGUAGE ${language})
    target_link_libraries(${name}_static PRIVATE cairn-malloc-static cairn_flags ${runtime}
      Threads::Threads ${CMAKE_DL_LIBS})
    cairn_needs(${ARG_LABEL} ${name}_static)
    add_test(NAME ${ARG_LABEL}.${name}.static COMMAND ${name}_static ${ARG_ARGUMENTS})
    cairn_subject_register(${ARG_LABEL}.${name}.static ${ARG_LABEL}
      "CAIRN_TEST_SUBJECT=self${CAIRN_SUBJECT_HARDENED}")
  endif()
endfunction()
