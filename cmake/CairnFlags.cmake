# Compiler and linker flags, in two interface targets:
#   cairn_flags         for all code: warnings, sanitizer, processor
#   cairn_library_flags for the sources of the allocators: cairn_flags, and more

add_library(cairn_flags INTERFACE)

# Signedness is checked in C sources only. In C++, -Wconversion includes it with clang but not with
# gcc.
target_compile_options(cairn_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wpointer-arith -Wcast-align -Wcast-qual
  -Wwrite-strings -Wundef -Wformat=2 -Wvla -Wimplicit-fallthrough
  $<$<COMPILE_LANGUAGE:C>:-Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wold-style-definition>
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual>)
# This is the default in C++14 and later, except with clang before version 19.
target_compile_options(cairn_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsized-deallocation>)
if(CAIRN_WERROR)
  target_compile_options(cairn_flags INTERFACE -Werror)
endif()
if(CAIRN_NATIVE)
  target_compile_options(cairn_flags INTERFACE -march=native)
endif()

# Debug builds are optimised a little, because the tests have long loops.
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")

if(CAIRN_SANITIZER)
  if(NOT CAIRN_SANITIZER MATCHES "^(address|undefined|address,undefined|thread)$")
    message(FATAL_ERROR "CAIRN_SANITIZER is '${CAIRN_SANITIZER}'; it can be address, undefined, "
                        "both as address,undefined, thread or empty.")
  endif()
  target_compile_options(cairn_flags INTERFACE
    -fsanitize=${CAIRN_SANITIZER} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(cairn_flags INTERFACE -fsanitize=${CAIRN_SANITIZER})
endif()

# All code has libFuzzer's coverage. Only the fuzzers are linked with its main.
if(CAIRN_FUZZ)
  target_compile_options(cairn_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(cairn_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# ThreadSanitizer of gcc 12 and clang 14 fails with the address randomisation of newer kernels
# (vm.mmap_rnd_bits above 28), so its tests run without randomisation. Containers may forbid that.
if(CAIRN_SANITIZER STREQUAL "thread")
  execute_process(COMMAND setarch -R true RESULT_VARIABLE refused ERROR_QUIET)
  if(refused EQUAL 0)
    set(CMAKE_CROSSCOMPILING_EMULATOR setarch -R)
  endif()
endif()

add_library(cairn_library_flags INTERFACE)
target_link_libraries(cairn_library_flags INTERFACE cairn_flags)

# -fno-builtin-*: the compiler must not replace malloc and memset by a call of calloc, or remove a
# pair of allocation and free.
#
# initial-exec: one load finds the thread heap, without __tls_get_addr, which may itself call
# malloc. The library needs only a few bytes of static TLS, so it can still be opened with dlopen.
#
# No vectors: no loop is long, and the constants of vector code would be the only ones that a start
# reads, so they would make pages of the library resident (decision 29).
#
# Frame pointers: src/unwind/unwind_walk.c finds the callers of the library by them. The fast paths
# are leaf functions and have none.
target_compile_options(cairn_library_flags INTERFACE
  -fno-omit-frame-pointer -momit-leaf-frame-pointer -fno-tree-vectorize -fno-tree-slp-vectorize
  -fvisibility=hidden -ftls-model=initial-exec -fno-plt -fno-semantic-interposition
  -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free
  -fno-builtin-aligned_alloc -fno-builtin-memalign -fno-builtin-posix_memalign)

# On x86, this option also prevents vector code for the minimum of two integers.
include(CheckCCompilerFlag)
check_c_compiler_flag(-mno-stv CAIRN_HAS_NO_STV)
if(CAIRN_HAS_NO_STV)
  target_compile_options(cairn_library_flags INTERFACE -mno-stv)
endif()

# cairn_shared_link_options(TARGET): sets the link options of a shared library of Cairn.
function(cairn_shared_link_options target)
  target_link_options(${target} PRIVATE
    LINKER:-z,now LINKER:-z,relro LINKER:-z,noexecstack LINKER:--as-needed
    # The end of a thread and fork call functions of the library, so dlclose must not unload it.
    LINKER:-z,nodelete
    # Calls of the library's own exported functions are bound now, so they need no lookup of a
    # symbol at each start. A program can replace only the functions on the list.
    LINKER:-Bsymbolic-functions LINKER:--dynamic-list=${PROJECT_SOURCE_DIR}/src/front/replaceable.list)
  # The executable has the runtime of a sanitizer, so its symbols are undefined here.
  if(NOT CAIRN_SANITIZER)
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  set(map ${PROJECT_SOURCE_DIR}/src/front/cairn.map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${map})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS
    ${map} ${PROJECT_SOURCE_DIR}/src/front/replaceable.list)
endfunction()
